#!/usr/bin/env python3
# Calls that programs make on files, on tmpfs and on a node's directory: their results, their
# errno, and the bytes of the files afterwards must be the same, but for BY_DESIGN.
#   calls.py TMPFS_DIR RAMPFS_DIR
import ctypes, errno, fcntl, os, resource, signal, struct, sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
BYTES = 10000
PROBES = []
# Differences that rampfs(8) names: the call, and rampfs' answer.
BY_DESIGN = {
    "RWF_NOAPPEND": "4 10004",
    "RENAME_EXCHANGE": "EINVAL",
    "RENAME_WHITEOUT": "EINVAL",
    "link": "EPERM",
    "symlink": "EPERM",
    "mknod": "EPERM",
    "mkdir": "ENOTSUP",
    "O_TMPFILE": "ENOTSUP",
    "an attribute": "ENOTSUP",
    "FS_IOC_GETFLAGS": "ENOTTY",
    "FS_IOC_SETFLAGS": "ENOTTY",
    "F_GET_SEALS": "EINVAL",
    "F_ADD_SEALS": "EINVAL",
    "RESOLVE_CACHED": "EAGAIN",  # a node's names are not cached
}


def probe(name):
    def add(fn):
        PROBES.append((name, fn))
        return fn
    return add


def each(names):
    """Returns a probe for each of the names, with the action on it."""
    def add(fn):
        for name, what in names.items():
            PROBES.append((name, lambda d, what=what: fn(d, what)))
        return fn
    return add


def call(name, *args):
    """Calls a function of the C library."""
    rc = getattr(LIBC, name)(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if rc < 0:
        raise OSError(ctypes.get_errno(), name)
    return rc


class Dir:
    """A directory with a file f of BYTES bytes and a file g of 3000, and open descriptors of them."""

    def __init__(self, path):
        self.path, self.open_fds = path, []
        for name in os.listdir(path):
            os.unlink(self.at(name))
        for name, data in (("f", b"f" * BYTES), ("g", b"g" * 3000)):
            os.write(self.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL), data)

    def at(self, name):
        return os.path.join(self.path, name)

    def open(self, name, flags=os.O_RDWR, mode=0o644):
        fd = os.open(self.at(name), flags, mode)
        self.open_fds.append(fd)
        return fd

    def beside(self, data):
        """Another filesystem's file."""
        fd = os.memfd_create("beside")
        self.open_fds.append(fd)
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def shows(self, *results):
        """Returns the results, and the bytes of both files."""
        said = " ".join(str(r) for r in results)
        for name in ("f", "g"):
            with open(self.at(name), "rb") as file:
                data = file.read()
            parts, last = [], None
            for byte in data:
                if byte != last:
                    parts.append([chr(byte), 0])
                last = byte
                parts[-1][1] += 1
            said += f" {name}=" + ",".join(f"{c!r}*{n}" for c, n in parts)
        return said

    def close(self):
        for fd in self.open_fds:
            os.close(fd)


# ---- reading and writing ------------------------------------------------------------------------


@each({"RWF_HIPRI": 1, "RWF_DSYNC": 2, "RWF_SYNC": 4, "RWF_NOWAIT": 8, "RWF_APPEND": 16,
       "RWF_ATOMIC": 64, "RWF_DONTCACHE": 128, "no RWF flag": 1 << 20})
def with_flag(d, flag):
    return d.shows(os.pwritev(d.open("f"), [b"abcd"], 5, flag))


@each({"RWF_HIPRI, reading": 1, "RWF_APPEND, reading": 16, "RWF_NOAPPEND, reading": 32})
def read_with_flag(d, flag):
    return os.preadv(d.open("f"), [bytearray(4)], 5, flag)


@probe("RWF_NOAPPEND")
def no_append(d):
    fd = d.open("f", os.O_RDWR | os.O_APPEND)
    return f"{os.pwritev(fd, [b'abcd'], 5, 32)} {os.fstat(fd).st_size}"


@probe("pwrite, appending")
def pwrite_appends(d):
    fd = d.open("f", os.O_RDWR | os.O_APPEND)
    return d.shows(os.pwrite(fd, b"ab", 0), os.writev(fd, [b"c", b"d" * 5000]),
                   os.lseek(fd, 0, os.SEEK_CUR))


@each({"at -1": -1, "at the last byte": (1 << 63) - 2, "at the end of all": (1 << 63) - 1})
def write_at(d, offset):
    return os.pwrite(d.open("f"), b"x", offset)


@each({"copy_file_range in a file": (0, 20000, 5000), "over the end": (8000, 0, 9000),
       "beyond the end": (1 << 30, 0, 10), "overlapping": (0, 100, 5000), "of nothing": (0, 0, 0)})
def copied_within(d, what):
    fd = d.open("f")
    return d.shows(os.copy_file_range(fd, fd, what[2], what[0], what[1]))


@each({"copy_file_range": (os.O_RDWR, os.O_RDWR), "to a read-only file": (os.O_RDWR, os.O_RDONLY),
       "from a write-only file": (os.O_WRONLY, os.O_RDWR),
       "to an appending file": (os.O_RDWR, os.O_RDWR | os.O_APPEND)})
def copied_between(d, how):
    return d.shows(os.copy_file_range(d.open("f", how[0]), d.open("g", how[1]), 9000, 100, 2000))


@probe("sendfile out")
def sent_out(d):
    to = d.beside(b"")
    return os.sendfile(to, d.open("f"), 100, 20000), os.pread(to, 20000, 0) == b"f" * (BYTES - 100)


@each({"sendfile in": 0, "sendfile in, appending": os.O_APPEND})
def sent_in(d, flag):
    return d.shows(os.sendfile(d.open("g", os.O_WRONLY | flag), d.beside(b"b" * 7000), 0, 7000))


@each({"splice": os.O_RDWR, "splice, appending": os.O_RDWR | os.O_APPEND})
def spliced(d, how):
    r, w = os.pipe()
    d.open_fds += [r, w]
    got = [os.splice(d.open("f"), w, 5000, offset_src=3),
           os.splice(d.open("f"), w, 5000, offset_src=1 << 40)]
    to = d.open("g", how)
    try:
        got.append(os.splice(r, to, 5000, offset_dst=50))
    except OSError as e:
        got += [errno.errorcode[e.errno], os.splice(r, to, 5000)]
    return d.shows(*got)


# ---- sizes and holes ----------------------------------------------------------------------------


@each({f"fallocate {name}": mode for name, mode in {
    "0": 0, "KEEP_SIZE": 1, "PUNCH_HOLE alone": 2, "PUNCH_HOLE": 3, "COLLAPSE_RANGE": 8,
    "ZERO_RANGE": 16, "ZERO_RANGE|KEEP_SIZE": 17, "INSERT_RANGE": 32, "UNSHARE_RANGE": 64,
    "WRITE_ZEROES": 128, "unknown": 4096}.items()})
def allocated(d, mode):
    fd, said = d.open("f"), []
    for offset, length in ((4096, 4096), (0, 100000), (-1, 100), (0, 0), ((1 << 63) - 10, 100)):
        try:
            said.append(call("fallocate", fd, mode, offset, length))
        except OSError as e:
            said.append(errno.errorcode[e.errno])
    return d.shows(*said)


@each({"fallocate of a read-only file": ("f", os.O_RDONLY), "of a directory": (".", os.O_RDONLY)})
def allocated_not(d, what):
    return call("fallocate", d.open(*what), 0, 0, 10)


@each({"lseek to -1": (-1, 0), "whence 5": (0, 5), "far off": (1 << 62, 0), "too far": ((1 << 63) - 1, 0),
       "data": (0, 3), "data at the end": (BYTES, 3), "data from -1": (-1, 3), "a hole": (0, 4),
       "a hole at the last byte": (BYTES - 1, 4), "a hole at the end": (BYTES, 4)})
def sought(d, where):
    return os.lseek(d.open("f"), *where)


@each({"ftruncate -1": -1, "ftruncate of all": (1 << 63) - 1, "ftruncate": 5})
def cut(d, size):
    fd = d.open("f")
    os.ftruncate(fd, size)
    return os.fstat(fd).st_size


@each({"RLIMIT_FSIZE": (0, 9990), "RLIMIT_FSIZE, appending": (os.O_APPEND, 0)})
def limited(d, how):
    r, w = os.pipe()
    d.open_fds += [r, w]
    pid = os.fork()
    if pid == 0:
        hits, said = [], []
        signal.signal(signal.SIGXFSZ, lambda *_: hits.append(1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES + 50, BYTES + 50))
        fd = d.open("f", os.O_RDWR | how[0])
        for fn in [lambda i=i: os.pwrite(fd, b"x" * 40, how[1] + 40 * i) for i in range(3)] + \
                  [lambda: os.ftruncate(fd, 2 * BYTES), lambda: call("fallocate", fd, 0, 0, 2 * BYTES)]:
            try:
                said.append(fn())
            except OSError as e:
                said.append(errno.errorcode[e.errno])
        os.write(w, f"{said} {len(hits)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return d.shows(os.read(r, 1000).decode())


# ---- hints --------------------------------------------------------------------------------------


@each({f"posix_fadvise {advice}": advice for advice in range(8)})
def advised(d, advice):
    error = LIBC.posix_fadvise(d.open("f"), ctypes.c_long(0), ctypes.c_long(0), advice)
    return errno.errorcode.get(error, error)


@each({"readahead": ("f", os.O_RDONLY), "readahead of a write-only file": ("f", os.O_WRONLY),
       "readahead of a directory": (".", os.O_RDONLY)})
def read_ahead(d, what):
    return call("readahead", d.open(*what), 0, 4096)


@each({f"sync_file_range {flags}": flags for flags in (0, 1, 2, 4, 7, 8)})
def synced(d, flags):
    return call("sync_file_range", d.open("f"), 0, 4096, flags)


@each({"fsync of a directory": "fsync", "syncfs": "syncfs"})
def synced_all(d, name):
    return call(name, d.open(".", os.O_RDONLY))


# ---- ioctls and fcntls --------------------------------------------------------------------------


@each({"FS_IOC_GETFLAGS": (0x80086601, bytes(8)), "FS_IOC_SETFLAGS": (0x40086602, bytes(8)),
       "FIONREAD": (0x541B, bytes(4)), "FIGETBSZ": (2, bytes(4)),
       "FIEMAP": (0xC020660B, bytes(32)), "FS_IOC_GETVERSION": (0x80087601, bytes(8)),
       "FITRIM": (0xC0185879, bytes(24)), "TCGETS": (0x5401, bytes(60)), "FIOQSIZE": (0x5460, bytes(8)),
       "FS_IOC_ENABLE_VERITY": (0x40806685, bytes(128))})
def ioctl(d, what):
    got = fcntl.ioctl(d.open("f"), *what)
    return "done" if isinstance(got, bytes) else got


@probe("FICLONE")
def cloned(d):
    fcntl.ioctl(d.open("f"), 0x40049409, d.open("g"))


@each({"F_GET_SEALS": 1034, "F_ADD_SEALS": 1033, "F_GETPIPE_SZ": 1032})
def sealed(d, what):
    return "done" if fcntl.fcntl(d.open("f"), what, 0) >= 0 else 0


@each({"a lease to read": (os.O_RDONLY, fcntl.F_RDLCK), "to write": (os.O_RDWR, fcntl.F_WRLCK),
       "to read what is open for writing": (os.O_RDWR, fcntl.F_RDLCK)})
def leased(d, what):
    d.close()
    d.open_fds = []
    fd = d.open("f", what[0])
    got = fcntl.fcntl(fd, fcntl.F_SETLEASE, what[1]), fcntl.fcntl(fd, fcntl.F_GETLEASE)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return got


def lock(kind, start, length):
    return struct.pack("hhqqi4x", kind, 0, start, length, 0)


@each({"POSIX locks": fcntl.F_SETLK, "locks of an open file": 37})
def locked(d, command):
    one, two, said = d.open("f"), d.open("f"), []
    for fd, kind, start, length in ((one, 1, 0, 10), (two, 1, 5, 10), (two, 0, 50, 0),
                                    (one, 1, 100, 1), (one, 1, -1, 5), (one, 2, 0, 0)):
        try:
            fcntl.fcntl(fd, command, lock(kind, start, length))
            said.append("done")
        except OSError as e:
            said.append(errno.errorcode[e.errno])
    return said


@probe("flock")
def flocked(d):
    one, two = d.open("f"), d.open("f", os.O_RDONLY)
    fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- opening ------------------------------------------------------------------------------------


@each({name: (path, flags) for name, path, flags in (
    ("O_CREAT|O_EXCL of what is", "f", os.O_CREAT | os.O_EXCL), ("O_NOFOLLOW", "f", os.O_NOFOLLOW),
    ("O_DIRECTORY of a file", "f", os.O_DIRECTORY), ("access mode 3", "f", 3),
    ("O_DIRECTORY|O_CREAT", "n", os.O_DIRECTORY | os.O_CREAT), ("O_DSYNC", "f", os.O_DSYNC),
    ("O_NOATIME", "f", os.O_NOATIME), ("O_RDONLY|O_TRUNC", "f", os.O_TRUNC),
    ("O_TMPFILE", ".", os.O_TMPFILE | os.O_RDWR), ("writing a directory", ".", os.O_WRONLY),
    ("a file as a directory", "f/", os.O_RDONLY), ("below a file", "f/x", os.O_RDONLY),
    ("255 bytes", "n" * 255, os.O_CREAT | os.O_RDWR), ("256 bytes", "n" * 256, os.O_CREAT | os.O_RDWR),
    ("256 bytes, to read", "n" * 256, os.O_RDONLY))})
def opened(d, what):
    d.open(*what)
    return os.stat(d.at("f")).st_size


@each({f"{name}": resolve for name, resolve in (
    ("no RESOLVE flag", 0), ("RESOLVE_NO_XDEV", 1), ("RESOLVE_BENEATH", 8), ("RESOLVE_IN_ROOT", 16),
    ("RESOLVE_CACHED", 32), ("an unknown one", 64))})
def opened2(d, resolve):
    how = struct.pack("QQQ", os.O_RDWR, 0, resolve)
    fd = LIBC.syscall(ctypes.c_long(437), d.open(".", os.O_RDONLY), b"f", how, ctypes.c_long(24))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    os.close(fd)


@each({f"O_PATH: {name}": fn for name, fn in {
    "read": lambda fd: os.read(fd, 1), "write": lambda fd: os.write(fd, b"x"),
    "ftruncate": lambda fd: os.ftruncate(fd, 1), "fchmod": lambda fd: os.fchmod(fd, 0o600),
    "fstat": lambda fd: os.fstat(fd).st_size, "flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX),
    "futimens": lambda fd: call("futimens", fd, 0),
    "opened again": lambda fd: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))}.items()})
def of_a_path(d, fn):
    return fn(d.open("f", os.O_PATH))


@probe("a handle")
def by_handle(d):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    call("name_to_handle_at", -100, d.at("f").encode(), handle, ctypes.create_string_buffer(8), 0)
    fd = call("open_by_handle_at", d.open("g"), handle, os.O_RDONLY)
    d.open_fds.append(fd)
    return os.fstat(fd).st_ino == os.stat(d.at("f")).st_ino


@each({f"faccessat2 {flags:x}": flags for flags in (0, 0x100, 0x200, 0x1000, 8)})
def accessible(d, flags):
    said = []
    for mode in range(9):
        rc = LIBC.syscall(ctypes.c_long(439), -100, d.at("f").encode(), mode, flags)
        said.append(errno.errorcode[ctypes.get_errno()] if rc < 0 else rc)
    return said


# ---- names, attributes, times -------------------------------------------------------------------


@each({"rename to itself": ("f", "f", 0), "RENAME_NOREPLACE": ("f", "n", 1),
       "RENAME_NOREPLACE of a file there": ("f", "g", 1), "NOREPLACE of itself": ("f", "f", 1),
       "RENAME_EXCHANGE": ("f", "g", 2), "RENAME_WHITEOUT": ("f", "n", 4),
       "EXCHANGE|NOREPLACE": ("f", "g", 3), "EXCHANGE|WHITEOUT": ("f", "g", 6), "flag 8": ("f", "g", 8),
       "EXCHANGE with nothing": ("f", "n", 2), "rename of nothing": ("n", "f", 0),
       "rename to .": ("f", ".", 0), "rename below a file": ("f", "g/x", 0)})
def renamed(d, what):
    call("renameat2", -100, d.at(what[0]).encode(), -100, d.at(what[1]).encode(), what[2])
    return sorted(os.listdir(d.path))


@each({"link": lambda d: os.link(d.at("f"), d.at("n")), "symlink": lambda d: os.symlink("f", d.at("n")),
       "mknod": lambda d: os.mknod(d.at("n"), 0o100600), "readlink": lambda d: os.readlink(d.at("f")),
       "rmdir of a file": lambda d: os.rmdir(d.at("f")), "chdir to a file": lambda d: os.chdir(d.at("f")),
       "an attribute": lambda d: os.setxattr(d.at("f"), "user.a", b"v"),
       "an attribute that is not": lambda d: os.getxattr(d.at("f"), "user.a"),
       "unlink of the directory": lambda d: os.unlink(d.path),
       "read of it": lambda d: os.read(d.open(".", os.O_RDONLY), 1)})
def named(d, fn):
    return fn(d)


@probe("mkdir")
def made(d):
    os.mkdir(d.at("n"))
    os.rmdir(d.at("n"))


NOW, OMIT = (0, (1 << 30) - 1), (0, (1 << 30) - 2)


@each({"times": ((1, 2), (3, 4)), "UTIME_OMIT of one": (OMIT, (5, 6)), "of the other": ((7, 8), OMIT),
       "before 1970": ((-5, 7), (-6, 8)), "far": ((1 << 33, 9), (1 << 34, 9)),
       "too many ns": ((0, 10 ** 9), (0, 0))})
def timed(d, times):
    path = d.at("f").encode()
    call("utimensat", -100, path, struct.pack("qqqq", 11, 12, 13, 14), 0)
    call("utimensat", -100, path, struct.pack("qqqq", *times[0], *times[1]), 0)
    st = os.stat(path)
    return st.st_atime_ns, st.st_mtime_ns


@each({"statx": 0, "AT_STATX_FORCE_SYNC": 0x2000, "AT_STATX_DONT_SYNC": 0x4000, "both": 0x6000,
       "a flag that is none": 8})
def stat_of(d, flags):
    out = ctypes.create_string_buffer(256)
    call("statx", -100, d.at("f").encode(), flags, 0x7FF, out)
    mask, _, _, links, uid, gid, mode = struct.unpack_from("IIQIIIH", out.raw)
    return mask & 0x7FF, links, uid, gid, oct(mode), struct.unpack_from("Q", out.raw, 40)[0]


@probe("inotify")
def watched(d):
    fd = call("inotify_init1", os.O_NONBLOCK)
    d.open_fds.append(fd)
    call("inotify_add_watch", fd, d.path.encode(), 0xFFF)
    made_fd = d.open("n", os.O_CREAT | os.O_RDWR)
    os.write(made_fd, b"1")
    os.pread(made_fd, 1, 0)
    os.ftruncate(made_fd, 0)
    os.rename(d.at("n"), d.at("m"))
    os.unlink(d.at("m"))
    data, at, said = os.read(fd, 65536), 0, []
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        said.append((hex(mask), data[at + 16:at + 16 + length].rstrip(b"\0").decode()))
        at += 16 + length
    return said


def answer(path, fn):
    d = Dir(path)
    try:
        return str(fn(d))
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        d.close()


def main():
    wrong = 0
    names = [name for name, _ in PROBES]
    assert not (twice := {n for n in names if names.count(n) > 1}), twice
    for name, fn in PROBES:
        tmpfs, rampfs = (answer(path, fn) for path in sys.argv[1:3])
        if rampfs not in (tmpfs, BY_DESIGN.get(name)):
            print(f"{name}: tmpfs: {tmpfs}; rampfs: {rampfs}")
            wrong += 1
    print(f"{len(PROBES)} calls, {wrong} not as they should be")
    return 1 if wrong else 0


sys.exit(main())
