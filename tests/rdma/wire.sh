#!/usr/bin/env bash
# A node in each of two guests that a wire joins: a segment moves over it by RDMA, the wire goes in the middle
# of a pull, which waits, and continues when the wire is back.
#   wire.sh KIND 4|6            boots both guests, by vm.sh; over IPv6 with large packets
#   wire.sh node NAME DIR 4|6   in a guest
set -eu
if [ "$1" != node ]; then
	kind=$1 family=$2
	prefix=10.0.0. suffix=
	[ "$family" = 4 ] || prefix='[fd00:2::' suffix=']'
	dir=$(mktemp -d "${TMPDIR:-/tmp}/rampfs-wire.XXXXXX")
	trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
	{
		printf '[cluster]\nname=wire\n'
		for n in a b; do
			printf '[node %s]\naddress=%s:7400\ncapacity=128M\ntransport=verbs\n' $n "$prefix$(($(printf '%d' "'$n") - 96))$suffix"
		done
	} >"$dir/cluster.conf"
	PATH=$RAMPFS_BUILD/bin:$PATH
	for n in a b; do
		mkfs.rampfs --config "$dir/cluster.conf" --key "$dir/cluster.key" --node $n "$dir/state-$n" >/dev/null
	done
	nic() {
		echo "-netdev dgram,id=n,local.type=unix,local.path=$dir/$1,remote.type=unix,remote.path=$dir/$2" \
			"-device virtio-net-device,netdev=n,mac=52:54:00:00:00:0$1"
	}
	guest() { # NAME NIC ADDRESS
		tests/rdma/vm.sh -m 768 -t 200 -d "$kind:eth0:10.0.0.$3" -q "$2" \
			"RAMPFS_BUILD=$RAMPFS_BUILD tests/rdma/wire.sh node $1 $dir $family" | sed -u "s/^/$1: /"
		return "${PIPESTATUS[0]}"
	}
	guest a "$(nic 1 2)" 1 &
	other=$!
	status=0
	guest b "$(nic 2 1)" 2 || status=$?
	wait $other || status=$?
	exit $status
fi
name=$2 dir=$3 family=$4 mib=48 m=/mnt/ramp
export PATH=$RAMPFS_BUILD/bin:$PATH
t() { echo "@@T $*"; }
fail() {
	echo "FAILED: $*"
	tail -n 20 /tmp/node.log
	exit 1
}
within() {
	local until=$((SECONDS + $1))
	until eval "$2" 2>/dev/null; do
		[ $SECONDS -lt $until ] || fail "did not come true in $1 s: $2"
		sleep 0.1
	done
}
metric() { awk -v name="rampfs_$1" '$1 == name { print $2 }' $m/.ramp/metrics; }
bytes() { rampfs-run "$RAMPFS_BUILD/tests/bytes" "$@"; }
mkdir -p $m /tmp/state
cp -a "$dir/state-$name" /tmp/state/
prefix=10.0.0.
if [ "$family" = 6 ]; then
	prefix=fd00:2::
	ip link set eth0 mtu 9000
	ip addr add "$prefix$(($(printf '%d' "'$name") - 96))/64" dev eth0 nodad
	echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down
fi
for i in 1 2; do within 60 "busybox ping -c1 -W1 $prefix$i >/dev/null"; done
rampfs -o log=/tmp/node.log "/tmp/state/state-$name" $m || fail "no daemon"
within 60 "grep -q '^quorum: *yes' $m/.ramp/status && grep -q '^a .* up ' $m/.ramp/nodes && grep -q '^b .* up ' $m/.ramp/nodes"
t "a node"
[ "$(metric rdma_device)" = 1 ] || fail "no device"
if [ "$name" = a ]; then
	bytes fill $m/a/seg $mib 1
	within 60 'rampfs-status $m | grep "^ *b " | grep -q RDMA'
	rampfs-migrate --mode demand $m/a/seg b
	t "it has left"
	within 120 "[ -e $m/b/done ]"
	within 60 "touch $m/a/end"
	sleep 3
else
	within 90 "[ -e $m/b/seg ]"
	by_rdma() { metric 'rdma_read_bytes_total{peer="a"}'; }
	# It lasts as long as the program that loads it.
	bytes slowly $m/b/seg $mib 1 &
	reader=$!
	within 60 "[ \$(by_rdma) -gt 0 ] || ! kill -0 $reader"
	grep -q ' pulling' $m/.ramp/status || fail "the pull is over, with $(by_rdma) bytes by RDMA"
	ip link set eth0 down
	t "the wire has gone in the middle of the pull"
	sleep 6 # longer than a link may be silent
	[ "$(getfattr --only-values -n user.ramp.lost $m/b/seg 2>/dev/null)" = none ] || fail "pages are lost"
	kill -0 $reader || fail "the program does not wait for its pages"
	ip link set eth0 up
	wait $reader || fail "bytes that came after the wire was back"
	within 90 "! grep -q ' pulling\| moving' $m/.ramp/status"
	bytes check $m/b/seg $mib 1 || fail "its bytes"
	[ "$(by_rdma)" -gt 0 ] || fail "nothing came by RDMA"
	t "all is here, $(by_rdma) bytes of it by RDMA"
	within 60 "touch $m/b/done" # there is a leader again only some time after the cut
	within 60 "[ -e $m/a/end ]"
fi
umount $m
within 30 '! pgrep -f "rampfs --daemon"'
! grep -q 'no step from' /tmp/node.log || fail "an error in the log"
t "the end"
