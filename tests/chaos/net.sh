# shellcheck shell=bash disable=SC2154,SC2034 # variables of cluster.sh
# A cluster of nodes a, b, c with separate networks: each node is in a network namespace of its own, and a
# bridge in another namespace joins them. Needs tests/lib/cluster.sh.
#   net_cluster_start CAPACITY
nodes="a b c"
net=rampfs-$$
in_net() { nsenter --net="/run/netns/$net-$1" "${@:2}"; }
address() { echo "10.111.0.$(($(printf '%d' "'$1") - 96))"; }
net_make() {
	local n
	ip netns add "$net-hub"
	in_net hub ip link add hub type bridge
	in_net hub ip link set hub up
	for n in $nodes; do
		ip netns add "$net-$n"
		in_net hub ip link add "to-$n" type veth peer name eth0 netns "$net-$n"
		in_net hub ip link set "to-$n" master hub up
		in_net "$n" ip address add "$(address "$n")/24" dev eth0
		in_net "$n" ip link set eth0 up
		in_net "$n" ip link set lo up
	done
}
# Drops only the names: a process that still runs inside keeps its network.
net_drop_names() {
	local n
	for n in hub $nodes; do ip netns delete "$net-$n" 2>/dev/null || true; done
}
net_start_node() { in_net "$1" rampfs -o "log=$scratch/cluster/$1.log" "$state/$1" "$mnt/$1"; }
net_cluster_start() {
	local n dir=$scratch/cluster
	net_make
	mkdir -p "$dir/state" "$dir/mnt"
	printf '[cluster]\nname=local\n' >"$dir/cluster.conf"
	for n in $nodes; do
		printf '\n[node %s]\naddress=%s:7000\ncapacity=%s\n' "$n" "$(address "$n")" "$1" >>"$dir/cluster.conf"
	done
	for n in $nodes; do
		mkdir "$mnt/$n"
		mkfs.rampfs --config "$dir/cluster.conf" --key "$dir/cluster.key" --node "$n" "$state/$n" >/dev/null
	done
	cluster_up=yes
	for n in $nodes; do net_start_node "$n"; done
	cluster_start # waits until every node sees every node
}
net_finish() {
	local status=$?
	net_drop_names
	set +e
	(exit "$status")
	cluster_cleanup
}
trap net_finish EXIT
