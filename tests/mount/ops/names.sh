#!/usr/bin/env bash
# Random operations on names as three users, against tmpfs; then readers, writers and movers at once.
#   names.sh [--storm SECONDS] [--ops N] [--seed S]      without a seed: a new one, printed
. tests/lib/cluster.sh
storm=8
if [ "${1-}" = --storm ]; then
	storm=$2
	shift 2
fi
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
"$build/tests/storm" "$storm" "$seed" "$mnt/a" "$mnt/b" "$mnt/c"
cluster_stop
