# shellcheck shell=bash
# Cases of guest.sh, which has the cluster and the helpers: memory that changes or fails before it is registered,
# limits, a program, the end of a node.
# shellcheck source=tests/lib/holder.sh
. tests/lib/holder.sh
: "${scratch:?}" "${build:?}" "${mnt:?}" "${state:?}" "${device:?}"

# ---- what is seen of RDMA ----

json() { rampfs-status --json "$mnt/$1" | python3 -c "import json, sys; s = json.load(sys.stdin); print($2)"; }
# Loads pages one by one, each by a READ: the source's threads that serve others do nothing. Where the device stands
# still a READ is made again over TCP: then once more.
source_is_idle() {
	local page=$((mib * 256)) was ticks again to
	for _ in 1 2 3 4; do
		was=$(from b a rdma_reads_total) again=$(from b a rdma_reads_again_total)
		ticks=$(serves a) to=$((page - 1000))
		while [ $((page -= 5)) -gt $to ]; do ask reader load $page >"$scratch/said"; done
		ticks=$(($(serves a) - ticks)) was=$(($(from b a rdma_reads_total) - was))
		echo "$was of 199 page faults came by RDMA; the source's serve threads took $ticks ticks"
		if [ $was -ge 190 ] && [ "$(from b a rdma_reads_again_total)" = "$again" ]; then
			same 0 $ticks "ticks of the source's serve threads"
			return
		fi
	done
	fail "pages do not come by READs alone"
}
# The same figures of b, as a shows them in three places.
check_status() {
	local row=": [1-9][0-9]* queue pairs, $mib.0 MiB registered"
	grep -q "^  b .*  RDMA$row" "$mnt/a/.ramp/status" || fail "status: $(grep "^  b " "$mnt/a/.ramp/status")"
	grep -q '^  a .*  RDMA$' "$mnt/a/.ramp/status" || fail "status of its own node: $(grep "^  a " "$mnt/a/.ramp/status")"
	rampfs-status "$mnt/a" >"$scratch/table"
	grep -q "^b .*RDMA$row" "$scratch/table" || fail "rampfs-status: $(grep "^b " "$scratch/table")"
	grep -q '^a .*here, RDMA$' "$scratch/table" || fail "rampfs-status: $(grep "^a " "$scratch/table")"
	same "True True True True" "$(json a '*[n["rdma_queue_pairs"] > 0 and n["rdma_registered_bytes"] == '$((mib << 20))' and n["rdma_" + why + "_parts"] >= 0
		for n in s["nodes"] if n["name"] == "b" for why in ("short", "memory", "cut", "other")]')" "the figures of b in JSON"
	same "c 0" "$(json a '*[n["name"] + " %d" % n["rdma_registered_bytes"] for n in s["nodes"] if n["name"] == "c"]')" "of c"
}
# In the middle of a pull, which stands still: every figure of both ends.
check_figures() {
	local page was
	fill a figures 15
	move figures a b --mode demand
	was=$(from b a rdma_reads_total)
	holder_program=(rampfs-run "$build/tests/pages" "$mnt/b/b/figures")
	holder reader
	for ((page = 0; page < 3000; page++)); do
		ask reader load $page >"$scratch/said"
		[ "$(from b a rdma_reads_total)" = "$was" ] || break
	done
	within 20 eval '[ "$(from a b rdma_registered_bytes)" = '$((mib << 20))' ]'
	same 0 "$(from a c rdma_registered_bytes)" "bytes registered for a node that pulls nothing"
	[ "$(from a b rdma_chunks_total)" -ge 1 ] || fail "no chunk is counted"
	[ "$(metric a 'rdma_queue_pairs{peer="b",reader="there"}')" -ge 1 ] || fail "a sees no queue pair of b"
	[ "$(metric b 'rdma_queue_pairs{peer="a",reader="here"}')" -ge 1 ] || fail "b counts no queue pair to a"
	same 0 "$(metric b 'rdma_queue_pairs{peer="c",reader="here"}')" "queue pairs to a node from which nothing is pulled"
	[ "$(from b a rdma_reads_total)" -gt "$was" ] && [ "$(from b a rdma_read_bytes_total)" -ge 4096 ] || fail "nothing comes by RDMA"
	source_is_idle
	for why in short memory cut other; do
		[ -n "$(metric a "rdma_left_to_tcp_total{peer=\"b\",reason=\"$why\"}")" ] || fail "no figure for what is left to TCP: $why"
	done
	same "verbs verbs verbs" "$(json a '" ".join(n["transport"] for n in s["nodes"])')" "the nodes' transport"
	same 3 "$(grep -c ' transport=verbs' "$mnt/b/.ramp/nodes")" "nodes with transport=verbs"
	check_status
	bye reader
	bytes check "$mnt/b/b/figures" $mib 15 || fail "figures at b is not as it was"
	at_most 60 stable b
	gone b figures
}
left() { metric "$1" "rdma_left_to_tcp_total{peer=\"$2\",reason=\"$3\"}"; }

# The device's descriptors are the daemons' alone, and would be closed by an exec: a process that shared them would
# keep its parent's registrations readable after the parent's death.
check_descriptors() {
	local link pid flags n=0 children=0 keeper
	# A daemon whose keeper dies starts another one.
	keeper=$(sed -n 1p "$state/a/lock")
	kill -KILL "$keeper"
	within 20 eval '[ "$(sed -n 1p "$state/a/lock")" != '"$keeper"' ]'
	find /proc/[0-9]*/fd -lname '*infiniband*' >"$scratch/links" 2>/dev/null || true # processes end meanwhile
	while read -r link; do
		pid=${link#/proc/} && pid=${pid%%/*}
		tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'rampfs --daemon ' ||
			fail "$(tr '\0' ' ' <"/proc/$pid/cmdline") has $(readlink "$link")"
		flags=$(sed -n 's/^flags:\t//p' "/proc/$pid/fdinfo/${link##*/}")
		[ $((0$flags & 02000000)) != 0 ] || fail "an exec of $pid would keep $(readlink "$link")"
		n=$((n + 1))
	done <"$scratch/links"
	[ $n -ge 9 ] || fail "$n descriptors of devices" # of each daemon: the device, its events, the connection manager
	for pid in $(daemon a) $(daemon b) $(daemon c); do children=$((children + $(pgrep -c -P "$pid" || true))); done
	[ $children -ge 1 ] || fail "no daemon has a child"
}

# ---- stores while a segment moves ----

# Every store that was made before the segment left is there, and no byte of another page is another one.
leaves_writer_once() {
	local was status=0
	fill a seg 1
	rampfs-run "$build/tests/bytes" write "$mnt/a/a/seg" $mib >"$scratch/writer" 2>"$scratch/writer.err" &
	writer=$!
	within 60 grep -q ready "$scratch/writer"
	was=$(from b a rdma_read_bytes_total)
	rampfs-migrate "$mnt/a/a/seg" b
	wait $writer || status=$?
	same 135 $status "the status of a program whose segment has left" # SIGBUS
	within 30 test -e "$mnt/b/b/seg"
	bytes written "$mnt/b/b/seg" $mib 1 || fail "bytes that were stored before the segment left are not there"
	at_most 60 stable b
	by_rdma=$(($(from b a rdma_read_bytes_total) - was))
	echo "$by_rdma bytes by RDMA"
	gone b seg
}
leaves_writer() { # a software device may stand still
	local by_rdma
	for _ in 1 2 3 4; do
		leaves_writer_once
		[ $by_rdma -lt $((mib << 17)) ] || return 0
	done
	fail "nothing comes by RDMA"
}

# Of 1 MiB: each move is over before the next one.
oracle() {
	local was
	was=$(($(from b a rdma_read_bytes_total) + $(from a b rdma_read_bytes_total)))
	ORACLE_MIGRATE=$build/bin/rampfs-migrate ORACLE_MODES="lazy precopy demand" \
		rampfs-run "$build/tests/oracle" "$mnt/a" a "$mnt/b" b 1 3 24 || fail "the account is wrong"
	was=$(($(from b a rdma_read_bytes_total) + $(from a b rdma_read_bytes_total) - was))
	echo "$was bytes of the account's came by RDMA"
	[ $was -gt 0 ] || fail "nothing of the account's comes by RDMA"
}

# ---- memory that is not as it was ----

# small NAME: a segment of node a in small pages, with the bytes of $scratch/bytes
small() {
	: >"$mnt/a/a/$1"
	setfattr -n user.ramp.pages -v small "$mnt/a/a/$1"
	cat "$scratch/bytes" >"$mnt/a/a/$1"
	within 20 test -e "$mnt/b/a/$1"
}
load_first() { dd if="$1" of=/dev/null bs=4096 count=1 status=none; }
# Pages are punched out of a segment, and stored to again, when the target has made room and before the source has
# frozen it: a registration from before would have the old ones. Short runs are TCP's.
punched_once() {
	local page mover was n
	head -c 8M /dev/urandom >"$scratch/bytes"
	head -c 64K /dev/urandom | dd of="$scratch/bytes" bs=1M seek=9 conv=notrunc status=none
	small punched
	fallocate -p -o 8M -l 1M "$mnt/a/a/punched"
	holder_program=(rampfs-run "$build/tests/pages" "$mnt/a/a/punched")
	holder program
	ask program load 0 >"$scratch/said" # so it has the segment mapped
	rm -f "$HOLD_FILE.held"
	touch "$HOLD_FILE.proc"
	rampfs-migrate --mode demand "$mnt/a/a/punched" b &
	mover=$!
	within 20 test -e "$HOLD_FILE.held"
	within 20 grep -q reserved "$mnt/b/.ramp/status"
	same "done" "$(ask program remove 512)" "a hole of 2 MiB"
	for page in 512 700 1023; do
		same "done" "$(ask program store $page)" "a store into the hole"
	done
	rm "$HOLD_FILE.proc"
	wait $mover || fail "it was not moved"
	bye program
	dd if=/dev/zero of="$scratch/bytes" bs=4096 seek=512 count=512 conv=notrunc status=none
	for page in 512 700 1023; do printf Z | dd of="$scratch/bytes" bs=4096 seek=$page conv=notrunc status=none; done
	within 20 test -e "$mnt/b/b/punched"
	n=$(left a b short)
	load_first "$mnt/b/b/punched"
	within 20 eval '[ "$(from a b rdma_registered_bytes)" -gt 0 ] && [ "$(left a b short)" -gt '"$n"' ]'
	was=$(from b a rdma_read_bytes_total)
	cmp "$scratch/bytes" "$mnt/b/b/punched" || fail "bytes that were stored before the freeze are not there"
	by_rdma=$(($(from b a rdma_read_bytes_total) - was))
	gone b punched
}
punched() { # a software device may stand still
	local by_rdma
	for _ in 1 2 3; do
		punched_once
		[ $by_rdma -lt $((4 << 20)) ] || return 0
	done
	fail "nothing comes by RDMA"
}

# A page fails before the segment moves: it is lost, its chunk goes over TCP, and the rest is there.
poisoned() {
	local page=700 was
	head -c 8M /dev/urandom >"$scratch/bytes"
	small poisoned
	holder_program=(rampfs-run "$build/tests/pages" "$mnt/a/a/poisoned")
	holder program
	ask program load 0 >"$scratch/said"
	same "done" "$(ask program poison $page)" "MADV_HWPOISON"
	bye program
	was=$(left a b cut)
	move poisoned a b --mode demand
	load_first "$mnt/b/b/poisoned"
	within 20 eval '[ "$(left a b cut)" -gt '"$was"' ]'
	# The other chunks are registered: of 2 MiB, then each twice as large.
	[ "$(from a b rdma_registered_bytes)" -lt $((8 << 20)) ] || fail "a chunk with a page that failed is registered"
	LC_ALL=C refused "Input/output error" dd if="$mnt/b/b/poisoned" of=/dev/null bs=4096 skip=$page count=1
	if ! cmp -n $((page * 4096)) "$scratch/bytes" "$mnt/b/b/poisoned" ||
		! cmp -i $(((page + 1) * 4096)) "$scratch/bytes" "$mnt/b/b/poisoned"; then
		fail "pages beside one that is lost"
	fi
	within 20 eval '[ "$(xattr "$mnt/b/b/poisoned" lost)" = '"$((page * 4096))-$((page * 4096 + 4096))"' ]'
	gone b poisoned
}

# ---- limits ----

# restart NODE KEY=VALUE [PREFIX...]: begins again with that in its cluster.conf
restart() {
	umount "$mnt/$1"
	sed -i "s/^${2%%=*}=.*/$2/" "$state/$1/cluster.conf"
	within 30 quietly "${@:3}" rampfs -o "log=$scratch/cluster/$1.log" "$state/$1" "$mnt/$1"
	within 40 eval 'grep -q "quorum: yes" "$mnt/'"$1"'/.ramp/status" && grep -q "^'"$1"' .* up " "$mnt/a/.ramp/nodes"'
}
# Node c may pin 40 MiB: of two segments of 32 MiB one is registered, the other goes over TCP.
limited() {
	local n mib=32
	restart c transport=verbs prlimit --memlock=$((40 << 20)) setpriv --bounding-set=-ipc_lock --
	within 40 eval 'rampfs-status "$mnt/b" | grep "^ *c " | grep -q RDMA'
	for n in one two; do
		fill c $n 70
		move $n c b --mode demand
		load_first "$mnt/b/b/$n"
		# The first chunks of the second one fit, too.
		within 20 eval '[ "$(from c b rdma_registered_bytes)" -ge '$((mib << 20))' ]'
	done
	[ "$(from c b rdma_registered_bytes)" -le $((40 << 20)) ] || fail "more is registered than may be pinned"
	within 20 eval '[ "$(left c b memory)" -ge 1 ]'
	grep -q '^  b .*  RDMA: .* registered, [1-9][0-9]* parts over TCP (.*memory [1-9]' "$mnt/c/.ramp/status" ||
		fail "status tells of no part that is left to TCP: $(grep "^  b " "$mnt/c/.ramp/status")"
	grep -q "can't be registered for RDMA (Cannot allocate memory; without CAP_IPC_LOCK, ulimit -l bounds it)" "$scratch/cluster/c.log" ||
		fail "c's log does not say what bounds it"
	for n in two one; do bytes check "$mnt/b/b/$n" $mib 70 || fail "$n at b is not as it was"; done
	at_most 60 stable b
	gone b one
	gone b two
	within 20 eval '[ "$(from c b rdma_registered_bytes)" = 0 ]'
}

# A node whose address is on no device, which must have one.
no_device_there() {
	printf '[cluster]\nname=alone\n[node x]\naddress=127.0.0.1:7999\ncapacity=64M\ntransport=verbs\n' >"$scratch/alone.conf"
	mkfs.rampfs --config "$scratch/alone.conf" --key "$scratch/alone.key" --node x "$scratch/alone" >/dev/null
	mkdir "$scratch/x"
	refused "transport=verbs: no RDMA device takes connections at 127.0.0.1" rampfs "$scratch/alone" "$scratch/x"
	rampfs --destroy --force "$scratch/alone"
}

# ---- a program ----

mc=contrib/demo/mc.py
memcached_begin() { # NODE
	rampfs-run memcached -u root -l 127.0.0.1 -p 11311 -m 48 -v -e "$mnt/$1/$1/cache" 2>>"$scratch/memcached.err" &
	server=$!
	within 60 quietly $mc wait 11311
}
memcached_end() {
	kill -USR1 $server
	wait $server || fail "memcached did not stop cleanly"
	sleep 1.1 # it refuses a stop_time that is not in the past
}
memcached_moves() { # FROM TO [OPTION...]
	memcached_end
	move cache "$@"
	move cache.meta "$@"
	memcached_begin "$2"
	same $items "$($mc check 11311 $items 300)" "items that are right on $2"
}
# Its memory moves twice, and it serves every item at once, while pages are on their way.
memcached_case() {
	local items=5000 was address by_rdma
	memcached_begin a
	$mc fill 11311 $items 300
	address=$(xattr "$mnt/a/a/cache" addr)
	was=$(from b a rdma_read_bytes_total)
	memcached_moves a b --mode demand
	same "$address" "$(xattr "$mnt/b/b/cache" addr)" "its address on b"
	by_rdma=$(($(from b a rdma_read_bytes_total) - was))
	echo "$by_rdma bytes of memcached's came by RDMA"
	[ $by_rdma -ge $((1 << 20)) ] || fail "nothing of memcached's comes by RDMA"
	memcached_moves b c
	kill $server
	wait $server || true
	! grep -q 'clean cache' "$scratch/memcached.err" || [ "$(grep -c 'clean cache' "$scratch/memcached.err")" = 1 ] ||
		fail "memcached has begun with no items: $(cat "$scratch/memcached.err")"
	at_most 60 stable c
	gone c cache # memcached has removed the other one
}

# ---- the end of a node ----

# Power fails at the target in the middle of a pull, for good: once it is fenced the source has its segment again,
# with all bytes, and nothing of it is registered.
target_fenced() {
	local pids
	fill a back 80
	move back a c --mode demand
	load_first "$mnt/c/c/back"
	within 20 eval '[ "$(from a c rdma_registered_bytes)" = '$((mib << 20))' ]'
	# Keeper and daemon start each other again: neither may see the other die.
	pids=$(pgrep -f -- "^[^ ]*rampfs (-o|--daemon|--adopt) .*$mnt/c\$" | xargs)
	# shellcheck disable=SC2086 # words
	kill -STOP $pids && kill -KILL $pids
	within 20 flock -n "$state/c/lock" true
	umount -l "$mnt/c"
	within 20 rampfs --destroy --force "$state/c"
	within 20 eval 'rampfs-node -m "$mnt/a" list | grep -q "^c .* down"'
	rampfs-node -m "$mnt/a" fence --hook true c
	within 30 eval '[ "$(xattr "$mnt/a/a/back" state)" = "rolled back" ]'
	rampfs-migrate --reclaim "$mnt/a/a/back"
	bytes check "$mnt/a/a/back" $mib 80 || fail "back is not as it was"
	same 0 "$(from a c rdma_registered_bytes)" "registered bytes of a segment that has come back"
	rm -rf "$state/c"
}
