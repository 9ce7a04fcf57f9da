#!/usr/bin/env bash
# Many segments on one node: tests/mount/ops/many.sh [COUNT], by default 6,000. With 100,000 it takes some minutes,
# nearly all of them to create and unlink the segments: each of these is a commit.
. tests/lib/cluster.sh
export LC_ALL=C
count=${1:-6000}
awake=4096 # SEG_AWAKE_MAX, rampfs/memory/: at most as many segments have an open file and a mapping in the daemon
daemon() {
	local p
	for p in $(pgrep -f -- "rampfs .*$mnt/a"); do
		[ "$(find "/proc/$p/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -gt 8 ] && echo "$p"
	done
}
rss() { awk '/^Rss(Anon|File):/ { kib += $2 } END { print kib }' "/proc/$1/status"; }
cluster_start -n 1 -c 4G
before=$(rss "$(daemon)")

echo "$count segments: each has its bytes, and an unused one has no descriptor and no mapping"
python3 - "$mnt/a/a" "$count" <<'PY'
import os, sys
for i in range(int(sys.argv[2])):
    with open(os.path.join(sys.argv[1], "s%d" % i), "w") as f:
        if i % 100 == 0:
            f.write("bytes of %d\n" % i)
PY
sleep 1 # for a sweep of the mount over its segments
pid=$(daemon)
same yes "$([ "$(find "/proc/$pid/fd" -mindepth 1 -maxdepth 1 | wc -l)" -lt $((awake + 200)) ] && echo yes)" "few descriptors"
same yes "$([ "$(wc -l <"/proc/$pid/maps")" -lt $((awake + 2000)) ] && echo yes)" "few mappings"
each=$((($(rss "$pid") - before) * 1024 / count))
echo "  $each bytes of the daemon each"
# A sanitizer's bookkeeping does not count.
ldd "$build/bin/rampfs" | grep -q 'lib.san' || [ $each -le 2048 ] || fail "more than 2 KiB of the daemon a segment"

# The figures are for the reader (2 s is the goal): they are not judged here.
took() { echo "  $1 in $(((${EPOCHREALTIME/./} - begin) / 1000)) ms"; }
lists() {
	local begin i
	begin=${EPOCHREALTIME/./}
	same "$count" "$(find "$mnt/a/a" -mindepth 1 -maxdepth 1 | wc -l)" "entries"
	took "listed"
	begin=${EPOCHREALTIME/./}
	same "segments: $count" "$(grep '^segments:' "$mnt/a/.ramp/status")" "status"
	rampfs-status "$mnt/a" >"$scratch/table"
	took "rampfs-status"
	begin=${EPOCHREALTIME/./}
	rampfs-status --json "$mnt/a" >"$scratch/json"
	took "rampfs-status --json"
	python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
n, a = int(sys.argv[2]), {x["name"]: x for x in s["segments"]}
assert len(s["segments"]) == n and set(a) == {"s%d" % i for i in range(n)}
assert a["s100"]["size_bytes"] == len("bytes of 100\n") and a["s101"]["size_bytes"] == 0
assert a["s100"]["resident_bytes"] > 0 and all(x["state"] == "stable" for x in a.values())' "$scratch/json" "$count"
	for i in 0 $((count / 2 / 100 * 100)) $(((count - 1) / 100 * 100)); do
		same "bytes of $i" "$(cat "$mnt/a/a/s$i")" "bytes of one"
	done
}
echo "listed, by ls and by rampfs-status"
lists
same 2000 "$(grep -c '^a/s' "$scratch/table")" "lines of the table"
grep -q "^\.\.\. and $((count - 2000)) more" "$scratch/table" || fail "the table does not say how many are left out"

echo "killed, the next daemon has them all; unmounted and mounted again, too"
kill -9 "$pid"
lists
umount "$mnt/a"
within 30 flock -n "$state/a/lock" true
contrib/local-cluster start -n 1 "$scratch/cluster"
lists
echo more >>"$mnt/a/a/s$((count - 1))"
same more "$(cat "$mnt/a/a/s$((count - 1))")" "one at rest is written"

echo "two readers at a time each get one whole answer"
for _ in 1 2 3; do
	rampfs-status --json "$mnt/a" >"$scratch/json1" &
	rampfs-status --json "$mnt/a" >"$scratch/json2"
	wait $!
	for i in 1 2; do same "$count" "$(grep -c '"name":	"s' "$scratch/json$i")" "segments of one of two answers"; done
done

echo "unlinked: names, rows and memory go"
find "$mnt/a/a" -type f -delete
same 0 "$(find "$mnt/a/a" -mindepth 1 | wc -l)" "entries"
empty() { ! compgen -G "$state/a/store/[1-9]*" >/dev/null; }
within 60 empty
cluster_stop
echo "many: all well"
