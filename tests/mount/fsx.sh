#!/usr/bin/env bash
# Random operations and moves on three nodes, against tmpfs: fsx.c keeps the model.
#   fsx.sh [--ops N] [--seed S]      without a seed: a new one, printed
# RAMPFS_FSX_OPS=1000000 makes the suite's run a long one.
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
run() { RAMPFS_QUIET=1 timeout -k 10 "${RAMPFS_FSX_SECONDS:-7200}" rampfs-run "$build/tests/fsx" "$@" "$mnt/a" "$mnt/b" "$mnt/c"; }
case " $* " in
*" --seed "*) ;;
*) set -- "$@" --seed $((RANDOM * 32768 + RANDOM)) ;;
esac
run --ops "${RAMPFS_FSX_OPS:-25000}" "$@"
rm "$mnt"/a/?/fsx
# A tester that does not see a wrong byte is none.
if run --seed 1 --ops 200 --lie 150 >"$scratch/lie"; then fail "a byte was wrong, and nobody saw it"; fi
grep -q 'differ\|said to be in a hole' "$scratch/lie" || { cat "$scratch/lie"; fail "it failed for another reason"; }
cluster_stop
