#!/usr/bin/env bash
# tests/inject/inject.sh [OPTION...]: failing calls, one by one, in a cluster of its own (--help describes the
# conditions and the options).
case " $* " in *" --help "* | *" -h "*) exec python3 tests/inject/inject.py --help ;; esac
. tests/lib/cluster.sh
mkdir "$scratch/control"
export INJECT_DIR=$scratch/control
# The library comes before AddressSanitizer's, which it calls.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0:allocator_may_return_null=1
LD_PRELOAD=$build/tests/libinject.so
# OpenSSL does not free the memory that it got before it failed at its start.
echo leak:libcrypto >"$scratch/lsan"
LSAN_OPTIONS=suppressions=$scratch/lsan:print_suppressions=0
export ASAN_OPTIONS LSAN_OPTIONS LD_PRELOAD
cluster_up=yes
python3 tests/inject/inject.py "$scratch/cluster" "$scratch/control" "$@"
unset LD_PRELOAD
