#!/usr/bin/env bash
# Moves in steps by libramp.so on real mounts (steps_user.c): the client, both daemons and other users.
. tests/lib/cluster.sh
cluster_start -n 2 -c 1G
user=$build/tests/steps_user
new() { head -c 8M /dev/zero >"$mnt/a/a/$1"; }
word() { python3 -c 'import struct, sys; print(struct.unpack("<Q", open(sys.argv[1], "rb").read(8))[0])' "$1"; }
kill_daemon() { pkill -9 -f "rampfs --daemon .*$mnt/$1\$"; }
# hold NAME STEP [COMMAND...]: a client that has mapped a segment, in the background; say tells it to continue
hold() {
	mkfifo "$scratch/lines.$1"
	"${@:3}" timeout -k 5 90 "$user" hold "$mnt/a" "$1" b "$2" <"$scratch/lines.$1" >"$scratch/said.$1" 2>"$scratch/err.$1" &
	client=$!
	exec 7>"$scratch/lines.$1"
	said=$scratch/said.$1
	within 20 grep -q mapped "$said"
}
say() { echo >&7; }
# The client ends, and it was taken; no store is lost.
taken() {
	exec 7>&-
	wait $client || fail "$1: $(cat "$said" "$scratch/err.$1")"
	grep -q "^taken, gone, " "$said" || fail "$1: $(cat "$said")"
	within 20 test -e "$mnt/b/b/$1"
	same "$(sed -n 's/taken, gone, //p' "$said")" "$(word "$mnt/b/b/$1")" "the last store into $1"
}

for with in "" "rampfs-run"; do
	echo "steps, refusals, aborts: ${with:-alone}"
	timeout -k 5 120 $with "$user" walk "$mnt/a" "$mnt/b" b 2>"$scratch/err" || fail "walk: $(cat "$scratch/err")"
done

for step in connect prepare; do
	echo "$step: the client continues"
	new "$step.on"
	hold "$step.on" $step
	say
	within 20 grep -q held "$said"
	say
	taken "$step.on"

	echo "$step: the client is killed: its move is given up, room is given back"
	new "$step.client"
	hold "$step.client" $step
	say
	within 20 grep -q held "$said"
	refused "on the move already" rampfs-migrate "$mnt/a/a/$step.client" b
	pkill -9 -f "$user hold .* $step.client " || fail "no client"
	wait $client || true
	exec 7>&-
	within 20 rampfs-migrate "$mnt/a/a/$step.client" b
	within 20 test -e "$mnt/b/b/$step.client"

	echo "$step: the source's daemon is killed, and the client continues"
	new "$step.source"
	hold "$step.source" $step
	say
	within 20 grep -q held "$said"
	kill_daemon a
	say
	taken "$step.source"

	echo "$step: the target's daemon is killed, and the client continues"
	new "$step.target"
	hold "$step.target" $step
	say
	within 20 grep -q held "$said"
	kill_daemon b
	within 20 ls "$mnt/b/.ramp" >"$scratch/ls"
	say
	taken "$step.target"
done

echo "the source's daemon is killed again and again under all calls"
for i in 1 2 3 4 5 6; do
	new "kill$i"
	hold "kill$i" prepare
	(while kill -0 $client 2>"$scratch/none"; do
		sleep 0.0$i
		kill_daemon a || true
		sleep 0.3
	done) &
	killer=$!
	say
	say
	taken "kill$i"
	wait $killer || true
done

echo "a receiver has it mapped before it is there; one that does not come, and comes later, is received once"
new first
new second
"$user" receive "$mnt/b" "[fs]*" 2 >"$scratch/received" 2>"$scratch/err" &
receiver=$!
within 20 grep -q armed "$scratch/received"
ahead() { grep -q "/gone\.$1\.w" "/proc/$receiver/maps"; }
id=$(stat -c %i "$mnt/a/a/second")
hold second connect
say
within 20 ahead "$id"
pkill -9 -f "$user hold .* second b " || fail "no client"
wait $client || true
exec 7>&-
id=$(stat -c %i "$mnt/a/a/first")
hold first prepare
say
within 20 ahead "$id"
within 20 grep -q held "$said"
same armed "$(cat "$scratch/received")" "what is received before it is there"
say
exec 7>&-
wait $client || fail "first: $(cat "$said" "$scratch/err.first")"
last=$(sed -n 's/taken, gone, //p' "$said")
within 20 grep -q "^$id $last\$" "$scratch/received"
within 20 rampfs-migrate "$mnt/a/a/second" b
wait $receiver || fail "the receiver: $(cat "$scratch/err")"
same 3 "$(wc -l <"$scratch/received")" "lines of the receiver"
same $((last - 1)) "$(word "$mnt/b/b/first")" "the receiver's store"

echo "ranges are pulled and hinted at; the source is silent, and the daemon is killed under a pull"
resident() { xattr "$mnt/b/b/pulled" resident_bytes; }
has() { [ "$(resident)" = "$1" ]; }
"$user" fill "$mnt/a" pulled 8
rampfs-migrate --mode demand "$mnt/a/a/pulled" b
within 20 test -e "$mnt/b/b/pulled"
same 0 "$(resident)" "bytes that are here"
mkfifo "$scratch/lines.pull"
timeout -k 5 120 "$user" pull "$mnt/b" pulled <"$scratch/lines.pull" >"$scratch/said.pull" 2>"$scratch/err.pull" &
client=$!
exec 7>"$scratch/lines.pull"
within 20 grep -q hinted "$scratch/said.pull"
within 20 has $(((2 << 20)))
setfattr -n user.ramp.hint -v "5M 0x2000" "$mnt/b/b/pulled"
within 20 has $(((2 << 20) + 8192))
for bad in "" x "1 x" "1  2" "-1 2" "1 2 3" "99999999999999999999"; do
	refused "Invalid argument" setfattr -n user.ramp.hint -v "$bad" "$mnt/b/b/pulled"
done
pkill -STOP -f "rampfs --daemon .*$mnt/a\$"
say
within 20 grep -q waits "$scratch/said.pull"
kill_daemon b
within 20 ls "$mnt/b/.ramp" >"$scratch/ls"
pkill -CONT -f "rampfs --daemon .*$mnt/a\$"
say
within 20 grep -q whole "$scratch/said.pull"
within 20 rampfs-migrate "$mnt/b/b/pulled" a
say
wait $client || fail "pull: $(cat "$scratch/said.pull" "$scratch/err.pull")"
exec 7>&-

# The bytes of a segment from 3 MiB on, as read(2) has them; "EIO".
third() { python3 -c 'import os, sys
try:
    print(*os.pread(os.open(sys.argv[1], os.O_RDONLY), 16, 3 << 20))
except OSError as e:
    print(e.strerror)' "$1"; }
has_file() { find "$state/$1/store" -name "$2*" | grep -q .; }
is_free() { ! has_file "$@"; }
is_stable() { [ "$(xattr "$1" state)" = stable ]; }
for name in lost zeros killed; do
	as=${name/killed/zeros}
	echo "the rest is given up ($name); the daemon is killed; the source is freed; the next move"
	"$user" fill "$mnt/a" $name 8
	id=$(stat -c %i "$mnt/a/a/$name")
	rampfs-migrate --mode demand "$mnt/a/a/$name" b
	within 20 test -e "$mnt/b/b/$name"
	has_file a "$id" || fail "the source has nothing of $name"
	mkfifo "$scratch/lines.$name"
	timeout -k 5 120 "$user" give_up "$mnt/b" $name $as <"$scratch/lines.$name" >"$scratch/said.$name" 2>"$scratch/err.$name" &
	client=$!
	exec 7>"$scratch/lines.$name"
	while [ $name = killed ] && ! grep -q "given up" "$scratch/said.$name" && kill -0 $client; do
		sleep 0.05
		kill_daemon b || true
		kill_daemon a || true
		sleep 0.02
	done
	within 20 grep -q "given up" "$scratch/said.$name"
	kill_daemon b
	within 20 ls "$mnt/b/.ramp" >"$scratch/ls"
	case $as in
	lost) bytes="Input/output error" range=1048576-8388608 ;;
	*) bytes="0 0 0 0 0 0 0 0 103 18 0 0 0 0 0 0" range=none ;;
	esac
	same "$bytes" "$(third "$mnt/b/b/$name")" "what read(2) sees"
	same "$range" "$(xattr "$mnt/b/b/$name" lost)" "what is lost"
	within 20 is_stable "$mnt/b/b/$name"
	within 20 is_free a "$id"
	say
	wait $client || fail "$name: $(cat "$scratch/said.$name" "$scratch/err.$name")"
	exec 7>&-
	rampfs-migrate --wait "$mnt/b/b/$name" a
	within 20 test -e "$mnt/a/a/$name"
	same "$bytes" "$(third "$mnt/a/a/$name")" "what read(2) sees on the next node"
	rm "$mnt/a/a/$name"
done

echo "what only its owner may move, and what another program keeps"
new others
chmod 666 "$mnt/a/a/others"
hold others connect setpriv --reuid 65534 --regid 65534 --clear-groups
say
exec 7>&-
wait $client || fail "others: $(cat "$scratch/err.others")"
grep -q "only its owner and root may move it, here" "$said" || fail "another user's: $(cat "$said")"
python3 -c 'import mmap, os, sys, time
os.setxattr(sys.argv[1], "user.ramp.mmap", b"passthrough")
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
print("mapped", flush=True)
time.sleep(60)' "$mnt/a/a/others" >"$scratch/mapper" &
mapper=$!
within 20 grep -q mapped "$scratch/mapper"
rm "$scratch/lines.others"
hold others connect
say
exec 7>&-
wait $client || fail "others: $(cat "$scratch/err.others")"
grep -q "process $mapper" "$said" || fail "what another program maps: $(cat "$said")"
kill $mapper

echo "a daemon of an older version hangs up: it is not supported"
new old
socket=$(python3 -c 'import fcntl, os, sys
info = bytearray(136)
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 2 << 30 | len(info) << 16 | ord("R") << 8 | 0x62, info)
print(info[24:].split(b"\0")[0].decode())' "$mnt/a")
hold old connect unshare -m
python3 -c 'import socket, sys
old = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
old.bind(sys.argv[1])
old.listen()
while True:
    program, _ = old.accept()
    program.recv(4096)
    program.close()' "$scratch/old.sock" &
old=$!
within 20 test -S "$scratch/old.sock"
nsenter -m -t "$(pgrep -f "$user hold .* old b connect" | tail -n 1)" mount --bind "$scratch/old.sock" "$socket"
say
exec 7>&-
wait $client || fail "old: $(cat "$scratch/err.old")"
kill $old
grep -q "of an older version, which moves nothing in steps, here" "$said" || fail "an older daemon: $(cat "$said")"
cluster_stop
