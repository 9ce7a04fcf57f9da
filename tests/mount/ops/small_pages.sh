#!/usr/bin/env bash
# user.ramp.pages=small: scattered stores take their own pages, here and where the segment goes.
# And =huge: full ranges are in huge pages, here and there.
. tests/lib/cluster.sh
cluster_start -n 2 -c 300M # too small for huge pages for all of it
is() { [ "$(xattr "$1" "$2")" = "$3" ]; }
cat >"$scratch/scatter.py" <<'P'
import mmap, os, random, sys
how, seed, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open(path, os.O_RDWR)
pages = random.Random(seed).sample(range((1 << 30) // 4096), 2621)
m = None if how == "write" else mmap.mmap(fd, 1 << 30)
if how == "advised":
    m.madvise(mmap.MADV_NOHUGEPAGE)
if how in ("fork", "advised"):
    child = os.fork()
    if child:
        sys.exit(os.waitpid(child, 0)[1] != 0)
    how = "store"
for p in pages:
    text = b"page %d" % p
    if how == "write":
        assert os.pwrite(fd, text, p * 4096) == len(text)
    elif how == "store":
        m[p * 4096:p * 4096 + len(text)] = text
    else:
        assert m[p * 4096:p * 4096 + len(text)] == text, p
P
# 1 % of 1 GiB is 10.2 MiB; a huge page for each store would be all of it.
takes_little() {
	local kib
	kib=$(du -k "$1" | cut -f1)
	[ "$kib" -ge 10000 ] && [ "$kib" -le "${3:-14336}" ] || fail "$2: $1 takes $kib KiB"
}
for how in store write fork; do
	echo "1 % of a sparse GiB, by $how: its own pages, and the same on both ends of a move"
	truncate -s 1G "$mnt/a/a/$how"
	python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp.pages", b"small")' "$mnt/a/a/$how"
	rampfs-run python3 "$scratch/scatter.py" $how 1 "$mnt/a/a/$how"
	takes_little "$mnt/a/a/$how" "after the stores"
	rampfs-migrate --mode demand "$mnt/a/a/$how" b
	within 10 test -e "$mnt/b/b/$how"
	rampfs-run python3 "$scratch/scatter.py" check 1 "$mnt/b/b/$how"
	takes_little "$mnt/b/b/$how" "pulled on demand"
	rampfs-run python3 "$scratch/scatter.py" store 2 "$mnt/b/b/$how"
	within 10 is "$mnt/b/b/$how" state stable
	takes_little "$mnt/b/b/$how" "after more stores there" 28672
	rampfs-migrate --wait "$mnt/b/b/$how" a
	within 10 is "$mnt/a/a/$how" state stable
	takes_little "$mnt/a/a/$how" "back again, by prefetch" 28672
	rampfs-run python3 "$scratch/scatter.py" check 2 "$mnt/a/a/$how"
	rm "$mnt/a/a/$how"
done
echo "a program's own MADV_NOHUGEPAGE holds in its child"
truncate -s 1G "$mnt/a/a/advised"
rampfs-run python3 "$scratch/scatter.py" advised 1 "$mnt/a/a/advised"
takes_little "$mnt/a/a/advised" "after the stores of a child"
rm "$mnt/a/a/advised"

echo "an fallocate that finds no room takes none"
truncate -s 1G "$mnt/a/a/none"
python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp.pages", b"small")' "$mnt/a/a/none"
dd if=/dev/zero of="$mnt/a/a/none" bs=1M count=3 seek=7 conv=notrunc status=none
before=$(du -k "$mnt/a/a/none" | cut -f1)
refused "No space left" fallocate -l 1G "$mnt/a/a/none"
same "$before" "$(du -k "$mnt/a/a/none" | cut -f1)" "KiB that it takes"
fallocate -l 100M "$mnt/a/a/none"
same 102400 "$(du -k "$mnt/a/a/none" | cut -f1)" "KiB that one which finds room takes"
rm "$mnt/a/a/none"

echo "behind the end, up to the last page of an aligned block, too"
cat >"$scratch/behind.py" <<'P'
import os, sys
how, path = sys.argv[1:]
HUGE, PAGE = 2 << 20, 4096
fd = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if how == "append" else 0))
os.setxattr(path, "user.ramp.pages", b"small")
for i in range(1, 41):
    end = i * HUGE
    text = b"%-100d" % i
    if how == "write":
        assert os.pwrite(fd, text, end - len(text)) == len(text)
    elif how == "append":
        os.ftruncate(fd, end - len(text))
        assert os.write(fd, text) == len(text)
    elif how == "pages":
        assert os.pwrite(fd, text * 82, end - 8200) == 8200
    elif how == "allocate":
        os.posix_fallocate(fd, end - PAGE, PAGE)
    elif how == "keep":
        os.system(f"fallocate -n -o {end - PAGE} -l {PAGE} {path}")
assert os.fstat(fd).st_size == (0 if how == "keep" else 40 * HUGE), os.fstat(fd).st_size
data = b"" if how == "keep" else os.pread(fd, 2 * HUGE, 38 * HUGE)
if data:
    text = {"write": b"%-100d" % 40, "append": b"%-100d" % 40, "pages": b"%-100d" % 40 * 82}.get(how, b"")
    assert data[HUGE:] == bytes(HUGE - len(text)) + text
    assert data[:HUGE - 8200] == bytes(HUGE - 8200)
P
# 40 blocks of 2 MiB, each with its last page and at most three before it.
for how in write append pages allocate keep; do
	python3 "$scratch/behind.py" $how "$mnt/a/a/behind"
	kib=$(du -k "$mnt/a/a/behind" | cut -f1)
	[ "$kib" -ge 160 ] && [ "$kib" -le 640 ] || fail "$how behind the end: it takes $kib KiB"
	rm "$mnt/a/a/behind"
done
: >"$mnt/a/a/behind"
setfattr -n user.ramp.pages -v small "$mnt/a/a/behind"
fallocate -l 9M "$mnt/a/a/behind"
same 9216 "$(du -k "$mnt/a/a/behind" | cut -f1)" "KiB that an fallocate behind the end takes"
same 0 "$(rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for p in range(0, 9 << 20, 4096): assert m[p] == 0
print(sum(int(l.split()[1]) for l in open("/proc/self/smaps") if l.startswith("ShmemPmdMapped")))' "$mnt/a/a/behind")" "KiB of it in huge pages"
rm "$mnt/a/a/behind"

echo "a full segment of small pages is not made huge"
truncate -s 64M "$mnt/a/a/full"
python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp.pages", b"small")' "$mnt/a/a/full"
rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for p in range(0, 64 << 20, 4096): m[p] = 1' "$mnt/a/a/full"
rampfs-migrate --wait "$mnt/a/a/full" b
within 10 test -e "$mnt/b/b/full"
rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)
for p in range(0, 64 << 20, 4096): assert m[p] == 1
huge = [l for l in open("/proc/self/smaps") if l.startswith("ShmemPmdMapped")]
assert all(l.split()[1] == "0" for l in huge), huge' "$mnt/b/b/full"

cat >"$scratch/huge.py" <<'P'
import mmap, os, sys
how, path = sys.argv[1:]
SIZE = 64 << 20
m = mmap.mmap(os.open(path, os.O_RDWR), SIZE)
for p in range(0, SIZE, 4096):
    if how == "fill":
        m[p] = 1 + p // 4096 % 251
    assert m[p] == 1 + p // 4096 % 251, p
huge = [l for l in open("/proc/self/smaps") if l.startswith("ShmemPmdMapped")]
print(sum(int(l.split()[1]) for l in huge))
P
in_huge_pages() { [ "$(rampfs-run python3 "$scratch/huge.py" check "$1")" = 65536 ]; }
echo "huge: a segment that is filled, and goes, and comes back"
truncate -s 64M "$mnt/a/a/huge"
setfattr -n user.ramp.pages -v huge "$mnt/a/a/huge"
is "$mnt/a/a/huge" pages huge || fail "user.ramp.pages is $(xattr "$mnt/a/a/huge" pages)"
rampfs-run python3 "$scratch/huge.py" fill "$mnt/a/a/huge" >/dev/null
within 10 in_huge_pages "$mnt/a/a/huge"
for step in a:b b:a; do
	from=${step%:*} to=${step#*:}
	rampfs-migrate --wait "$mnt/$from/$from/huge" "$to"
	within 10 is "$mnt/$to/$to/huge" pages huge
	within 10 in_huge_pages "$mnt/$to/$to/huge"
done
rm "$mnt/a/a/huge"

echo "small, and then huge: made huge where it goes"
same 0 "$(rampfs-run python3 "$scratch/huge.py" fill "$mnt/b/b/full")" "KiB in huge pages where it was filled as a small one"
setfattr -n user.ramp.pages -v huge "$mnt/b/b/full" # no process has it mapped: khugepaged finds it at the earliest where it goes
rampfs-migrate --wait "$mnt/b/b/full" a
within 10 is "$mnt/a/a/full" pages huge
within 20 in_huge_pages "$mnt/a/a/full"
cluster_stop
