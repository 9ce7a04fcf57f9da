#!/usr/bin/env bash
# The results of touching pages that have left, are on their way, or are lost (pages.c).
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C RAMPFS_QUIET=1
holder_on() { # a node
	holder_program=(rampfs-run "$build/tests/pages" "$mnt/$1/$1/f")
	holder "$1"
}
byte() { od -An -tx1 -j $(($1 * 4096)) -N 1 "$scratch/bytes" | tr -d ' '; }
cluster_start -n 3 -c 128M
head -c 16M /dev/urandom >"$scratch/bytes"
cp "$scratch/bytes" "$mnt/a/a/f"

echo "a segment that has left: BUS_ADRERR, and EFAULT of a system call"
holder_on a
same "$(byte 7)" "$(ask a load 7)" "a page that is here"
rampfs-migrate --mode demand "$mnt/a/a/f" b
same BUS_ADRERR "$(ask a load 7)" "a load from a segment that has left"
same "Bad address" "$(ask a call 7)" "a system call with a segment that has left"

echo "pages on their way can't be collapsed, which would fill them with zeros"
holder_on b
same "$(byte 600)" "$(ask b load 600)" "a page that is fetched"
same "Invalid argument" "$(ask b collapse 512)" "MADV_COLLAPSE around a page that is here"
same "Invalid argument" "$(ask b collapse 1024)" "MADV_COLLAPSE of pages that are not"
for page in 512 600 1023 1024 1500; do
	same "$(byte $page)" "$(ask b load $page)" "page $page after MADV_COLLAPSE"
done
refused "resource busy" setfattr -n user.ramp.extent -v 1G "$mnt/b/b/f"
refused "resource busy" setfattr -n user.ramp.extent -v 1G "$mnt/c/b/f" # its extent is for life

# As for memory that the machine has lost, if the kernel is built to handle that.
lost=BUS_ADRERR
! grep -q '^HardwareCorrupted' /proc/meminfo || lost=BUS_MCEERR_AR
echo "lost pages: $lost, and EFAULT of a system call; pages that had come stay"
bye a
kill -TERM "$(cat "$state/a/lock")"
within 20 flock -n "$state/a/lock" true
rampfs --destroy --force "$state/a"
rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
within 20 eval '[ "$(xattr "$mnt/b/b/f" lost)" != none ]'
same $lost "$(ask b load 3000)" "a load from a lost page"
same "Bad address" "$(ask b call 3000)" "a system call with a lost page"
same "$(byte 1500)" "$(ask b load 1500)" "a page that had come"
bye b
cluster_stop
echo "pages: all as it should be"
