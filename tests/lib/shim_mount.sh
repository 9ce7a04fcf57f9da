#!/usr/bin/env bash
# The shim on real mounts: every way to map, as root and as another user; segments that go and come back;
# daemons that are killed under programs that map, unmap, fork and wait.
. tests/lib/cluster.sh
export LC_ALL=C
prog=$build/tests/shim_prog
quietly() { "$@" 2>/dev/null; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
run_args=()
fresh() { rm -f "$1" && truncate -s 4M "$1" && chmod 666 "$1" && setfattr -n user.ramp.extent -v 256M "$1"; }
# run LINES SCENARIO [PREFIX...]: it succeeds, and writes LINES lines. It may wait for thousands of commits.
run() {
	local lines=$1 scenario=$2 file=$mnt/a/a/$2
	shift 2
	fresh "$file"
	timeout -k 1 300 "$@" rampfs-run "${run_args[@]}" "$prog" "$file" "$scenario" 2>"$scratch/said" ||
		fail "$scenario: status $?: $(cat "$scratch/said")"
	same "$lines" "$(wc -l <"$scratch/said")" "lines said by $scenario: $(cat "$scratch/said")"
}
# An interactive scenario: begin SCENARIO FILE [PREFIX...]; reach WHERE; go; finish. Its stderr is $scratch/said.
begin() {
	rm -f "$scratch/in" "$scratch/out" && mkfifo "$scratch/in" "$scratch/out"
	timeout -k 1 60 "${@:3}" rampfs-run "$prog" "$2" "$1" <"$scratch/in" >"$scratch/out" 2>"$scratch/said" &
	program=$!
	exec 8>"$scratch/in" 9<"$scratch/out"
}
reach() {
	local where=""
	read -r -t 60 where <&9 || true
	[ "$where" = "$1" ] || fail "not \"$1\" but \"$where\": $(cat "$scratch/said")"
}
go() { echo >&8; }
finish() {
	wait "$program" || fail "status $?: $(cat "$scratch/said")"
	exec 8>&- 9<&-
}
chmod 755 "$scratch" # for the other user
cluster_start -n 2 -c 512M

echo "every way to map"
for scenario in basic partial around halfway readonly private forks execs threads signals daemonlike leaver \
	tree crowd many unlinked loaded; do
	run 0 $scenario
done
run 1 arguments
run 0 flags
run 3 protect
run 2 large
run 3 remap
run 1 taken
grep -qE '^rampfs: mmap: something else is mapped at its address 0x2[0-9a-f]{11} \("arena" in rampfs-cluster.conf\(5\)\)$' "$scratch/said" ||
	fail "said: $(cat "$scratch/said")"
run_args=(--fixed=hint)
run 1 hinted
run_args=(--fixed hint --fixed=refuse --)
run 1 arguments
run_args=()

echo "without any privilege"
for scenario in basic readonly forks threads tree many; do
	run 0 $scenario setpriv --reuid=65534 --regid=65534 --clear-groups
done

away() { mv "$mnt/a/a/$1" "$mnt/a/b/$1" && within 10 test -e "$mnt/b/b/$1"; } # mv promises that of its own node only
back() { mv "$mnt/b/b/$1" "$mnt/b/a/$1" && within 5 test -e "$mnt/a/a/$1"; }
told_that_it_went() {
	same 1 "$(wc -l <"$scratch/said")" "lines said: $(cat "$scratch/said")"
	grep -q "^rampfs: a/$1 is now on node b; touching it here is SIGBUS\$" "$scratch/said" || fail "said: $(cat "$scratch/said")"
}
echo "gone with mv, back with mv: pointers work again, what was unmapped and protected stays so"
for scenario in gone mosaic; do
	fresh "$mnt/a/a/$scenario"
	begin $scenario "$mnt/a/a/$scenario"
	reach here
	away $scenario
	go
	reach gone
	back $scenario
	go
	finish
	told_that_it_went $scenario
done

echo "the line is written whatever stderr is, once"
cat >"$scratch/to_socket.py" <<'P'
import socket, subprocess, sys
ours, theirs = socket.socketpair()
program = subprocess.Popen(sys.argv[2:], stderr=theirs)
theirs.close()
with open(sys.argv[1], "wb") as said:
    while data := ours.recv(4096):
        said.write(data)
sys.exit(program.wait())
P
# leaves_and_returns SCENARIO [PREFIX...]
leaves_and_returns() {
	fresh "$mnt/a/a/$1"
	begin "$1" "$mnt/a/a/$1" "${@:2}"
	reach here
	away "$1"
	go
	reach gone
	back "$1"
	go
	finish
}
leaves_and_returns gone python3 "$scratch/to_socket.py" "$scratch/sent"
cp "$scratch/sent" "$scratch/said"
told_that_it_went gone
rm "$scratch/said" # root's new one, for root alone
(umask 077 && : >"$scratch/said")
leaves_and_returns gone setpriv --reuid=65534 --regid=65534 --clear-groups
told_that_it_went gone
leaves_and_returns headless
told_that_it_went headless
echo "under systemd's SystemCallFilter=@system-service"
status=0
"$build/tests/as_service" python3 -c 'import ctypes; ctypes.CDLL(None).syscall(438, -1, 0, 0)' || status=$? # pidfd_getfd
same 159 "$status" "the end of what calls more (SIGSYS)"
leaves_and_returns gone "$build/tests/as_service"
told_that_it_went gone
leaves_and_returns gone "$build/tests/as_service" python3 "$scratch/to_socket.py" "$scratch/sent"
cp "$scratch/sent" "$scratch/said"
told_that_it_went gone

echo "a program that has left for a chroot: its agent finds the next daemon, and says what is to be said"
fresh "$mnt/a/a/jailed"
begin jailed "$mnt/a/a/jailed"
reach jailed
was=$(daemon a)
kill -9 "$was"
another_daemon() { local now && now=$(daemon a) && [ "$now" != "$was" ]; }
within 10 another_daemon
go
reach "another daemon"
within 10 quietly away jailed # as soon as b knows it again
go
reach gone
back jailed
go
finish
told_that_it_went jailed

echo "children that are forked, and end, while the segment goes and comes back, on a busy machine"
busy=()
for _ in 1 2 3 4; do
	timeout 60 sh -c 'while :; do :; done' &
	busy+=($!)
done
fresh "$mnt/a/a/beside"
begin beside "$mnt/a/a/beside"
reach forking
for _ in $(seq 12); do
	mv "$mnt/a/a/beside" "$mnt/a/b/beside"
	within 10 test -e "$mnt/b/b/beside"
	mv "$mnt/b/b/beside" "$mnt/b/a/beside"
	within 10 test -e "$mnt/a/a/beside"
done
go
finish
kill "${busy[@]}"

echo "a program that follows its segment through both mounts"
fresh "$mnt/a/a/follow"
export SHIM_OTHER=$mnt/b/b/follow
begin follow "$mnt/a/a/follow"
reach first
mv "$mnt/a/a/follow" "$mnt/a/b/follow" && within 5 test -e "$mnt/b/b/follow"
go
reach other
mv "$mnt/b/b/follow" "$mnt/b/a/follow" && within 5 test -e "$mnt/a/a/follow"
go
reach back
mv "$mnt/a/a/follow" "$mnt/a/b/follow"
go
finish

echo "a daemon killed under a program that has mapped, forks and maps"
fresh "$mnt/a/a/restart"
begin restart "$mnt/a/a/restart"
reach mapped
kill -9 "$(daemon a)"
go
reach forked
kill -9 "$(daemon a)"
go
finish
same "" "$(cat "$scratch/said")" "lines said"

echo "a daemon killed again and again under threads that map, unmap and fork"
fresh "$mnt/a/a/killed"
timeout -k 1 100 rampfs-run "$prog" "$mnt/a/a/killed" endure 2>"$scratch/said" &
program=$!
for _ in $(seq 6); do
	sleep 0.8
	kill -0 $program 2>/dev/null || break
	kill -9 "$(daemon a)" || true
done
wait $program || fail "status $?: $(cat "$scratch/said")"
same "" "$(cat "$scratch/said")" "lines said"
echo "the example of rampfs-mmap(3), as it is printed there: its pointers hold on the other node"
awk '/^```/ { fence++; next } fence == 1' contrib/man/rampfs-mmap.3.scd >"$scratch/list.c"
cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wshadow -Werror -O2 -o "$scratch/list" "$scratch/list.c"
same "1 " "$(rampfs-run "$scratch/list" "$mnt/a/a/list")" "the first run"
same "2 1 " "$(rampfs-run "$scratch/list" "$mnt/a/a/list")" "the second run"
mv "$mnt/a/a/list" "$mnt/a/b/" && within 5 test -e "$mnt/b/b/list"
same "3 2 1 " "$(rampfs-run "$scratch/list" "$mnt/b/b/list")" "the run on the other node"
echo "shim on real mounts: all as it should be"
