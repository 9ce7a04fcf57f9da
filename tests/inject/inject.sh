#!/usr/bin/env bash
# tests/inject/inject.sh [--all [--first N]] [--seed S] [--seconds T] [--path P] [--kind K]: failing calls, one by
# one, in the daemons of a cluster of its own (inject.py says what must hold).
. tests/lib/cluster.sh
mkdir "$scratch/control"
export INJECT_DIR=$scratch/control
# The library stands before AddressSanitizer's, which it calls.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0:allocator_may_return_null=1
LD_PRELOAD=$build/tests/libinject.so
export ASAN_OPTIONS LD_PRELOAD
cluster_up=yes
python3 tests/inject/inject.py "$scratch/cluster" "$scratch/control" "$@"
unset LD_PRELOAD
