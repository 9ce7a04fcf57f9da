#!/usr/bin/env bash
# memcached 1.6 -e: 500,000 items, stopped with SIGUSR1, its two files moved with mv, started on the
# other node: every key right, served while pages are still coming, at the same address.
. tests/lib/cluster.sh
items=${1:-500000} bytes=300
cluster_start -n 3 -c 1G
a=$mnt/a b=$mnt/b
port() {
	local p
	while :; do
		p=$((10000 + RANDOM % 20000))
		(: <>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || break
	done
	echo "$p"
}
mc=contrib/demo/mc.py
start() { # mount, node
	p=$(port)
	rampfs-run memcached -u root -l 127.0.0.1 -p "$p" -m 300 -v -e "$1/$2/cache" 2>>"$scratch/memcached.err" &
	pid=$!
	$mc wait "$p"
}
stop() {
	kill -USR1 "$pid"
	wait "$pid" || fail "memcached did not stop cleanly"
	sleep 1.1 # it refuses a stop_time that is not in the past
}
start "$a" a
$mc fill "$p" "$items" $bytes
addr=$(xattr "$a/a/cache" addr)
stop
mv "$a/a/cache" "$a/a/cache.meta" "$a/b/"
within 10 test -e "$b/b/cache.meta"
start "$b" b
same "$items" "$($mc check "$p" "$items" $bytes)" "items that are right on b"
same "$addr" "$(xattr "$b/b/cache" addr)" "the address on b"
! grep -q 'clean cache' "$scratch/memcached.err" ||
	[ "$(grep -c 'clean cache' "$scratch/memcached.err")" = 1 ] || fail "memcached started with a clean cache: $(cat "$scratch/memcached.err")"
stop
mv "$b/b/cache" "$b/b/cache.meta" "$b/c/"
within 10 test -e "$mnt/c/c/cache.meta"
start "$mnt/c" c
same "$items" "$($mc check "$p" "$items" $bytes)" "items that are right on c"
kill "$pid"
wait "$pid" || true
cluster_stop
