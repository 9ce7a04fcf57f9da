#!/usr/bin/env bash
# Random operations and moves on three nodes, against tmpfs: fsx.c keeps the model.
#   fsx.sh [--kills SECONDS] [--user UID] [--ops N] [--seed S]      without a seed: a new one, printed
# --kills: meanwhile some node's daemon is killed -9 after SECONDS, again and again. --user: by a user's program, which
# the daemon trusts less than root's (seg_hand_out).
. tests/lib/cluster.sh
pause="" as=()
while true; do
	case "${1-}" in
	--kills) pause=$2 ;;
	--user) as=(setpriv "--reuid=$2" "--regid=$2" --clear-groups) ;;
	*) break ;;
	esac
	shift 2
done
cluster_start -n 3 -c 512M
run() { RAMPFS_QUIET=1 timeout -k 10 7200 "${as[@]}" rampfs-run "$build/tests/fsx" "$@" "$mnt/a" "$mnt/b" "$mnt/c"; }
kill_daemons() {
	local nodes=(a b c) node
	while sleep "$pause"; do
		node=${nodes[RANDOM % 3]}
		pkill -9 -f -- "rampfs --daemon .*$mnt/$node\$" && echo $node >>"$scratch/killed"
	done
}
case " $* " in
*" --seed "*) ;;
*) set -- "$@" --seed $((RANDOM * 32768 + RANDOM)) ;;
esac
if [ -n "$pause" ]; then
	kill_daemons &
	killer=$!
fi
run --ops 25000 "$@"
if [ -n "$pause" ]; then
	kill $killer
	wait $killer || true
	[ -s "$scratch/killed" ] || fail "no daemon was killed"
	echo "$(wc -l <"$scratch/killed") daemons were killed meanwhile"
fi
rm "$mnt"/a/?/fsx
# A tester that does not see a wrong byte is worthless.
if run --seed 1 --ops 200 --lie 150 >"$scratch/lie"; then fail "a byte was wrong, and the tester did not see it"; fi
grep -q 'differ\|said to be in a hole' "$scratch/lie" || { cat "$scratch/lie"; fail "it failed for another reason"; }
cluster_stop
