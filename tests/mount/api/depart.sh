#!/usr/bin/env bash
# Departures on real mounts (depart_user.c): programs that are asked before a segment leaves, and what a
# move has cost, by every way in which it is told.
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
user="$build/tests/depart_user"
words() { od -An -tu8 -N16 "$1"; }
equal() { words "$1" | { read -r first second && [ "$first" = "$second" ] && [ "$first" != 0 ]; } || fail "$1 was taken in the middle of an operation: $(words "$1")"; }
# Starts the program on node a and waits until it follows; $pid. Its words: $scratch/said.
program() {
	: >"$scratch/said" # nothing that an earlier one has said
	"$user" "$mnt/a" "$@" >"$scratch/said" 2>"$scratch/err" &
	pid=$!
	within 20 grep -q hears "$scratch/said"
}
ended() {
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
}
said() { paste -sd' ' "$scratch/said"; }
head -c 8M /dev/zero >"$mnt/a/a/x"

echo "asked, and let go of between two operations: when it is asked, or when all is ready"
for at in asked ready; do
	program x $at
	sleep 0.2 # it counts
	mv "$mnt/a/a/x" "$mnt/a/b/"
	within 20 grep -q settled "$scratch/said"
	same "hears asked b connecting b ready b given b left b settled b" "$(said)" "the phases"
	equal "$mnt/b/b/x"
	ended
	rampfs-migrate --wait "$mnt/b/b/x" a
done

echo "a pre-copy, and a move in steps, which its own program makes and is asked before its end"
program x ready
rampfs-migrate --mode precopy "$mnt/a/a/x" b
within 20 grep -q settled "$scratch/said"
same "hears asked b connecting b round b ready b given b left b settled b" "$(said)" "the phases of a pre-copy"
equal "$mnt/b/b/x"
ended
xattr "$mnt/b/b/x" last_move | grep -q " rounds_us=[1-9].* round_pages=[1-9][0-9]* window_pages=0 " ||
	fail "a pre-copy's cost: $(xattr "$mnt/b/b/x" last_move)"
rampfs-migrate --wait "$mnt/b/b/x" a
program x steps
within 20 grep -q settled "$scratch/said"
within 20 grep -q counted "$scratch/said"
same "hears connecting b asked b ready b given b left b settled b" "$(said | sed 's/counted //; s/ counted//')" "the phases of a move in steps"
equal "$mnt/b/b/x"
ended
rampfs-migrate --wait "$mnt/b/b/x" a

echo "in two steps it is asked before it is closed to stores, and keeps it open without an answer"
program x deaf
within 20 grep -q busy "$scratch/said"
same "hears connecting b round b asked b ready b failed b: process $pid (depart_user) was asked to let go of it, and has not answered for 1000 ms" \
	"$(said | sed 's/busy //; s/ busy//')" "the phases of two steps without an answer"
ended
for how in two tries; do
	program x $how
	within 20 grep -q settled "$scratch/said"
	same "hears connecting b round b asked b ready b closed b given b left b settled b equal" \
		"$(grep -v equal "$scratch/said" | paste -sd' ') $(grep equal "$scratch/said")" "the phases of two steps"
	equal "$mnt/b/b/x"
	ended
	rampfs-migrate --wait "$mnt/b/b/x" a
done

echo "no answer: it stays, and the process is named; --force takes it, asked for on another node, too"
program x never
refused "process $pid (depart_user) was asked to let go of it, and has not answered for 1000 ms" rampfs-migrate "$mnt/a/a/x" b
within 20 grep -q failed "$scratch/said"
same "hears asked b connecting b ready b failed b: process $pid (depart_user) was asked to let go of it, and has not answered for 1000 ms" "$(said)" "the phases"
refused "busy" mv "$mnt/c/a/x" "$mnt/c/b/"
within 20 eval '[ "$(grep -c failed "$scratch/said")" = 2 ]'
rampfs-migrate --force "$mnt/c/a/x" b
within 20 grep -q "left b" "$scratch/said"
ended
rampfs-migrate --wait "$mnt/b/b/x" a

echo "a program that has not mapped it is not asked, nor one that ends; a cancel is told"
program x unmapped
mv "$mnt/a/a/x" "$mnt/a/b/"
within 20 grep -q settled "$scratch/said"
same "hears connecting b ready b given b left b settled b" "$(said)" "the phases without a mapping"
ended
rampfs-migrate --wait "$mnt/b/b/x" a
program x never
rampfs-migrate "$mnt/a/a/x" b &
mover=$!
within 20 grep -q ready "$scratch/said"
kill -9 $pid
wait $mover || fail "the move waited for a program that has ended"
ended
rampfs-migrate --wait "$mnt/b/b/x" a
program x never
rampfs-migrate "$mnt/a/a/x" b &
mover=$!
within 20 grep -q ready "$scratch/said"
kill -INT $mover
status=0
wait $mover || status=$?
same 130 $status "a cancelled move"
within 20 grep -q "failed b: cancelled" "$scratch/said"
ended

echo "the daemon is killed while it waits: the next one asks again"
program x missed
rampfs-migrate "$mnt/a/a/x" b 2>"$scratch/mover" &
mover=$!
within 20 grep -q ready "$scratch/said"
pkill -9 -f "rampfs --daemon .*$mnt/a\$"
within 20 grep -q missed "$scratch/said"
# Its successor may look at the program before that is back: it is asked then by a later move.
wait $mover || within 20 rampfs-migrate "$mnt/a/a/x" b
within 20 grep -q "left b" "$scratch/said"
ended
rampfs-migrate --wait "$mnt/b/b/x" a

echo "a call of its heap is the middle of an operation"
head -c 1M /dev/zero >"$mnt/a/a/heap"
same "hears within -11 after 0" "$("$user" "$mnt/a" heap heap | uniq | paste -sd' ')" "an answer within a call of the heap"

echo "what a hand-over has cost: xattr, .ramp/segments, JSON, --verbose, the library"
truncate -s 4M "$mnt/a/a/cost"
head -c 2M /dev/urandom | dd of="$mnt/a/a/cost" bs=1M iflag=fullblock conv=notrunc status=none
same none "$(xattr "$mnt/a/a/cost" last_move)" "before any"
same none "$("$user" "$mnt/a" cost last)" "before any, by the library"
rampfs-migrate --wait --verbose "$mnt/c/a/cost" b >"$scratch/verbose"
grep -q "from a to b: no program could touch it for [1-9][0-9]* us; connected in [1-9][0-9]* us, agreed in [1-9][0-9]* us" "$scratch/verbose" ||
	fail "--verbose: $(cat "$scratch/verbose")"
grep -q "whole after [1-9][0-9]* us over tcp; pages: 0 in rounds, 0 in the window, 0 on demand, 512 in the background, 0 holes, 512 there already, 0 lost" "$scratch/verbose" ||
	fail "--verbose: $(cat "$scratch/verbose")"
for node in a b c; do
	same "a b measured 1 whole 1: 0 0 512 here, 0 holes, 512 local, 0 lost tcp" "$("$user" "$mnt/$node" cost last)" "the library at $node"
	grep -q "from=a to=b at_ms=[0-9]* connect_us=.* window_us=.* prefetch_pages=512 " "$mnt/$node/.ramp/segments" || fail "segments at $node"
	same "a b 512 2097152 True" "$(rampfs-status --json "$mnt/$node" | python3 -c '
import json, sys
m = [s for s in json.load(sys.stdin)["segments"] if s["name"] == "cost"][0]["last_move"]
print(m["from"], m["to"], m["prefetch_pages"], m["prefetch_bytes"], m["window_us"] > 0)')" "JSON at $node"
done
rampfs-migrate --wait --mode copy --verbose "$mnt/b/b/cost" c >"$scratch/verbose"
grep -q "whole after .* pages: 0 in rounds, 512 in the window, 0 on demand, 0 in the background, 0 holes, 512 there already, 0 lost" "$scratch/verbose" || fail "--verbose of a copy: $(cat "$scratch/verbose")"
same "b c measured 1 whole 1: 0 512 0 here, 0 holes, 512 local, 0 lost tcp" "$("$user" "$mnt/b" cost last)" "a copy's"
rampfs-migrate --wait --mode precopy --verbose "$mnt/c/c/cost" a >"$scratch/verbose"
grep -q "copied ahead in [1-9][0-9]* us" "$scratch/verbose" || fail "--verbose of a pre-copy: $(cat "$scratch/verbose")"
same "c a measured 1 whole 1: 512 0 0 here, 0 holes, 512 local, 0 lost tcp" "$("$user" "$mnt/c" cost last)" "a pre-copy's"

echo "too many subscriptions of one user"
same "crowd 1024" "$(setpriv --reuid 65534 --regid 65534 --clear-groups "$user" "$mnt/a" - crowd)" "watches of one user"
cluster_stop
