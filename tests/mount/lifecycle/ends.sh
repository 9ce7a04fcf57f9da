#!/usr/bin/env bash
# How a mount ends, in every state, and what programs notice; the effects of SIGHUP; the messages to systemd.
. tests/lib/cluster.sh
export LC_ALL=C
# Not simply the first of keeper and daemon: when process numbers wrap around, the first is the daemon.
keeper() {
	pgrep -af -- "^$build/bin/rampfs .*$mnt/$1\$|^rampfs -[of] .*$mnt/$1\$" | grep -v -- ' --daemon ' | head -n 1 | cut -d ' ' -f 1
}
ended() { ! pgrep -f -- "rampfs .*$mnt/$1\$" >/dev/null; }
quietly() { "$@" 2>/dev/null; }
is() { [ "$(xattr "$1" "$2")" = "$3" ]; }
has_quorum() { grep -q '^quorum: yes' "$mnt/$1/.ramp/status"; }
again() {
	rampfs -o "log=$scratch/cluster/$1.log" "$state/$1" "$mnt/$1"
	within 20 quietly has_quorum "$1"
	within 10 test -d "$mnt/$1/$1"
}
moved_on() { [ "$(head -c 20 "$mnt/a/a/mapped")" != "$1" ]; }
somewhere() { [ -e "$mnt/a/a/big" ] || [ -e "$mnt/b/b/big" ]; }
ready_twice() { [ "$(grep -c ^READY=1 "$scratch/told")" = 2 ]; }
says() { grep -q "$2" "$1"; }

echo "the command line names its version and its options"
rampfs --version | grep -qx 'rampfs [0-9.]*' || fail "--version: $(rampfs --version)"
rampfs -o help | grep -q 'uffd_group=GROUP' || fail "-o help"
rampfs --help | grep -q 'takes the names away' || fail "--help does not say what umount does"
refused 'does not take "x.log"' rampfs -o log=x.log "$scratch" "$scratch"
cluster_start -n 2 -c 512M

echo "started without some of its standard descriptors"
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '>&- 2>&-' '<&- >&- 2>&-'; do
	umount "$mnt/b"
	within 20 ended b
	eval "rampfs -o 'log=$scratch/cluster/b.log' '$state/b' '$mnt/b' $closed" || fail "with $closed: exit status $?"
	test -d "$mnt/b/.ramp" || fail "with $closed it is not mounted"
done
within 20 quietly has_quorum b
within 10 test -d "$mnt/b/b"

echo "started from a shell with limits: they are for the shell's programs, and end no daemon"
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/b\$"; }
written() { ! quietly kill -0 "$writer"; }
for which in -Sf -f; do
	umount "$mnt/b"
	within 20 ended b
	bash -c "ulimit $which 4096 && exec rampfs -o 'log=$scratch/cluster/b.log' '$state/b' '$mnt/b'"
	within 20 quietly has_quorum b
	within 10 test -d "$mnt/b/b"
	was=$(daemon)
	head -c 5M /dev/zero 2>"$scratch/said" >"$mnt/b/b/long" &
	writer=$!
	within 20 written
	# a hard limit stays where root has no CAP_SYS_RESOURCE
	wait $writer || { [ $which = -f ] && says "$scratch/said" "File too large"; } || fail "ulimit $which: $(cat "$scratch/said")"
	same "$was" "$(daemon)" "the daemon"
	rm "$mnt/b/b/long"
done

echo "a program that looks at every opened file breaks a lease of the daemon's, and ends no daemon"
kill -IO "$was"
touch "$mnt/b/b/short" && rm "$mnt/b/b/short"
same "$was" "$(daemon)" "the daemon"
umount "$mnt/b"
within 20 ended b
again b

echo "noatime and strictatime, for a daemon that is started again, too; else atime is relative"
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/b\$"; }
again_with() {
	umount "$mnt/b"
	within 20 ended b
	rampfs -o "log=$scratch/cluster/b.log$1" "$state/b" "$mnt/b"
	within 20 quietly has_quorum b
	within 10 test -e "$mnt/b/b/read"
}
atime() { stat -c %x "$mnt/b/b/read"; }
reads() { # whether reading sets it: the first time since it was written (yes or no), and once more
	touch -a -d @1000000000 "$mnt/b/b/read"
	was=$(atime)
	cat "$mnt/b/b/read" >"$scratch/read"
	first=$(atime)
	sleep 0.02 # a tick of the kernel's clock
	cat "$mnt/b/b/read" >"$scratch/read"
	same "$1" "$([ "$was" = "$first" ] && echo no || echo yes) $([ "$first" = "$(atime)" ] && echo no || echo yes)" "atime"
}
echo data >"$mnt/b/b/read"
reads "yes no"
again_with ,noatime
reads "no no"
was=$(daemon)
kill -9 "$was"
another() { now=$(daemon) && [ "$now" != "$was" ]; }
within 20 another
reads "no no"
again_with ,strictatime
reads "yes yes"
again_with ""
reads "yes no"
rm "$mnt/b/b/read"

echo "umount while a program has a segment mapped: it continues, and the next mount shows its stores"
head -c 1M /dev/zero >"$mnt/a/a/mapped"
cat >"$scratch/counter.py" <<'P'
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
os.close(fd)
n = 0
while not os.path.exists(sys.argv[2]):
    n += 1
    m[:20] = b"%020d" % n
    m[len(m) - 1] = n & 1
    if n == 1000:
        open(sys.argv[2] + ".counts", "w").close()
    time.sleep(0.0001)
print(n)
P
# Python keeps a duplicate of the file, which the mount would be busy with.
sed -i 's/^os.close(fd)$/&\nfor f in os.listdir("\/proc\/self\/fd"):\n    try:\n        if os.readlink("\/proc\/self\/fd\/" + f) == sys.argv[1]: os.close(int(f))\n    except OSError: pass/' "$scratch/counter.py"
rampfs-run python3 "$scratch/counter.py" "$mnt/a/a/mapped" "$scratch/stop" >"$scratch/counted" &
counter=$!
within 20 test -e "$scratch/stop.counts"
umount "$mnt/a"
within 20 ended a
kill -0 "$counter" || fail "the program died with the mount"
again a
first=$(head -c 20 "$mnt/a/a/mapped")
within 10 moved_on "$first"
touch "$scratch/stop"
wait "$counter" || fail "the program failed"
same "$(printf %020d "$(cat "$scratch/counted")")" "$(head -c 20 "$mnt/a/a/mapped")" "its last store"

echo "umount of a target that is still pulling: it has all pages before it ends, and the source is not needed"
head -c 200M /dev/urandom >"$mnt/a/a/big"
sum=$(sha256sum <"$mnt/a/a/big")
within 5 test -e "$mnt/b/a/big"
mv "$mnt/b/a/big" "$mnt/b/b/" && umount "$mnt/b"
within 30 ended b
again b
within 20 is "$mnt/b/b/big" state stable
same "$sum" "$(sha256sum <"$mnt/b/b/big")" "the segment that was pulled while the node ended"

echo "umount of a source that is still serving: the target gets all pages"
within 10 test -e "$mnt/a/b/big"
mv "$mnt/a/b/big" "$mnt/a/a/" && umount "$mnt/b"
within 20 is "$mnt/a/a/big" state stable
same "$sum" "$(sha256sum <"$mnt/a/a/big")" "the segment that was served while the node ended"
within 30 ended b
again b

echo "SIGTERM in the middle of migrations: no byte is lost, the next start continues"
mv "$mnt/a/a/big" "$mnt/a/b/" &
mover=$!
kill -TERM "$(keeper b)"
within 30 ended b
wait "$mover" || true # it may have been refused, or its mount gone
again b
within 20 somewhere
at=$mnt/a/a/big
[ -e "$at" ] || at=$mnt/b/b/big
within 20 quietly is "$at" state stable
same "$sum" "$(sha256sum <"$at")" "after SIGTERM"

echo "SIGHUP: a log that was moved away is begun again"
mv "$scratch/cluster/a.log" "$scratch/cluster/old"
kill -HUP "$(keeper a)"
within 20 quietly says "$scratch/cluster/a.log" "node a of cluster local serves"
within 10 quietly has_quorum a

echo "SIGHUP with a configuration that makes no sense: the daemon stays, and the log says why"
was=$(pgrep -f -- "rampfs --daemon .*$mnt/a\$")
cp "$state/a/cluster.conf" "$scratch/good"
sed -i 's/^capacity=.*/capacity=1M/' "$state/a/cluster.conf"
kill -HUP "$(keeper a)"
within 20 says "$scratch/cluster/a.log" 'the daemon stays as it is: .*cluster.conf:6: capacity is less than 16M'
touch "$mnt/a/a/served"
same "$was" "$(pgrep -f -- "rampfs --daemon .*$mnt/a\$")" "the daemon"
cp "$scratch/good" "$state/a/cluster.conf"

echo "SIGHUP with another capacity: the store has it, and the others are told"
grep -q "^a .* capacity=$((512 << 20)) " "$mnt/b/.ramp/nodes"
sed -i "s/^capacity=.*/capacity=576M/" "$state/a/cluster.conf"
kill -HUP "$(keeper a)"
within 20 grep -q "^a .* capacity=$((576 << 20)) " "$mnt/b/.ramp/nodes"
same $((576 << 10)) "$(df -k --output=size "$mnt/a" | tail -n 1 | tr -d ' ')" "KiB in df"

echo "as mount(8) calls it; read-only"
umount "$mnt/a"
within 20 ended a
ln -s "$build/bin/rampfs" "$scratch/mount.rampfs"
"$scratch/mount.rampfs" "$state/a" "$mnt/a" -f -o "rw,log=$scratch/cluster/a.log"
if mountpoint -q "$mnt/a"; then fail "-f has mounted it"; fi
refused 'unknown mount option nonsense' "$scratch/mount.rampfs" "$state/a" "$mnt/a" -o rw,nonsense
"$scratch/mount.rampfs" "$state/a" "$mnt/a" -n -o "ro,_netdev,nofail,x-systemd.automount,log=$scratch/cluster/a.log"
within 20 quietly has_quorum a
refused 'Read-only file system' touch "$mnt/a/a/new"
within 10 test -e "$mnt/a/a/mapped"
umount "$mnt/a"
within 20 ended a
again a

echo "a start that fails says why, and leaves no mount; no mount is made that hides its own files"
umount "$mnt/a"
within 20 ended a
port=$(sed -n '/^\[node a\]/,/^$/s/^address=.*://p' "$scratch/cluster/cluster.conf")
python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
time.sleep(60)' "$port" >"$scratch/taken" &
taker=$!
within 10 says "$scratch/taken" listens
refused "rampfs: listening at 127.0.0.1:$port: Address already in use" rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
if mountpoint -q "$mnt/a"; then fail "a mount is left"; fi
kill $taker
for dir in "$state/a" "$state" /; do
	refused "mountpoint $dir: it would hide the state directory" timeout 20 rampfs "$state/a" "$dir"
done
refused "that is where the store is" timeout 20 rampfs "$state/a" "$state/a/store"
again a

echo "systemd is told: ready, reloading, stopping"
umount "$mnt/a"
within 20 ended a
cat >"$scratch/listen.py" <<'P'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode(), flush=True)
P
python3 "$scratch/listen.py" "$scratch/notify" >"$scratch/told" &
listener=$!
within 10 test -S "$scratch/notify"
for i in {1..300}; do large[i]=filler_$i=x; done # an environment of more variables than most
env "${large[@]}" NOTIFY_SOCKET="$scratch/notify" rampfs -f -o "log=$scratch/cluster/a.log," "$state/a" "$mnt/a" &
within 20 says "$scratch/told" '^READY=1'
kill -HUP "$(keeper a)"
within 20 says "$scratch/told" '^MONOTONIC_USEC=[0-9]'
within 20 ready_twice
kill -9 "$(keeper a)"
within 20 says "$scratch/told" '^MAINPID=[0-9]'
umount "$mnt/a"
within 20 ended a
within 5 says "$scratch/told" '^STOPPING=1'
kill "$listener"
wait "$listener" || true
again a
cluster_stop
