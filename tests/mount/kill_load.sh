#!/usr/bin/env bash
# The daemon killed a hundred times under a verifying load, then its keeper, then both.
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
"$build/tests/kill_load" "$mnt/a" a "${KILLS:-100}"
cluster_stop
