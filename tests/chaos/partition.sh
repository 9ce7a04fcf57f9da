#!/usr/bin/env bash
# Cables are pulled, and packets lost one way, at random moments of moves and pulls. There are no two
# owners, all bytes are right after healing, and threads that wait for a silent source continue when it
# speaks again.
#   partition.sh [SEED [ROUNDS]]
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
# shellcheck source=tests/chaos/net.sh
. tests/chaos/net.sh
net_cluster_start 512M
python3 tests/chaos/partition.py "$scratch/cluster" "$net" "${1-1}" "${2-6}"
cluster_stop
