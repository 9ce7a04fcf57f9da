#!/usr/bin/env bash
# rampfs-migrate with many files: one request, a verdict for each; the queue; Ctrl-C; either daemon killed in the middle.
. tests/lib/cluster.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
hung=""
hang() { hung=$(daemon "$1") && kill -STOP "$hung"; }
wake() { kill -CONT "$hung" && hung=""; }
many=150
cluster_start -n 2 -c 512M
a=$mnt/a/a b=$mnt/b/b

# make: $many files at a, of which each byte follows from the name.
make() {
	python3 - "$a" $many <<'P'
import sys
for i in range(int(sys.argv[2])):
    with open("%s/s%d" % (sys.argv[1], i), "wb") as f:
        f.write(bytes([i % 251 + 1]) * 20000)
P
}
# owned_once: each is at one node, with its bytes; says how many are at b.
owned_once() {
	python3 - "$a" "$b" $many <<'P'
import os, sys
there = 0
for i in range(int(sys.argv[3])):
    at = [d for d in sys.argv[1:3] if os.path.exists("%s/s%d" % (d, i))]
    assert len(at) == 1, "s%d is at %s" % (i, at)
    with open("%s/s%d" % (at[0], i), "rb") as f:
        assert f.read() == bytes([i % 251 + 1]) * 20000, "bytes of s%d" % i
    there += at[0] == sys.argv[2]
print(there)
P
}
settled() { owned_once >"$scratch/there" 2>"$scratch/why"; }
# moves [OPTION...] FILES NODE in the background; its lines are in $scratch/err.
moves() {
	rampfs-migrate "$@" 2>"$scratch/err" >"$scratch/out" &
	mover=$!
}
ends() {
	local status=0
	wait $mover || status=$?
	same "$1" $status "the exit status ($(head -c 2000 "$scratch/err"))"
}

echo "many, mapped by one program, there and back; named twice they are moved once"
make
mkfifo "$scratch/go"
rampfs-run /usr/bin/python3 -c 'import mmap, os, sys
maps = []
for name in sorted(os.listdir(sys.argv[1])):
    with open(sys.argv[1] + "/" + name, "r+b") as f:
        maps.append(mmap.mmap(f.fileno(), 0))
print(len(maps), flush=True)
sys.stdin.read()
assert all(m[0] == m[19999] for m in maps)' "$a" <"$scratch/go" >"$scratch/mapped" 2>/dev/null &
program=$!
exec 9>"$scratch/go"
within 60 grep -qx $many "$scratch/mapped"
rampfs-migrate --progress "$a"/s* "$a/s7" "$a/../a/s8" b 2>"$scratch/err"
same $((many + 2)) "$(grep -c ': on node b after ' "$scratch/err")" "verdicts"
same $many "$(owned_once)" "segments at b"
rampfs-migrate --wait "$b"/s* a
same 0 "$(owned_once)" "segments at b"
exec 9>&-
wait $program || fail "the program that maps them"

echo "many of several programs: one is killed in the middle, one is stopped, a segment is unlinked, one renamed"
# Maps m0, m3, ... (or m1, m4, ...), each large enough for its page tables to be moved away.
cat >"$scratch/holds.py" <<'P'
import mmap, os, sys
maps = []
for i in range(int(sys.argv[2]), 60, 3):
    fd = os.open("%s/m%d" % (sys.argv[1], i), os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 300000)
    maps.append(mmap.mmap(fd, 0))
    maps[-1][:] = bytes([i + 1]) * 300000
    os.close(fd)
print(os.getpid(), flush=True)
sys.stdin.read()
assert all(m[:] == bytes([3 * n + int(sys.argv[2]) + 1]) * 300000 for n, m in enumerate(maps))
P
pids=()
for i in 0 1 2; do
	mkfifo "$scratch/go$i"
	rampfs-run /usr/bin/python3 "$scratch/holds.py" "$a" $i <"$scratch/go$i" >"$scratch/holds$i" 2>/dev/null &
	pids+=($!)
	eval "exec $((6 + i))>\"\$scratch/go$i\""
	within 60 grep -q . "$scratch/holds$i"
done
kill -STOP "$(cat "$scratch/holds1")"
moves --progress "$a"/m* b
some() { grep -q ': on node b after ' "$scratch/err" || ! kill -0 $mover 2>/dev/null; }
within 20 some
kill -KILL "$(cat "$scratch/holds2")"
rm "$a/m59" 2>/dev/null || true
mv "$a/m58" "$a/n58" 2>/dev/null || true
status=0
wait $mover || status=$?
[ $status -le 1 ] || fail "exit status $status: $(head -c 2000 "$scratch/err")"
kill -CONT "$(cat "$scratch/holds1")"
for i in $(seq 0 57); do
	[ ! -e "$a/m$i" ] || within 10 rampfs-migrate "$a/m$i" b 2>"$scratch/err2"
	grep -q "/m$i: " "$scratch/err" || fail "no verdict for m$i"
done
same 0 "$(find "$a" -name 'm?' -o -name 'm[1-4]?' -o -name 'm5[0-7]' | wc -l)" "segments that are left"
rampfs-migrate --wait "$b"/m* a
[ ! -e "$b/n58" ] || rampfs-migrate --wait "$b/n58" a
exec 6>&- 7>&- 8>&-
wait "${pids[0]}" || fail "the program that runs"
wait "${pids[1]}" || fail "the program that was stopped"
wait "${pids[2]}" || true
rm -f "$a"/m* "$a"/n58
# A reader that pauses is no daemon that is silent: looked at in the end.
(set -o pipefail && rampfs-status --json "$mnt/a" | (sleep 12 && cat) >"$scratch/slow.json") 2>"$scratch/slow" &
slow=$!

echo "no transaction: what cannot be moved says why, and the others are moved"
echo taken >"$b/s3"
moves "$a"/s* "$a/none" "$scratch/err" b
ends 1
grep -q '/s3: .*something is named s3 there' "$scratch/err" || fail "$(cat "$scratch/err")"
grep -q '/none: No such file' "$scratch/err" || fail "$(cat "$scratch/err")"
grep -q 'err: is not on a rampfs mount' "$scratch/err" || fail "$(cat "$scratch/err")"
rm "$b/s3"
if command -v strace >/dev/null; then
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 \
		strace -f -qq -e trace=openat -o "$scratch/trace" rampfs-migrate "$a"/s* "$a/../a/s3" b
	same 2 "$(grep -c mountinfo "$scratch/trace")" "looks at all mounts, one for each directory"
else
	rampfs-migrate "$a"/s* b
fi
same $many "$(owned_once)" "segments at b"
rampfs-migrate --limit 50M --wait "$b"/s* a

echo "the queue is shown; Ctrl-C ends all that are not past the point of no return, and says so of each"
hang b
moves "$a"/s* b
queued() { grep -q '^moves queued: [0-9]' "$mnt/a/.ramp/status"; }
within 5 queued
rampfs-status --json "$mnt/a" | python3 -c 'import json, sys; assert json.load(sys.stdin)["moves_queued"] > 0'
kill -INT $mover
ends 130
wake
same $many "$(grep -c 'cancelled: it stays where it is' "$scratch/err")" "segments that stay"
within 20 settled
same 0 "$(cat "$scratch/there")" "segments at b"

echo "an older daemon hangs up on a BATCH: the segments are moved one after the other"
for fd in "/proc/$(cat "$state/a/lock")"/fd/*; do
	found=$(awk -v socket="$(readlink "$fd")" '"socket:[" $7 "]" == socket && $8 ~ "^/run/rampfs/" { print $8 }' /proc/net/unix)
	[ -z "$found" ] || socket=$found
done
# Stands between the tool and the daemon: lets no BATCH (its type is 36) pass.
cat >"$scratch/older.py" <<'P'
import os, selectors, socket, sys, threading
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(64)
print("ready", flush=True)
def serve(tool):
    first = tool.recv(4096)
    if int.from_bytes(first[2:4], "little") == 36:
        print("batch", flush=True)
        return tool.close()
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    daemon.connect(sys.argv[2])
    daemon.send(first)
    print("one", flush=True)
    while data := daemon.recv(4096):
        tool.send(data)
    tool.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
P
ln "$socket" "$scratch/daemon.socket" 2>/dev/null || { ln "$socket" "$socket.too" && ln -s "$socket.too" "$scratch/daemon.socket"; }
python3 "$scratch/older.py" "$scratch/older.socket" "$scratch/daemon.socket" >"$scratch/older" &
older=$!
within 10 grep -q ready "$scratch/older"
keeper=$(ps -o ppid= -p "$(daemon a)" | tr -d ' ')
kill -STOP "$keeper" # it would find its socket covered, and give the daemon another one
mount --bind "$scratch/older.socket" "$socket"
status=0
rampfs-migrate "$a"/s[1-9] b 2>"$scratch/err" || status=$?
umount "$socket"
kill -CONT "$keeper"
kill $older
rm -f "$socket.too"
same 0 $status "the exit status ($(cat "$scratch/err"))"
same "batch 2 one 9" "$(sort "$scratch/older" | uniq -c | awk '$2 != "ready" { print $2, $1 }' | xargs)" "what an older daemon is asked"
same 9 "$(owned_once)" "segments at b"
rampfs-migrate --wait "$b"/s* a

for node in a b; do
	echo "kill -9 of $node's daemon in the middle: each segment has one owner, and the tool says which"
	moves --progress "$a"/s* b
	within 20 some
	kill -9 "$(daemon $node)"
	status=0
	wait $mover || status=$?
	[ $status = 0 ] || [ $status = 1 ] || [ $status = 3 ] || fail "exit status $status: $(cat "$scratch/err")"
	within 30 settled || fail "$(cat "$scratch/why")"
	there=$(cat "$scratch/there")
	said=$(grep -c ': on node b after ' "$scratch/err" || true)
	[ "$said" -le "$there" ] || fail "$said are said to be at b, $there are"
	[ $status != 0 ] || same $many "$there" "segments at b"
	[ "$there" = $many ] || within 20 rampfs-migrate "$a"/s* b 2>"$scratch/err"
	rampfs-migrate --wait "$b"/s* a
	same 0 "$(owned_once)" "segments at b"
done

wait $slow || fail "rampfs-status: $(cat "$scratch/slow")"
[ "$(stat -c %s "$scratch/slow.json")" -gt 65536 ] || fail "a pipe takes all that rampfs-status prints: no pause"
python3 -m json.tool "$scratch/slow.json" >/dev/null
