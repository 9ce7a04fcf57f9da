#!/usr/bin/env bash
# Live writers on two nodes, and hundreds of moves meanwhile: oracle.c keeps the account.
#   oracle.sh [--seed N] MEBIBYTES THREADS ROUNDS [small|huge|mixed]
# ORACLE_MODES="lazy precopy": by rampfs-migrate, in modes at random. ORACLE_PREFILL=b: b is kept near. ORACLE_IO=1: one
# thread stores by pwrite(2).
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
export ORACLE_MIGRATE="$build/bin/rampfs-migrate"
seed=1
if [ "$1" = --seed ]; then
	seed=$2
	shift 2
fi
rampfs-run "$build/tests/oracle" --seed "$seed" "$mnt/a" a "$mnt/b" b "$@"
cluster_stop
