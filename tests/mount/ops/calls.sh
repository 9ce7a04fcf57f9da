#!/usr/bin/env bash
# Calls that programs make on files, against tmpfs (calls.py); and the bytes that they read through the page cache.
. tests/lib/cluster.sh
cluster_start -n 2 -c 512M
beside=$(mktemp -d /dev/shm/rampfs-calls.XXXXXX)
trap 'status=$?; rm -rf "$beside"; cluster_cleanup $status' EXIT
chmod 1777 "$beside"
python3 tests/mount/ops/calls.py "$beside" "$mnt/a/a"

echo "stores through a mapping are sent from a later open, and from one with O_DIRECT; writes are sent from any open"
cat >"$scratch/sent.py" <<'P'
import fcntl, mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 65536)
at = mmap.mmap(fd, 65536)
out = os.open(path + ".out", os.O_RDWR | os.O_CREAT)
r, w = os.pipe()
def sent(source):
    os.sendfile(w, source, 0, 1)
    os.splice(source, w, 1, offset_src=0)
    os.copy_file_range(source, out, 1, 0, 0)
    return os.read(r, 2) + os.pread(out, 1, 0)
direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
later = os.open(path, os.O_RDONLY)
fcntl.fcntl(later, fcntl.F_SETFL, os.O_DIRECT)
for byte in b"abc":
    at[0] = byte
    anew = os.open(path, os.O_RDONLY)
    for source in anew, direct, later:
        assert sent(source) == bytes([byte]) * 3, (source, byte)
    os.pwrite(fd, b"w", 0)
    assert sent(anew) == b"www", byte
    os.close(anew)
    at[0] = byte + 1
    for source in direct, later:
        assert sent(source) == bytes([byte + 1]) * 3, (source, byte)
P
rampfs-run python3 "$scratch/sent.py" "$mnt/a/a/sent"

echo "writes of another node are sent from an open that is older"
cat >"$scratch/moved.py" <<'P'
import errno, os, subprocess, sys, time
here, there = sys.argv[1:]
name, other = here + "/a/moved", there + "/b/moved"
fd = os.open(name, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"none", 0)
r, w = os.pipe()
def come(fn, *args):
    while True:
        try:
            return fn(*args)
        except OSError as e:
            assert e.errno in (errno.ENOENT, errno.EREMOTE), e
            time.sleep(0.001)
def sent():
    os.sendfile(w, fd, 0, 4)
    return os.read(r, 4)
for i in range(10):
    text = b"%04d" % i
    sent()
    subprocess.run(["rampfs-migrate", "--wait", name, "b"], check=True)
    beside = come(os.open, other, os.O_RDWR)
    come(os.pwrite, beside, text, 0)
    os.close(beside)
    subprocess.run(["rampfs-migrate", "--wait", other, "a"], check=True)
    come(os.stat, name)
    assert come(os.pread, fd, 4, 0) == text and sent() == text, i
P
timeout 100 python3 "$scratch/moved.py" "$mnt/a" "$mnt/b"
cluster_stop
