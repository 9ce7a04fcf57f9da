#!/usr/bin/env bash
# Daemons of sources, targets and the leader are killed -9 at random moments of moves, with live
# programs: every segment stays with one owner, whole, and everything settles.
#   kills.sh [SEED [KILLS [ROUNDS]]]
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
python3 tests/chaos/kills.py "$scratch/cluster" "${1-1}" "${2-60}" "${3-4}"
cluster_stop
