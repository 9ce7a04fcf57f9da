#!/usr/bin/env bash
# Nodes are unmounted while node a, with which they would have to finish transfers, is silent, and while it is dead: b
# lacks pages that a has, and a program of b's waits for one; c has pages that a lacks. Neither waits for a for ever;
# only their memory is left of them; and no byte is lost.
. tests/lib/cluster.sh
. tests/lib/holder.sh
. tests/lib/ending.sh
export LC_ALL=C RAMPFS_QUIET=1
is() { [ "$(xattr "$1" state 2>/dev/null)" = "$2" ]; }
pages=40000 rounds=0
head -c $((pages * 4096)) /dev/urandom >"$scratch/random"
byte=$(tail -c 4096 "$scratch/random" | od -An -tx1 -N 1 | tr -d ' ')
holder_program=(rampfs-run "$build/tests/pages" "$mnt/b/b/in" closed)
dies() { kill -KILL "$(keeper a)" "$(daemon a)"; }
goes_on() { kill -CONT "$(daemon a)"; }
is_started() {
	rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
	serves a
}
logged() { grep -c "are still under way and make no progress" "$scratch/cluster/$1.log" || true; }

# Both segments are moved at once, and a is stopped before it has all pages of one, or has given all of the other.
leave_half() {
	python3 -c 'import os, signal, sys, threading
moves = [threading.Thread(target=os.rename, args=sys.argv[i:i + 2]) for i in (2, 4)]
for move in moves: move.start()
for move in moves: move.join()
os.kill(int(sys.argv[1]), signal.SIGSTOP)' "$(daemon a)" "$mnt/c/c/out" "$mnt/c/a/out" "$mnt/b/a/in" "$mnt/b/b/in"
	within 10 is_stopped "$(daemon a)"
	is "$mnt/b/b/in" pulling && is "$mnt/c/a/out" pulling
}
back() { # it came too late
	goes_on
	within 10 is "$mnt/b/b/in" stable
	within 10 is "$mnt/a/a/out" stable
	mv "$mnt/b/b/in" "$mnt/b/a/"
	mv "$mnt/a/a/out" "$mnt/a/c/"
	within 10 is "$mnt/a/a/in" stable
	within 10 is "$mnt/c/c/out" stable
}

desert() { # WHAT HAPPENS TO a THEN, WHAT ENDS THAT
	local node begun try
	rounds=$((rounds + 1))
	cp "$scratch/random" "$mnt/a/a/in"
	cp "$scratch/random" "$mnt/c/c/out"
	within 5 test -e "$mnt/b/a/in"
	within 5 test -d "$mnt/c/a"
	for try in 1 2 3 4 5 last; do
		! leave_half || break
		[ $try != last ] || fail "all is there before a can be stopped"
		back
	done
	"$1"
	holder program
	tell program load $((pages - 1))
	within 10 is_held "$(pid_of program)"
	outset b
	outset c
	begun=$SECONDS
	umount "$mnt/b"
	umount "$mnt/c"
	for node in b c; do
		goes $node $((10 - SECONDS + begun))
		same $rounds "$(logged $node)" "how often node $node has said that it leaves something"
	done
	is_mute program || fail "the program has read a page that is not there"
	kill -0 "$(pid_of program)" || fail "the program died with the mount"
	begin_node b
	begin_node c
	"$2"
	serves b
	serves c
	same "$byte" "$(hear program)" "the byte that the program read"
	bye program
	within 20 is "$mnt/b/b/in" stable
	cmp "$scratch/random" "$mnt/b/b/in"
	within 20 is "$mnt/a/a/out" stable
	cmp "$scratch/random" "$mnt/a/a/out"
	rm "$mnt/b/b/in" "$mnt/a/a/out"
}

cluster_start -n 3 -c 512M
begin_again b
begin_again c
serves b
serves c
echo "the far end is silent"
desert true goes_on
echo "the far end is dead"
desert dies is_started
cluster_stop
