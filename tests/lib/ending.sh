# shellcheck shell=bash
# For scripts of tests: nodes whose end is looked at. After cluster.sh.
#   begin_node NODE: starts it, in the foreground of a job; serves NODE: waits until it does
#   begin_again NODE: the same for one that runs
#   outset NODE: notes everything that is to go with it
#   is_stopped PID: all its threads are; is_held PID: it waits in a page fault
#   goes NODE SECONDS: its end comes in time, with status 0, and leaves nothing but its state and its memory
: "${scratch:?cluster.sh makes it}" "${mnt:?}" "${state:?}"
declare -A rampfs_of parts_of files_of socket_of
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
keeper() { cat "$state/$1/lock"; }
has_quorum() { grep -q '^quorum: yes' "$mnt/$1/.ramp/status" 2>/dev/null; }
begin_node() {
	rampfs -f -o "log=$scratch/cluster/$1.log" "$state/$1" "$mnt/$1" &
	rampfs_of[$1]=$!
}
serves() {
	within 20 has_quorum "$1"
	within 10 test -d "$mnt/$1/$1"
}
# The nodes of a cluster that cluster_start has started are no children of this shell.
begin_again() {
	local was
	was=$(keeper "$1")
	umount "$mnt/$1"
	within 20 is_over "$was"
	begin_node "$1"
}
outset() {
	local daemon
	daemon=$(daemon "$1")
	parts_of[$1]="$(keeper "$1") $daemon $(pgrep -d ' ' -P "$daemon")" # the last: its broker
	[ "$(wc -w <<<"${parts_of[$1]}")" -ge 3 ] || fail "no keeper, daemon and broker of node $1: ${parts_of[$1]}"
	files_of[$1]=$(cd "$state/$1" && ls -A)
	listens "$1" || fail "node $1 does not listen"
	socket_of[$1]=$(find "/proc/$(keeper "$1")/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' |
		awk 'NR == FNR { ours[$1]; next } $7 in ours && $8 ~ "^/run/rampfs/" { print $8 }' - /proc/net/unix)
	[ -S "${socket_of[$1]}" ] || fail "node $1 has no session socket: ${socket_of[$1]}"
}
listens() { # at its port
	local port
	port=$(sed -n "/^\[node $1\]/,/^\$/s/^address=.*://p" "$scratch/cluster/cluster.conf")
	(: <>"/dev/tcp/127.0.0.1/${port:?}") 2>/dev/null
}
# The first thread that sees the signal stops the others.
is_stopped() { ! grep -L '^State:.T' "/proc/$1"/task/*/status | grep -q .; }
is_held() { grep -q userfault "/proc/$1/stack"; }
is_over() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
goes() {
	local part status=0
	at_most "$2" is_over "${rampfs_of[$1]}"
	wait "${rampfs_of[$1]}" || status=$?
	same 0 "$status" "the exit status of node $1"
	for part in ${parts_of[$1]}; do
		(at_most 5 is_over "$part") || fail "a process of node $1 is left: $(tr '\0' ' ' <"/proc/$part/cmdline")"
	done
	! grep -F " $mnt/$1 " /proc/self/mounts || fail "node $1's mount is left"
	same "" "$(ls -A "$mnt/$1")" "what is left in node $1's mountpoint"
	! listens "$1" || fail "somebody listens at node $1's port"
	[ ! -e "${socket_of[$1]}" ] || fail "node $1's session socket is left"
	part=$(cd "$state/$1" && ls -A)
	part=$(comm -13 <(echo "${files_of[$1]}" | sort) <(echo "$part" | sort))
	same "" "$part" "files that were not in node $1's state directory before"
	! grep "does not end: killing it" "$scratch/cluster/$1.log" || fail "node $1 had to be killed"
}
