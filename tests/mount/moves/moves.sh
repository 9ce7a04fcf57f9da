#!/usr/bin/env bash
# Many segments at once in both directions, on to a third node and back, and large ones; a program that
# touches a segment which has left gets SIGBUS and one line that names segment and owner.
. tests/lib/cluster.sh
cluster_start -n 3 -c 6G
a=$mnt/a b=$mnt/b c=$mnt/c
daemon() { pgrep -f "rampfs --daemon .*$scratch/cluster/state/$1 "; }
# rampfs-migrate in the background; its messages show where it is: its pid is $tool, its lines are in $scratch/tool.
tool() {
	: >"$scratch/tool"
	rampfs-migrate --progress "$@" 2>"$scratch/tool" &
	tool=$!
}
# Stops a daemon; fail() lets it continue, so that nothing waits for it at the end.
hang() {
	hung=$(daemon "$1")
	kill -STOP "$hung"
}
fail() {
	[ -z "${hung-}" ] || kill -CONT "$hung" || true
	echo "FAILED: $*" >&2
	exit 1
}
# tool_ends STATUS TEXT: it ends with this status, and has said so.
tool_ends() {
	local status=0
	wait "$tool" || status=$?
	same "$1" $status "the exit status of rampfs-migrate ($(cat "$scratch/tool"))"
	grep -q "$2" "$scratch/tool" || fail "rampfs-migrate does not say \"$2\": $(cat "$scratch/tool")"
}
# make N BYTES: every byte of file N follows from N.
make() { python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(int(sys.argv[1])).randbytes(int(sys.argv[2])))' "$1" "$2"; }
for i in $(seq 1 12); do
	make "$i" $((i * 1000003)) >"$scratch/$i"
	if [ $((i % 2)) = 0 ]; then cp "$scratch/$i" "$a/a/s$i"; else cp "$scratch/$i" "$b/b/s$i"; fi
done
for round in 1 2 3; do
	movers=()
	for i in $(seq 1 12); do
		if [ -e "$a/a/s$i" ]; then to=b from=a; elif [ -e "$a/b/s$i" ]; then to=c from=b; else to=a from=c; fi
		within 30 mv "$c/$from/s$i" "$c/$to/" & movers+=($!)
	done
	for m in "${movers[@]}"; do wait "$m" || fail "a move of round $round failed"; done
	for i in $(seq 1 12); do within 10 sh -c "[ -e $a/a/s$i ] || [ -e $b/b/s$i ] || [ -e $c/c/s$i ]"; done
	for i in $(seq 1 12); do
		n=0
		for d in a b c; do
			[ ! -e "$mnt/$d/$d/s$i" ] || { n=$((n + 1)) && cmp "$scratch/$i" "$mnt/$d/$d/s$i"; }
		done
		same 1 $n "places of s$i in round $round"
	done
done

# 4 GiB: mv takes no longer than for a small segment; the bytes come after
rampfs-run "$build/bench/bench-touch" fill "$a/a/large" 4096 huge
begin=$(date +%s%N)
mv "$a/a/large" "$a/b/"
took=$((($(date +%s%N) - begin) / 1000000))
echo "mv of 4 GiB: $took ms"
within 10 test -e "$b/b/large"
rampfs-run "$build/bench/bench-touch" sum "$b/b/large" >"$scratch/sum1"
rampfs-migrate --wait "$b/b/large" a
within 10 test -e "$a/a/large"
rampfs-run "$build/bench/bench-touch" sum "$a/a/large" >"$scratch/sum2"
same "$(cut -d' ' -f2 "$scratch/sum1")" "$(cut -d' ' -f2 "$scratch/sum2")" "the sums of 4 GiB"
same none "$(xattr "$a/a/large" lost)" "lost pages"

# Ctrl-C too late: the move is done, and its pages follow; the message says so
tool --wait "$a/a/large" b
within 20 grep -q ': pulling' "$scratch/tool"
kill -INT $tool
tool_ends 0 'past the point of no return: it is on node b, and its pages follow by themselves'
rampfs-migrate --wait "$a/b/large" b

# the tool's daemon, which is the target, is killed while pages come, and then the owner's
tool --wait "$a/b/large" a
within 20 grep -q ': pulling' "$scratch/tool"
kill -9 "$(daemon a)"
tool_ends 0 'on node a with every page'
tool --wait "$a/a/large" b
within 20 grep -q ': pulling' "$scratch/tool"
kill -9 "$(daemon a)"
tool_ends 0 'on node b with every page'
within 10 test -e "$b/b/large"
rampfs-run "$build/bench/bench-touch" sum "$b/b/large" >"$scratch/sum2"
same "$(cut -d' ' -f2 "$scratch/sum1")" "$(cut -d' ' -f2 "$scratch/sum2")" "the sums after daemons were killed"
rm "$b/b/large"

# before the transfer: the target hangs. Ctrl-C gives up; a daemon that dies asks again
make 1 3000000 >"$scratch/early"
cp "$scratch/early" "$a/a/early"
hang b
tool --verbose "$a/a/early" "$a/a/early" b # one after the other: not a batch
within 10 grep -q ': connecting' "$scratch/tool"
kill -INT $tool
tool_ends 130 'cancelled: it stays where it is'
grep -q 'early: not tried' "$scratch/tool" || fail "nothing of the other file: $(cat "$scratch/tool")"
kill -CONT "$hung"
cmp "$scratch/early" "$a/a/early"
within 10 grep -q '^b .* up' "$a/.ramp/nodes"
hang b
tool "$a/a/early" b
within 10 grep -q ': connecting' "$scratch/tool"
kill -9 "$(daemon a)"
kill -CONT "$hung"
tool_ends 0 'on node b'
within 10 test -e "$b/b/early"
cmp "$scratch/early" "$b/b/early"
# several at once, one of them missing
cp "$scratch/early" "$a/a/one"
cp "$scratch/early" "$a/a/two"
tool "$a/a/one" "$a/a/none" "$a/a/two" b
tool_ends 1 'none: No such file'
within 10 test -e "$b/b/one"
within 10 test -e "$b/b/two"
rm "$b/b/one" "$b/b/two" "$b/b/early"

# gone: SIGBUS, one line, never zeros
cat >"$scratch/gone.py" <<'P'
import ctypes, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 1 << 20)
m[0:5] = b"bytes"
print("mapped", flush=True)
sys.stdin.readline()
print(m[0:5], flush=True)
P
truncate -s 1M "$a/a/g"
mkfifo "$scratch/fifo"
rampfs-run python3 "$scratch/gone.py" "$a/a/g" <"$scratch/fifo" >"$scratch/out" 2>"$scratch/err" &
pid=$!
exec 8>"$scratch/fifo"
within 10 grep -q mapped "$scratch/out"
mv "$a/a/g" "$a/b/"
echo go >&8
status=0
wait $pid || status=$?
same 135 $status "the exit status (128 + SIGBUS)"
grep -q 'rampfs: a/g is now on node b; touching it here is SIGBUS' "$scratch/err" || fail "no line of it: $(cat "$scratch/err")"
same 1 "$(grep -c 'rampfs:' "$scratch/err")" "lines on stderr"
within 10 test -e "$b/b/g"
same bytes "$(head -c 5 "$b/b/g")" "the bytes on b"
cluster_stop
