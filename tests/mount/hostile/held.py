#!/usr/bin/env python3
"""Processes that block every thread that looks into them, or that releases their memory: for tests/mount/hostile/held.sh.

Usage: held.py exec|agent|memory|mapped|writer MOUNT COUNT
       held.py pulled|entered FILE

exec: an execve(2) that does not end, because it closes a file of a filesystem that never answers.
agent: the same in a process that has a session, and whose agent had priority.
memory: a session that has ended. Only the daemon has its userfaultfd, of a memory whose mmap lock is held: a read of
    /proc/self/mem waits for a page of such a file.
mapped: the memories of programs each of which has mapped one of the segments many.0, many.1, ... of the user `nobody`,
    and whose agents answer DONE to every command.
writer: the locks of the files of segments held.0, held.1, ..., which it makes: a write(2) of such a page through the
    descriptor that it got to map the segment.
pulled: the memory of a program (root's, with the shim) that has FILE mapped.
entered: the same of a program that has FILE mapped read-only, and whose lock no other thread gets, even for reading. For
    each line of its input it touches a page, and says so; in the end it prints the bytes that it has found in them.
Runs as root: it mounts that filesystem, and continues as the user `nobody`.
Prints the process numbers when all are there, and continues until its input ends.
"""
import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
import traceback

import attacker

USERFAULTFD_IOC_NEW = 0xaa00
MAP, DONE = 4, 12
MAP_FIXED_NOREPLACE = 0x100000
BYTES = 65536


def become_nobody():
    os.setgroups([])
    os.setresgid(attacker.NOBODY, attacker.NOBODY, attacker.NOBODY)
    os.setresuid(attacker.NOBODY, attacker.NOBODY, attacker.NOBODY)
    attacker.LIBC.prctl(4, 1)  # its own /proc/self/mem is its own
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def hang_in_exec(fd, _, say, __):
    os.set_inheritable(fd, False)
    say(b"1")
    os.execv("/bin/sleep", ["sleep", "1000"])


def map_raw(address, length, prot, flags, fd, offset):
    libc, number = attacker.LIBC, 222 if os.uname().machine == "aarch64" else 9
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(*(ctypes.c_long(each) for each in (number, address, length, prot, flags, fd, offset)))


def map_page(fd):
    """Maps a page and returns its address: Python's mmap does not tell that of a read-only mapping. The shim would look at
    the file, and wait."""
    return map_raw(0, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)


def read_held(memory, address):
    try:
        os.pread(memory, 1, address)
    except OSError:
        pass  # the server has ended


def begin_session(target):
    sock = target.dial()
    attacker.send(sock, attacker.hello_message())
    sock.settimeout(20)
    _, fds, _, _ = socket.recv_fds(sock, 4096, 8)
    uffd = fcntl.ioctl(fds[1], USERFAULTFD_IOC_NEW, os.O_CLOEXEC | os.O_NONBLOCK)
    with socket.socket(fileno=fds[0]) as door:
        socket.send_fds(door, [bytes([1])], [uffd])
    sock.recv(4096)  # READY
    os.close(uffd)
    return sock


def hold_agent(fd, target, say, _):
    sock = begin_session(target)
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_RR:
        raise PermissionError("held: no priority, no test")
    hang_in_exec(fd, sock, say, 0)  # it keeps the session open


def hold_memory(fd, target, say, _):
    """Sends the session's socket to the parent, which hangs up for it."""
    address = map_page(fd)
    sock = begin_session(target)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    say(b"1", [sock.fileno()])
    sock.close()
    read_held(memory, address)


def hold_file(fd, target, say, number):
    address = map_page(fd)
    file = os.open(os.path.join(target.directory, "held.%d" % number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    os.pwrite(file, b"s" * BYTES, 0)
    sock = begin_session(target)
    token = struct.unpack("<QQ", fcntl.ioctl(file, attacker.IOC_ATTACH, bytes(136))[:16])
    door = target.dial()
    attacker.send(door, attacker.attach_message(token, 0, BYTES, mmap.PROT_READ | mmap.PROT_WRITE))
    _, fds, _, _ = socket.recv_fds(sock, 4096, 8)
    say(b"1")
    attacker.LIBC.write(fds[0], ctypes.c_void_p(address), 4096)


def say_done(sock, serial):
    attacker.send(sock, attacker.message(DONE, struct.pack("<IIQ", serial, 0, 0)))


def attach(target, sock, name):
    fd = os.open(os.path.join(target.directory, name), os.O_RDWR)
    token = struct.unpack_from("<QQ", fcntl.ioctl(fd, attacker.IOC_ATTACH, bytes(136)))
    os.close(fd)
    with target.dial() as request:
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        attacker.send(request, attacker.attach_message(token, length=BYTES, prot=prot))
        for _ in range(2):  # MAP, PROTECT
            data, fds, _, _ = socket.recv_fds(sock, 4096, 8)
            kind, serial = struct.unpack_from("<HI", data, 2)
            if kind == MAP:
                _, _, address, length, offset = struct.unpack_from("<IQQQQ", data, 8)
                if map_raw(address, length, prot, mmap.MAP_SHARED | MAP_FIXED_NOREPLACE, fds[0], offset) != address:
                    raise OSError("held: %s can't be mapped" % name)
                os.close(fds[0])
            say_done(sock, serial)
        request.settimeout(20)
        result = struct.unpack_from("<I", request.recv(4096), 4)[0]
        if result:
            raise OSError(result, "held: attaching " + name)


def agree(sock, begun):
    packet = bytearray(4096)
    sock.settimeout(None)
    begun.set()
    while sock.recv_into(packet):
        say_done(sock, struct.unpack_from("<I", packet, 4)[0])


def hold_mapped(fd, target, say, number):
    attacker.LIBC.mallopt(-8, 1)  # M_ARENA_MAX, M_TOP_PAD: the agent must not need more memory while it is locked
    attacker.LIBC.mallopt(-2, 16 << 20)
    address = map_page(fd)
    sock = begin_session(target)
    attach(target, sock, "many.%d" % number)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    begun = threading.Event()
    threading.Thread(target=agree, args=(sock, begun), daemon=True).start()
    begun.wait()
    say(b"1")
    read_held(memory, address)


HOLD = {"exec": hang_in_exec, "agent": hold_agent, "memory": hold_memory, "mapped": hold_mapped,
        "writer": hold_file}


def waits(pid):
    """Returns how often the process has gone to sleep, if it sleeps. No other file of /proc/PID can be read without one of
    the held locks."""
    status = attacker.status_of("/proc/%d/status" % pid)
    return None if status["State"][0] == "R" else status["voluntary_ctxt_switches"]


def wait_until_held(pid):
    for _ in range(400):
        before = waits(pid)
        time.sleep(0.05)
        if before is not None and waits(pid) == before:
            return
    raise TimeoutError("held: process %d does not wait" % pid)


def hold(fd, target, do, count, pids):
    kept = []
    for _ in range(count):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                attacker.die_with_parent()
                ours.close()
                for end in kept:  # or those sessions would not end
                    os.close(end)
                become_nobody()
                do(fd, target, lambda what, fds=(): socket.send_fds(theirs, [what], list(fds)), len(pids))
            except Exception:
                traceback.print_exc()
            os._exit(0)
        pids.append(pid)
        theirs.close()
        ours.settimeout(20)
        said, fds, _, _ = socket.recv_fds(ours, 1, 1)
        if said != b"1":
            raise ConnectionError("held: process %d has ended" % pid)
        kept += fds
    for pid in pids:
        wait_until_held(pid)
    for end in kept:
        os.close(end)
    print(*pids, flush=True)
    sys.stdin.read()


def hold_pulled(path):
    """Holds this process's own memory: an agent that begins later would close the file, and wait."""
    mapped = mmap.mmap(os.open(path, os.O_RDWR), 0)
    fd, server = attacker.hanging_file()
    address = map_page(fd)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    thread = threading.Thread(target=read_held, args=(memory, address))
    waits(os.getpid())  # the memory that this needs is there from now on: nothing more can be mapped
    thread.start()
    wait_until_held(thread.native_id)
    os.write(1, b"%d\n" % os.getpid())
    os.read(0, 1)
    os.kill(server, signal.SIGKILL)
    thread.join()
    mapped.close()
    return 0


def map_read_only(path):
    """Maps by the shim's mmap. Python's own does not tell the address of a read-only mapping."""
    fd = os.open(path, os.O_RDONLY)
    attacker.LIBC.mmap.restype = ctypes.c_void_p
    attacker.LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                   ctypes.c_long]
    address = attacker.LIBC.mmap(None, os.fstat(fd).st_size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    if address == ctypes.c_void_p(-1).value:
        raise OSError("held: mmap: %s" % path)
    return address


class Waiter:
    """A thread that does one thing on command. It is started earlier: a new thread takes memory."""

    def __init__(self, do, *args):
        self.told, self.tell = os.pipe()
        self.thread = threading.Thread(target=lambda: os.read(self.told, 1) and do(*args))
        self.thread.start()
        wait_until_held(self.thread.native_id)

    def begin(self):
        os.write(self.tell, b"1")
        time.sleep(0.05)
        wait_until_held(self.thread.native_id)


def hold_entered(path):
    """The reader has the lock. A writer waits for it, and all other threads wait behind the writer."""
    libc, pages = attacker.LIBC, 3
    address = map_read_only(path)
    found = ctypes.create_string_buffer(4 * pages)
    fd, server = attacker.hanging_file()
    page = map_page(fd)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    number = 222 if os.uname().machine == "aarch64" else 9
    reader = Waiter(read_held, memory, page)
    writer = Waiter(libc.syscall, ctypes.c_long(number), None, ctypes.c_long(4096), ctypes.c_long(mmap.PROT_READ),
                    ctypes.c_long(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), ctypes.c_long(-1), ctypes.c_long(0))
    # By ctypes: otherwise every thread would wait for the thread that holds Python's lock.
    touching = [Waiter(libc.memcpy, ctypes.c_void_p(ctypes.addressof(found) + 4 * i),
                       ctypes.c_void_p(address + 4096 * i), ctypes.c_size_t(4)) for i in range(pages)]
    reader.begin()
    writer.begin()
    os.write(1, b"%d\n" % os.getpid())
    for waiter in touching:
        os.read(0, 1)
        waiter.begin()
        os.write(1, b"touches\n")
    os.read(0, 1)
    os.kill(server, signal.SIGKILL)
    for waiter in [reader, writer] + touching:
        waiter.thread.join()
    os.write(1, found.raw + b"\n")
    return 0


def main(args):
    if args[:1] == ["pulled"] and len(args) == 2:
        return hold_pulled(args[1])
    if args[:1] == ["entered"] and len(args) == 2:
        return hold_entered(args[1])
    if len(args) != 3 or args[0] not in HOLD:
        print(__doc__, file=sys.stderr)
        return 2
    target = attacker.Target(args[1])
    fd, server = attacker.hanging_file()
    pids = []
    try:
        hold(fd, target, HOLD[args[0]], int(args[2]), pids)
    finally:
        os.kill(server, signal.SIGKILL)  # otherwise none of them could end, nor this process
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
