#!/usr/bin/env bash
# The log: a line for an event, none for a page; with levels; in a file, and by default in syslog. The name that a user
# gives a segment cannot make a line of it.
. tests/lib/cluster.sh
export LC_ALL=C
quietly() { "$@" 2>/dev/null; }
cluster_start -n 2 -c 128M
same 1 "$(grep -c ' rampfs: info: pages go over TCP: ' "$scratch/cluster/a.log")" "lines that say that there is no RDMA device"
lines() { cat "$scratch/cluster/a.log" "$scratch/cluster/b.log" | grep -vc ' info: meta: '; } # no elections

echo "a segment that moves, with a program that touches each of its pages: some lines, and none for a page"
head -c 16M /dev/urandom >"$mnt/a/a/f"
was=$(lines)
rampfs-migrate --mode demand "$mnt/a/a/f" b
within 10 test -e "$mnt/b/b/f"
rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for i in range(0, len(m), 4096): m[i] = 1' "$mnt/b/b/f"
within 10 eval '[ "$(xattr "$mnt/b/b/f" state)" = stable ]'
[ $(($(lines) - was)) -le 8 ] || fail "$(($(lines) - was)) lines for one move: $(tail -n 12 "$scratch"/cluster/[ab].log)"
grep -qE "^[0-9-]{10} [0-9:.]{12} rampfs: info: segment [0-9]+ 'f' is on node b: window [0-9]+ us" "$scratch/cluster/a.log" ||
	fail "no line says that it went: $(tail -n 5 "$scratch/cluster/a.log")"

echo "a name that looks like a line"
bad=$'x\' is on node b\n2026-01-01 00:00:00.000 rampfs: error: \e[2Jyour memory is gone'
: >"$mnt/a/a/$bad"
rampfs-migrate "$mnt/a/a/$bad" b
grep -q "^2026-01-01\|your memory is gone" "$scratch/cluster/a.log" || fail "the move is not logged"
if grep -q '^2026-01-01' "$scratch"/cluster/[ab].log; then fail "a name has made a line"; fi
if grep -q $'\e' "$scratch"/cluster/[ab].log; then fail "a name speaks to the terminal"; fi

echo "the names of the session sockets are removed: there again, with a line each, and a program notices nothing"
sockets() { # of the cluster's keepers
	local fd
	for fd in /proc/"$(cat "$state/a/lock")"/fd/* /proc/"$(cat "$state/b/lock")"/fd/*; do
		awk -v socket="$(readlink "$fd")" '"socket:[" $7 "]" == socket && $8 ~ "^/run/rampfs/" { print $8 }' /proc/net/unix
	done | sort -u
}
was=$(cat "$state/b/lock")
kill -KILL "$was" # a keeper that took over looks after the name, too
within 10 eval '[ "$(cat "$state/b/lock")" != "$was" ]'
names=$(sockets)
same 2 "$(wc -l <<<"$names")" "session sockets"
cat >"$scratch/waiting.py" <<'P'
import os, signal, socket, sys
daemon, name = int(sys.argv[1]), sys.argv[2]
os.kill(daemon, signal.SIGSTOP)
try:
    waiting = []
    for _ in range(100):
        waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        waiting[-1].connect(name)
        waiting[-1].send(b"\xff" * 8) # of a version that no daemon speaks
    os.unlink(name)
finally:
    os.kill(daemon, signal.SIGCONT)
for one in waiting:
    one.settimeout(60)
    assert b"the daemon speaks version" in one.recv(4096)
P
# The connections that wait at the old socket get their answer. So does a program that looks for the name.
python3 "$scratch/waiting.py" "$(pgrep -f -- "rampfs --daemon .*$mnt/a\$")" "$(grep '/local\.a\.' <<<"$names")"
# shellcheck disable=SC2086
rm -f $names
rmdir /run/rampfs 2>/dev/null || true # where no other cluster is
for node in a b; do
	head -c 64K /dev/urandom >"$mnt/$node/$node/sought"
	rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0] = 1' "$mnt/$node/$node/sought"
	[ "$(grep -c "warning: the session socket /run/rampfs/local\.$node\..* was removed: it is there again" "$scratch/cluster/$node.log")" -le 2 ] ||
		fail "more lines than removals: $(tail -n 5 "$scratch/cluster/$node.log")"
	grep -q "the session socket .* it is there again" "$scratch/cluster/$node.log" || fail "no line of $node's socket"
done
same "666 666" "$(stat -c %a $names | xargs)" "the sockets' modes"
kill -KILL "$(pgrep -f -- "rampfs --daemon .*$mnt/a\$")" # the next daemon has the new socket, too
rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0] = 1' "$mnt/a/a/sought"
cluster_stop

echo "levels, and syslog where nothing else is said (in a mount namespace with a /dev of its own)"
cat >"$scratch/syslog.py" <<'P'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/dev/log")
print("listens", flush=True)
while True:
    print(s.recv(65536).rstrip(b"\0\n").decode(), flush=True)
P
cat >"$scratch/inside.sh" <<'S'
set -eu
# In a chroot whose root is no mount only /dev can be made private.
mount --make-rprivate / 2>/dev/null || mount --make-rprivate /dev
mkdir "$scratch/dev" "$scratch/m"
for d in fuse null zero urandom random userfaultfd; do
	[ ! -e /dev/$d ] || cp -a /dev/$d "$scratch/dev/$d"
done
ln -s /proc/self/fd "$scratch/dev/fd"
mkdir -m 1777 "$scratch/dev/shm"
mount --bind "$scratch/dev" /dev
python3 "$scratch/syslog.py" >>"$scratch/syslog" &
listener=$!
trap 'kill $listener; umount -l "$scratch/m" 2>/dev/null || true' EXIT
for _ in {1..200}; do ! grep -q listens "$scratch/syslog" || break; sleep 0.05; done
for options in loglevel=info loglevel=error "loglevel=debug,log=$scratch/debug.log"; do
	echo "-- $options" >>"$scratch/syslog"
	rampfs -o "$options" "$scratch/one" "$scratch/m"
	for _ in {1..200}; do ! touch "$scratch/m/a/f" 2>/dev/null || break; sleep 0.05; done
	umount "$scratch/m"
	flock -w 20 "$scratch/one/lock" true
done
S
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[cluster]\nname=one\n[node a]\naddress=127.0.0.1:%s\ncapacity=64M\n' "$port" >"$scratch/one.conf"
mkfs.rampfs --config "$scratch/one.conf" --node a "$scratch/one" >/dev/null
export scratch
# Its stderr leads nowhere.
export ASAN_OPTIONS=${ASAN_OPTIONS-}:log_path=$scratch/sanitizer UBSAN_OPTIONS=${UBSAN_OPTIONS-}:log_path=$scratch/sanitizer
: >"$scratch/syslog"
unshare -m --propagation unchanged bash "$scratch/inside.sh" || fail "in the namespace: $(cat "$scratch/syslog")"
rampfs --destroy --force "$scratch/one"
of() { sed -n "/^-- $1/,/^-- /p" "$scratch/syslog" | grep -v '^-- ' || true; }
of loglevel=info | grep -qE '^<30>.* rampfs\[[0-9]+\]: node a of cluster one serves ' || fail "no line of it: $(cat "$scratch/syslog")"
same "" "$(of loglevel=error)" "lines where only errors are wanted"
same "" "$(of loglevel=debug)" "lines in syslog where a file is given"
grep -q ' rampfs: debug: ' "$scratch/debug.log" && grep -q ' rampfs: info: node a of cluster one serves' "$scratch/debug.log" ||
	fail "the file lacks a level: $(cat "$scratch/debug.log")"
echo "logs: all as it should be"
