#!/usr/bin/env bash
# Random operations on names as three users, against tmpfs; then readers, writers and movers at once.
#   names.sh [--ops N] [--seed S]
. tests/lib/cluster.sh
chmod 755 "$scratch" # also for the users
cluster_start -n 3 -c 512M
beside=$(mktemp -d /dev/shm/rampfs-names.XXXXXX)
chmod 755 "$beside" # as MOUNT
mkdir -m 1777 "$beside/a"
trap 'status=$?; rm -rf "$beside"; cluster_cleanup $status' EXIT
case " $* " in
*" --seed "*) ;;
*) set -- "$@" --seed $((RANDOM * 32768 + RANDOM)) ;;
esac
"$build/tests/names" "$@" "$beside/a" "$mnt/a/a" "$mnt/b/a"
"$build/tests/storm" "${RAMPFS_STORM_SECONDS:-8}" "$mnt/a" "$mnt/b" "$mnt/c"
cluster_stop
