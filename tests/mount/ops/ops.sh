#!/usr/bin/env bash
# Every operation on a real mount, on tmpfs beside it, and as another node sees it.
. tests/lib/cluster.sh
chmod 755 "$scratch" # also for the user `nobody`
cluster_start -n 2 -c 512M
RAMPFS_A=$mnt/a RAMPFS_B=$mnt/b "$build/tests/test_ops"

echo "a program's MADV_REMOVE takes set-user-ID and set-group-ID away, as on tmpfs"
cat >"$scratch/remove.py" <<'P'
import itertools, mmap, os, sys
def remove(path, uid, groups):
    fd = os.open(path, os.O_RDWR)
    os.setgroups(groups)
    os.setgid(uid)
    os.setuid(uid)
    at = mmap.mmap(fd, 8192)
    at.madvise(mmap.MADV_REMOVE, 0, 4096)
    return 0 if at[0:4096] == bytes(4096) and at[4096:] == b"x" * 4096 else 1
users = [(0, []), (65534, []), (4242, []), (4242, [7, 65534])]
for (uid, groups), mode in itertools.product(users, [0o6777, 0o6666, 0o2666, 0o4666, 0o666]):
    path = f"{sys.argv[1]}/remove.{uid}.{len(groups)}.{mode:o}"
    with open(path, "wb") as f:
        f.write(b"x" * 8192)
    os.chown(path, 65534, 65534)
    os.chmod(path, mode)
    pid = os.fork()
    if pid == 0:
        os._exit(remove(path, uid, groups))
    assert os.waitpid(pid, 0)[1] == 0, path
    print(uid, groups, f"{mode:o} {os.stat(path).st_mode & 0o7777:o}")
    os.unlink(path)
P
beside=$(mktemp -d /dev/shm/rampfs-ops.XXXXXX)
trap 'status=$?; rm -rf "$beside"; cluster_cleanup $status' EXIT
same "$(python3 "$scratch/remove.py" "$beside")" "$(rampfs-run python3 "$scratch/remove.py" "$mnt/a/a")" "the modes"
cluster_stop
