#!/usr/bin/env bash
# rampfs-migrate --mode precopy on real mounts: pages go ahead while programs continue, and little follows;
# write(2), truncate and punched holes meanwhile; pins are refused; daemons killed in the middle.
# (Live writers of memory, byte by byte: oracle.sh.)
. tests/lib/cluster.sh
cluster_mode=""
cluster_start -n 3 -c 1G
settled() { [ "$(xattr "$1" state)" = stable ]; }

echo "a program that stores into a few pages: nearly all is there when it is handed over"
head -c 64M /dev/urandom >"$scratch/mirror"
cp "$scratch/mirror" "$mnt/a/a/f"
setfattr -n user.ramp.pages -v small "$mnt/a/a/f"
: >"$scratch/said"
rampfs-run /usr/bin/python3 tests/mount/moves/few.py "$mnt/a/a/f" 3<>"$scratch/said" 2>/dev/null &
program=$!
within 20 test -s "$scratch/said"
rampfs-migrate --mode precopy --wait "$mnt/c/a/f" b
wait $program && fail "the program at the old node continued"
/usr/bin/python3 tests/mount/moves/few_came.py "$mnt/b/b/f" "$scratch/mirror" "$scratch/said"
left=$(sed -n 's/.*: \([0-9]*\) pages were stored into since round 0 .*/\1/p' "$scratch/cluster/a.log" | tail -n 1)
[ "${left:-16384}" -le 4096 ] || fail "round 0 has left ${left:-nothing} of 16384 pages"

echo "a program that stores into a few pages of nearly all huge pages: those are split, and little is left"
cat >"$scratch/spread.py" <<'P'
import mmap, re, sys, time
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
MIB = 1 << 20
for _ in range(200):  # again if the kernel had no huge page just then
    try:
        m.madvise(25)  # MADV_COLLAPSE
    except OSError:
        time.sleep(0.01)
    with open("/proc/self/smaps") as maps:
        kib = [int(x) for x in re.findall(r"ShmemPmdMapped: +(\d+)", maps.read())]
    if sum(kib) == 64 << 10:
        break
else:
    print("no huge pages", flush=True)
n = 0
while True:  # SIGBUS ends it
    n += 1
    for at in range(0, 62 * MIB, 2 * MIB):
        m[at:at + 8] = n.to_bytes(8, "little")
    if n == 1:
        print("stores", flush=True)
    time.sleep(0.005)
P
head -c 64M /dev/urandom >"$mnt/a/a/spread"
cp "$mnt/a/a/spread" "$scratch/mirror"
cat >"$scratch/spread_is_whole.py" <<'P'
import sys
with open(sys.argv[1], "rb") as f, open(sys.argv[2], "rb") as mirror:
    got, want = bytearray(f.read()), bytearray(mirror.read())
seen = set()
for at in range(0, 62 << 20, 2 << 20):
    seen.add(int.from_bytes(got[at:at + 8], "little"))
    got[at:at + 8] = want[at:at + 8]
assert got == want, "other bytes"
assert max(seen) - min(seen) <= 1, seen
P
# spread FROM TO OPTION...: it moves from under that program; little is left, and its bytes are right. False: there were
# no huge pages
spread() {
	: >"$scratch/spread"
	rampfs-run /usr/bin/python3 "$scratch/spread.py" "$mnt/$1/$1/spread" >"$scratch/spread" 2>/dev/null &
	program=$!
	within 20 test -s "$scratch/spread"
	rampfs-migrate "${@:3}" --wait --verbose "$mnt/$1/$1/spread" "$2" 2>"$scratch/how" || fail "$(cat "$scratch/how")"
	wait $program && fail "the program at the old node continued"
	/usr/bin/python3 "$scratch/spread_is_whole.py" "$mnt/$2/$2/spread" "$scratch/mirror" || fail "other bytes"
	if grep -q huge "$scratch/spread"; then
		echo "the kernel has no huge pages now"
		return 1
	fi
	last=$(grep 'huge pages split' "$scratch/cluster/$1.log" | tail -n 1)
	left=$(sed -n 's/.*: \([0-9]*\) pages were stored into since.*/\1/p' <<<"$last")
	[ "${left:-16384}" -le 1024 ] || fail "most pages are left: $last, $(cat "$scratch/how")"
}
spread a b --mode precopy || true
echo "the same in mode auto: it finds that these are few"
if spread b a; then
	grep -q 'mode precopy: .* MB/s (by [0-9]* huge pages that were split)' "$scratch/how" || fail "auto says $(cat "$scratch/how")"
fi

echo "write(2), truncate and punched holes meanwhile"
cat >"$scratch/io.py" <<'P'
import ctypes, os, random, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
def punch(fd, at, length):
    if libc.fallocate(fd, 3, at, length):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
segment, mirror = (os.open(p, os.O_RDWR) for p in sys.argv[1:3])
size, rng, ops = os.fstat(segment).st_size, random.Random(int(sys.argv[3])), 0
try:
    while True:
        kind, at = rng.randrange(10), rng.randrange(size)
        length = min(rng.randrange(1, 100000), size - at)
        data = rng.randbytes(length)
        change = [lambda fd: os.pwrite(fd, data, at), lambda fd: punch(fd, at, length),
                  lambda fd: (os.ftruncate(fd, at), os.ftruncate(fd, size))][
                      1 if kind == 8 else 2 if kind == 9 and at > size // 2 else 0]
        change(segment)
        change(mirror)
        ops += 1
        time.sleep(0.002)  # what grows between the last round and the freeze must fit into the slack
        if ops % 50 == 0:
            print(ops, flush=True)
except OSError as e:
    print("ended:", e.strerror, flush=True)
P
for seed in 1 2 3; do
	head -c 128M /dev/urandom >"$scratch/mirror"
	cp "$scratch/mirror" "$mnt/a/a/io"
	: >"$scratch/ops"
	/usr/bin/python3 "$scratch/io.py" "$mnt/a/a/io" "$scratch/mirror" $seed >"$scratch/ops" &
	program=$!
	within 20 test -s "$scratch/ops"
	rampfs-migrate --mode precopy "$mnt/a/a/io" b
	wait $program
	grep -q 'ended: Object is remote' "$scratch/ops" || fail "$(tail -n 2 "$scratch/ops")"
	# A truncate may have been the first half of a pair.
	truncate -s "$(stat -c %s "$mnt/b/b/io")" "$scratch/mirror"
	cmp "$scratch/mirror" "$mnt/b/b/io" || fail "seed $seed: other bytes"
	rm "$mnt/b/b/io"
done

echo "data that comes into holes all the time, also while the target takes room"
cat >"$scratch/grow.py" <<'P'
import os, sys, time
fd, at = os.open(sys.argv[1], os.O_RDWR), 200 << 20
try:
    while True:
        os.pwrite(fd, b"%016d" % at, at)
        print(at, flush=True)
        at += 8192
        time.sleep(0.001)
except OSError as e:
    print("ended:", e.strerror, flush=True)
P
: >"$mnt/a/a/grow"
setfattr -n user.ramp.pages -v small "$mnt/a/a/grow"
head -c 200M /dev/zero >"$mnt/a/a/grow"
truncate -s 300M "$mnt/a/a/grow"
/usr/bin/python3 "$scratch/grow.py" "$mnt/a/a/grow" >"$scratch/grown" &
program=$!
within 20 test -s "$scratch/grown"
rampfs-migrate --mode precopy "$mnt/a/a/grow" b
wait $program
grep -q 'ended: Object is remote' "$scratch/grown" || fail "$(tail -n 2 "$scratch/grown")"
/usr/bin/python3 - "$mnt/b/b/grow" "$scratch/grown" <<'P'
import sys
with open(sys.argv[1], "rb") as f:
    for at in map(int, open(sys.argv[2]).read().splitlines()[:-1]):
        f.seek(at)
        got = f.read(16)
        assert got == b"%016d" % at, (at, got)
P
rm "$mnt/b/b/grow"

echo "a process that could store past the page tables is named, and other modes do not mind"
cat >"$scratch/pins.py" <<'P'
import ctypes, mmap, os, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
if sys.argv[2] == "io_uring":
    ring = ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120))
    print("no io_uring" if ring < 0 else "ready", flush=True)
else:
    direct = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    print("ready", flush=True)
sys.stdin.readline()
P
head -c 8M /dev/urandom >"$mnt/a/a/pinned"
mkfifo "$scratch/hold"
direct=$(mktemp /var/tmp/rampfs-direct.XXXXXX) # not every tmpfs knows O_DIRECT
# pins WHAT NAME FROM TO: a program has the segment mapped, and WHAT open
pins() {
	: >"$scratch/pins"
	rampfs-run /usr/bin/python3 "$scratch/pins.py" "$mnt/$3/$3/pinned" "$1" <"$scratch/hold" >"$scratch/pins" &
	program=$!
	exec 4>"$scratch/hold"
	within 20 test -s "$scratch/pins"
	if grep -q ready "$scratch/pins"; then
		refused "process $program (" rampfs-migrate --mode precopy "$mnt/$3/$3/pinned" "$4"
		refused "$2" rampfs-migrate --mode precopy "$mnt/$3/$3/pinned" "$4"
		rampfs-migrate --wait --verbose "$mnt/$3/$3/pinned" "$4" 2>"$scratch/how"
		grep -q "mode lazy: .*$2" "$scratch/how" || fail "auto says $(cat "$scratch/how")"
	else
		cat "$scratch/pins"
	fi
	exec 4>&-
	wait $program || true
}
pins "$direct" "direct I/O" a b
pins io_uring "an io_uring" b a
rm -f "$direct"

echo "the mode: of the request, else of the segment, else of its node's mount; it goes where the segment goes"
how() { grep -oE 'mode .*' "$scratch/how"; }
again() { # OPTIONS: b ends, and is mounted with these
	umount "$mnt/b"
	within 20 flock -n "$state/b/lock" true
	rampfs -o "log=$scratch/cluster/b.log$1" "$state/b" "$mnt/b"
}
again ,mode=copy
head -c 1M /dev/urandom >"$mnt/a/a/how"
within 20 setfattr -n user.ramp.mode -v precopy "$mnt/a/a/how"
refused "Invalid argument" setfattr -n user.ramp.mode -v fast "$mnt/a/a/how"
grep -q 'user.ramp.mode does not take "fast"' "$scratch/cluster/a.log" || fail "the log does not say why"
within 20 rampfs-migrate --wait --verbose "$mnt/c/a/how" b 2>"$scratch/how"
same "mode precopy: user.ramp.mode; rounds ended after 1: 4 MiB or less are left" "$(how)" "the segment's mode"
same precopy "$(xattr "$mnt/b/b/how" mode)" "the mode at b"
rampfs-migrate --wait --verbose --mode demand "$mnt/b/b/how" c 2>"$scratch/how"
same "mode demand: asked for" "$(how)" "the request's mode"
mv "$mnt/c/c/how" "$mnt/c/b/"
grep -q 'moves in mode precopy: user.ramp.mode' "$scratch/cluster/c.log" || fail "mv did not take the segment's mode"
within 20 settled "$mnt/b/b/how"
setfattr -x user.ramp.mode "$mnt/b/b/how"
rampfs-migrate --verbose "$mnt/b/b/how" a 2>"$scratch/how"
same "mode copy: mount option" "$(how)" "the mount's mode"
within 20 settled "$mnt/a/a/how"
rampfs-migrate --verbose --max-rounds 1 "$mnt/a/a/how" c 2>"$scratch/how"
same "mode lazy: 1024 KiB are too little to go ahead" "$(how)" "the default"
again ""
within 20 test -e "$mnt/c/b" -a -d "$mnt/b/b"

echo "mode auto, the default: lazily, by pre-copy, or little by copy; and it says why"
says() { grep -qE "mode $1" "$scratch/how" || fail "not \"$1\", but $(cat "$scratch/how")"; }
cat >"$scratch/stores.py" <<'P'
import mmap, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
data = b"1" * len(m)
if sys.argv[2] == "all":
    m[:] = data
print("ready", flush=True)
while sys.argv[2] == "all":
    m[:] = data
sys.stdin.readline()
P
program_in() { # FILE WHAT: one that has it mapped, and stores into nothing, or into all of it
	: >"$scratch/ready"
	rampfs-run /usr/bin/python3 "$scratch/stores.py" "$1" "$2" <"$scratch/hold" >"$scratch/ready" 2>/dev/null &
	program=$!
	exec 4>"$scratch/hold"
	within 20 grep -q ready "$scratch/ready"
}
program_ends() {
	exec 4>&-
	wait $program || true
}
# auto WHAT FILE NODE MODE [MODE-TO-ASK-FOR]: moves it while a program_in WHAT has it mapped
auto() {
	program_in "$2" "$1"
	rampfs-migrate --wait --verbose ${5:+--mode "$5"} "$2" "$3" 2>"$scratch/how"
	program_ends
	says "$4"
}
head -c 32M /dev/urandom >"$mnt/a/a/auto"
head -c 4096 /dev/urandom >"$mnt/a/a/little"
sums=$(cat "$mnt/a/a/auto" "$mnt/a/a/little" | sha256sum)
setfattr -n user.ramp.pages -v small "$mnt/a/a/auto"
within 20 rampfs-migrate --wait --verbose "$mnt/a/a/auto" b 2>"$scratch/how"
says "lazy: no program has it mapped here"
auto nothing "$mnt/b/b/auto" a "precopy: programs store into [0-9]+ MB/s, the link carries [0-9]+ MB/s"
rampfs-migrate --wait --verbose --mode auto "$mnt/a/a/little" b 2>"$scratch/how"
says "copy: 4 KiB, the link carries [0-9]+ MB/s"
same "$sums" "$(cat "$mnt/a/a/auto" "$mnt/b/b/little" | sha256sum)" "the bytes"
program_in "$mnt/a/a/auto" nothing
mv "$mnt/a/a/auto" "$mnt/a/b/"
program_ends
grep -q "moves in mode precopy: programs store into" "$scratch/cluster/a.log" || fail "mv does not copy ahead by itself"
within 20 settled "$mnt/b/b/auto"
here=b there=a
for try in 1 2 3 4 5; do # a busy machine may keep the program from storing
	auto all "$mnt/$here/$here/auto" $there "(lazy|precopy): programs store into"
	! grep -q "mode lazy" "$scratch/how" || break
	[ $try != 5 ] || fail "a pre-copy of what is stored into all the time: $(cat "$scratch/how")"
	here=$there there=$([ $here = b ] && echo a || echo b)
done

echo "a program that stores flat out gets one round"
here=$([ -e "$mnt/a/a/auto" ] && echo a || echo b)
for try in 1 2 3 4 5; do
	there=$([ $here = b ] && echo a || echo b)
	marks=$(wc -l <"$scratch/cluster/$here.log")
	auto all "$mnt/$here/$here/auto" $there "precopy: asked for" precopy
	rounds=$(tail -n "+$((marks + 1))" "$scratch/cluster/$here.log" | grep -c 'pages were stored into since round')
	[ "$rounds" != 1 ] || break
	[ $try != 5 ] || fail "$rounds rounds of what is stored into all the time"
	here=$there
done

echo "daemons killed in the middle: the segment is whole, at one node"
head -c 200M /dev/urandom >"$mnt/a/a/k"
sum=$(sha256sum <"$mnt/a/a/k")
for victim in a b a b; do
	rampfs-migrate --mode precopy "$mnt/c/a/k" b >/dev/null 2>&1 &
	mover=$!
	sleep 0.0$((RANDOM % 10))
	pkill -9 -f "rampfs --daemon .*$mnt/$victim\$"
	wait $mover || true
	within 60 test -e "$mnt/a/a/k" -o -e "$mnt/b/b/k"
	at=a/a
	[ -e "$mnt/a/a/k" ] || at=b/b
	within 60 settled "$mnt/$at/k"
	same "$sum" "$(sha256sum <"$mnt/$at/k")" "bytes at $at after $victim was killed"
	[ $at = a/a ] || rampfs-migrate --wait "$mnt/b/b/k" a
done
cluster_stop
