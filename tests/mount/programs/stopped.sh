#!/usr/bin/env bash
# Programs that can't carry out a revoke by themselves: stopped ones are revoked from outside and
# stay stopped; traced and frozen ones make the move EBUSY by name.
. tests/lib/cluster.sh
cluster_start -n 2 -c 256M
a=$mnt/a b=$mnt/b
freezers=() frozen=""
# $frozen: of cgroup v1 or v2
freeze() {
	if [ -e "$frozen/freezer.state" ]; then
		echo FROZEN >"$frozen/freezer.state"
		within 10 grep -q FROZEN "$frozen/freezer.state"
	else
		echo 1 >"$frozen/cgroup.freeze"
		within 10 grep -qx "frozen 1" "$frozen/cgroup.events"
	fi
}
thaw() { if [ -e "$frozen/freezer.state" ]; then echo THAWED >"$frozen/freezer.state"; else echo 0 >"$frozen/cgroup.freeze"; fi; }
clean_up() {
	local status=$?
	set +e
	[ ! -d "$frozen" ] || thaw
	# shellcheck disable=SC2046
	kill -KILL $(jobs -p) 2>/dev/null
	for frozen in "${freezers[@]}"; do [ ! -d "$frozen" ] || (within 5 rmdir "$frozen"); done
	! mountpoint -q "$scratch/cgroups" || umount "$scratch/cgroups"
	cluster_cleanup $status
}
trap clean_up EXIT

cat >"$scratch/writer.py" <<'P'
import mmap, os, sys, threading
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
def write(i):
    n = 0
    while True:
        n += 1
        m[i * 4096:i * 4096 + 8] = n.to_bytes(8, "little")
threading.Thread(target=write, args=(1,), daemon=True).start()
print("ready", flush=True)
write(2)
P
# A writer of the file, with its pid in $pid, and its lines in $scratch/err.
writer() {
	head -c 8M /dev/zero >"$1"
	: >"$scratch/out"
	rampfs-run python3 "$scratch/writer.py" "$1" >"$scratch/out" 2>"$scratch/err" &
	pid=$!
	within 20 grep -q ready "$scratch/out"
}
state_of() { sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f1; }
is_state() { [ "$(state_of)" = "$1" ]; }
counter() { dd if="$1" bs=8 skip=512 count=1 status=none | od -An -tu8 | tr -d ' '; }
stop() { kill -STOP "$pid" && within 5 is_state T; }
move() { python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$2"; }

# Whether the process of $pid maps a file with a segment's bytes: one of the store that is no empty one.
maps_segment() { sed 's/.* \//\//' "/proc/$pid/maps" | grep -q "/store/[0-9]"; }
told() { grep -c "$1" "$scratch/err" || true; }
kib_used() { df -k --output=used "$1" | tail -n 1 | tr -d ' '; }

# away, while the program is stopped: its agent alone lets the segment go, so that no byte of it stays here
writer "$a/a/f"
used=$(kib_used "$a")
[ "$used" -ge 8192 ] || fail "8 MiB take $used KiB"
stop
move "$a/a/f" "$a/b/f"
same T "$(state_of)" "the writer's state after mv"
for task in "/proc/$pid/task/"*; do
	within 5 grep -q "^State:.T" "$task/status"
	grep -q "^TracerPid:.0$" "$task/status" || fail "$task is still traced"
done
! maps_segment || fail "it still has the segment mapped: $(cat "/proc/$pid/maps")"
freed() { [ "$(kib_used "$a")" -le $((used - 8000)) ]; }
within 10 freed
at=$(counter "$b/b/f")
kill -CONT "$pid"
status=0
wait "$pid" || status=$?
same 135 "$status" "the writer's end (SIGBUS)"
grep -q "a/f is now on node b; touching it here is SIGBUS" "$scratch/err" || fail "it was not told: $(cat "$scratch/err")"
same 1 "$(told "is now on node")" "how often it was told"
same "$at" "$(counter "$b/b/f")" "the counter, after the writer went on"
rm "$b/b/f"

# away and, once the program has continued and has the empty file, back: its pointers work again
cat >"$scratch/patient.py" <<'P'
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
print("ready", flush=True)
for line in sys.stdin:
    m[0:4] = b"next"
    print(bytes(m[4096:4105]), flush=True)
P
head -c 8M /dev/zero >"$a/a/f"
printf 'as it was' | dd of="$a/a/f" bs=4096 seek=1 conv=notrunc status=none
mkfifo "$scratch/in"
: >"$scratch/out"
rampfs-run python3 "$scratch/patient.py" "$a/a/f" <"$scratch/in" >"$scratch/out" 2>"$scratch/err" &
pid=$!
exec 9>"$scratch/in"
within 20 grep -q ready "$scratch/out"
stop
move "$a/a/f" "$a/b/f"
kill -CONT "$pid"
within 10 grep -q "is now on node b" "$scratch/err"
# A source frees the segment when no process maps it any more; until then the way back is "not yet".
within 20 move "$a/b/f" "$a/a/f"
echo >&9
within 20 grep -q "as it was" "$scratch/out"
# the same with the way back while the program is still stopped, again and again: the segment is in its place when the
# program continues, and no old byte is ever seen
stop
for round in 1 2 3; do
	move "$a/a/f" "$a/b/f"
	printf 'anew %s   ' "$round" | dd of="$b/b/f" bs=4096 seek=1 conv=notrunc status=none
	move "$b/b/f" "$b/a/f"
	same T "$(state_of)" "its state after the way back"
done
within 5 maps_segment
kill -CONT "$pid"
echo >&9
within 20 grep -q "anew 3" "$scratch/out"
same next "$(head -c 4 "$a/a/f")" "its store"
exec 9>&-
wait "$pid"
rm "$a/a/f"

# a process that keeps the bytes at the source and answers to no session is named when the segment is to come back
cat >"$scratch/keeper.py" <<'P'
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
sys.stdin.readline()
m = mmap.mmap(f, 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.readline()
P
head -c 8M /dev/urandom >"$a/a/f"
sum=$(sha256sum <"$a/a/f")
: >"$scratch/out"
python3 "$scratch/keeper.py" "$state/a/store/$(xattr "$a/a/f" id)" <"$scratch/in" >"$scratch/out" &
pid=$!
exec 9>"$scratch/in"
within 20 grep -q ready "$scratch/out"
move "$a/a/f" "$a/b/f"
echo >&9
within 20 grep -q mapped "$scratch/out"
stop
refused "busy" move "$b/b/f" "$b/a/f"
named="process $pid (python3), which is stopped, still has it mapped"
grep -q "stays: .*an earlier copy of it is still here ($named)" "$scratch/cluster/b.log" ||
	fail "b's log does not name it: $(grep stays: "$scratch/cluster/b.log")"
within 20 grep -q "has left but can't be freed yet: $named" "$scratch/cluster/a.log"
kill -CONT "$pid"
exec 9>&-
wait "$pid"
within 20 move "$b/b/f" "$b/a/f"
same "$sum" "$(sha256sum <"$a/a/f")" "its bytes"
rm "$a/a/f"

# a program that writes all the time does not notice that its segment was away while it was stopped
writer "$a/a/f"
stop
for round in 1 2 3; do
	move "$a/a/f" "$a/b/f"
	move "$b/b/f" "$b/a/f"
done
within 5 maps_segment
at=$(counter "$a/a/f")
kill -CONT "$pid"
ended_or_goes_on() { ! kill -0 "$pid" 2>/dev/null || [ "$(counter "$a/a/f")" != "$at" ]; }
goes_on() { kill -0 "$pid" && [ "$(counter "$a/a/f")" != "$at" ]; }
within 10 goes_on
# continued and stopped at any moment of it: the program ends by SIGBUS where it continued without its segment, else it
# writes on
for round in 1 2 3 4 5; do
	kill -0 "$pid" 2>/dev/null || writer "$a/a/f"
	for _ in $(seq 300); do kill -STOP "$pid" && sleep 0.003 && kill -CONT "$pid" || break; done 2>/dev/null &
	flips=$!
	within 20 move "$a/a/f" "$a/b/f"
	within 20 move "$a/b/f" "$a/a/f"
	wait "$flips" || true
	at=$(counter "$a/a/f")
	if kill -CONT "$pid" 2>/dev/null; then
		within 10 ended_or_goes_on
	fi
	kill -0 "$pid" 2>/dev/null && continue
	status=0
	wait "$pid" || status=$?
	same 135 "$status" "how it ended"
done
kill -KILL "$pid" 2>/dev/null || true
wait "$pid" || true
rm "$a/a/f"

# traced by another process: EBUSY, and everything as before
if command -v gdb >/dev/null || command -v strace >/dev/null; then
	writer "$a/a/f"
	if command -v gdb >/dev/null; then
		gdb -q -p "$pid" -ex 'shell sleep 1000' >/dev/null 2>&1 &
	else
		stop
		strace -f -p "$pid" -o /dev/null 2>/dev/null &
	fi
	tracer=$!
	within 20 sh -c "grep -q '^TracerPid:.*[1-9]' /proc/$pid/status"
	within 10 sh -c "! grep -l '^State:.[RS]' /proc/$pid/task/*/status | grep -q ."
	refused "busy" move "$a/a/f" "$a/b/f"
	grep -q "process $pid (python3) maps it and is stopped and traced by process" "$scratch/cluster/a.log" ||
		fail "the log does not name the traced process"
	kill -KILL "$tracer"
	pkill -KILL -P "$tracer" || true
	wait "$tracer" || true
	kill -CONT "$pid"
	at=$(counter "$a/a/f")
	within 10 sh -c "[ \"\$(dd if=$a/a/f bs=8 skip=512 count=1 status=none | od -An -tu8 | tr -d ' ')\" != $at ]"
	within 20 move "$a/a/f" "$a/b/f"
	status=0
	wait "$pid" || status=$?
	same 135 "$status" "the end of the writer that was traced"
	rm "$b/b/f"
else
	echo "no gdb and no strace here: tracing is not tested"
fi

# a frozen cgroup: the same, in one of version 2, which can always be made, and in one of version 1 if there is that
mkdir "$scratch/cgroups"
mount -t cgroup2 cgroup2 "$scratch/cgroups"
for root in "$scratch/cgroups" /sys/fs/cgroup/freezer; do
	[ ! -e "$root/cgroup.procs" ] || ! mkdir "$root/rampfs-$$" 2>/dev/null || freezers+=("$root/rampfs-$$")
done
same "$scratch/cgroups/rampfs-$$" "${freezers[0]-}" "the cgroup that was made"
for frozen in "${freezers[@]}"; do
	writer "$a/a/f"
	echo "$pid" >"$frozen/cgroup.procs"
	freeze
	refused "busy" move "$a/a/f" "$a/b/f"
	grep -q "process $pid (python3) maps it and is in a frozen cgroup" "$scratch/cluster/a.log" ||
		fail "the log does not name the process that is frozen in $frozen"
	thaw
	at=$(counter "$a/a/f")
	within 10 sh -c "[ \"\$(dd if=$a/a/f bs=8 skip=512 count=1 status=none | od -An -tu8 | tr -d ' ')\" != $at ]"
	move "$a/a/f" "$a/b/f"
	status=0
	wait "$pid" || status=$?
	same 135 "$status" "the end of the writer that was frozen in $frozen"
	within 5 rmdir "$frozen"
	rm "$b/b/f"
done
umount "$scratch/cgroups"

# stopped, with a filter that hands each madvise(2) to a supervisor that never answers: EBUSY soon, and another program
# that has it mapped continues
cat >"$scratch/filtered.py" <<'P'
import ctypes, mmap, os, struct, sys, time
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
m[0:4] = b"mine"
libc = ctypes.CDLL(None, use_errno=True)
# seccomp_data.nr; madvise: SECCOMP_RET_USER_NOTIF, else SECCOMP_RET_ALLOW
code = struct.pack("<HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 28, 6, 0, 0, 0x7fc00000, 6, 0, 0, 0x7fff0000)
filters = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(filters)))
# PR_SET_NO_NEW_PRIVS; SECCOMP_SET_MODE_FILTER, for all threads, with a listener
if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(317, 1, 1 | 8 | 16, program) < 0:
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
print("ready", flush=True)
while True:
    time.sleep(1)
P
if [ "$(uname -m)" = x86_64 ]; then
	writer "$a/a/f"
	other=$pid
	: >"$scratch/out"
	rampfs-run python3 "$scratch/filtered.py" "$a/a/f" >"$scratch/out" 2>"$scratch/err" &
	pid=$!
	within 20 grep -q ready "$scratch/out" || fail "$(cat "$scratch/err")"
	stop
	from=$SECONDS
	refused "busy" timeout 60 python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$a/a/f" "$a/b/f"
	[ $((SECONDS - from)) -lt 40 ] || fail "it took $((SECONDS - from)) s"
	grep -q "process $pid (python3) maps it and is stopped, and dropping it there failed: Connection timed out" \
		"$scratch/cluster/a.log" || fail "the log does not name the process: $(tail -n 5 "$scratch/cluster/a.log")"
	same T "$(state_of)" "the state of the program with the filter"
	at=$(counter "$a/a/f")
	within 10 sh -c "[ \"\$(dd if=$a/a/f bs=8 skip=512 count=1 status=none | od -An -tu8 | tr -d ' ')\" != $at ]"
	same mine "$(head -c 4 "$a/a/f")" "its store"
	kill -KILL "$pid"
	wait "$pid" || true
	within 20 move "$a/a/f" "$a/b/f"
	wait "$other" || true
	rm "$b/b/f"
fi
cluster_stop
echo "stopped: all as it should be"
