#!/usr/bin/env bash
# mincore, mlock, mlockall, MAP_LOCKED, MAP_POPULATE, msync and fsync on a segment that is here, away,
# on its way, and back, as rampfs-mmap(3) describes them (pages.c).
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C RAMPFS_QUIET=1
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
holder_on() { # a node, NAME [PREFIX...]
	holder_program=(rampfs-run "$build/tests/pages" "$mnt/$1/$1/f")
	holder "${@:2}"
}
# Of every page, in order: "+3 -5" are three in memory and five that are not.
says_core() { [ "$(ask "$1" core 0)" = "$2" ]; }
core() { same "$2" "$(ask "$1" core 0)" "mincore's answer to $1, $3"; }
answers() { same "$1" "$(ask "$2" "$3" "$4")" "$3 of 2 MiB from page $4, by $2"; }
kib_locked() {
	local pid=${1}_pid
	awk '/^VmLck/ { print $2 }' "/proc/${!pid}/status"
}
locked() { same "$2" "$(kib_locked "$1")" "KiB that $1 has locked"; } # NAME, KiB
has_locked() { [ "$(kib_locked "$1")" = "$2" ]; }
# From the requested pages, which are all there, the pull reads ahead.
came() { # BYTES CAUSE
	local bytes
	bytes=$(xattr "$mnt/b/b/f" resident_bytes)
	[ "$bytes" -ge "$1" ] && [ "$bytes" -lt $(($1 + ($1 ? 1 << 20 : 1))) ] || fail "$bytes bytes have come, by $2; not $1"
}
cluster_start -n 2 -c 128M
head -c 8M /dev/urandom >"$mnt/a/a/f"
truncate -s 10M "$mnt/a/a/f" # 2,048 pages, and a hole of 512
chmod 666 "$mnt/a/a/f"

echo "here"
holder_on a root
holder_on a user "${nobody[@]}"
core root "+2048 -512" "here"
core user "+2560" "here"
holder_on a future
answers "done" future lock_future 0
answers "done" root lock 0
answers "done" root lock 512
locked root 4096
answers "done" root unlock 0
locked root 2048
answers "done" root msync 0
answers "done" root fsync 0

echo "away"
rampfs-migrate --mode demand "$mnt/a/a/f" b
within 10 test -e "$mnt/b/b/f"
core root "-2560" "away"
core user "+2560" "away"
within 10 has_locked root 0 # what a revoke has moved away is unmapped in the background
answers "Cannot allocate memory" root lock 512
answers "done" root msync 0
answers "done" root fsync 0
answers "done" root unmap 1024
answers "Cannot allocate memory" root msync 768

echo "on its way: a call that asks fetches no page, a call that locks or populates fetches all pages that it names"
holder_on b there
holder_on b guest "${nobody[@]}"
within 10 says_core there "+2048 -512" # the reserved room counts
core guest "+2560" "on its way"
answers "done" there msync 0
answers "done" there fsync 0
came 0 "mincore, msync and fsync"
ask there load 7 >"$scratch/byte"
came 4096 "a load"
answers "done" there lock 512
came $((4096 + (2 << 20))) mlock
answers "done" there map_locked 1024
came $((4096 + (4 << 20))) MAP_LOCKED
locked there 4096
answers "done" there lock_future 0
answers "done" there unmap 0
answers "done" there map 0
locked there 6144
came $((4096 + (4 << 20))) "MCL_FUTURE"
answers "done" there map_populate 0
came $((6 << 20)) MAP_POPULATE
core there "+2048 -512" "still on its way"
same pulling "$(xattr "$mnt/b/b/f" state)" "its state"
answers "done" there lock_all 0 # the hole, too, as any file's
came $((10 << 20)) MCL_CURRENT
core there "+2560" "all there"

echo "back: locked pages are locked no more (but by MCL_FUTURE), unmapped pages are not there"
rampfs-migrate --wait "$mnt/b/b/f" a
within 10 test -e "$mnt/a/a/f"
is_back() { [ "$(ask root load 7)" = "$(cat "$scratch/byte")" ]; }
within 10 is_back
locked root 0
locked future 10240
answers "done" root lock 512
locked root 2048
answers "Cannot allocate memory" root msync 768
answers "done" root msync 0
same "Cannot allocate memory" "$(ask root core 0)" "mincore over pages that are not mapped"
for program in root user future there guest; do bye $program; done
echo "a store is charged to the program's cgroup; a write, and pages that have come, to the node's"
group=""
if [ -e /sys/fs/cgroup/memory/memory.usage_in_bytes ]; then
	group=/sys/fs/cgroup/memory/rampfs-test.$$ usage=memory.usage_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	group=/sys/fs/cgroup/rampfs-test.$$ usage=memory.current
fi
in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"); }
charged() { # MiB MIN MAX WHAT
	local now=$(($(cat "$group/$usage") >> 20))
	[ $now -ge "$1" ] && [ $now -lt "$2" ] || fail "$3: $now MiB are charged"
}
if [ -n "$group" ] && mkdir "$group" 2>/dev/null; then
	trap 'status=$?; rmdir "$group" 2>/dev/null || true; cluster_cleanup $status' EXIT
	in_group dd if=/dev/zero of="$mnt/a/a/written" bs=1M count=24 status=none
	charged 0 12 "24 MiB were written"
	truncate -s 24M "$mnt/a/a/stored"
	in_group rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for at in range(0, len(m), 4096):
    m[at] = 1' "$mnt/a/a/stored"
	charged 24 36 "24 MiB were stored, and the program has ended"
	rampfs-migrate --wait "$mnt/a/a/stored" b
	in_group rampfs-run cat "$mnt/b/b/stored" >/dev/null
	charged 0 12 "they have gone to another node"
	rm "$mnt/a/a/written" "$mnt/b/b/stored"
	rmdir "$group"
else
	echo "  not tried: there is no memory cgroup to make one in"
fi
cluster_stop
echo "resident: all as it should be"
