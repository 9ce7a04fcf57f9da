#!/usr/bin/env bash
# A node (a) ends while it has no quorum, and while calls, moves and page faults of its programs wait: c and d are silent,
# and c has pages that a lacks.
. tests/lib/cluster.sh
. tests/lib/holder.sh
. tests/lib/ending.sh
export LC_ALL=C RAMPFS_QUIET=1
is() { [ "$(xattr "$1" state 2>/dev/null)" = "$2" ]; }
others() { kill "-$1" "$(daemon c)" "$(daemon d)"; }
pages=2048
holder_program=(rampfs-run "$build/tests/pages" "$mnt/a/a/in" closed)
# The command's exit status goes to $scratch/NAME.status, its output to $scratch/NAME.said
begin() { # NAME COMMAND...
	rm -f "$scratch/$1.status"
	(
		status=0
		timeout -s KILL 30 "${@:2}" >"$scratch/$1.said" 2>&1 || status=$?
		echo $status >"$scratch/$1.status"
	) &
}
is_done() { [ -s "$scratch/$1.status" ]; }
failed() { # NAME SECONDS TEXT
	within "$2" is_done "$1"
	case $(cat "$scratch/$1.status") in
	0 | 137) fail "$1: status $(cat "$scratch/$1.status"): $(cat "$scratch/$1.said")" ;;
	esac
	grep -q "$3" "$scratch/$1.said" || fail "$1 should have said \"$3\": $(cat "$scratch/$1.said")"
}

prepare() {
	head -c $((pages * 4096)) /dev/urandom >"$mnt/c/c/in"
	sum=$(sha256sum <"$mnt/c/c/in")
	byte=$(od -An -tx1 -j $((1999 * 4096)) -N 1 "$mnt/c/c/in" | tr -d ' ')
	rampfs-migrate --mode demand "$mnt/c/c/in" a
	within 5 test -e "$mnt/a/a/in"
	echo "what stays" >"$mnt/a/a/stays"
	holder program
	ask program load 3 >"$scratch/answer" # so the program has the segment mapped
	outset a
	others STOP
	within 10 is_stopped "$(daemon c)"
	within 10 is_stopped "$(daemon d)"
	tell program load 1999
	within 10 is_held "$(pid_of program)"
}
goes_on() {
	is_mute program || fail "the program has read a page that is not there"
	kill -0 "$(pid_of program)" || fail "the program died with the mount"
	begin_node a
	others CONT
	serves a
	same "$byte" "$(hear program)" "the byte that the program read"
	bye program
	same "$sum" "$(sha256sum <"$mnt/a/a/in")" "the segment that came"
	rm "$mnt/a/a/in"
}

cluster_start -n 4 -c 128M
begin_again a
serves a

echo "umount: a move that is being prepared is given up"
prepare
begin move rampfs-migrate "$mnt/a/a/stays" b
sleep 0.5
! is_done move || fail "the move did not wait: $(cat "$scratch/move.said")"
umount "$mnt/a"
goes a 10
failed move 1 "no quorum"
goes_on
within 20 is "$mnt/a/a/stays" stable
same "what stays" "$(cat "$mnt/a/a/stays")" "the segment that was to move"
within 10 mv "$mnt/a/a/stays" "$mnt/a/a/free"
rm "$mnt/a/a/free"

echo "SIGTERM: at once, whatever waits; umount says EBUSY while a call waits"
prepare
begin read dd if="$mnt/a/a/in" of=/dev/null bs=4096 skip=99 count=1 status=none
begin create touch "$mnt/a/a/new"
begin move rampfs-migrate "$mnt/a/a/stays" b
sleep 0.5
exec 5<"$mnt/a/a/in"
refused "busy" umount "$mnt/a"
for name in read create move; do ! is_done $name || fail "$name did not wait: $(cat "$scratch/$name.said")"; done
kill -TERM "$(keeper a)"
goes a 4
failed read 1 "Software caused connection abort"
failed create 1 "Software caused connection abort"
refused "Transport endpoint is not connected" cat <&5
exec 5<&-
! is_done move || fail "the caller of the move knew too early: $(cat "$scratch/move.said")"
goes_on
within 20 is_done move # requested again
same 0 "$(cat "$scratch/move.status")" "the status of the move's caller, which said: $(cat "$scratch/move.said")"
within 10 is "$mnt/b/b/stays" stable
same "what stays" "$(cat "$mnt/b/b/stays")" "the segment that has moved"
cluster_stop
