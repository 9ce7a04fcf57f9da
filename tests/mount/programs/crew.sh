#!/usr/bin/env bash
# The threads of one program map, unmap, protect, fork and touch a segment at once, while it leaves
# its node and comes back (crew.c); then its bytes are the same on another node.
#   crew.sh [--seconds N] [--kills SECONDS] [--seed S]      without a seed: a new one, printed
# --kills: meanwhile some node's daemon is killed -9 after SECONDS, again and again.
. tests/lib/cluster.sh
seconds=10 pause="" seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 0 ]; do
	case $1 in
	--seconds) seconds=${2:?--seconds needs a number} ;;
	--kills) pause=${2:?--kills needs seconds} ;;
	--seed) seed=${2:?--seed needs a number} ;;
	*)
		sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
	esac
	shift 2
done
RANDOM=$seed
echo "crew.sh: seed $seed, $seconds s"
cluster_start -n 3 -c 64M
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
kill_daemons() {
	local nodes=(a b c) node
	RANDOM=$seed
	while sleep "$pause"; do
		node=${nodes[RANDOM % 3]}
		kill -9 "$(daemon "$node")" && echo "$node" >>"$scratch/killed"
	done
}
begun() { grep -q begun "$scratch/said" || ! kill -0 $crew 2>/dev/null; }
where() { # prints the node that has it now
	local node
	for node in a b c; do
		[ ! -e "$mnt/a/$node/crew" ] || at=$node
	done
}
modes=(lazy demand copy precopy)
move() { # to a node
	if rampfs-migrate --mode "${modes[RANDOM % 4]}" "$mnt/a/$at/crew" "$1" 2>>"$scratch/refusals"; then
		moves=$((moves + 1))
	else
		refusals=$((refusals + 1))
	fi
}
: >"$scratch/said"
rampfs-run "$build/tests/crew" --seconds "$seconds" --seed "$seed" "$mnt/a/a/crew" >"$scratch/said" 2>"$scratch/lines" &
crew=$!
within 30 begun
if [ -n "$pause" ]; then
	kill_daemons &
	killer=$!
fi
moves=0 refusals=0 at=a
while kill -0 $crew 2>/dev/null; do
	where
	if [ $at = a ]; then
		move "$([ $((RANDOM % 3)) = 0 ] && echo c || echo b)"
		sleep 0.00$((RANDOM % 10))
	else
		move a
		sleep 0.1$((RANDOM % 10))
	fi
done
status=0
wait $crew || status=$?
cat "$scratch/said"
if [ $status != 0 ]; then
	echo "--- the shim's lines, and how often:" >&2
	sed 's/[0-9]\+/N/g' "$scratch/lines" | sort | uniq -c | sort -rn | head -n 20 >&2
fi
echo "$moves moves, $refusals refused:"
[ ! -s "$scratch/refusals" ] || sed 's/.*crew: //; s/[0-9]\+/N/g' "$scratch/refusals" | sort | uniq -c | sort -rn
same 0 $status "the crew's end"
if [ -n "$pause" ]; then
	kill "$killer"
	wait "$killer" || true
	[ -s "$scratch/killed" ] || fail "no daemon was killed"
	echo "$(wc -l <"$scratch/killed") daemons were killed meanwhile"
fi
[ $moves -gt 3 ] || fail "the segment could not be moved more than $moves times"
# The next daemon continues a move during which a daemon was killed.
ends_on() {
	where
	[ $at = "$1" ] || { move "$1" && false; }
}
within 30 ends_on a
sum=$(sha256sum <"$mnt/a/a/crew")
within 30 ends_on b
same "$sum" "$(sha256sum <"$mnt/b/b/crew")" "the bytes on the next node"
cluster_stop
