#!/usr/bin/env bash
# Temporary files: a program unlinks an open file and maps it only then. Its addresses stay reserved
# while any process has it open or mapped, through daemons that are killed, and are free after that.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/a\$"; }
another_daemon() { local now && now=$(daemon) && [ "$now" != "$1" ]; }
orphans() { sed -n 's/^rampfs_segments{phase="orphan"} //p' "$mnt/a/.ramp/metrics"; }
no_orphans() { [ "$(orphans)" = 0 ]; }
a_file_less() { [ "$(find "$state/a/store" -regex '.*/[0-9]+' | wc -l)" -lt "$1" ]; }
kill_daemon() {
	local was && was=$(daemon)
	kill -9 "$was"
	within 20 another_daemon "$was"
}
# A program that makes a file and takes commands, a line at a time, and answers each.
cat >"$scratch/holder.py" <<'P'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SIZE = 1 << 20
fd = at = None
for line in sys.stdin:
    word, *rest = line.split()
    out = "yes"
    if word == "make":
        fd = os.open(rest[0], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        os.ftruncate(fd, SIZE)
        os.pwrite(fd, b"written", 5000)
    elif word == "unlink":
        os.unlink(rest[0])
    elif word == "map":
        at = libc.mmap(None, SIZE, 3, 1, fd, 0)
        out = os.strerror(ctypes.get_errno()) if at == ctypes.c_void_p(-1).value else hex(at)
    elif word == "unmap":
        libc.munmap(at, SIZE)
    elif word == "close":
        os.close(fd)
    elif word == "put":
        ctypes.memmove(at + int(rest[0]), rest[1].encode(), len(rest[1]))
    elif word == "get":
        out = ctypes.string_at(at + int(rest[0]), int(rest[1])).decode()
    elif word == "read":
        out = os.pread(fd, int(rest[1]), int(rest[0])).decode()
    elif word == "stat":
        st = os.fstat(fd)
        out = f"{st.st_mode:o} {st.st_uid} {st.st_nlink} {st.st_size}"
    elif word == "chmod":
        os.fchmod(fd, int(rest[0], 8))
    elif word == "fork":
        pid = os.fork()
        if pid == 0:
            ctypes.memmove(at, b"child", 5)
            os._exit(0)
        out = str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(out, flush=True)
P
holder_program=(rampfs-run python3 "$scratch/holder.py")
map_all() { # maps as many extents as the arena has, each of another file; prints their addresses
	rampfs-run python3 - "$1" "$mnt/a/a/full" <<'P'
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
for i in range(int(sys.argv[1])):
    fd = os.open(f"{sys.argv[2]}{i}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 4096)
    at = libc.mmap(None, 4096, 3, 1, fd, 0)
    if at == ctypes.c_void_p(-1).value:
        sys.exit(f"file {i} has no address")
    print(hex(at))
P
}
chmod 755 "$scratch" # for another user
cluster_start -n 2 -c 256M -A 0x1000000000:256M -o loglevel=debug # four extents
files=$(find "$state/a/store" -regex '.*/[0-9]+' | wc -l)

echo "a standard library's temporary file, more often than the arena has places"
for who in "" "setpriv --reuid=65534 --regid=65534 --clear-groups"; do
	for _ in 1 2 3 4 5 6; do
		# shellcheck disable=SC2086
		$who rampfs-run python3 - "$mnt/a/a" <<'P'
import errno, mmap, os, sys, tempfile, time
def mapped(fd): # the addresses of the last ones are free a little after these have ended
    until = time.monotonic() + 20
    while True:
        try:
            return mmap.mmap(fd, 0)
        except OSError as e:
            if e.errno not in (errno.ENOMEM, errno.EDQUOT) or time.monotonic() > until:
                raise
            time.sleep(0.02)
with tempfile.TemporaryFile(dir=sys.argv[1]) as f:
    f.truncate(1 << 20)
    m = mapped(f.fileno())
    m[70000:70003] = b"abc"
    assert os.pread(f.fileno(), 3, 70000) == b"abc"
    os.pwrite(f.fileno(), b"xyz", 5)
    assert m[5:8] == b"xyz"
P
	done
done
within 20 no_orphans
within 20 a_file_less $((files + 1))

echo "opened, unlinked, the daemon killed, mapped, killed, closed, killed: one file all along"
holder one
ask one make "$mnt/a/a/temp" >/dev/null
was=$(ask one stat)
ask one unlink "$mnt/a/a/temp" >/dev/null
kill_daemon
addr=$(ask one map)
case $addr in 0x10*) ;; *) fail "no mapping: $addr" ;; esac
same 1 "$(orphans)" "rows of the unlinked"
same "${was% * *} 0 ${was##* }" "$(ask one stat)" "fstat(2) of it"
ask one chmod 604 >/dev/null
same written "$(ask one get 5000 7)" "the bytes written before"
ask one put 9000 stored >/dev/null
kill_daemon
same stored "$(ask one read 9000 6)" "by read(2), of another daemon"
same "100604 0 0 1048576" "$(ask one stat)" "fstat(2) after a chmod and a restart"
same 0 "$(ask one fork)" "a child"
same child "$(ask one get 0 5)" "the bytes that the child stored"
ask one unmap >/dev/null
same "$addr" "$(ask one map)" "the same address for life"
ask one close >/dev/null
kill_daemon
same stored "$(ask one get 9000 6)" "a mapping without a file"
sleep 1
same 1 "$(orphans)" "its row, while it is mapped"

echo "no other file gets its addresses while it is mapped"
map_all 3 >"$scratch/addresses"
grep -qx "$addr" "$scratch/addresses" && fail "$addr was given again while it is mapped"
refused "Cannot allocate memory" rampfs-run python3 -c '
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
mmap.mmap(fd, 0)' "$mnt/a/a/fourth"
ask one put 9000 still >/dev/null
same still "$(ask one get 9000 5)" "the mapping beside a full arena"
rm "$mnt"/a/a/full? "$mnt/a/a/fourth"
bye one
within 20 no_orphans

echo "unlinked on another node; killed while it is mapped: its place is free again"
holder two
ask two make "$mnt/a/a/temp" >/dev/null
rm "$mnt/b/a/temp"
addr=$(ask two map)
case $addr in 0x10*) ;; *) fail "no mapping: $addr" ;; esac
same written "$(ask two get 5000 7)" "the bytes written before"
bye two KILL
within 20 no_orphans
within 20 a_file_less $((files + 1))

echo "the extent that was asked for before the name went"
holder three
ask three make "$mnt/a/a/temp" >/dev/null
setfattr -n user.ramp.extent -v 128M "$mnt/a/a/temp"
ask three unlink "$mnt/a/a/temp" >/dev/null
addr=$(ask three map)
case $addr in 0x10*) ;; *) fail "no mapping: $addr" ;; esac
map_all 2 >"$scratch/addresses" # and no third
refused "file 2 has no address" map_all 3
bye three
within 20 no_orphans
rm "$mnt"/a/a/full?

echo "many that stay open: the kernel's other names are not dropped at every look at each"
emptied() { grep -c 'cache of names is emptied' "$scratch/cluster/a.log"; }
was=$(emptied) since=${EPOCHREALTIME/./}
openers=()
for i in 1 2 3 4 5 6 7 8; do
	: >"$mnt/a/a/open$i"
	tail -f "$mnt/a/a/open$i" &
	openers+=($!)
done
open_all() { [ "$(find /proc/[0-9]*/fd -lname "$mnt/a/a/open?" 2>/dev/null | wc -l)" = 8 ]; }
within 10 open_all
rm "$mnt"/a/a/open?
within 20 eval '[ "$(emptied)" -ge $((was + 2)) ]' # the daemon looks at them
now=$(emptied)
[ $((now - was)) -le $(((${EPOCHREALTIME/./} - since) / 1000000 + 1)) ] || fail "names were dropped $((now - was)) times"
kill "${openers[@]}"
within 20 no_orphans

echo "the whole arena is free again, and no bytes are left"
within 20 no_orphans
same 4 "$(map_all 4 | sort -u | wc -l)" "places in the arena"
rm "$mnt"/a/a/full?
within 20 a_file_less $((files + 1))
echo "temporary files: all as it should be"
