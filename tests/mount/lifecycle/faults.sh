#!/usr/bin/env bash
# A mount's answers when other nodes are silent; how it ends, is handed over and comes back.
. tests/lib/cluster.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
keeper() { pgrep -f -- "^rampfs -o .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
has_sum() { [ "$(sha256sum <"$1")" = "$2" ]; }
is() { [ "$(xattr "$1" "$2")" = "$3" ]; }
reads() { [ "$(cat "$1")" = "$2" ]; }
quietly() { "$@" 2>/dev/null; }
ended() { ! pgrep -f -- "rampfs .*$mnt/$1\$" >/dev/null; }
# refused_in FROM TO TEXT COMMAND...: the command must fail with this text within FROM to TO seconds.
refused_in() {
	local from=$1 to=$2 since=${EPOCHREALTIME/./} took_ms
	shift 2
	refused "$@"
	took_ms=$(((${EPOCHREALTIME/./} - since) / 1000))
	[ $took_ms -ge $((from * 1000)) ] && [ $took_ms -le $((to * 1000)) ] || fail "took $took_ms ms, not $from to $to s: $*"
}
cluster_start -n 3 -c 512M

echo "a source that is silent: a read of its pages is EHOSTDOWN after 5 s, and works when it is back"
head -c 300M /dev/urandom >"$mnt/a/a/pulled"
sum=$(sha256sum <"$mnt/a/a/pulled")
source=$(daemon a)
mv "$mnt/b/a/pulled" "$mnt/b/b/pulled" && kill -STOP "$source"
if [ "$(xattr "$mnt/b/b/pulled" resident_bytes)" = 314572800 ]; then
	echo "(it was pulled before the source could be stopped)"
else
	refused_in 0 3 "" timeout -s INT 1 sha256sum "$mnt/b/b/pulled" # it hears signals
	refused_in 2 9 "Host is down" sha256sum "$mnt/b/b/pulled"
	ls "$mnt/b/b" >/dev/null # the mount continues
fi
kill -CONT "$(daemon a)"
within 10 quietly has_sum "$mnt/b/b/pulled" "$sum"
within 10 is "$mnt/b/b/pulled" state stable

echo "signals while a read waits for its page: one with a handler does not interrupt it, one that ends the program does"
head -c 8M "$mnt/b/b/pulled" >"$mnt/a/a/waited"
rampfs-migrate --mode demand "$mnt/a/a/waited" b
kill -STOP "$(daemon a)"
perl -e '$SIG{ALRM} = sub { $rang++ }; open(F, "<", shift) or die "open: $!"; alarm 1;
	defined(sysread(F, $got, 4096, 0)) or die "read: $!"; print length($got), " bytes, rang $rang";' \
	"$mnt/b/b/waited" >"$scratch/rang" &
reader=$!
sleep 2
kill -CONT "$(daemon a)"
wait $reader || fail "the read was interrupted"
same "4096 bytes, rang 1" "$(cat "$scratch/rang")" "the reader's line"
kill -STOP "$(daemon a)"
status=0
timeout -s TERM 1 dd if="$mnt/b/b/waited" of=/dev/null bs=4096 skip=1500 count=1 status=none 2>"$scratch/said" || status=$?
same "124, " "$status, $(cat "$scratch/said")" "a read that SIGTERM ends"
kill -CONT "$(daemon a)"
within 10 has_sum "$mnt/b/b/waited" "$(head -c 8M "$mnt/b/b/pulled" | sha256sum)"

echo "no quorum: a change of metadata is EROFS after 5 s; reads and writes continue at full speed"
echo before >"$mnt/a/a/own"
kill -STOP "$(daemon b)" "$(daemon c)"
sleep 1.5 # the leader hears no quorum for an election time-out
refused_in 0 9 "" touch "$mnt/a/a/new"
refused_in 0 9 "Read-only file system" touch "$mnt/a/a/new2"
echo after >"$mnt/a/a/own"
same after "$(cat "$mnt/a/a/own")" "a file of its own"
grep -q '^quorum: no' "$mnt/a/.ramp/status" || fail "status shows a quorum"
kill -CONT "$(daemon b)" "$(daemon c)"
within 10 quietly touch "$mnt/a/a/new3"
within 10 test -e "$mnt/b/a/new3"

echo "a quorum that is lost under a change: ETIMEDOUT after 5 s, and on every node it is done, or on none"
# One after the other: the last one is proposed before the others fall silent, or so soon after that they are not missed
# yet.
python3 - "$mnt/a/a" >"$scratch/said" <<'P' &
import errno, itertools, os, sys, time
for i in itertools.count():
    begin = time.monotonic()
    try:
        os.close(os.open("%s/made%d" % (sys.argv[1], i), os.O_CREAT | os.O_EXCL))
    except OSError as e:
        print(errno.errorcode[e.errno], round(time.monotonic() - begin), "made%d" % i)
        break
P
maker=$!
within 5 test -e "$mnt/a/a/made9"
kill -STOP "$(daemon b)" "$(daemon c)"
wait $maker
kill -CONT "$(daemon b)" "$(daemon c)"
read -r code took last <"$scratch/said"
same ETIMEDOUT "$code" "the change whose quorum was lost"
[ "$took" -ge 5 ] && [ "$took" -le 20 ] || fail "it took $took s, not 5"
within 10 quietly touch "$mnt/a/a/after"
within 10 test -e "$mnt/b/a/after"
there() { [ -e "$mnt/$1/a/$last" ] && echo yes || echo no; }
same "$(there a)" "$(there b)" "$last at b"
rm "$mnt/a/a"/made* "$mnt/a/a/after"

echo "an owner that is silent: a third node's mv is EINPROGRESS after 5 s, and then it is done, or not, never both"
head -c 3M /dev/urandom >"$mnt/a/a/asked"
sum=$(sha256sum <"$mnt/a/a/asked")
kill -STOP "$(daemon a)"
refused_in 4 20 "Operation now in progress" mv "$mnt/c/a/asked" "$mnt/c/b/asked"
kill -CONT "$(daemon a)"
sleep 6 # it begins a request within 5 s, or never
comes_to_rest() {
	at=""
	for n in a b; do [ ! -e "$mnt/c/$n/asked" ] || at=$at$n; done
	[ ${#at} = 1 ] && is "$mnt/$at/$at/asked" state stable
}
within 10 quietly comes_to_rest
echo "(it is at $at)"
for n in a b c; do same "$mnt/$n/$at/asked" "$(echo "$mnt/$n"/?/asked)" "where it is, as $n sees it"; done
same "$sum" "$(sha256sum <"$mnt/$at/$at/asked")" "its bytes"
rm "$mnt/a/$at/asked"

echo "a full store: ENOSPC at the write, and room again after an unlink"
refused "No space left" dd if=/dev/zero of="$mnt/c/c/big" bs=1M count=600
[ "$(stat -c %s "$mnt/c/c/big")" -gt $((400 << 20)) ] || fail "it was full too early"
echo x >"$mnt/a/a/small"
rm "$mnt/c/c/big"
within 5 quietly dd if=/dev/zero of="$mnt/c/c/again" bs=1M count=300 status=none

echo "no descriptor for a new segment's file: the error, and no name"
hard=$(awk '/^Max open files/ { print $5 }' "/proc/$(daemon a)/limits")
prlimit --pid "$(daemon a)" --nofile="0:$hard"
refused "Too many open files" python3 -c 'import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY)' "$mnt/a/a/made"
prlimit --pid "$(daemon a)" --nofile="$hard:$hard"
not_there() { [ ! -e "$mnt/a/a/made" ] && [ ! -e "$mnt/b/a/made" ]; }
within 5 not_there
# While the name is taken away, no other user gets a file by it, which would go with it.
python3 - "$(daemon a)" "$mnt/a/a" <<'P'
import os, resource, sys, time
pid, at = int(sys.argv[1]), sys.argv[2]
hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
written = []
for i in range(100):
    name = "%s/made%d" % (at, i)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, hard))
    try:
        os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        sys.exit("made without a descriptor")
    except OSError:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with open(name, "r+b") as f:
            f.write(b"mine")
        written.append(name)
    except FileNotFoundError:
        pass
time.sleep(1)
lost = [name for name in written if not os.path.exists(name)]
sys.exit("%d files that were written are lost" % len(lost) if lost else 0)
P

echo "an interrupted mv to a silent node gives the segment back"
kill -STOP "$(daemon c)"
timeout -s INT 1 mv "$mnt/a/a/own" "$mnt/a/c/own" && fail "moved to a stopped node"
same after "$(cat "$mnt/a/a/own")" "after the interrupt"
refused_in 0 20 "No route to host" mv "$mnt/a/a/own" "$mnt/a/c/own"
same after "$(cat "$mnt/a/a/own")" "after EHOSTUNREACH"
kill -CONT "$(daemon c)"
within 10 quietly mv "$mnt/a/a/own" "$mnt/a/c/own"
within 5 quietly reads "$mnt/c/c/own" after

echo "an upgrade: SIGHUP to the keeper, another daemon, open files continue to work"
exec 7<>"$mnt/a/a/open"
echo one >&7
was=$(daemon a)
kill -HUP "$(keeper a)"
within 10 another_daemon a "$was"
echo two >&7
exec 7>&-
same "one two" "$(tr '\n' ' ' <"$mnt/a/a/open" | sed 's/ $//')" "a file open across an upgrade"

echo "a second start on one state directory is refused; the first continues"
refused "" rampfs "$state/a" "$mnt/a"
same one "$(head -n 1 "$mnt/a/a/open")" "after the second start"

echo "SIGTERM to the keeper ends both and unmounts; the store stays"
kill -TERM "$(keeper a)"
within 20 ended a
mountpoint -q "$mnt/a" && fail "still mounted"
rampfs "$state/a" "$mnt/a"
within 10 grep -q '^quorum: yes' "$mnt/a/.ramp/status"
same one "$(head -n 1 "$mnt/a/a/open")" "after a new start"

echo "also if its directories have unusual names"
odd=$scratch/$'#\\043 \t\n1'
mkdir -p "$odd/mnt" && chmod 755 "$odd"
printf '[cluster]\nname=odd\n[node odd]\naddress=127.0.0.1:%s\ncapacity=16M\n' $((20000 + RANDOM % 10000)) >"$odd/conf"
mkfs.rampfs --config "$odd/conf" --node odd "$odd/state" >/dev/null
rampfs -o log="$odd/log" "$odd/state" "$odd/mnt"
kill -TERM "$(cat "$odd/state/lock")"
within 20 flock -n "$odd/state/lock" true
mountpoint -q "$odd/mnt" && fail "still mounted"
stat "$odd/mnt" >/dev/null || fail "a dead mount was left"
rampfs --destroy "$odd/state"

echo "umount ends it too"
printf 'three\n' >>"$mnt/a/a/open" # and its last sizes are known
umount "$mnt/a"
within 20 ended a
[ "$(stat -c %s "$mnt/b/a/open")" = 14 ] || fail "another node shows $(stat -c %s "$mnt/b/a/open") bytes"
cluster_stop
