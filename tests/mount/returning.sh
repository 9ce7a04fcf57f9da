#!/usr/bin/env bash
# A segment comes back under a program that touches it all the time: never a zero, never a stale word.
#   returning.sh [SECONDS]
. tests/lib/cluster.sh
cluster_start -n 2 -c 64M
truncate -s 4M "$mnt/a/a/f"
RAMPFS_QUIET=1 rampfs-run "$build/tests/returning" "$mnt/a/a/f" "${1:-15}" >"$scratch/said" &
toucher=$!
within 20 grep -q filled "$scratch/said"
while kill -0 $toucher 2>/dev/null; do
	mv "$mnt/a/a/f" "$mnt/a/b/" 2>/dev/null || true # too early, now and then
	sleep 0.03
	mv "$mnt/b/b/f" "$mnt/b/a/" 2>/dev/null || true
done
status=0
wait $toucher || status=$?
cat "$scratch/said"
same 0 $status "the toucher's end"
cluster_stop
