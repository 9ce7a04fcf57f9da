#!/usr/bin/env bash
# Refusals by mv, the daemon and its sockets, on a real cluster: with which error, how soon, and that
# everything is as before afterwards.
. tests/lib/cluster.sh
cluster_start -n 3 -c 256M
a=$mnt/a b=$mnt/b c=$mnt/c

# Prints the pid of a node's daemon.
daemon() { pgrep -f "rampfs --daemon .*/cluster/state/$1 $scratch/cluster/mnt/$1\$" || pgrep -f "/rampfs --daemon .*$scratch/cluster/state/$1 "; }
keeper() { cat "$state/$1/lock"; }
# Runs a command that must fail with the text within $1 seconds.
refused_within() {
	local most=$1 begin=$SECONDS
	shift
	refused "$@"
	[ $((SECONDS - begin)) -le "$most" ] || fail "took $((SECONDS - begin)) s: $*"
}
head -c 20000000 /dev/urandom >"$scratch/data"
intact() { cmp "$scratch/data" "$a/a/f" || fail "the segment is not what it was: $1"; }

cp "$scratch/data" "$a/a/f"
echo other >"$b/b/f"
refused "File exists" python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$a/a/f" "$a/b/f"
same other "$(cat "$b/b/f")" "the file that had the name"
intact "name taken"
rm "$b/b/f"

refused "No such file" mv "$a/a/none" "$a/b/"
refused "no such node: z z" rampfs-migrate "$a/a/f" "z z"
refused "Operation not supported" mkdir "$a/a/dir"
refused "Object is remote" dd if=/dev/zero of="$b/a/f" bs=1 count=1 conv=notrunc status=none
refused "Object is remote" truncate -s 0 "$b/a/f"
refused "Object is remote" cat "$c/a/f"

# so large that no message may carry the size: no node hangs up
truncate -s 5E "$a/a/huge"
refused_within 4 "File too large" mv "$a/a/huge" "$a/b/"
rm "$a/a/huge"
! grep "malformed" "$scratch/cluster/b.log" || fail "a message that b did not understand"

# no room there: b's store is nearly full
fallocate -l 245M "$b/b/filler"
refused_within 6 "No space left" mv "$a/a/f" "$a/b/"
intact "no room"
# a full store says so at the call, and continues
refused "No space left" dd if=/dev/zero of="$b/b/more" bs=1M count=64 status=none
rm -f "$b/b/filler" "$b/b/more"
echo fine >"$b/b/again"
same fine "$(cat "$b/b/again")" "a store that was full"

# two moves at once: one wins, the other is told so (or finds the segment gone)
for i in 1 2 3 4 5; do
	cp "$scratch/data" "$a/a/race"
	won=0
	python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$a/a/race" "$a/b/race" 2>"$scratch/e1" & one=$!
	python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$c/a/race" "$c/c/race" 2>"$scratch/e2" & two=$!
	wait $one && won=$((won + 1))
	wait $two && won=$((won + 1))
	same 1 $won "winners of round $i ($(tail -n1 "$scratch/e1") | $(tail -n1 "$scratch/e2"))"
	! cat "$scratch/e1" "$scratch/e2" | grep -qE 'Errno' || cat "$scratch/e1" "$scratch/e2" | grep -qE 'Errno (16|2)\]' ||
		fail "the loser was told $(cat "$scratch/e1" "$scratch/e2")"
	within 10 sh -c "[ -e $b/b/race ] || [ -e $c/c/race ]"
	if [ -e "$b/b/race" ]; then at=$b/b/race; else at=$c/c/race; fi
	cmp "$scratch/data" "$at"
	rm "$at"
done

# a file whose set-user-ID can't be taken away keeps it, with every byte under it; on a node that is not its owner it
# keeps it, too
stranger() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
cp "$scratch/data" "$a/a/setid" && chmod 4777 "$a/a/setid"
refused "Object is remote" stranger truncate -s 5 "$b/a/setid"
same 4777 "$(stat -c %a "$a/a/setid")" "the mode after a truncate elsewhere"

# the target hangs: access is back at the source, nothing is lost
kill -STOP "$(daemon b)"
refused_within 15 "No route to host" mv "$a/a/f" "$a/b/"
intact "target hanging"
echo x >>"$a/a/f" && truncate -s 20000000 "$a/a/f"
kill -CONT "$(daemon b)"
intact "target hung"
# the target is down (the keeper first, or it would start the daemon again)
umount "$b"
within 10 flock -n "$state/b/lock" true
within 10 sh -c "! grep -q '^b .* up' '$a/.ramp/nodes'"
refused_within 15 "No route to host" mv "$a/a/f" "$a/b/"
intact "target down"

# no quorum: a change of metadata is refused, the node's own segments continue to work
umount "$c"
within 10 flock -n "$state/c/lock" true
within 10 grep -q '^quorum: *no' "$a/.ramp/status"
refused_within 12 "Read-only file system" touch "$a/a/new"
refused_within 12 "Read-only file system" mv "$a/a/f" "$a/b/"
refused_within 12 "Read-only file system" stranger truncate -s 5 "$a/a/setid"
cmp "$scratch/data" "$a/a/setid" || fail "what could not lose its set-user-ID was cut"
same 4777 "$(stat -c %a "$a/a/setid")" "the mode without a quorum"
intact "no quorum"
dd if="$scratch/data" of="$a/a/f" bs=1M conv=notrunc status=none
intact "written without a quorum"
contrib/local-cluster start "$scratch/cluster"
within 10 mv "$a/a/f" "$a/b/"
stranger truncate -s 5 "$a/a/setid"
same "777 5" "$(stat -c '%a %s' "$a/a/setid")" "mode and size once there is a quorum"
within 10 test -e "$b/b/f"
cmp "$scratch/data" "$b/b/f"

# a start that can't do what it was asked for; a failed one leaves nothing that passes for a cluster
refused "was made with 3 nodes, not 5" contrib/local-cluster start -n 5 "$scratch/cluster"
refused "not 3G" contrib/local-cluster start -c 3G "$scratch/cluster"
refused "not a size" contrib/local-cluster start -n 2 -c 1X "$scratch/none"
[ ! -e "$scratch/none" ] || fail "left: $(find "$scratch/none")"

# started twice on one state directory
refused "a rampfs runs on it already" rampfs "$state/a" "$scratch/cluster/mnt/c"
refused "a rampfs runs on it already" rampfs --destroy --force "$state/a"

# a node with another key, and one of another cluster, are let in by no node
mkdir "$scratch/other" "$scratch/m"
mkfs.rampfs --config "$scratch/cluster/cluster.conf" --key "$scratch/other/key" --node c "$scratch/other/c"
umount "$c"
within 10 flock -n "$state/c/lock" true
rampfs -o "log=$scratch/other/log" "$scratch/other/c" "$scratch/m"
within 10 grep -qiE 'key|proof|proves' "$scratch/other/log"
refused_within 12 "Read-only file system" touch "$scratch/m/c/x"
umount "$scratch/m"
within 10 flock -n "$scratch/other/c/lock" true
rampfs --destroy --force "$scratch/other/c"
sed -i 's/^name=.*/name=another/' "$scratch/cluster/cluster.conf"
mkfs.rampfs --force --config "$scratch/cluster/cluster.conf" --key "$scratch/cluster/cluster.key" --node c "$scratch/other/c"
mv "$scratch/other/log" "$scratch/other.log"
rampfs -o "log=$scratch/other/log" "$scratch/other/c" "$scratch/m"
within 10 grep -qi 'cluster' "$scratch/other/log"
refused_within 12 "Read-only file system" touch "$scratch/m/c/x"
umount "$scratch/m"
within 10 flock -n "$scratch/other/c/lock" true
rampfs --destroy --force "$scratch/other/c"
sed -i 's/^name=.*/name=local/' "$scratch/cluster/cluster.conf"
contrib/local-cluster start "$scratch/cluster"

# garbage on the port and on the session socket: the same daemon continues
port=$(sed -n '/node a/,/address/s/address=127.0.0.1://p' "$scratch/cluster/cluster.conf")
before=$(daemon a)
python3 - "$port" /run/rampfs <<'P'
import glob, os, random, socket, sys
r = random.Random(1)
for i in range(60):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.settimeout(0.05)
    try:
        for _ in range(r.randrange(4)):
            s.sendall(r.randbytes(r.choice([1, 7, 64, 300, 5000])))
        s.recv(100)
    except OSError:
        pass
    s.close()
for path in glob.glob(sys.argv[2] + "/local.*"):
    for i in range(60):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(0.05)
        try:
            s.connect(path)
            for _ in range(r.randrange(1, 4)):
                s.send(r.choice([b"", b"\x01", b"\x01\x00" + bytes([r.randrange(25)]) + b"\x00"]) + r.randbytes(r.choice([0, 1, 8, 40, 300, 2000, 4000])))
            s.recv(100)
        except OSError:
            pass
        s.close()
P
same "$before" "$(daemon a)" "the daemon's pid after garbage"
echo alive >"$a/a/alive"
same alive "$(cat "$a/a/alive")" "the mount after garbage"
cluster_stop
