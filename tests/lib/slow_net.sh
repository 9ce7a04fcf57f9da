# shellcheck shell=bash
# A network of a script's own, whose speed the script may set. The first lines of a script:
#   . tests/lib/slow_net.sh; slow_net_enter "$@"
# Runs the script again in a network namespace of its own.
slow_net_enter() {
	if [ -z "${SLOW_NET-}" ]; then
		SLOW_NET=its-own exec unshare --net "$0" "$@"
	fi
	ip link set lo up
}
# From now on page data go at this rate (as of tc(8)). They go in the longest packets, the members' messages
# in short ones, which have no bound.
slow_net() {
	tc qdisc add dev lo root handle 1: htb default 1
	tc class add dev lo parent 1: classid 1:1 htb rate 100gbit
	tc class add dev lo parent 1: classid 1:2 htb rate "$1"
	tc filter add dev lo parent 1: protocol ip u32 match u16 0x8000 0x8000 at 2 flowid 1:2
}
fast_net() { tc qdisc del dev lo root; }
