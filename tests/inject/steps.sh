#!/usr/bin/env bash
# tests/inject/steps.sh [many|huge|precopy]: a kill at each step of a revoke, in a cluster of its own (steps.py); or that part alone.
. tests/lib/cluster.sh
mkdir "$scratch/control"
export INJECT_DIR=$scratch/control
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
LD_PRELOAD=$build/tests/libsteps.so
export ASAN_OPTIONS LD_PRELOAD
cluster_up=yes
PYTHONDONTWRITEBYTECODE=1 python3 tests/inject/steps.py "$scratch/cluster" "$scratch/control" "$@"
unset LD_PRELOAD
