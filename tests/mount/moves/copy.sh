#!/usr/bin/env bash
# rampfs-migrate --mode copy on real mounts: programs stand still until every page is there, and then
# nothing depends on the old node; a copy that is given up half-way leaves everything as it was.
. tests/lib/slow_net.sh
slow_net_enter "$@"
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
settled() { [ "$(xattr "$1" state)" = stable ]; }

echo "a program that stores until the last moment; every store of it is there"
cat >"$scratch/count.py" <<'P'
import mmap, os, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
n = 0
while True:  # SIGBUS ends it; before that it prints each store, page after page
    n += 1
    for page in range(0, len(m), 4096):
        m[page:page + 8] = n.to_bytes(8, "little")
    os.pwrite(3, b"%20d" % n, 0)
P
head -c 64M /dev/urandom >"$mnt/a/a/f"
: >"$scratch/said"
rampfs-run /usr/bin/python3 "$scratch/count.py" "$mnt/a/a/f" 3<>"$scratch/said" 2>/dev/null &
counter=$!
within 20 test -s "$scratch/said"
rampfs-migrate --mode copy --trace "$mnt/c/a/f" b >"$scratch/trace"
wait $counter && fail "the program at the old node continued"
grep -q "b  *every page is here" "$scratch/trace" || fail "$(cat "$scratch/trace")"
[ "$(grep -n "every page is here" "$scratch/trace" | cut -d: -f1)" -lt "$(grep -n "GIVEN is recorded" "$scratch/trace" | cut -d: -f1)" ] ||
	fail "given before it was copied: $(cat "$scratch/trace")"
/usr/bin/python3 - "$mnt/b/b/f" "$(cat "$scratch/said")" <<'P'
import sys
said, before = int(sys.argv[2]), None
with open(sys.argv[1], "rb") as f:
    while page := f.read(4096):
        n = int.from_bytes(page[:8], "little")
        assert n in (said, said + 1) and (before is None or n <= before), (n, said, before)
        before = n
P

echo "cancelled in the middle: the segment stays, and the program continues"
dd if=/dev/urandom of="$mnt/a/a/g" bs=1M count=300 status=none
sum=$(sha256sum <"$mnt/a/a/g")
# The target is stopped from the first page on, until its source has been told.
tries=0
begin_copy() {
	tries=$((tries + 1))
	[ $tries -le 5 ] || fail "five times it was copied before it could be cancelled"
	: >"$scratch/err"
	rampfs-migrate --mode copy --progress "$mnt/a/a/g" b 2>"$scratch/err" &
	mover=$!
	within 20 grep -q 'copying\|on node b' "$scratch/err"
	kill -STOP "$target"
	grep -q 'on node b' "$scratch/err" || return 0
	kill -CONT "$target"
	wait $mover
	rampfs-migrate --wait "$mnt/b/b/g" a
	return 1
}
target=$(pgrep -f "rampfs --daemon .*$mnt/b\$")
until begin_copy; do :; done
for node in a c; do # its name and mode stay as they are meanwhile, on every node
	same moving "$(xattr "$mnt/$node/a/g" state)" "its state on $node"
	python3 - "$mnt/$node/a/g" <<'P'
import errno, os, sys
g = sys.argv[1]
for what, *args in (os.unlink, g), (os.rename, g, g + "2"), (os.chmod, g, 0o600):
    try:
        what(*args)
        sys.exit(f"{what.__name__} of a moving segment")
    except OSError as e:
        assert e.errno == errno.EBUSY, (what.__name__, e)
P
done
kill -INT $mover
within 5 grep -q cancelling "$scratch/err"
kill -CONT "$target"
status=0
wait $mover || status=$?
same 130 "$status" "the exit status of the cancelled move ($(cat "$scratch/err"))"
grep -q "cancelled: it stays where it is" "$scratch/err" || fail "$(cat "$scratch/err")"
[ ! -e "$mnt/b/b/g" ] || fail "the segment is there all the same"
same "$sum 644" "$(sha256sum <"$mnt/a/a/g") $(stat -c %a "$mnt/c/a/g")" "the bytes and the mode after a cancel"
head -c 500M /dev/urandom >>"$mnt/a/a/g"
sum=$(sha256sum <"$mnt/a/a/g")

echo "a copy that takes long: a reader or writer waits for its end, a killed one does not"
cat >"$scratch/wait.py" <<'P'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    os.pwrite(fd, b"x", 0) if sys.argv[2] == "write" else os.pread(fd, 1, 0)
    print("done")
except OSError as e:
    print(e.strerror)
P
# Its write takes set-user-ID away first; a second one would wait in the kernel, where no signal reaches it.
stranger() { exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 "$scratch/wait.py" "$mnt/a/a/g" "$1"; }
ended() { ! kill -0 "$1" 2>/dev/null; }
chmod 4777 "$mnt/a/a/g"
slow_net 200mbit
: >"$scratch/err"
rampfs-migrate --mode copy --progress "$mnt/a/a/g" b 2>"$scratch/err" &
mover=$!
within 20 grep -q copying "$scratch/err"
stranger write >"$scratch/killed" & killed=$!
sleep 0.7
kill -9 $killed
within 5 ended $killed
ended $mover && fail "a writer that was killed waits for the copy, or the copy was too fast"
stranger write >"$scratch/said.write" & waiters=($!)
stranger read >"$scratch/said.read" & waiters+=($!)
stranger read >"$scratch/killed" & killed=$!
sleep 8
kill -9 $killed
within 5 ended $killed
ended $mover && fail "a reader that was killed waits for the copy, or the copy was too fast"
[ ! -s "$scratch/said.write" ] && [ ! -s "$scratch/said.read" ] || fail "a reader or writer had an answer before the end"
fast_net
wait $mover
wait "${waiters[@]}"
for said in "$scratch"/said.*; do same "Object is remote" "$(cat "$said")" "$said"; done
same "$sum" "$(sha256sum <"$mnt/b/b/g")" "the bytes after a long copy"
rampfs-migrate --wait "$mnt/b/b/g" a

echo "moved, and the old node is gone at once"
rampfs-migrate --mode copy "$mnt/a/a/g" b
a=$(pgrep -f "$state/a " | tr '\n' ' ')
# shellcheck disable=SC2086
kill -STOP $a
same "$sum" "$(sha256sum <"$mnt/b/b/g")" "the bytes without the old node"
# shellcheck disable=SC2086
kill -CONT $a
within 20 settled "$mnt/b/b/g"

echo "refused moves"
refused "no such mode: pre" rampfs-migrate --mode pre "$mnt/b/b/g" a
: >"$mnt/c/c/g"
refused "something is named g there" rampfs-migrate --mode copy "$mnt/b/b/g" c
cluster_stop
