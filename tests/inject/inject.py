"""Failing calls one by one, on a living cluster of three nodes (inject.c makes them fail).

For each path (mount, attach, transfer at the source and at the target, with its pull), each kind of
call and each number N: arm the daemon so that the N-th call of that kind fails, do what the path
does, and look: it succeeded, or failed with an error that says something; within a bounded time the
cluster is itself again (the daemon may have ended: its keeper starts it), every byte is there, no
store holds anything that is nobody's, no descriptor is left open.

    inject.py CLUSTER_DIR CONTROL_DIR [--all [--first N]] [--seed S] [--seconds T] [--path P] [--kind K]

--first goes on at that number. Without --all a sample: numbers drawn with the seed, until the time is up.
"""
import argparse
import collections
import hashlib
import mmap
import os
import random
import struct
import subprocess
import sys
import time

KINDS = ["memory", "map", "open", "file", "send", "ioctl"]
SIZE = (1 << 20) + 4096 * 3 + 100
AGAIN_S = 60  # until everything must be as before
SOCKETS = 8  # with peers and programs, come and go
NODES = ["a", "b", "c"]

ATTACH = """
import hashlib, mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0:8] = m[0:8]
print(hashlib.sha256(m[:]).hexdigest())
"""


class Wrong(Exception):
    pass


class Control:
    """The page that inject.c shares with us."""
    LAYOUT = "<IIQ24sQ64s"

    def __init__(self, path):
        with open(path, "wb") as f:
            f.truncate(4096)
        self.fd = os.open(path, os.O_RDWR)
        self.map = mmap.mmap(self.fd, 4096)

    def arm(self, kind, left):
        struct.pack_into(self.LAYOUT, self.map, 0, 0, 0, left, b"", 0, b"")
        struct.pack_into("<I", self.map, 0, kind)

    def disarm(self):
        """How many calls were left; what was hit (or None)."""
        struct.pack_into("<I", self.map, 0, 0)
        _, hits, left, name, caller, obj = struct.unpack_from(self.LAYOUT, self.map, 0)
        where = None
        if hits:
            where = (name.rstrip(b"\0").decode(), obj.split(b"\0")[0].decode().lstrip("/"), caller)
        return left, where


class Test:
    def __init__(self, top, control_dir):
        self.top = top
        self.controls = {n: Control(f"{control_dir}/{n}") for n in NODES}
        self.bytes = os.urandom(SIZE)
        self.sum = hashlib.sha256(self.bytes).hexdigest()
        self.fds = {}

    def mnt(self, seen_by, node, name=""):
        return f"{self.top}/mnt/{seen_by}/{node}/{name}"

    def daemon(self, node):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if len(words) > 2 and words[1] == "--daemon" and words[-2] == f"{self.top}/mnt/{node}":
                return int(pid)
        return None

    # ---- what the paths do: "" or the error ----

    def run(self, *argv):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False,
                                  env={**os.environ, "LC_ALL": "C"})
        except subprocess.TimeoutExpired:
            raise Wrong(f"hangs: {' '.join(argv)}") from None
        if done.returncode == 0:
            return "", done.stdout.strip()
        lines = done.stderr.strip().splitlines()
        if not lines:
            raise Wrong(f"exit status {done.returncode} without a word: {' '.join(argv)}")
        return lines[-1], ""

    def mount(self):
        d, name = self.mnt("a", "a"), "made"
        try:
            with open(d + name, "wb", buffering=0) as f:
                wrote = f.write(self.bytes)
                os.ftruncate(f.fileno(), 2 * SIZE)
                os.posix_fallocate(f.fileno(), 0, 3 * SIZE)
            with open(d + name, "rb", buffering=0) as f:
                got = f.read(wrote)
                os.lseek(f.fileno(), 0, os.SEEK_HOLE)
            os.setxattr(d + name, "user.ramp.pages", b"small")
            os.chmod(d + name, 0o640)
            os.listdir(d)
            with open(f"{self.top}/mnt/a/.ramp/status", encoding="utf-8") as f:
                f.read()
        except OSError as e:
            return str(e)
        if len(got) < wrote:
            return "a short read"  # what an error behind some bytes gives
        if got != self.bytes[:wrote]:
            raise Wrong("a file that was just written reads as something else")
        return ""

    def attach(self):
        error, out = self.run("rampfs-run", sys.executable, "-c", ATTACH, self.mnt("a", "a", "kept"))
        if not error and out != self.sum:
            raise Wrong("a mapped program read other bytes")
        return error

    def move(self):
        return self.run("rampfs-migrate", "--wait", self.mnt("a", "a", "moved"), "b")[0]

    # ---- as before ----

    def renew(self):
        """Both segments anew, whatever has become of them."""
        until = time.monotonic() + AGAIN_S
        while True:
            try:
                for node in NODES:
                    for name in os.listdir(self.mnt("a", node)):
                        os.unlink(self.mnt("a", node, name))
                for name in ("kept", "moved"):
                    with open(self.mnt("a", "a", name), "wb") as f:
                        f.write(self.bytes)
                self.fds.clear()
                return self.settle()
            except OSError as e:
                if time.monotonic() > until:
                    raise Wrong(f"can't be made anew: {e}") from None
                time.sleep(0.1)

    def unmade(self):
        try:
            os.unlink(self.mnt("a", "a", "made"))
        except FileNotFoundError:
            pass

    def home(self):
        """Everything stable, at a, with its bytes; "" or what is not yet so."""
        try:
            self.unmade()
            for seen_by in NODES:
                names = {n: sorted(os.listdir(self.mnt(seen_by, n))) for n in NODES}
                if names["b"] == ["moved"] and names["a"] == ["kept"]:
                    self.run("rampfs-migrate", "--wait", self.mnt("b", "b", "moved"), "a")
                    return "moved is on its way back"
                if names != {"a": ["kept", "moved"], "b": [], "c": []}:
                    return f"{seen_by} lists {names}"
            for name in ("kept", "moved"):
                path = self.mnt("a", "a", name)
                state = os.getxattr(path, "user.ramp.state").decode()
                if state != "stable":
                    return f"{name} is {state}"
                with open(path, "rb") as f:
                    if hashlib.sha256(f.read()).hexdigest() != self.sum:
                        raise Wrong(f"{name} has other bytes")
        except OSError as e:
            return str(e)
        return self.stores() or self.descriptors()

    def stores(self):
        for node in NODES:
            here = sorted(n for n in os.listdir(f"{self.top}/state/{node}/store") if n[0].isdigit())
            if len(here) != (4 if node == "a" else 0):
                return f"{node}'s store holds {here}"
        return ""

    def descriptors(self):
        for node in NODES:
            pid = self.daemon(node)
            if pid is None:
                return f"{node} has no daemon"
            open_now = self.open_files(pid)
            before_pid, before = self.fds.get(node, (0, None))
            if pid != before_pid:
                open_now["socket"] += SOCKETS
                self.fds[node] = (pid, open_now)
            elif open_now - before:
                return f"{node} holds open {dict(open_now - before)}"
        return ""

    @staticmethod
    def open_files(pid):
        found = collections.Counter()
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                to = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if "/journal.db" in to:
                continue  # its readers are a pool, which grows by use
            found["socket" if to.startswith("socket:") else to] += 1
        return found

    def settle(self):
        until = time.monotonic() + AGAIN_S
        while (why := self.home()):
            if time.monotonic() > until:
                raise Wrong(f"not as before after {AGAIN_S} s: {why}")
            time.sleep(0.02)


PATHS = {"mount": ("a", Test.mount), "attach": ("a", Test.attach), "source": ("a", Test.move),
         "target": ("b", Test.move)}


class Loop:
    def __init__(self, test, one_is_enough):
        self.test = test
        self.one_is_enough = one_is_enough
        self.wrong = 0
        self.counts = collections.Counter()
        self.errors = collections.Counter()

    def count(self, path, kind):
        """How many calls of this kind the path makes."""
        node, fn = PATHS[path]
        control = self.test.controls[node]
        control.arm(KINDS.index(kind) + 1, 1 << 62)
        error = fn(self.test)
        left, _ = control.disarm()
        if error:
            raise Wrong(f"{path} fails by itself: {error}")
        self.test.settle()
        return (1 << 62) - left

    def once(self, path, kind, n):
        """Fails call n; false: there are not so many."""
        node, fn = PATHS[path]
        control, before = self.test.controls[node], self.test.daemon(node)
        control.arm(KINDS.index(kind) + 1, n)
        try:
            error = fn(self.test)
            _, where = control.disarm()
            self.test.settle()
        except Wrong as e:
            _, where = control.disarm()
            if self.one_is_enough:
                raise Wrong(f"{path}, {kind} {n}: {where}: {e}") from None
            print(f"WRONG: {path} {kind} {n}: {where}: {e}", flush=True)
            self.wrong += 1
            self.test.renew()
            return True
        if where is None:
            return False
        died = self.test.daemon(node) != before
        result = "ended" if died else "failed" if error else "went on"
        self.counts[path, result] += 1
        if error:
            self.errors[error.split(": ", 1)[-1]] += 1
        print(f"{path} {kind} {n}: {where[0]} at {where[1]}+{where[2]:#x}: {result} {error}",
              flush=True)
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("top")
    parser.add_argument("control_dir")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--path", choices=PATHS)
    parser.add_argument("--kind", choices=KINDS)
    o = parser.parse_args()
    test = Test(o.top, o.control_dir)
    subprocess.run(["contrib/local-cluster", "start", "-c", "256M", o.top], check=True)
    test.renew()
    loop, rng = Loop(test, not o.all), random.Random(o.seed)
    cases = [(p, k) for p in PATHS for k in KINDS if o.path in (None, p) and o.kind in (None, k)]
    for path in PATHS:  # connections that stay are made here
        PATHS[path][1](test)
        test.fds.clear()
        test.settle()
    test.fds.clear()
    if o.all:
        for path, kind in cases:
            n = o.first
            while loop.once(path, kind, n):
                n += 1
    else:
        most = {}
        until = time.monotonic() + o.seconds
        while time.monotonic() < until:
            path, kind = rng.choice(cases)
            if (path, kind) not in most:
                most[path, kind] = loop.count(path, kind)
            loop.once(path, kind, rng.randrange(max(1, most[path, kind])))
    for error, times in loop.errors.most_common():
        print(f"{times:6} {error}")
    for (path, result), times in sorted(loop.counts.items()):
        print(f"{path}: {times} {result}")
    if loop.wrong:
        raise Wrong(f"{loop.wrong} of these")


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"FAILED: {wrong}")
