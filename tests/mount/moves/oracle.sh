#!/usr/bin/env bash
# Live writers on two nodes, and hundreds of moves meanwhile: oracle.c keeps the account.
#   oracle.sh MEBIBYTES THREADS ROUNDS [small|mixed]
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
rampfs-run "$build/tests/oracle" "$mnt/a" a "$mnt/b" b "$@"
cluster_stop
