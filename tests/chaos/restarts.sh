#!/usr/bin/env bash
# Keeper and daemon are killed at once and rampfs is started again: of the target of a pull, of its
# source, and at random moments of moves, with live programs.
#   restarts.sh [SEED [RESTARTS [ROUNDS]]]
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
python3 tests/chaos/restarts.py "$scratch/cluster" "${1-1}" "${2-24}" "${3-3}"
cluster_stop
