#!/usr/bin/env bash
# Live writers on two nodes, and hundreds of moves meanwhile: oracle.c keeps the account.
#   oracle.sh MEBIBYTES THREADS ROUNDS [small|mixed]
# ORACLE_MODES="lazy precopy": by rampfs-migrate, in modes at random. ORACLE_PREFILL=b: b is kept near.
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
export ORACLE_MIGRATE="$build/bin/rampfs-migrate"
rampfs-run "$build/tests/oracle" "$mnt/a" a "$mnt/b" b "$@"
cluster_stop
