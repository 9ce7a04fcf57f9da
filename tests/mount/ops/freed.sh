#!/usr/bin/env bash
# The memory of unlinked files is free for the next writer, in a store that they nearly filled: the kernel is still at their
# small pages for a tenth of a second after rm(1) has ended.
. tests/lib/cluster.sh
export LC_ALL=C
cluster_start -n 2 -c 1G
a=$mnt/a/a b=$mnt/b/b
cat >"$scratch/store.py" <<'P'
import mmap, sys
with open(sys.argv[1], "w+b") as f:
    f.truncate(900 << 20)
    m = mmap.mmap(f.fileno(), 0)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(m), 4096):
        m[at] = 1
P
store() { RAMPFS_QUIET=1 rampfs-run python3 "$scratch/store.py" "$1"; }
quietly() { "$@" 2>/dev/null; }
nearly_full() { store "$a/old"; }
head -c 700M /dev/zero >"$b/comes"
echo "allocated, written and stored"
nearly_full
rm "$a/old"
fallocate -l 900M "$a/new"
rm "$a/new"
nearly_full
rm "$a/old"
dd if=/dev/zero of="$a/new" bs=1M count=900 status=none
rm "$a/new"
nearly_full
rm "$a/old"
store "$a/new"
rm "$a/new"
echo "a file that was never mapped"
dd if=/dev/zero of="$a/old" bs=4k count=230400 status=none
rm "$a/old"
fallocate -l 900M "$a/new"
rm "$a/new"
echo "a file that another node unlinks, when this node hears of it"
dd if=/dev/zero of="$a/old" bs=4k count=230400 status=none
rm "$mnt/b/a/old"
within 10 quietly fallocate -l 900M "$a/new"
rm "$a/new"
echo "a segment that moves there"
nearly_full
rm "$a/old"
rampfs-migrate --wait "$b/comes" a
rm "$a/comes"
echo "a file that is still open keeps its memory, and a program that creates files continues"
nearly_full
exec 9<"$a/old"
rm "$a/old"
: >"$a/new"
fallocate -l 900M "$a/new" 2>/dev/null && fail "there is no room"
exec 9<&-
within 10 quietly fallocate -l 900M "$a/new"
cluster_stop
