#!/usr/bin/env bash
# Many segments at once in both directions, on to a third node and back, large ones; a program that
# touches what has gone gets SIGBUS and one line that names segment and owner.
. tests/lib/cluster.sh
cluster_start -n 3 -c 6G
a=$mnt/a b=$mnt/b c=$mnt/c
# Every byte of file N follows from N.
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

# 4 GiB: mv takes no longer for it than for a small one, the bytes come after
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
rm "$a/a/large"

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
