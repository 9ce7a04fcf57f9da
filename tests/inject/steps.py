"""A kill at each step of a revoke (steps.c names them), on a living cluster of three nodes.

A program at a stores to a segment all the time, one at b has it mapped too, and one stores to another segment beside it. The
segment moves from a to b, lazily or by pre-copy, or its move is given up in the window. At one step the daemon it leaves is killed, or the daemon it goes
to, or the program. In the end the segment is stable, at a or at b, each byte is right, and only the program that was killed is
dead. Without a kill, and held at a step, the program unmaps, protects, drops and forks: that counts, too.
"""
import errno
import mmap
import os
import signal
import struct
import subprocess
import sys
import time

import inject
from inject import AGAIN_S, NODES, Wrong

DAEMON = ["register", "registered", "ask", "asked", "read", "give", "given", "forget", "forgotten"]
PRECOPY = ["watch", "watched", "scan", "scanned"]  # and those of DAEMON
GIVEN_UP = ["recall", "recalled"]
PROGRAM = ["move", "moved", "answer", "answered", "unmap", "unmapped"]
RETURNED = ["return", "returned"]
HELD = ["registered", "asked", "read"]
BY_CHANCE = ["give", "given"]  # passed by the thread that has read the event of a move: that which revokes, or that of page faults
TRIES = 10
KILL, HOLD = 1, 2
PARTS, PART = 200, 256 << 10  # more mappings of a segment than a revoke once moved away

# Maps FILE, in PARTS mappings if that is not 0; says how much of it huge pages map, and at the end whether all bytes are there.
MAPPER = """
import ctypes, mmap, os, sys
path, parts, part = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
m = mmap.mmap(os.open(path, os.O_RDWR), 0)
at, libc = ctypes.addressof(ctypes.c_char.from_buffer(m)), ctypes.CDLL(None, use_errno=True)
for i in range(0, len(m), 4096):
    m[i:i + 2] = b"%2d" % (i // 4096 % 100)
for i in range(0, parts, 2):
    if libc.mprotect(ctypes.c_void_p(at + i * part), ctypes.c_size_t(part), mmap.PROT_READ):
        sys.exit("mprotect")
sum(m[i] for i in range(0, len(m), 4096))  # to cut a huge page takes away its entry

def huge():
    ours = False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            ours = int(line.split("-")[0], 16) == at
        elif ours and line.startswith(("ShmemPmdMapped", "FilePmdMapped")) and int(line.split()[1]):
            return int(line.split()[1])
    return 0

print(huge(), flush=True)
sys.stdin.readline()
bad = [i for i in range(0, len(m), 4096) if m[i:i + 2] != b"%2d" % (i // 4096 % 100)]
print(huge(), bad[:3], flush=True)
"""


class Control:
    """The page that steps.c shares with us."""
    SLOT = "<III24s"
    SIZE = 4096

    def __init__(self, path):
        with open(path, "wb") as f:
            f.truncate(self.SIZE)
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), self.SIZE)

    def arm(self, slot, action, step):
        at = slot * struct.calcsize(self.SLOT)
        struct.pack_into(self.SLOT, self.map, at, 0, 0, 0, step.encode())
        struct.pack_into("<I", self.map, at, action)

    def passed(self, slot):
        """Whether the step has come."""
        return struct.unpack_from(self.SLOT, self.map, slot * struct.calcsize(self.SLOT))[1] != 0

    def held(self, slot):
        return struct.unpack_from(self.SLOT, self.map, slot * struct.calcsize(self.SLOT))[2] != 0

    def let_go(self):
        for slot in range(2):
            struct.pack_into("<I", self.map, slot * struct.calcsize(self.SLOT), 0)


class Steps:
    def __init__(self, top, control_dir):
        self.test = inject.Test(top, control_dir)
        self.options = []  # of a move that is not given up
        self.controls = {n: Control(f"{control_dir}/{n}") for n in ("a", "b", "program")}

    def until(self, holds, what):
        until = time.monotonic() + AGAIN_S
        while not holds():
            if time.monotonic() > until:
                raise Wrong(f"not within {AGAIN_S} s: {what}")
            time.sleep(0.01)

    def owner(self):
        """The node where all nodes list the segment, once it is stable; else None."""
        try:
            lists = {seen_by: [n for n in NODES if "moved" in os.listdir(self.test.mnt(seen_by, n))] for seen_by in NODES}
            found = lists["a"]
            if len(found) != 1 or any(l != found for l in lists.values()):
                return None
            state = os.getxattr(self.test.mnt(found[0], found[0], "moved"), "user.ramp.state")
            return found[0] if state == b"stable" else None
        except OSError:
            return None

    def home(self):
        """Sees to it that the segment is at a again."""
        def is_home():
            owner = self.owner()
            if owner == "b":
                self.test.move_back()
            return owner == "a"
        self.until(is_home, "the segment is stable at a")

    def cancelled_move(self, held):
        """A move that is interrupted while the daemon is held in its window."""
        with subprocess.Popen(["rampfs-migrate", self.test.mnt("a", "a", "moved"), "b"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as tool:
            self.until(lambda: held.held(1) or tool.poll() is not None, "the window is held")
            tool.send_signal(signal.SIGINT)
            time.sleep(0.2)  # the daemon hears of it
            held.arm(1, 0, "")
            return tool.communicate(timeout=60)[1].strip()

    def move(self, cancelled):
        if not cancelled:
            return self.test.move(*self.options)
        held = self.controls["a"]
        held.arm(1, HOLD, "asked")
        return self.cancelled_move(held)

    def check(self, killed, error):
        """All is as it must be, and all that was stored is there."""
        there, here, beside = self.test.storers
        self.home()
        if killed:
            if here.process.wait(AGAIN_S) != -signal.SIGKILL:
                raise Wrong(f"the program ended with {here.process.returncode}")
            with open(self.test.mnt("a", "a", "moved"), "rb") as f:
                words = [struct.unpack_from("<Q", page)[0] for page in iter(lambda: f.read(mmap.PAGESIZE), b"")
                         if len(page) == mmap.PAGESIZE][:-4]
            # It stores the same number to one page after the other.
            if words[0] - words[-1] not in (0, 1) or sorted(words, reverse=True) != words:
                raise Wrong("the killed program's stores are not all there")
            here.stored_by_killed = words
        else:
            here.wait("here")
        beside.wait("here")
        there.wait("gone")
        if error and os.strerror(errno.EBUSY) in error and not killed:
            raise Wrong(f"no other move was under way: {error}")

    def end(self, killed):
        if killed:
            here = self.test.storers.pop(1)
            here.kill()
            # Its words are as it left them; the others' are checked as ever.
            with open(self.test.mnt("a", "a", "moved"), "r+b") as f:
                for page, _ in enumerate(here.stored_by_killed):
                    f.seek(page * mmap.PAGESIZE)
                    f.write(self.test.bytes[page * mmap.PAGESIZE:page * mmap.PAGESIZE + 8])
        self.test.end_stores()

    def kill(self, who, step, cancelled=False):
        """Kills at that step. Another thread of the daemon may have read the event of a move: then the step is not passed, and
        the move is made again."""
        for _ in range(TRIES):
            if self.kill_once(who, step, cancelled):
                return
        raise Wrong(f"there is no step {step} of {who}, in {TRIES} moves")

    def kill_once(self, who, step, cancelled):
        begin, killed = time.monotonic(), who == "program"
        control = self.controls[who]
        self.test.begin_stores()
        control.arm(0, KILL, step)
        error = self.move(cancelled)
        if killed:  # a step after the answer comes when it comes
            self.until(lambda: control.passed(0), f"the step {step} of {who}")
        passed = control.passed(0)
        if not passed and step not in BY_CHANCE:
            raise Wrong(f"there is no step {step} of {who}")
        for c in self.controls.values():
            c.let_go()
        self.check(killed, error)
        self.end(killed)
        self.test.settle()
        print(f"{who} {step}{'' if passed else ', not passed'}: {time.monotonic() - begin:.1f} s, {error}", flush=True)
        return passed

    def change(self, step, cancelled):
        """The program changes its mappings while the window is held."""
        begin, held = time.monotonic(), self.controls["a"]
        self.test.begin_stores()
        here = self.test.storers[1]
        held.arm(0, HOLD, step)
        argv = ["rampfs-migrate", self.test.mnt("a", "a", "moved"), "b"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tool:
            self.until(lambda: held.held(0), f"the window is held at {step}")
            os.write(here.process.stdin.fileno(), b"change\n")
            time.sleep(0.2)  # it waits for the daemon in the fork by then
            if cancelled:
                tool.send_signal(signal.SIGINT)
                time.sleep(0.2)
            held.let_go()
            error = tool.communicate(timeout=60)[1].strip()
        here.hear("changed")
        self.check(False, "")
        self.end(False)
        self.test.settle()
        print(f"changes at {step}{', given up' if cancelled else ''}: {time.monotonic() - begin:.1f} s, {error}", flush=True)

    def given_up(self, size, parts, look):
        """Moves another segment, and gives that up in the window, where `look` is called with the program that has it mapped.
        Returns what the program says before and in the end."""
        path = self.test.mnt("a", "a", "other")
        with open(path, "wb") as f:
            f.truncate(size)
        held = self.controls["a"]
        try:
            with subprocess.Popen(["rampfs-run", sys.executable, "-c", MAPPER, path, str(parts), str(PART)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                before = program.stdout.readline().strip()
                held.arm(1, HOLD, "asked")
                with subprocess.Popen(["rampfs-migrate", path, "b"], stderr=subprocess.PIPE, text=True) as tool:
                    self.until(lambda: held.held(1) or tool.poll() is not None, "the window is held")
                    look(program)
                    tool.send_signal(signal.SIGINT)
                    time.sleep(0.2)
                    held.let_go()
                    said = tool.communicate(timeout=60)[1]
                if "it stays where it is" not in said:
                    raise Wrong(f"the move was not given up: {said}")
                return before, program.communicate("\n", timeout=60)[0].strip()
        finally:
            held.let_go()
            os.unlink(path)

    def many(self):
        """More mappings than 64 are moved away, and come back."""
        def places(program):
            with open(f"/proc/{program.pid}/maps", encoding="utf-8") as f:
                return sum(int(line.split("-")[0], 16) >= 1 << 46 and "/store/" in line for line in f)
        counted = []

        def look(program):
            self.until(lambda: places(program) >= PARTS, f"{PARTS} mappings are away, not {places(program)}")
            counted.append(places(program))
        _, after = self.given_up((PARTS + 1) * PART, PARTS, look)
        if not after.endswith("[]"):
            raise Wrong(f"bytes are not there: {after}")
        print(f"{counted[0]} mappings were away", flush=True)

    def huge(self):
        """A huge page stays one, whatever a revoke asks of its mapping, which is moved since it has small pages, too."""
        before, after = self.given_up((4 << 20) + (64 << 10), 0, lambda _: None)
        if not before.isdigit() or after != f"{before} []":
            raise Wrong(f"huge pages map {before} KiB before, and then {after}")
        print(f"huge pages map {before} KiB, before and after", flush=True)

    def precopy(self):
        """The same while the segment is copied ahead: its page tables are watched, and looked at."""
        self.options = ["--mode", "precopy"]
        for step in PRECOPY + DAEMON:
            self.kill("a", step)
        self.options = []

    def all(self):
        self.many()
        self.huge()
        for step in DAEMON:
            self.kill("a", step)
        for step in ("register", "registered"):
            self.kill("b", step)
        self.precopy()
        for step in PROGRAM:
            self.kill("program", step)
        for step in GIVEN_UP:
            self.kill("a", step, cancelled=True)
        for step in RETURNED:
            self.kill("program", step, cancelled=True)
        for step in HELD:
            self.change(step, cancelled=step == "asked")


def main():
    top, control_dir, *only = sys.argv[1:]
    steps = Steps(top, control_dir)
    subprocess.run(["contrib/local-cluster", "start", "-c", "256M", top], check=True)
    steps.test.renew()
    try:
        for name in only or ["all"]:
            getattr(steps, name)()
    finally:
        steps.test.kill_storers()


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"FAILED: {wrong}")
