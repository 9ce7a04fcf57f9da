#!/usr/bin/env bash
# A proxy in the middle of every connection between three nodes replays, alters, leaves out, cuts,
# exchanges and turns back messages of living control connections. Each time the receiver hangs up on that
# connection at once, and nothing else comes of it.
#   middle.sh [SEED [ROUNDS|told]]
# told: no test; the proxy meddles while a program says so on its standard input (see middle.py, bench/run).
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
# shellcheck source=tests/chaos/net.sh
. tests/chaos/net.sh
net_cluster_start 512M
python3 tests/chaos/middle.py "$scratch/cluster" "$net" "${1-1}" "${2-1}"
cluster_stop
