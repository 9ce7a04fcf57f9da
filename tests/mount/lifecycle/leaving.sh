#!/usr/bin/env bash
# A node ends in the middle of a move away from it that is agreed on and not over: no other node could
# serve the segment until that node's next start.
. tests/lib/cluster.sh
export LC_ALL=C
keeper() { pgrep -f -- "^rampfs -o .*$mnt/${1:-a}\$"; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
ended() { ! pgrep -f -- "rampfs .*$mnt/${1:-a}\$" >/dev/null; }
is() { [ "$(xattr "$1" state 2>/dev/null)" = "$2" ]; }
has_quorum() { grep -q '^quorum: yes' "$mnt/$1/.ramp/status" 2>/dev/null; }
cluster_start -n 3 -c 640M

start_again() {
	local n=${1:-a}
	rampfs -o "log=$scratch/cluster/$n.log" "$state/$n" "$mnt/$n"
	within 20 has_quorum "$n"
	within 10 test -d "$mnt/$n/$n"
}
begin() { # a copy of a file that takes a while, requested by another node
	head -c 400M /dev/zero | tr '\0' x >"$mnt/a/a/$1"
	sum=$(sha256sum <"$mnt/a/a/$1")
	within 5 test -e "$mnt/b/a/$1"
	rampfs-migrate --mode copy "$mnt/b/a/$1" b &
	mover=$!
	# By a look that takes no longer than the move, also on a busy machine.
	within 20 grep -qw moving "$mnt/b/.ramp/segments"
}

echo "umount: the move goes to its end first"
begin one
umount "$mnt/a"
within 30 ended
within 10 test -e "$mnt/b/b/one"
wait "$mover" || fail "the move failed"
same "$sum" "$(sha256sum <"$mnt/b/b/one")" "the copied segment"
rm "$mnt/b/b/one"

start_again
echo "umount: a pull on demand alone goes to its end, too, from here and to here"
head -c 64M /dev/urandom >"$mnt/a/a/goes"
head -c 64M /dev/urandom >"$mnt/b/b/comes"
sum=$(sha256sum <"$mnt/a/a/goes")
within 5 test -e "$mnt/a/b/comes"
rampfs-migrate --mode demand "$mnt/a/a/goes" b
rampfs-migrate --mode demand "$mnt/b/b/comes" a
same "pulling pulling" "$(xattr "$mnt/b/b/goes" state) $(xattr "$mnt/a/a/comes" state)" "the segments that no program touches"
umount "$mnt/a"
within 30 ended
within 5 is "$mnt/b/b/goes" stable
within 5 is "$mnt/b/a/comes" stable
same "$sum" "$(sha256sum <"$mnt/b/b/goes")" "the segment that has left"
! grep "still under way" "$scratch/cluster/a.log" || fail "it did not get to its end"
rm "$mnt/b/b/goes"

echo "SIGTERM: the move is given up, and the name is free for others"
start_again
begin two
kill -TERM "$(keeper)"
within 30 ended
within 10 has_quorum c
within 20 test -e "$mnt/c/a/two" # its tables may be behind
mv "$mnt/c/a/two" "$mnt/c/a/three"
rm "$mnt/c/a/three"
wait "$mover" && fail "the move was given up, and its caller was told that it was done"

echo "SIGTERM after an umount that would have to wait: the same"
start_again
begin three
slow() { # a daemon that gets on, and for longer than one has that was told to end
	while kill -CONT "$1" && sleep 0.003 && kill -STOP "$1"; do sleep 0.9; done
}
target=$(daemon b)
slow "$target" &
slowing=$!
umount "$mnt/a"
sleep 1 # it waits
kill -TERM "$(keeper)"
within 30 ended
kill "$slowing"
kill -CONT "$target"
! grep "does not end: killing it" "$scratch/cluster/a.log" || fail "it had to be killed"
within 10 has_quorum c
within 20 test -e "$mnt/c/a/three"
mv "$mnt/c/a/three" "$mnt/c/a/four"
rm "$mnt/c/a/four"
wait "$mover" && fail "the move was given up, and its caller was told that it was done"
start_again

echo "SIGTERM to a leader that the others lag behind: it hands over once one of them has caught up"
leader() { sed -n 's/^leader: *\([a-z]\).*/\1/p' "$mnt/a/.ramp/status"; }
has_leader() { [ -n "$(leader)" ]; }
told() { grep -c "told to end" "$scratch/cluster/$1.log"; }
told_again() { [ "$(told "$1")" -gt "$2" ]; }
hands_over() {
	local n others before
	within 20 has_leader
	n=$(leader) others=$(for n in a b c; do [ $n = "$(leader)" ] || daemon $n; done)
	before=$(told "$n" || true)
	touch "$mnt/$n/$n/"{1..100}
	# shellcheck disable=SC2086 # pids are words
	kill -STOP $others
	python3 -c '
import os, sys, threading
for i in range(1, 101):
    threading.Thread(target=os.chmod, args=(f"{sys.argv[1]}/{i}", 0o600), daemon=True).start()
' "$mnt/$n/$n" 2>/dev/null &
	kill -TERM "$(keeper "$n")"
	within 20 told_again "$n" "$before"
	# shellcheck disable=SC2086
	kill -CONT $others
	within 20 ended "$n"
	wait $! || true
	tac "$scratch/cluster/$n.log" | sed '/told to end/q' >"$scratch/last"
	start_again "$n"
	grep -q "leads in term" "$scratch/last"
}
# If the machine stops meanwhile, the node leads no more when it is told to end.
hands_over || hands_over || hands_over || fail "no node led when the leader ended"
cluster_stop
