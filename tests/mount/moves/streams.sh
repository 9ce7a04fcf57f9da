#!/usr/bin/env bash
# A segment is pulled over a network of four paths of 2 Gb/s, of which each connection takes one, as with
# link aggregation or several equal routes: several connections use several paths, and nothing is lost where
# they are cut or the source is killed meanwhile.
#   streams.sh [measure [RUNS]]
# measure: no test; prints the speed of a pull with streams=1, auto and 4, by turns, with those paths and
# with one network that any connection can fill.
# shellcheck source=tests/lib/cluster.sh
. tests/lib/cluster.sh
# shellcheck source=tests/chaos/net.sh
. tests/chaos/net.sh
net_cluster_start 640M
mib=${MIB-96}
# To node b: by two bits of the port there, which differ between connections that begin one after the other.
paths() {
	local i
	in_net a tc qdisc replace dev eth0 root handle 1: htb default 4
	for i in 1 2 3 4; do
		in_net a tc class replace dev eth0 parent 1: classid "1:$i" htb rate "${1}mbit" burst 512k quantum 60000
		in_net a tc filter add dev eth0 parent 1: protocol ip prio 1 u32 \
			match ip dport $(((i - 1) * 2)) 0x0006 flowid "1:$i"
	done
}
no_paths() { in_net a tc qdisc del dev eth0 root; }
sent() { in_net a tc -s class show dev eth0 | awk '/^class htb/ { c = $3 } / Sent / { print c, $2 }' | sort | awk '{ print $2 }'; }
# Both ends begin again with that number. auto: none in the file.
streams() {
	local n
	for n in a b; do
		umount "$mnt/$n"
		sed -i '/^streams=/d' "$state/$n/cluster.conf"
		[ "$1" = auto ] || sed -i "s/^capacity=.*/&\nstreams=$1/" "$state/$n/cluster.conf"
	done
	for n in a b; do within 30 quietly net_start_node "$n"; done
	for n in a b c; do within 30 grep -q 'quorum: yes' "$mnt/$n/.ramp/status"; done
	within 30 grep -q '^b .* up ' "$mnt/a/.ramp/nodes"
}
quietly() { "$@" 2>/dev/null; }
fill() {
	rampfs-run python3 -c 'import mmap, os, sys
n = int(sys.argv[2]) << 20
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(f, n)
m = mmap.mmap(f, n)
block = os.urandom(1 << 20)
for at in range(0, n, 1 << 20):
    m[at:at + (1 << 20)] = block[at >> 20:] + block[:at >> 20]' "$1" "$2"
}
sum() { sha1sum <"$1"; }
connections() { awk '/^rampfs_peer_prefetch_connections{peer="a"}/ { n = $2 } END { print n + 0 }' "$mnt/b/.ramp/metrics"; }
gone() { within 20 quietly rm "$mnt/b/b/$1" && within 20 test ! -e "$mnt/a/b/$1"; }
# The speed of one pull, in MB/s.
speed() {
	fill "$mnt/a/a/s" "$mib"
	rampfs-migrate --wait "$mnt/a/a/s" b
	awk '/pulled [0-9]+ pages/ { for (i = 1; i < NF; i++) { if ($i == "pulled") p = $(i + 1); if ($(i + 1) == "us") u = $i } }
		END { printf "%d\n", p * 4096 / u }' "$scratch/cluster/b.log"
	gone s
}
if [ "${1-}" = measure ]; then
	for kind in paths one; do
		for _ in $(seq "${2-3}"); do
			for n in 1 auto 4; do
				streams $n
				if [ $kind = paths ]; then paths 2000; fi
				echo "$kind streams=$n $(speed) MB/s"
				if [ $kind = paths ]; then no_paths; fi
			done
		done
	done
	cluster_stop
	exit
fi

echo "with one connection, one path; with four, several at once"
paths 400
streams 1
fill "$mnt/a/a/one" "$mib"
before=$(sum "$mnt/a/a/one")
rampfs-migrate "$mnt/a/a/one" b
within 20 test -e "$mnt/b/b/one"
[ "$(connections)" -le 1 ] || fail "$(connections) connections"
same "$before" "$(sum "$mnt/b/b/one")" "its bytes"
same 1 "$(sent | awk -v all="$((mib << 20))" '$1 > all / 10' | wc -l)" "paths that carried a tenth or more"
gone one
no_paths && paths 400
streams 4
fill "$mnt/a/a/four" "$mib"
before=$(sum "$mnt/a/a/four")
rampfs-migrate "$mnt/a/a/four" b
within 20 eval '[ "$(connections)" = 4 ]'
grep -q 'over 4 connections' "$mnt/a/.ramp/status" "$mnt/b/.ramp/status" || fail "status does not tell of 4 connections"
same "$before" "$(sum "$mnt/b/b/four")" "its bytes"
n=$(sent | awk -v all="$((mib << 20))" '$1 > all / 10' | wc -l)
[ "$n" -ge 2 ] || fail "$n path carried a tenth or more"
gone four

echo "the network goes for a while in the middle of a pull, and the source is killed"
fill "$mnt/a/a/cut" "$mib"
before=$(sum "$mnt/a/a/cut")
rampfs-migrate "$mnt/a/a/cut" b
within 20 eval '[ "$(connections)" -ge 2 ]'
in_net hub ip link set to-a down
sleep 3
in_net hub ip link set to-a up
within 30 eval '[ "$(connections)" -ge 1 ] || [ "$(xattr "$mnt/b/b/cut" state)" = stable ]'
kill -KILL "$(pgrep -f -- "rampfs --daemon .*$mnt/a\$" | head -n 1)"
same "$before" "$(sum "$mnt/b/b/cut")" "its bytes"
within 60 eval '[ "$(xattr "$mnt/b/b/cut" state)" = stable ]'
same none "$(xattr "$mnt/b/b/cut" lost)" "lost pages"
cluster_stop
