#!/usr/bin/env bash
# In a guest (vm.sh): three daemons, each on an address of one device, read pages by RDMA, and by TCP
# where that fails.
#   guest.sh DEVICE INTERFACE KIND
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
device=$1 interface=$2 kind=$3 mib=48
t() { echo "@@T $*"; }
quietly() { "$@" 2>/dev/null; }
for i in 1 2 3; do
	[ $i = 1 ] || ip addr add "10.0.1.$i/24" dev "$interface"
	ip addr add "fd00:1::$i/64" dev "$interface" nodad
done
bytes() { rampfs-run "$build/tests/bytes" "$@"; }
# metric NODE NAME
metric() { awk -v name="rampfs_$2" '$1 == name { print $2 }' "$mnt/$1/.ramp/metrics"; }
from() { metric "$1" "$3{peer=\"$2\"}"; } # from NODE PEER NAME
stable() { ! grep -q " pulling\| moving" "$mnt/$1/.ramp/status"; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$" | head -n 1; }
# Processor time of the threads that serve others over TCP.
serves() {
	local n=0 task
	for task in /proc/"$(daemon "$1")"/task/*; do
		case $(cat "$task/comm") in serve*) n=$((n + $(awk '{ print $14 + $15 }' "$task/stat"))) ;; esac
	done
	echo $n
}
fill() { bytes fill "$mnt/$1/$1/$2" $mib "$3" && within 20 test -e "$mnt/c/$1/$2"; }
# move NAME FROM TO [OPTION...]: and the name is there. On a busy machine there is no quorum at times.
moved() {
	local said
	said=$(rampfs-migrate "${@:4}" "$mnt/$2/$2/$1" "$3" 2>&1) && return 0
	case $said in *"no quorum"*) return 1 ;; *) fail "$said" ;; esac
}
move() {
	at_most 60 moved "$@"
	within 30 test -e "$mnt/$3/$3/$1"
}
there() { at_most 60 stable "$1" && bytes check "$mnt/$1/$1/$2" $mib "$3" || fail "$2 at $1 is not as it was"; }
gone() { rm "$mnt/$1/$1/$2" && within 20 test ! -e "$mnt/c/$1/$2"; }
# over_rdma NAME FROM TO [OPTION...]: it is there, and a part came by RDMA: what comes before a queue pair is
# connected does not. A software device that stands still on a busy machine is given up after 2 s, rightly:
# then once more.
over_rdma() {
	local was n
	for _ in 1 2 3 4; do
		was=$(from "$3" "$2" rdma_read_bytes_total)
		move "$1" "$2" "$3" --wait "${@:4}"
		n=$(($(from "$3" "$2" rdma_read_bytes_total) - was))
		echo "$n of $((mib << 20)) bytes from $2 to $3 came by RDMA"
		[ $n -lt $((mib << 17)) ] || return 0
		move "$1" "$3" "$2" --wait
	done
	fail "nothing comes by RDMA: $(grep rdma "$mnt/$3/.ramp/metrics" | grep -v '^#')"
}

# A program loads all of it at b, and some has come by RDMA: a pull on demand lasts as long as that. Where the
# device stands still, once more.
begin_pull() { # NAME SEED
	local was
	for _ in 1 2 3 4; do
		fill a "$1" "$2"
		was=$(from b a rdma_read_bytes_total)
		move "$1" a b --mode demand
		rampfs-run "$build/tests/bytes" slowly "$mnt/b/b/$1" $mib "$2" &
		reader=$!
		within 120 eval '[ "$(from b a rdma_read_bytes_total)" -gt '"$was"' ] || ! kill -0 $reader 2>/dev/null'
		if grep -q " pulling from .*, [1-9]" "$mnt/b/.ramp/status" && [ "$(from b a rdma_read_bytes_total)" -gt "$was" ]; then
			return
		fi
		end_pull "$1"
		gone b "$1"
	done
	fail "no pull goes over RDMA"
}
end_pull() { # NAME
	wait $reader || fail "$1 at b is not as it was"
	at_most 60 stable b
}

# nodes PROGRAM PREFIX [ARGUMENT]: one of the programs with three nodes in a process, at those addresses
nodes() {
	"$build/tests/$1" "${2}1" "${2}2" "${2}3" "${@:3}" >"$scratch/nodes" 2>&1 || {
		tail -n 40 "$scratch/nodes"
		fail "$1 $2 ${*:3}"
	}
}
# shellcheck source=tests/rdma/guest_cases.sh
. tests/rdma/guest_cases.sh

t "keys in the wrong hands"
nodes test_rdma_keys 10.0.1.
t "requests that prove nothing, readers that write, queues that are full"
nodes test_rdma_input 10.0.1.
t "reads of all sizes, over IPv6, too"
nodes test_rdma_input 10.0.1. 1024
nodes test_rdma_input fd00:1:: 1024

export HOLD_MOUNT=$mnt/a HOLD_FILE=$scratch/hold RAMPFS_QUIET=1
# auto: it finds the device.
LD_PRELOAD=$build/tests/libhold.so cluster_start -n 3 -c 224M -H 10.0.1.1,10.0.1.2,10.0.1.3 -T auto
t "a cluster of three"
for n in a b c; do
	same 1 "$(metric $n rdma_device)" "$n has a device"
	grep -q "RDMA device $device" "$scratch/cluster/$n.log" || fail "$n's log tells of no device"
done
within 30 eval '[ "$(rampfs-status "$mnt/a" | grep -c RDMA)" = 3 ]'

t "a segment moves away from a program that stores, and is read by RDMA"
leaves_writer
t "stores of two nodes in an account, while the segment moves to and fro"
oracle

t "to and fro, with stores at each node"
fill a fro 10
over_rdma fro a b
bytes change "$mnt/b/b/fro" $mib 11
over_rdma fro b c
bytes mixed "$mnt/c/c/fro" $mib 10 11 || fail "after two moves"
over_rdma fro c a --mode copy
bytes mixed "$mnt/a/a/fro" $mib 10 11 || fail "after a copy"
within 30 eval '[ "$(from a b rdma_registered_bytes)" = 0 ] && [ "$(from b c rdma_registered_bytes)" = 0 ] && [ "$(from c a rdma_registered_bytes)" = 0 ]'
gone a fro

t "pages punched, and stored to again, between the look and the freeze"
punched
t "a page that failed before"
poisoned
t "a device's descriptors"
check_descriptors
t "memcached"
memcached_case

kill_in_pull() { # NODE NAME SEED
	local was_daemon
	begin_pull "$2" "$3"
	was_daemon=$(daemon "$1")
	kill -KILL "$was_daemon"
	within 20 eval "[ -n \"\$(daemon $1)\" ] && [ \"\$(daemon $1)\" != $was_daemon ]"
	end_pull "$2"
	gone b "$2"
}
t "what is seen of a pull"
check_figures
t "kill -9 of the source in the middle of a pull"
kill_in_pull a source 20
t "kill -9 of the target in the middle of a pull"
kill_in_pull b target 30
t "and by RDMA again"
within 30 eval '[ "$(metric a rdma_device)$(metric b rdma_device)" = 11 ]'
within 40 eval 'rampfs-status "$mnt/b" | grep "^ *a " | grep -q RDMA'
fill a again 40
over_rdma again a b
there b again 40
gone b again

t "the device goes in the middle of a pull"
fill a device 50
move device a b --mode demand
holder_program=(rampfs-run "$build/tests/pages" "$mnt/b/b/device")
holder reader
page=$((mib * 256))
load_one() {
	page=$((page - 5))
	[ $page -gt 0 ] || fail "nothing comes by RDMA"
	ask reader load $page >"$scratch/said"
}
until_rdma() {
	local was
	was=$(from b a rdma_reads_total)
	while [ "$(from b a rdma_reads_total)" = "$was" ]; do load_one; done
}
until_rdma
rdma link delete "$device" &
deletes=$!
while kill -0 $deletes 2>"$scratch/said"; do load_one; done
wait $deletes
for n in a b c; do within 20 eval '[ "$(metric $n rdma_device)" = 0 ]'; done
for _ in 1 2 3; do load_one; done
t "it comes back in the same pull, with another MTU"
ip link set "$interface" mtu 9000
rdma link add "$device" type "$kind" netdev "$interface"
for n in a b c; do within 40 eval '[ "$(metric $n rdma_device)" = 1 ]'; done
within 40 eval 'rampfs-status "$mnt/b" | grep "^ *a " | grep -q RDMA'
until_rdma
bye reader
bytes check "$mnt/b/b/device" $mib 50 || fail "device at b is not as it was"
at_most 60 stable b
within 40 eval 'rampfs-status "$mnt/a" | grep "^ *b " | grep -q RDMA'
over_rdma device b a
there a device 50
t "reads of all sizes, with that MTU"
nodes test_rdma_input 10.0.1. 4096
nodes test_rdma_input fd00:1:: 4096

t "a node without RDMA among nodes that have it"
restart c transport=tcp
within 40 grep -q "^c .* up .*transport=tcp" "$mnt/a/.ramp/nodes"
move device a c --wait
there c device 50
same 0 "$(metric c rdma_device)" "c's device"
move device c b --wait
there b device 50
gone b device
no_device_there
t "a node that may pin little"
limited
t "a target that is fenced in the middle of a pull"
target_fenced
! grep -h "no step from\|Assertion" "$scratch"/cluster/?.log || fail "a daemon's log has an error"
cluster_stop
t "the end"
