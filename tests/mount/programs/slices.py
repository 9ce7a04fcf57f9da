"""The time slices of the threads of a program that page faults, as the kernel tells them, for slices.sh.

Usage: rampfs-run slices.py FILE shorten | leave | children | wait READY KILLED

FILE is a segment whose pages are all missing.
  shorten   a thread that page faults has a short slice, and after a while its usual one; so has a thread that it starts
  leave     a thread that has asked for a slice, or has another policy, keeps that
  children  a child that such a thread forks has the usual one
  wait      makes READY once its slice is short, page faults until KILLED is there, and waits for the usual one
"""
import ctypes
import mmap
import os
import struct
import sys
import threading
import time

SHORT = 100100
OTHER, BATCH = 0, 3
GETATTR, SETATTR = (315, 314) if os.uname().machine == "x86_64" else (275, 274)
LIBC = ctypes.CDLL(None, use_errno=True)
ATTR = struct.Struct("<IIQiIQQQ")


def attributes(tid=0):
    """Returns (policy, nice, slice in ns)."""
    data = ctypes.create_string_buffer(ATTR.size)
    if LIBC.syscall(GETATTR, tid, data, ATTR.size, 0):
        raise OSError(ctypes.get_errno(), "sched_getattr")
    _, policy, _, nice, _, runtime, _, _ = ATTR.unpack(data.raw)
    return policy, nice, runtime


def ask(policy, runtime):
    data = ctypes.create_string_buffer(ATTR.pack(ATTR.size, policy, 0, attributes()[1], 0, runtime, 0, 0), ATTR.size)
    if LIBC.syscall(SETATTR, 0, data, 0):
        raise OSError(ctypes.get_errno(), "sched_setattr")


def same(expected, found, what):
    if expected != found:
        sys.exit("%s: expected %r, got %r" % (what, expected, found))


def comes(expected, tid, what):
    for _ in range(200):
        if attributes(tid) == expected:
            return
        time.sleep(0.1)
    same(expected, attributes(tid), what)


class Pages:
    """The pages of a segment, each of which is loaded from only once."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 0)
        self.page = 0

    def fault(self):
        same(1, self.memory[self.page * 4096 * 32], "a byte of the segment")
        self.page += 1

    def faults(self, what):
        """Waits until this thread's slice is short: one page fault may come just while the daemon looks at the threads."""
        for _ in range(20):
            self.fault()
            if attributes()[2] == SHORT:
                return
            time.sleep(0.05)
        same(SHORT, attributes()[2], what)


def in_thread(work):
    """Starts a thread; returns its number and its result. The thread lasts until the second result is set."""
    found, end = [], threading.Event()
    done = threading.Event()

    def run():
        found.append((threading.get_native_id(), work()))
        done.set()
        end.wait()

    threading.Thread(target=run).start()
    done.wait()
    return found[0], end


def shorten(pages):
    niceness = os.nice(3)
    usual = attributes()
    same((OTHER, niceness), usual[:2], "policy and nice value")
    go, end, found = threading.Event(), threading.Event(), []

    def older():
        go.wait()
        found.append((threading.get_native_id(), attributes()[2]))
        pages.faults("another thread that page faults")
        found.append(attributes())
        end.wait()

    threading.Thread(target=older).start()
    pages.faults("a thread that has page faulted")
    same((OTHER, 3, SHORT), attributes(), "a thread that has page faulted")
    (tid, inherited), last = in_thread(attributes)
    same((OTHER, 3, SHORT), inherited, "a thread that it begins")
    go.set()
    while len(found) < 2:
        time.sleep(0.01)
    same(usual[2], found[0][1], "an older thread that has not page faulted")
    same((OTHER, 3, SHORT), found[1], "the same, when it has")
    for _ in range(40):  # longer than the slice lasts after a page fault
        pages.fault()
        time.sleep(0.1)
    same((OTHER, 3, SHORT), attributes(), "a thread that page faults now and then")
    for who in (0, tid, found[0][0]):
        comes(usual, who, "a thread that page faults no more")
    pages.faults("a thread that page faults again")
    same((OTHER, 3, SHORT), attributes(), "a thread that page faults again")
    end.set()
    last.set()


def leave(pages):
    for policy, runtime in ((OTHER, 5000000), (OTHER, 100000), (BATCH, 0)):
        def work(policy=policy, runtime=runtime):
            ask(policy, runtime)
            before = attributes()
            pages.fault()
            return before, attributes()

        (tid, (before, after)), _ = in_thread(work)
        same(before, after, "a thread with a slice or policy of its own, after a page fault")
        time.sleep(5)
        same(before, attributes(tid), "the same, later")


def children(pages):
    usual = attributes()
    pages.faults("a thread that has page faulted")
    pid = os.fork()
    if pid == 0:
        comes(usual, 0, "a child that does not page fault")
        pages.faults("a child that does")
        os._exit(0)
    same(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "the child's exit status")


def wait(pages, ready, killed):
    usual = attributes()
    pages.faults("a thread that has page faulted")
    with open(ready, "w", encoding="ascii"):
        pass
    while not os.path.exists(killed):
        pages.fault()
        time.sleep(0.2)
    comes(usual, 0, "a thread that a killed daemon has left")


if attributes()[2] == 0:
    sys.exit(77)
{"shorten": shorten, "leave": leave, "children": children, "wait": wait}[sys.argv[2]](Pages(sys.argv[1]), *sys.argv[3:])
os._exit(0)
