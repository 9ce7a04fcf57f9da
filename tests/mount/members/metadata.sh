#!/usr/bin/env bash
# The metadata on real daemons: all are killed at once; one is far behind; one has a disk that is full, fails, or is read-only.
. tests/lib/cluster.sh
export LC_ALL=C
cluster=$scratch/cluster
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
says() { grep -qE "$2" "$1"; }
listed() { [ "$(find "$mnt/$1/$2" -type f 2>/dev/null | wc -l)" = "$3" ]; }
quorum() { says "$mnt/$1/.ramp/status" '^quorum: *yes'; }
up() { grep -q "^$2 .* up" "$mnt/$1/.ramp/nodes" 2>/dev/null; }
small_disk=""
down() {
	local status=$?
	set +e
	exec 4<&-
	if [ -n "$small_disk" ]; then
		umount "$mnt/c"
		flock -w 20 "$state/c/lock" true
		rampfs --destroy --force "$state/c"
		umount "$state/c"
	fi
	cluster_cleanup $status
}
trap down EXIT
cluster_start -n 3 -c 64M

echo "all daemons are killed at once: every acknowledged change is there"
for i in {1..50}; do touch "$mnt/a/a/f$i"; done
old=$(daemon a)
# shellcheck disable=SC2046 # pids are words
kill -9 $(daemon a) $(daemon b) $(daemon c)
for n in a b c; do within 20 quorum $n; done
[ "$(daemon a)" != "$old" ] || fail "a's daemon was not killed"
for n in a b c; do within 10 listed $n a 50; done
within 10 touch "$mnt/c/c/goes-on" 2>/dev/null

echo "a daemon's last hint of a file's times, committed after its end, does not undo later changes"
leads() { sed -n 's/^leader: //p' "$mnt/b/.ramp/status"; }
owner=$(leads | tr abc bca) # its hint is then on its way to the leader, which is stopped
others=$(echo abc | tr -d "$owner" | fold -w 1)
f=$mnt/$owner/$owner/times
echo bytes >"$f"
sleep 1
# shellcheck disable=SC2046 # pids are words
kill -STOP $(for n in $others; do daemon "$n"; done)
touch -d @1000000000 "$f"
sleep 0.7 # attr_sync proposes it
old=$(daemon "$owner")
kill -9 "$old"
touch -d @1500000000 "$f" # by the next daemon
# shellcheck disable=SC2046
kill -CONT $(for n in $others; do daemon "$n"; done)
for n in $others; do within 20 eval "[ \"\$(stat -c %Y '$mnt/$n/$owner/times')\" = 1500000000 ]"; done
same 1500000000 "$(stat -c %Y "$f")" "the time that was set last"
# Another node's touch still counts.
touch -d @0 "$mnt/$(leads)/$owner/times"
within 5 eval "[ \"\$(stat -c %Y '$f')\" = 0 ]"
rm "$f"

echo "another node's touch counts also if this node's tables have it before its daemon looks"
echo bytes >"$mnt/c/c/dated"
seen() { [ "$(stat -c %s "$mnt/a/c/dated" 2>/dev/null)" = 6 ]; }
within 5 seen
sleep 0.5 # until the hint's answer
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
touch -d @1300000000 "$mnt/a/c/dated"
# As if the log entry had come between the daemon's start and its first look.
python3 - "$state/c/journal.db" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE segment SET mtime = 1300000000, mtime_ns = 0, atime = 1300000000, atime_ns = 0 WHERE name = 'dated'")
db.commit()
P
rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
within 20 quorum c
within 5 eval "[ \"\$(stat -c %Y '$mnt/c/c/dated')\" = 1300000000 ]"
sleep 1 # for a hint
same 1300000000 "$(stat -c %Y "$mnt/a/c/dated")" "the time that a set"
rm "$mnt/a/c/dated"

echo "and also if it comes with the row that brings the segment"
leader=$(leads)
target=$(echo "$leader" | tr abc bca)
python3 - "$mnt" "$leader" "$target" "$(daemon "$target")" <<'P'
import os, signal, sys, threading, time
mnt, leader, target, pid = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
(source,) = set("abc") - {leader, target}
names = [f"come{i}" for i in range(20)]
for n in names:
    with open(f"{mnt}/{source}/{source}/{n}", "wb") as f: f.write(b"x" * 65536)
time.sleep(1) # for the hints
def touch(path):
    while not os.path.exists(path): pass
    os.kill(pid, signal.SIGSTOP) # mostly before it has heard of it: the leader knows it first
    os.utime(path, (1000, 1000))
    os.kill(pid, signal.SIGCONT)
for n in names:
    t = threading.Thread(target=touch, args=(f"{mnt}/{leader}/{target}/{n}",))
    t.start()
    os.rename(f"{mnt}/{source}/{source}/{n}", f"{mnt}/{source}/{target}/{n}")
    t.join()
time.sleep(1.2)
for n in names:
    for node in target, leader:
        s = os.stat(f"{mnt}/{node}/{target}/{n}")
        assert (s.st_atime, s.st_mtime) == (1000, 1000), (n, node, s)
    os.unlink(f"{mnt}/{leader}/{target}/{n}")
P

echo "a leader names its successor before it ends"
last=$(leads)
log=$cluster/$last.log
kill -TERM "$(cat "$state/$last/lock")"
within 15 flock -n "$state/$last/lock" true
sed -n '/told to end/,$p' "$log" | grep -q 'leads in term' || fail "$last has ended without a successor"
rampfs -o "log=$log" "$state/$last" "$mnt/$last"
for n in a b c; do within 20 quorum $n; done

echo "a node that is far behind takes a snapshot, and looks at all its segments"
head -c 4M /dev/zero >"$mnt/c/c/unlinked"
touch "$mnt/c/c/dated"
unlinked=$state/c/store/$(xattr "$mnt/c/c/unlinked" id)
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
rm "$mnt/a/c/unlinked"
touch -d @1400000000 "$mnt/a/c/dated"
python3 - "$mnt/a/a" <<'P'
import os, sys, threading
def churn(i):
    for n in range(1200): # more than the log keeps, all together
        os.chmod(f"{sys.argv[1]}/f{i + 1}", 0o600 + n % 64)
threads = [threading.Thread(target=churn, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
P
touch "$mnt/a/a/f51"
mv "$cluster/c.log" "$scratch/c1.log"
rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
within 20 listed c a 51
says "$cluster/c.log" "took a snapshot of entry" || fail "no snapshot was taken"
same "$(stat -c '%a %n' "$mnt/a/a/f1" | cut -d' ' -f1)" "$(stat -c %a "$mnt/c/a/f1")" "the mode that c shows"
within 10 eval "[ ! -e '$unlinked' ]"
within 5 eval "[ \"\$(stat -c %Y '$mnt/c/c/dated')\" = 1400000000 ]"
sleep 1 # for a hint
same 1400000000 "$(stat -c %Y "$mnt/a/c/dated")" "the time that a set"

echo "a journal without room: its node stops with a clear line, the others continue, and it comes back"
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
within 10 rampfs --destroy --force "$state/c"
cp -a "$state/c" "$scratch/c"
mount -t tmpfs -o size=16M rampfs-test-small "$state/c"
small_disk=yes
cp -a "$scratch/c/." "$state/c/"
mv "$cluster/c.log" "$scratch/c2.log"
# The library comes before AddressSanitizer's.
BAD_DISK=$scratch/bad_disk BAD_DISK_BELOW=$state/c LD_PRELOAD=$build/tests/libbad_disk.so \
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 \
	rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
within 20 listed c a 51
echo owned >"$mnt/c/c/owned"
cat >"$scratch/forks.py" <<'P'
import mmap, os, sys, time
with open(sys.argv[1], "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
n, since = m[0], time.monotonic()
pid = os.fork()
if pid == 0:
    m[4096] = (n + 1) % 256
    os._exit(m[0] != n)
took = time.monotonic() - since
assert os.waitpid(pid, 0)[1] == 0 and m[4096] == (n + 1) % 256
assert took < 4, f"fork took {took} s"
m[0] = (n + 1) % 256
print("forked", file=sys.stdout)
P
truncate -s 4M "$mnt/c/c/mapped"
forks() { timeout -k 1 15 rampfs-run python3 "$scratch/forks.py" "$mnt/c/c/mapped"; }
same forked "$(forks)" "a program that maps"
head -c 8M /dev/urandom >"$mnt/c/c/given"
given=$(sha256sum <"$mnt/c/c/given")
rampfs-migrate --mode demand "$mnt/c/c/given" a # its pages stay at c
dd if=/dev/zero of="$state/c/filler" bs=64k status=none 2>/dev/null || true
python3 - "$mnt/a/a" <<'P'
import os, sys
for n in range(1500): # a WAL takes some pages before it grows
    os.chmod(f"{sys.argv[1]}/f1", 0o600 + n % 64)
P
within 20 says "$cluster/c.log" "journal.*(full|can't be written|disk I/O)"
touch "$mnt/a/a/f52"
within 5 listed b a 53 # with what has moved there

echo "meanwhile what that node owns continues by its records, and nothing hangs"
in_time() { timeout -k 1 15 "$@"; }
without() { in_time grep -q '^metadata: none.*'"${2-}" "$mnt/$1/.ramp/status" 2>/dev/null; }
owned_goes_on() {
	same owned "$(in_time head -n 1 "$mnt/c/c/owned")" "what c owns"
	echo more | in_time tee -a "$mnt/c/c/owned" >/dev/null
	same more "$(in_time tail -n 1 "$mnt/c/c/owned")" "what was appended"
	in_time df "$mnt/c" >/dev/null
	in_time ls "$mnt/c/c" | grep -q '^owned$' || fail "c lists no names"
	in_time rampfs-status "$mnt/c" | grep -q '^metadata: none' || fail "rampfs-status does not say it"
	refused "Read-only file system" in_time touch "$mnt/c/c/new"
	same forked "$(forks)" "a program that maps what c owns, and forks"
}
within 20 without c "journal"
owned_goes_on
says "$cluster/c.log" 'no metadata: .*journal' || fail "the log does not say it"
same "$given" "$(in_time sha256sum <"$mnt/a/a/given")" "what a pulls from c"
rm "$state/c/filler"
within 60 listed c a 53
within 20 up a c
within 10 rm "$mnt/c/a/f52" 2>/dev/null
within 5 listed b a 52
! without c || fail "c has not come back"
says "$cluster/c.log" "can be written again" || fail "c did not look at its disk"

for code in EIO:5 EROFS:30; do
	echo "a disk that fails (${code%:*}): the same"
	echo "${code#*:}" >"$scratch/bad_disk"
	chmod 601 "$mnt/a/a/f1"
	within 20 without c "disk I/O error"
	owned_goes_on
	touch "$mnt/a/a/meanwhile"
	rm "$scratch/bad_disk"
	within 60 listed c a 53
	within 20 up a c
	! without c || fail "c has not come back"
	within 10 rm "$mnt/c/a/meanwhile" 2>/dev/null
done

echo "a journal that is gone or damaged is never made again: the node serves by its records"
keeper=$(cat "$state/c/lock")
# journal FUNCTION: changes it while no daemon of c lives.
journal() {
	kill -STOP "$keeper"
	kill -9 "$(daemon c)"
	"$@"
	kill -CONT "$keeper"
}
saved=$scratch/saved
save() { rm -rf "$saved" && mkdir "$saved" && cp "$state"/c/journal.db* "$saved/"; }
away() { save && rm "$state"/c/journal.db*; }
damage() { save && dd if=/dev/urandom of="$state/c/journal.db" bs=4k count=16 seek=2 conv=notrunc status=none; }
intact() {
	rm -f "$state"/c/journal.db-*
	[ ! -e "$saved/journal.db-wal" ] || cp "$saved/journal.db-wal" "$state/c/"
	cp "$saved/journal.db" "$state/c/new" && mv "$state/c/new" "$state/c/journal.db"
}
head -c 4M /dev/urandom >"$mnt/c/c/whole"
chmod 640 "$mnt/c/c/whole"
mv "$mnt/c/c/whole" "$mnt/c/c/renamed"
whole=$(sha256sum <"$mnt/c/c/renamed")
head -c 8M /dev/urandom >"$mnt/c/c/left"
left=$(sha256sum <"$mnt/c/c/left")
rampfs-migrate --mode demand "$mnt/c/c/left" a # its pages stay at c
exec 4<"$mnt/c/c/owned"
touch "$mnt/c/c/unnamed" && rm "$mnt/c/c/unnamed"
for change in away damage; do
	echo fresh >"$mnt/c/c/fresh" # known by its record alone a moment later
	journal $change
	within 20 without c "needs --rejoin, or its journal back"
	owned_goes_on
	same "$whole" "$(in_time sha256sum <"$mnt/c/c/renamed")" "what was renamed"
	same fresh "$(in_time cat "$mnt/c/c/fresh")" "what was made just before"
	same 640 "$(in_time stat -c %a "$mnt/c/c/renamed")" "its mode"
	[ ! -e "$mnt/c/c/unnamed" ] || fail "an unlinked name is back"
	same more "$(in_time tail -n 1 <&4)" "what is read by the file that was open all the time"
	refused "Read-only file system" in_time mv "$mnt/c/c/renamed" "$mnt/c/c/other"
	[ $change = damage ] || [ ! -e "$state/c/journal.db" ] || fail "the journal was made again"
	# By another restart, too, this state is not left.
	old=$(daemon c)
	kill -9 "$old"
	within 20 without c "needs --rejoin, or its journal back"
	owned_goes_on
	if [ $change = away ]; then
		same "$left" "$(in_time sha256sum <"$mnt/a/a/left")" "what a pulls from c"
		refused "has no metadata" in_time rampfs-migrate "$mnt/a/a/f1" c
	fi
	intact
	within 30 up a c
	within 30 quorum c
	! without c || fail "c has not come back"
	same "$whole" "$(sha256sum <"$mnt/c/c/renamed")" "what was renamed"
	rm "$mnt/c/c/fresh"
done
exec 4<&-

echo "so does a mount after an umount; and what asks for --rejoin can be given up"
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
away
rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
within 20 without c "needs --rejoin, or its journal back"
owned_goes_on
same "$whole" "$(in_time sha256sum <"$mnt/c/c/renamed")" "what was renamed"
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
refused "its store is still mounted" mkfs.rampfs --force --rejoin "$(sed -nE 's/^a [^ ]+ [^ ]+ ([^ ]+) .*/\1/p' "$mnt/a/.ramp/nodes")" \
	--key "$state/b/key" --node c --address 127.0.0.1:1 --capacity 64M "$state/c"
within 10 rampfs --destroy --force "$state/c"
refused "needs --rejoin, or its journal back" rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
intact
rampfs -o "log=$cluster/c.log" "$state/c" "$mnt/c"
within 20 quorum c
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
rampfs --destroy --force "$state/c"
umount "$state/c"
small_disk=""
cluster_stop
echo "metadata: all well"
