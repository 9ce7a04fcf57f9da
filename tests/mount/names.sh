#!/usr/bin/env bash
# Random operations on names as three users, against tmpfs; then readers, writers and movers at once.
#   names.sh [--ops N] [--seed S]      without a seed: a new one, printed
. tests/lib/cluster.sh
chmod 755 "$scratch" # also for the users
cluster_start -n 3 -c 512M
beside=$(mktemp -d /dev/shm/rampfs-names.XXXXXX)
chmod 755 "$beside" # as MOUNT
mkdir -m 1777 "$beside/a"
trap 'status=$?; rm -rf "$beside"; cluster_cleanup $status' EXIT
seed=$((RANDOM * 32768 + RANDOM))
words=" $* "
case $words in *" --seed "*) seed=${words##* --seed } seed=${seed%% *} ;; esac
"$build/tests/names" "$@" --seed "$seed" "$beside/a" "$mnt/a/a" "$mnt/b/a"
"$build/tests/storm" "${RAMPFS_STORM_SECONDS:-8}" "$seed" "$mnt/a" "$mnt/b" "$mnt/c"
cluster_stop
