#!/usr/bin/env bash
# Every operation on a real mount, on tmpfs beside it, and as another node sees it.
. tests/lib/cluster.sh
chmod 755 "$scratch" # also for nobody
cluster_start -n 2 -c 512M
RAMPFS_A=$mnt/a RAMPFS_B=$mnt/b "$build/tests/test_ops"
cluster_stop
