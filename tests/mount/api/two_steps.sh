#!/usr/bin/env bash
# The hand-over in two steps on real mounts (two_user.c): two programs store and load all the time while a
# third one closes their segment to stores, and hands it over or gives it up; kill -9 of each of them.
. tests/lib/cluster.sh
cluster_start -n 2 -c 1G
user=$build/tests/two_user
kill_daemon() { pkill -9 -f "rampfs --daemon .*$mnt/$1\$"; }
size=$((24 << 20))

# begin NAME: a segment, and two programs that use it
begin() {
	name=$1 workers=()
	head -c $size /dev/urandom >"$mnt/a/a/$name"
	cp "$mnt/a/a/$name" "$scratch/before"
	for slot in 1 2; do
		mkfifo "$scratch/lines.$name.$slot"
		timeout -k 5 120 "$user" work "$mnt/a" "$name" $slot "$scratch/mirror.$name.$slot" \
			<"$scratch/lines.$name.$slot" >"$scratch/said.$slot" 2>"$scratch/err.$slot" &
		workers+=($!)
		if [ $slot = 1 ]; then exec 5>"$scratch/lines.$name.$slot"; else exec 6>"$scratch/lines.$name.$slot"; fi
		within 20 grep -q works "$scratch/said.$slot"
	done
	within 20 stores_more 0 0
	mkfifo "$scratch/lines.$name"
	timeout -k 5 120 "$user" hold "$mnt/a" "$name" b <"$scratch/lines.$name" >"$scratch/said" 2>"$scratch/err" &
	holder=$!
	exec 7>"$scratch/lines.$name"
	within 20 grep -q holds "$scratch/said"
}
# counts SLOT: how many loads and stores it has made
counts() {
	local lines
	lines=$(wc -l <"$scratch/said.$1")
	if [ "$1" = 1 ]; then echo >&5; else echo >&6; fi
	until [ "$(wc -l <"$scratch/said.$1")" -gt "$lines" ]; do sleep 0.01; done
	tail -n 1 "$scratch/said.$1"
}
# Both have stored since.
stores_more() {
	local now1 now2
	now1=$(counts 1) now2=$(counts 2)
	[ "${now1#* }" -gt "$1" ] && [ "${now2#* }" -gt "$2" ]
}
# ask LINE [RESULT]: the holder carries it out; the result must be that one (+: 0 or more)
ask() {
	local lines want=${2:-0} got
	lines=$(wc -l <"$scratch/said")
	echo "$1" >&7
	for ((i = 0; i < 6000; i++)); do
		[ "$(wc -l <"$scratch/said")" -gt "$lines" ] && break
		sleep 0.01
	done
	got=$(tail -n 1 "$scratch/said")
	case $want in
	+) [ "${got#* }" -ge 0 ] || fail "$name: $got: $(cat "$scratch/err")" ;;
	*) same "$1 $want" "$got" "$name: $(cat "$scratch/err")" ;;
	esac
}
sum() { md5sum <"$mnt/a/a/$name"; }
state() { xattr "$mnt/a/a/$name" state; }
# Closed: no byte changes, no store ends; loads and read(2) continue, write(2), truncate and punch wait.
is_closed() {
	local was1 was2 now1 now2 first
	case $(state) in "writes closed, "*" bytes left") ;; *) fail "$name: it is $(state)" ;; esac
	xattr "$mnt/a/a/$name" move | grep -qE '^from=a to=b since_ms=[0-9]+ round=[0-9]+ left_bytes=[0-9]+ state=writes closed$' ||
		fail "$name: its move is $(xattr "$mnt/a/a/$name" move)"
	xattr "$mnt/b/a/$name" move | grep -qE '^from=a to=b since_ms=[0-9]+ state=pre-copying here$' || fail "$name: at b $(xattr "$mnt/b/a/$name" move)"
	first=$(sum) was1=$(counts 1) was2=$(counts 2)
	sleep 0.3
	now1=$(counts 1) now2=$(counts 2)
	same "$first" "$(sum)" "$name: its bytes"
	same "${was1#* } ${was2#* }" "${now1#* } ${now2#* }" "$name: stores while it is closed"
	[ "${now1% *}" -gt "${was1% *}" ] && [ "${now2% *}" -gt "${was2% *}" ] || fail "$name: no loads go on"
	for change in "dd of=$mnt/a/a/$name bs=1 count=1 conv=notrunc status=none if=/dev/zero" "truncate -s 4096 $mnt/a/a/$name" \
		"fallocate -p -o 0 -l 4096 $mnt/a/a/$name"; do
		timeout 0.3 $change && fail "$name: was carried out: $change"
	done
	same "$first" "$(sum)" "$name: its bytes"
}
# Open again: stores of both continue, and write(2) does.
is_open() {
	local was1 was2
	was1=$(counts 1) was2=$(counts 2)
	within 20 stores_more "${was1#* }" "${was2#* }"
	within 20 is_stable
	within 20 moves_not
	timeout 20 dd of="$mnt/a/a/$name" bs=8 count=1 conv=notrunc status=none if="$scratch/before"
}
is_stable() { [ "$(state)" = stable ]; }
moves_not() { [ "$(xattr "$mnt/a/a/$name" move)" = none ]; }
# Each byte is what was there before, and what the two programs have stored since.
is_whole() {
	/usr/bin/python3 - "$scratch/before" "$1" "$scratch/mirror.$name.1" "$scratch/mirror.$name.2" <<'P'
import struct, sys
want = bytearray(open(sys.argv[1], "rb").read())
for slot in (1, 2):
    last = struct.unpack("<%dQ" % (len(want) // 4096), open(sys.argv[2 + slot], "rb").read())
    for page, n in enumerate(last):
        if n:
            struct.pack_into("<Q", want, page * 4096 + slot * 8, n)
got = open(sys.argv[2], "rb").read()
assert len(got) == len(want), (len(got), len(want))
bad = [i for i in range(0, len(want), 8) if got[i:i + 8] != want[i:i + 8]]
assert not bad, (len(bad), bad[0], got[bad[0]:bad[0] + 8], want[bad[0]:bad[0] + 8])
P
}
gone() {
	for worker in "${workers[@]}"; do wait "$worker" || fail "$name: $(cat "$scratch"/err.[12])"; done
	within 20 test -e "$mnt/b/b/$name"
	is_whole "$mnt/b/b/$name"
	finish
}
finish() {
	exec 7>&- 5>&- 6>&-
	kill "${workers[@]}" 2>/dev/null || true
	wait "${workers[@]}" "$holder" 2>/dev/null || true
}

echo "closed, opened again, closed once more, and handed over"
begin one
ask read -107 # not connected
ask connect
same "stable from=a to=b connected" "$(state) $(xattr "$mnt/a/a/$name" move | sed 's/since_ms=[0-9]* state=//')" "$name: its state, and its move's"
ask read -22 # not closed
ask try_write +
is_closed
ask extend +
ask abort
is_open
ask connect
ask try_write +
ask try_read +
gone

echo "ramp_finish_write and ramp_finish_read wait by themselves; the holder has it prepared between them, or not"
for middle in "" prepare; do
	begin "waits$middle"
	ask connect
	ask write
	is_closed
	[ -z "$middle" ] || ask prepare
	ask read
	gone
done

echo "calls that change bytes are EBUSY after some seconds, one that may not wait fails at once; nothing has changed"
# closed NAME FD: a segment that a holder of its own has closed; calls of one file wait for each other
closed() {
	head -c 8192 /dev/urandom >"$mnt/a/a/$1"
	cp "$mnt/a/a/$1" "$scratch/before.$1"
	mkfifo "$scratch/lines.$1"
	timeout -k 5 120 "$user" hold "$mnt/a" "$1" b <"$scratch/lines.$1" >"$scratch/said.$1" 2>&1 &
	eval "exec $2>\"\$scratch/lines.\$1\""
	printf 'connect\nwrite\n' >&"$2"
	within 20 grep -q "^write 0" "$scratch/said.$1"
}
changers=()
# change NAME COMMAND...: begins it
change() {
	timeout -k 5 60 "${@:2}" "$mnt/a/a/$1" 2>"$scratch/change.$1" &
	changers+=($!)
}
closed cut 5
closed punched 6
closed written 7
/usr/bin/python3 - "$mnt/a/a/written" <<'P' || fail "written: a write that may not wait"
import errno, os, sys
try:
    os.pwritev(os.open(sys.argv[1], os.O_RDWR), [b"abcd"], 0, os.RWF_NOWAIT)
    sys.exit("it was carried out")
except OSError as e:
    assert e.errno == errno.EOPNOTSUPP, e  # the kernel knows no such call of a FUSE file
P
change cut truncate -s 4096
change punched fallocate -p -o 0 -l 4096
change written python3 -c 'import os, sys; os.pwrite(os.open(sys.argv[1], os.O_RDWR), b"abcd", 0)'
for i in 0 1 2; do
	if wait "${changers[i]}"; then fail "change $i was carried out"; fi
done
for name in cut punched written; do
	grep -q "Device or resource busy" "$scratch/change.$name" || fail "$name: $(cat "$scratch/change.$name")"
	same "writes closed" "$(state | sed 's/,.*//')" "$name: its state"
	cmp "$mnt/a/a/$name" "$scratch/before.$name" || fail "$name has changed"
done
exec 5>&- 6>&- 7>&-
for name in cut punched written; do within 20 is_stable; done
truncate -s 4096 "$mnt/a/a/cut"

echo "a stopped process can't let go of its stores: it is named, and nothing is closed"
begin stopped
ask connect
stopped=$(pgrep -P "${workers[0]}")
kill -STOP "$stopped"
ask write -16
grep -q "process $stopped " "$scratch/err" || fail "$name: $(cat "$scratch/err")"
kill -CONT "$stopped"
is_open
ask connect
ask write
ask read
gone

echo "a process that waits to store is killed; then it is handed over as ever (ramp_transfer)"
begin killed
ask connect
ask write
kill -9 "$(pgrep -P "${workers[0]}")"
ask transfer
wait "${workers[0]}" || true
workers=("${workers[1]}")
gone

echo "the holder is killed, and its time is over: stores go on"
begin holder
ask connect
ask write
is_closed
kill -9 "$(pgrep -P $holder)"
is_open
finish
begin late
ask connect
ask write
ask extend +
is_open
ask read -110
finish

echo "a daemon is killed while it is closed: stores go on, and the holder is told"
for node in a b; do
	begin "daemon$node"
	ask connect
	ask write
	is_closed
	kill_daemon $node
	is_open
	case $node in a) ask read -103 ;; b) ask read -5 ;; esac
	finish
	within 20 rampfs-migrate "$mnt/a/a/$name" b
	within 20 test -e "$mnt/b/b/$name"
done

echo "a daemon is killed again and again under all of it: no byte is lost"
for i in 1 2 3 4; do
	begin "kill$i"
	(
		sleep 0.$((i * 7 % 5))
		kill_daemon a || true
	) &
	killer=$!
	printf 'connect\nwrite\nread\n' >&7
	within 60 grep -q "^read " "$scratch/said"
	wait $killer || true
	exec 7>&-
	wait $holder || true
	[ -e "$mnt/b/b/$name" ] || within 20 rampfs-migrate "$mnt/a/a/$name" b
	exec 7</dev/null
	gone
done

echo "in another mode it is refused"
begin lazily
ask lazy
ask prepare # which is past the close to stores, and is none
ask read -22
ask try_read -22
ask abort
is_open
ask lazy
ask write -95
is_open
finish
cluster_stop
