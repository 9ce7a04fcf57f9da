#!/usr/bin/env bash
# Files whose lock a user's program holds: by a write(2) of a page that does not come, through the descriptor that it
# got to map the segment (held.py writer). A call that changes such a file waits as long as that program is there (a
# second one waits in the kernel already, for the lock of the mount's own inode). No other call waits.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
files=20
cat >"$scratch/do.py" <<'P'
import os, sys
what, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR | (os.O_APPEND if what == "append" else 0)) if what != "move" else -1
try:
    if what == "move": # not by rename(2), which the kernel does one at a time within a mount
        os.execvp("rampfs-migrate", ["rampfs-migrate", path, "a"])
    elif what == "write":
        os.pwrite(fd, b"w" * 4096, 8192)
    elif what == "append":
        os.write(fd, b"a" * 4096)
    elif what == "truncate":
        os.truncate(fd, 1 << 20)
    elif what == "allocate":
        os.posix_fallocate(fd, 0, 32768)
    elif what == "seek":
        os.lseek(fd, 0, os.SEEK_HOLE)
    elif what == "touch":
        os.utime(path, (1e9, 1e9))
    elif what == "read":
        assert os.pread(fd, 16, 16384) == b"s" * 16
except OSError as e:
    sys.exit(what + ": " + e.strerror)
P
doing=()
start() { # WHAT: to each of the files, by their owner, in the background
	for ((i = 0; i < files; i++)); do
		(
			# shellcheck disable=SC2154 # holder sets it
			exec {held_in}>&- # otherwise `held` would not see the end of its input
			exec setpriv --reuid 65534 --regid 65534 --clear-groups \
				/usr/bin/python3 "$scratch/do.py" "$1" "$mnt/b/b/held.$i" >"$scratch/$1.$i" 2>&1
		) &
		doing+=($!)
	done
}
left() { # at most $1 of them have not ended
	local pid n=0
	for pid in "${doing[@]}"; do
		! kill -0 "$pid" 2>/dev/null || n=$((n + 1))
	done
	[ $n -le "$1" ]
}
try() { timeout 20 "$@" || fail "waits, or fails: $*"; }
has_time() { [ "$(stat -c %Y "$1")" = "$2" ]; }
user_does() {
	local what
	for what in write append truncate allocate seek touch read; do
		try setpriv --reuid "$1" --clear-groups /usr/bin/python3 "$scratch/do.py" $what "$mnt/b/b/of.$1"
	done
	within 20 has_time "$mnt/a/b/of.$1" 1000000000
	try touch -d @1200000000 "$mnt/a/b/of.$1" # the other way: the row tells the owner
	try chmod 640 "$mnt/b/b/of.$1"
	within 20 has_time "$mnt/b/b/of.$1" 1200000000
	try mv "$mnt/b/b/of.$1" "$mnt/b/a/of.$1"
	try mv "$mnt/a/a/of.$1" "$mnt/a/b/of.$1"
	same s "$(try setpriv --reuid "$1" --clear-groups rampfs-run /usr/bin/python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
print(m[16384:16385].decode())' "$mnt/b/b/of.$1")" "a program of $1"
}
others() { # the work of all other users on that node
	user_does 0
	user_does 65533
	try ls -l "$mnt/b/b" >/dev/null
	try rampfs-status "$mnt/b" >/dev/null
}
cluster_start -n 2 -c 256M
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/b\$"; }
was=$(daemon)
for user in 0 65533; do
	head -c 65536 /dev/zero | tr '\0' s >"$mnt/b/b/of.$user"
	chown $user "$mnt/b/b/of.$user"
done
others
: >"$mnt/b/b/secret" # attacker.py looks for one
holder_program=(python3 tests/mount/hostile/held.py writer "$mnt/b" "$files")
holder held
# shellcheck disable=SC2154 # holder sets it
trap 'status=$?; kill -9 "$held_pid" 2>/dev/null || true; cluster_cleanup $status' EXIT
hear held >"$scratch/pids"

echo "-- calls that change a held file wait, and all others continue"
for ((i = 0; i < files; i++)); do
	try /usr/bin/python3 "$scratch/do.py" read "$mnt/b/b/held.$i"
	try chmod 640 "$mnt/b/b/held.$i"
	same 640 "$(try stat -c %a "$mnt/b/b/held.$i")" "its mode"
	try touch -d @1300000000 "$mnt/a/b/held.$i" # the daemon itself gives it to the file
done
start write
sleep 1
! left $((files - 1)) || fail "held files are written to: no attack"
others
for what in append truncate allocate seek touch; do start $what; done
sleep 1
others

echo "-- their moves keep no other user's waiting"
start move
sleep 2
others

echo "-- and when those programs have ended all calls are done"
finish held
within 60 left 0
for ((i = 0; i < files; i++)); do
	for what in append write touch; do
		same "" "$(grep -v -e busy -e "Object is remote" -e "No such file" "$scratch/$what.$i" || true)" "$what of held.$i"
	done
	f=$(ls "$mnt"/a/[ab]/held.$i)
	[ "$(stat -c %s "$f")" -ge 65536 ] || fail "$f is cut"
	same ssssssss "$(tail -c +32769 "$f" | head -c 8)" "the bytes of $f"
done
others
same "$was" "$(daemon)" "the daemon"
cluster_stop
echo "locked: a program that holds a file's lock keeps no other user waiting"
