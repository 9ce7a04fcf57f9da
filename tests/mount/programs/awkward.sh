#!/usr/bin/env bash
# A segment leaves programs that make that hard, and comes back to them (awkward.c).
#   awkward.sh [WHICH...]
. tests/lib/cluster.sh
[ $# -gt 0 ] || set -- data as full lock files filter again outlived replaced left mosaic sealed over forks holes covered
cluster_start -n 2 -c 256M
leave() {
	rm -f "$scratch/said" "$scratch/lines"
	truncate -s 64M "$mnt/a/a/$1"
	env -C "$scratch" timeout -s KILL 90 rampfs-run "$build/tests/awkward" "$1" "$mnt/a/a/$1" >"$scratch/said" 2>"$scratch/lines" &
	program=$!
	within 20 grep -q mapped "$scratch/said"
	mv "$mnt/a/a/$1" "$mnt/a/b/"
	within 20 grep -q gone "$scratch/said"
	mv "$mnt/b/b/$1" "$mnt/b/a/" # no page of it is left there
	if [ "$1" = full ]; then
		within 20 grep -q "a/full is here again, and could not be put in its place: this process may map no more" "$scratch/lines"
		same 1 "$(grep -c 'is here again' "$scratch/lines")" "lines that say why it is not back"
		touch "$scratch/GO"
	fi
	[ "$1" != filter ] || within 20 mv "$mnt/a/a/$1" "$mnt/a/b/"
	status=0
	wait $program || status=$?
	tail -n 3 "$scratch/said" "$scratch/lines"
	same 0 $status "the end of one with $1"
	case $1 in
	filter) same 2 "$(grep -c 'is now on node b' "$scratch/lines")" "lines that it has left, with $1" ;;
	*) same 1 "$(grep -c 'is now on node b' "$scratch/lines")" "lines that it has left, with $1" ;;
	esac
}
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
is_stable() { [ "$(xattr "$1" state 2>/dev/null)" = stable ]; }
# with_pages_missing PROGRAM ARGUMENT...: starts that program of awkward.c; pages of its mapping are missing then.
with_pages_missing() {
	local file=$mnt/a/a/$1
	rm -f "$scratch/said" "$scratch"/GO*
	truncate -s 64M "$file"
	RAMPFS_QUIET=1 env -C "$scratch" timeout -s KILL 90 rampfs-run "$build/tests/awkward" "$1" "$file" "${@:2}" >"$scratch/said" &
	program=$!
	within 20 grep -q mapped "$scratch/said"
	mv "$file" "$mnt/a/b/"
	within 20 grep -q gone "$scratch/said"
	rampfs-migrate --mode demand "$mnt/b/b/$1" a
	touch "$scratch/GO"
}
# Its child's page faults are served, and no page is left to the last copy of a userfaultfd.
child_goes_on() {
	within 20 grep -q first "$scratch/said"
	within 20 is_stable "$mnt/a/a/$1"
	kill -9 "$(daemon a)"
	within 20 is_stable "$mnt/a/a/$1"
	touch "$scratch/GO2"
	within 20 grep -q right "$scratch/said"
	rm "$mnt/a/a/$1" # there is not room for many of them
}
outlived() {
	with_pages_missing outlived
	touch "$scratch/GO0"
	wait $program || fail "the parent"
	child_goes_on outlived
}
# The same if the process runs another program by then, with a session of its own.
replaced() {
	truncate -s 2M "$mnt/a/a/other"
	with_pages_missing replaced "$mnt/a/a/other"
	touch "$scratch/GO0"
	within 20 grep -q other "$scratch/said"
	sleep 2 # the daemon has looked twice for processes that are gone
	touch "$scratch/GO1"
	child_goes_on replaced
	touch "$scratch/GO3"
	wait $program || fail "the next program"
}
# The next daemon knows of that memory, too, and no other process does: no page has come to it yet.
left() {
	with_pages_missing left
	within 20 grep -q back "$scratch/said"
	kill -STOP "$(daemon b)"
	touch "$scratch/GO0"
	wait $program || fail "the parent"
	sleep 0.5 # its session's end is seen
	kill -9 "$(daemon a)"
	sleep 1
	kill -CONT "$(daemon b)"
	child_goes_on left
}
# In thousands of pieces it leaves and comes back, and the next daemon and a child learn of them all.
mosaic() {
	local file=$mnt/a/a/mosaic
	rm -f "$scratch/said" "$scratch/GO2"
	truncate -s 64M "$file"
	RAMPFS_QUIET=1 env -C "$scratch" timeout -s KILL 90 rampfs-run "$build/tests/awkward" mosaic "$file" >"$scratch/said" &
	program=$!
	within 20 grep -q mapped "$scratch/said"
	mv "$file" "$mnt/a/b/"
	within 20 grep -q gone "$scratch/said"
	rampfs-migrate --mode demand "$mnt/b/b/mosaic" a
	within 20 grep -q back "$scratch/said"
	kill -9 "$(daemon a)"
	within 20 test -e "$file"
	touch "$scratch/GO2"
	wait $program || fail "the mosaic: $(tail -n 1 "$scratch/said")"
}
# A sealed segment stays where it is, until its program has ended.
sealed() {
	rm -f "$scratch/said" "$scratch/GO"
	truncate -s 64M "$mnt/a/a/sealed"
	env -C "$scratch" timeout -s KILL 90 rampfs-run "$build/tests/awkward" sealed "$mnt/a/a/sealed" >"$scratch/said" &
	program=$!
	within 20 grep -qE "mapped|no mseal" "$scratch/said"
	if grep -q mapped "$scratch/said"; then
		refused "resource busy" mv "$mnt/a/a/sealed" "$mnt/a/b/"
		within 5 grep -q "(awkward) maps it and has sealed it" "$scratch/cluster/a.log"
	fi
	touch "$scratch/GO"
	wait $program || fail "the sealer: $(tail -n 1 "$scratch/said")"
	mv "$mnt/a/a/sealed" "$mnt/a/b/"
}
for which; do
	case $which in
	over | forks | holes | covered)
		truncate -s 2M "$mnt/a/a/$which"
		RAMPFS_QUIET=1 timeout -s KILL 90 rampfs-run "$build/tests/awkward" "$which" \
			"$mnt/a/a/$which" "$mnt/a/b/$which" 40
		;;
	outlived | replaced | left | mosaic | sealed) "$which" ;;
	*) leave "$which" ;;
	esac
done
cluster_stop
