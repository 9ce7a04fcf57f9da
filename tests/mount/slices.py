"""How long the threads of a program that page faults may run at a time, as the kernel has it, for slices.sh.

Usage: rampfs-run slices.py FILE shorten | leave | children | wait READY

FILE is a segment whose pages are all missing.
  shorten   a thread that page faults has a short slice, and after a while its usual one, as has one that it began
  leave     one that has asked for a slice, or has another policy, keeps that
  children  who is forked by such a thread has the usual one
  wait      makes READY once its slice is short, and waits for the usual one
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
GETATTR, SETATTR = 315, 314
LIBC = ctypes.CDLL(None, use_errno=True)
ATTR = struct.Struct("<IIQiIQQQ")


def attributes(tid=0):
    """(policy, nice, slice in ns)"""
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
    """Each load is of another page."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 0)
        self.page = 0

    def fault(self):
        same(1, self.memory[self.page * 4096 * 32], "a byte of the segment")
        self.page += 1


def in_thread(work):
    """What it returns; it lasts until the second result is set."""
    found, end = [], threading.Event()
    begun = threading.Event()

    def run():
        found.append((threading.get_native_id(), work()))
        begun.set()
        end.wait()

    threading.Thread(target=run).start()
    begun.wait()
    return found[0], end


def shorten(pages):
    os.nice(3)
    usual = attributes()
    same((OTHER, 3), usual[:2], "policy and nice value")
    pages.fault()
    same((OTHER, 3, SHORT), attributes(), "who has page faulted")
    (tid, found), end = in_thread(attributes)
    same((OTHER, 3, SHORT), found, "a thread that it begins")
    (other, found), _ = in_thread(lambda: (pages.fault(), attributes())[1])
    same((OTHER, 3, SHORT), found, "another that page faults")
    for _ in range(40):  # longer than it lasts after one
        pages.fault()
        same(SHORT, attributes()[2], "who page faults now and then")
        time.sleep(0.1)
    for who in (0, tid, other):
        comes(usual, who, "who page faults no more")
    pages.fault()
    same((OTHER, 3, SHORT), attributes(), "who page faults again")
    end.set()


def leave(pages):
    for policy, runtime in ((OTHER, 5000000), (OTHER, 100000), (BATCH, 0)):
        def work(policy=policy, runtime=runtime):
            ask(policy, runtime)
            before = attributes()
            pages.fault()
            return before, attributes()

        (tid, (before, after)), _ = in_thread(work)
        same(before, after, "who has a slice or policy of its own, after a page fault")
        time.sleep(5)
        same(before, attributes(tid), "the same, later")


def children(pages):
    usual = attributes()
    pages.fault()
    same(SHORT, attributes()[2], "who has page faulted")
    pid = os.fork()
    if pid == 0:
        comes(usual, 0, "a child that does not page fault")
        pages.page += 1
        pages.fault()
        same(SHORT, attributes()[2], "a child that does")
        os._exit(0)
    same(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "the child's exit status")


def wait(pages, ready):
    usual = attributes()
    pages.fault()
    same(SHORT, attributes()[2], "who has page faulted")
    with open(ready, "w", encoding="ascii"):
        pass
    comes(usual, 0, "who was left by a daemon that was killed")


if attributes()[2] == 0:
    sys.exit(77)
{"shorten": shorten, "leave": leave, "children": children, "wait": wait}[sys.argv[2]](Pages(sys.argv[1]), *sys.argv[3:])
os._exit(0)
