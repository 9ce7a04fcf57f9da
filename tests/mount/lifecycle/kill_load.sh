#!/usr/bin/env bash
# The daemon killed again and again under a verifying load, then its keeper, then both.
#   kill_load.sh [KILLS]
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
"$build/tests/kill_load" "$mnt/a" a "${1-100}"
cluster_stop
