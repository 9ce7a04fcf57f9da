#!/usr/bin/env bash
# A segment comes back under a program that touches it all the time: never a zero, never a stale word.
# Then the same under one that has locked its memory (mlockall, as databases and memcached -k do).
#   returning.sh [SECONDS]
. tests/lib/cluster.sh
cluster_start -n 2 -c 64M
comes_and_goes() { # NAME, returning's arguments
	truncate -s 4M "$mnt/a/a/$1"
	: >"$scratch/said" # it has the output of the run before
	RAMPFS_QUIET=1 rampfs-run "$build/tests/returning" "$mnt/a/a/$1" "${@:2}" >"$scratch/said" &
	toucher=$!
	within 20 grep -q filled "$scratch/said"
	while kill -0 $toucher 2>/dev/null; do
		mv "$mnt/a/a/$1" "$mnt/a/b/" 2>/dev/null || true # too early, now and then
		sleep 0.03
		mv "$mnt/b/b/$1" "$mnt/b/a/" 2>/dev/null || true
	done
	status=0
	wait $toucher || status=$?
	cat "$scratch/said"
	same 0 $status "the toucher's end"
}
comes_and_goes f "${1:-15}"
comes_and_goes locked "${1:-8}" locked
cluster_stop
