#!/usr/bin/env bash
# What goes wrong around libramp.so on real mounts (bad_user.c): receivers that wait in vain, meet or die; fork and exec; another
# version; a table that can't be read; the daemon that is killed under every call.
. tests/lib/cluster.sh
cluster_start -n 3 -c 256M
bad=$build/tests/bad_user
user() { timeout -k 5 90 "$bad" "$@" 2>"$scratch/err" || fail "$*: $(cat "$scratch/err")"; }
steps=$build/tests/steps_user
word() { python3 -c 'import struct, sys; print(struct.unpack("<Q", open(sys.argv[1], "rb").read(8))[0])' "$1"; }
kill_daemon() { pkill -9 -f "rampfs --daemon .*$mnt/$1\$"; }

echo "received in vain; by two threads and another receiver at once"
user never "$mnt/b"
"$bad" twins "$mnt/b" >"$scratch/said" 2>"$scratch/err" &
twins=$!
within 20 grep -q armed "$scratch/said"
for name in twin1 twin2; do
	printf x >"$mnt/a/a/$name"
	mv "$mnt/a/a/$name" "$mnt/a/b/"
done
within 20 grep -q ended "$scratch/said"
printf x >"$mnt/a/a/twin3"
mv "$mnt/a/a/twin3" "$mnt/a/b/"
wait $twins || fail "twins: $(cat "$scratch/err")"

echo "four threads on one mount and one segment"
user threads "$mnt/a" b
same "" "$(ls "$mnt/a/a")" "segments that four threads left"

echo "fork and exec with what is open, connected and armed"
user exec "$mnt/a" b

for step in connect prepare; do
	echo "the receiver is killed between $step and TAKEN: the segment arrives, and another receives what comes next"
	head -c 8M /dev/zero >"$mnt/a/a/dying.$step"
	"$steps" receive "$mnt/b" "dying*" 1 >"$scratch/received" 2>"$scratch/err" &
	receiver=$!
	within 20 grep -q armed "$scratch/received"
	mkfifo "$scratch/lines.$step"
	timeout -k 5 90 "$steps" hold "$mnt/a" "dying.$step" b "$step" <"$scratch/lines.$step" >"$scratch/held" 2>"$scratch/err.held" &
	holder=$!
	exec 7>"$scratch/lines.$step"
	within 20 grep -q mapped "$scratch/held"
	echo >&7
	within 20 grep -q held "$scratch/held"
	within 20 grep -q "/gone\." "/proc/$receiver/maps"
	kill -9 $receiver
	wait $receiver || true
	echo >&7
	exec 7>&-
	wait $holder || fail "hold: $(cat "$scratch/held" "$scratch/err.held")"
	last=$(sed -n 's/taken, gone, //p' "$scratch/held")
	within 20 test -e "$mnt/b/b/dying.$step"
	same "$last" "$(word "$mnt/b/b/dying.$step")" "the last store"
	within 20 mv "$mnt/b/b/dying.$step" "$mnt/b/a/"
	"$steps" receive "$mnt/b" "dying*" 1 >"$scratch/received" 2>"$scratch/err" &
	receiver=$!
	within 20 grep -q armed "$scratch/received"
	mv "$mnt/a/a/dying.$step" "$mnt/a/b/"
	wait $receiver || fail "the next receiver: $(cat "$scratch/err")"
	same $last "$(tail -n 1 "$scratch/received" | cut -d' ' -f2)" "what the next one receives"
done

echo "another version: the daemon says so to the program, and the library to its caller; an unknown message ends its connection alone"
head -c 4096 /dev/zero >"$mnt/a/a/old"
socket=$(python3 -c 'import fcntl, os, sys
info = bytearray(136)
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 2 << 30 | len(info) << 16 | ord("R") << 8 | 0x62, info)
print(info[24:].split(b"\0")[0].decode())' "$mnt/a")
python3 - "$socket" <<'P'
import socket, struct, sys
def asked(packet):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.send(packet)
    return s.recv(4096)
for kind, answer in ((19, 22), (30, 22), (25, 18), (1, 2), (99, 18)):  # MIGRATE, CONNECT: ANSWER; LISTEN; HELLO: WELCOME; none
    got = asked(struct.pack("<HH", 2, kind) + b"more of a later version")
    assert struct.unpack_from("<HH", got) == (1, answer) and b"speaks version 1" in got, (kind, got)
for packet in (struct.pack("<HH", 1, 99), struct.pack("<HH", 1, 19), b"x", struct.pack("<HH", 1, 25) + b"x" * 2000):
    assert asked(packet) == b"", packet
P
cat >"$scratch/other.py" <<'P'
import socket, struct, sys
kind, path, real, asked_at = sys.argv[1:]
other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
other.bind(path)
other.listen()
n = 0
while True:
    program, _ = other.accept()
    asked = program.recv(4096)
    n += 1
    with open(asked_at, "a") as file:
        file.write("asked\n")
    if kind == "version":
        program.send(struct.pack("<HH", 2, 18) + b"of a later version")
    elif n == 7: # the others hang up without a word
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(real)
        daemon.send(asked)
        program.send(daemon.recv(4096))
    program.close()
P
# in_its_place KIND PROGRAM...: that daemon answers the program, once it has said something
in_its_place() {
	local kind=$1
	shift
	mkfifo "$scratch/lines.$kind"
	unshare -m timeout -k 5 60 "$bad" "$@" <"$scratch/lines.$kind" >"$scratch/said" 2>"$scratch/err" &
	program=$!
	exec 7>"$scratch/lines.$kind"
	python3 "$scratch/other.py" "$kind" "$scratch/$kind.sock" "$socket" "$scratch/asked.$kind" &
	other=$!
	within 20 test -S "$scratch/$kind.sock"
	within 20 test -s "$scratch/said"
	nsenter -m -t $program mount --bind "$scratch/$kind.sock" "$socket"
	echo >&7
	exec 7>&-
	wait $program || fail "$kind: $(cat "$scratch/err")"
	kill $other
}
in_its_place version version "$mnt/a" b "speaks another version"
echo "a daemon that hangs up six times without a word is asked again, after a rest; one that always does is of an older version"
in_its_place older listen "$mnt/a" b "$scratch/asked.older"

echo "a segment is found by its number while it is renamed again and again"
user renamed "$mnt/a"

echo "the table of segments is torn; a long state; an address that begins with here"
mkfifo "$scratch/lines.table"
sed '$d' "$mnt/a/.ramp/segments" >"$scratch/segments"
sed 's/stable/writes closed, 12345678901234567890 bytes left/' "$mnt/a/.ramp/segments" >"$scratch/segments.long"
sed 's/ [^ ]*\(:[0-9]* .* here\)/ here.example\1/' "$mnt/a/.ramp/nodes" >"$scratch/nodes"
grep -q " here.example:" "$scratch/nodes"
unshare -m timeout -k 5 60 "$bad" table "$mnt/a" <"$scratch/lines.table" >"$scratch/said" 2>"$scratch/err" &
program=$!
exec 7>"$scratch/lines.table"
within 20 grep -q open "$scratch/said"
nsenter -m -t $program mount --bind "$scratch/segments" "$mnt/a/.ramp/segments"
echo >&7
within 20 grep -q torn "$scratch/said" || fail "table: $(cat "$scratch/err")"
cp "$scratch/segments.long" "$scratch/segments"
nsenter -m -t $program mount --bind "$scratch/nodes" "$mnt/a/.ramp/nodes"
echo >&7
exec 7>&-
wait $program || fail "table: $(cat "$scratch/err")"

echo "moved back by its receiver before its arrival is committed: the leader is stopped, and the others need a new one"
leader=$(sed -n 's/^leader: //p' "$mnt/a/.ramp/status")
from=$(echo "$leader" | tr abc bca) to=$(echo "$leader" | tr abc cab)
head -c 1M /dev/zero >"$mnt/$from/$from/thrown"
"$bad" back "$mnt/$to" thrown "$from" >"$scratch/received" 2>"$scratch/err" &
receiver=$!
within 20 grep -q armed "$scratch/received"
mkfifo "$scratch/lines.thrown"
timeout -k 5 90 "$steps" hold "$mnt/$from" thrown "$to" prepare <"$scratch/lines.thrown" >"$scratch/held" 2>"$scratch/err.held" &
holder=$!
exec 7>"$scratch/lines.thrown"
within 20 grep -q mapped "$scratch/held"
echo >&7
within 20 grep -q held "$scratch/held"
within 20 grep -q "/gone\." "/proc/$receiver/maps"
stopped=$(pgrep -f "rampfs --daemon .*$mnt/$leader\$")
kill -STOP "$stopped"
echo >&7
exec 7>&-
wait $receiver || fail "back: $(cat "$scratch/err")"
kill -CONT "$stopped"
wait $holder || fail "hold: $(cat "$scratch/held" "$scratch/err.held")"
same "$(sed -n 's/taken, .*, //p' "$scratch/held")" "$(word "$mnt/$from/$from/thrown")" "the last store"
rm "$mnt/$from/$from/thrown"

for node in a b; do
	echo "the daemon of node $node is killed again and again under every call of a program at node a"
	(while [ ! -e "$scratch/enough.$node" ]; do
		sleep 0.4
		kill_daemon $node || true
	done) &
	killer=$!
	user storm "$mnt/a" b 6000
	touch "$scratch/enough.$node"
	wait $killer || true
	within 20 ls "$mnt/$node/.ramp" >"$scratch/ls"
	same "old" "$(ls "$mnt/a/a")" "segments"
done
cluster_stop
