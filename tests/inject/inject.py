"""Failing calls one by one, on a living cluster of three nodes (inject.c makes them fail).

For each path, each kind of call and each number N: arm the process so that its N-th call of that kind
fails, take the path, and check: it succeeded, or failed with an error that names a cause; within a bounded
time (at once, if no other node is needed) the cluster is as before (the daemon may have ended: its keeper
starts it); every byte is there; no store holds a file of no segment; no descriptor is left open.

Paths (where the calls fail):
  mount        reading, writing, names, attributes and .ramp of a mounted node (its daemon)
  attach       a program maps a segment and forks (the daemon)
  program      the same (the shim in the program)
  broker      the same (the broker, whose thread waits for the program's userfaultfd)
  source       a segment moves to another node (the daemon that it leaves)
  target       the same (the daemon that takes and pulls it)
  third        the same, asked for at a node that is neither (its daemon)
  copy-source  a move with --mode copy --trace (the daemon that it leaves)
  copy-target  the same (the daemon that takes it)
  mv           rename(2) to another node (the daemon that it leaves)
  stopped      a segment moves that a stopped program has mapped (the daemon that it leaves)
  agent        a segment leaves and comes back under programs that store to it at both nodes, and to another
               segment (the shim in the program that it leaves and comes back to)
  agent-source the same (the daemon of that program)
  agent-target the same (the daemon where it stays between)
  precopy-source  the same, and it leaves with --mode precopy (the daemon of that program)
  precopy-target  the same (the daemon where it stays between)
  pull         read(2) and page faults at pages that are still elsewhere (the daemon that pulls)
  serve        the same (the daemon that has them)
  restart      a daemon is killed and comes back (the new one)
  resume       the same while it pulls
  resume-serve the same while it is pulled from
  start        a node is mounted (its first daemon)
  keeper       the same (rampfs itself, which becomes the keeper)
  upgrade      SIGHUP (the daemon that ends, and the new one)
  upgrader     the same (the keeper)
  umount       a node is unmounted (its daemon)
  umounter     the same (its keeper)
  adopt        a keeper is killed and replaced (the daemon that starts the next)
  adopted      the same (the new keeper)
"""
import argparse
import collections
import errno
import fcntl
import hashlib
import mmap
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time

KINDS = ["memory", "map", "open", "file", "send", "ioctl"]
SIZE = (1 << 20) + 4096 * 3 + 100
AGAIN_S = 60  # until everything must be as before
NAMESPACE_S = 2  # after that, the mount namespace of another test has a copy of the mount
SLOW_S = 4  # for a path that waits for no other node
LONG_S = 30  # for any path
SOCKETS = 8  # connections to peers and programs, which come and go
NODES = ["a", "b", "c"]
CONTROLS = NODES + ["keeper-a", "keeper-c", "program", "broker"]

ATTACH = """
import hashlib, mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0:8] = m[0:8]
child = os.fork()
if child == 0:
    m[8:16] = m[8:16]
    os._exit(0)
status = os.waitpid(child, 0)[1]
print(hashlib.sha256(m[:]).hexdigest())
if status:
    sys.exit("the child ended with status %d" % status)
"""

STOPPED = """
import hashlib, mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0:8] = m[0:8]
print("ready", flush=True)
sys.stdin.readline()
print(hashlib.sha256(m[:]).hexdigest())
"""


class Wrong(Exception):
    pass


class Storer:
    """A program that stores to a segment all the time (stores.c)."""
    def __init__(self, path, slot, **env):
        self.path, self.slot = path, slot
        self.process = subprocess.Popen(
            ["rampfs-run", f"{os.environ['RAMPFS_BUILD']}/tests/stores", path, str(slot)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})
        try:
            self.hear("ready")
        except Wrong:
            self.kill()
            raise

    def hear(self, what):
        if not select.select([self.process.stdout], [], [], AGAIN_S)[0]:
            raise Wrong(f"{self.path}: a program does not say {what}")
        line = self.process.stdout.readline()
        if not line:
            raise Wrong(f"{self.path}: a program ended with {self.process.wait()}: {self.process.stderr.read()}")
        return line

    def wait(self, what):
        """Waits until a touch is SIGBUS (gone), or every page can be stored to (here)."""
        try:
            os.write(self.process.stdin.fileno(), f"{what}\n".encode())
        except BrokenPipeError:
            pass  # hear() says how it ended
        return self.hear(what)

    def end(self):
        """Ends it, checks that its stderr has only lines of rampfs, and returns its last store to each page."""
        stored = [int(n) for n in self.wait("end").split()]
        if self.process.wait(AGAIN_S):
            raise Wrong(f"{self.path}: a program ended with {self.process.returncode}")
        said = self.process.stderr.read().splitlines()
        if not all(line.startswith("rampfs: ") for line in said):
            raise Wrong(f"{self.path}: a program says {said}")
        return stored

    def kill(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


class Control:
    """The page that inject.c shares with us."""
    LAYOUT = "<IIQ7Q64s24sQ64sI"
    SITES_AT, SIZE = struct.calcsize(LAYOUT), 16384

    def __init__(self, path):
        with open(path, "wb") as f:
            f.truncate(self.SIZE)
        self.fd = os.open(path, os.O_RDWR)
        self.map = mmap.mmap(self.fd, self.SIZE)

    def sites(self, times):
        """From now on each place in the code fails `times` times (0: no limit); earlier failures don't count."""
        self.map[self.SITES_AT:] = bytes(self.SIZE - self.SITES_AT)
        struct.pack_into("<I", self.map, self.SITES_AT - 4, times)

    def arm(self, kind, left, only=""):
        struct.pack_into(self.LAYOUT[:-1], self.map, 0, 0, 0, left, *[0] * 7, only.encode(), b"", 0, b"")
        struct.pack_into("<I", self.map, 0, kind)

    def disarm(self):
        """Returns how many calls of each kind were made, and the call that was hit (or None)."""
        struct.pack_into("<I", self.map, 0, 0)
        _, hits, _, *made, _, name, caller, obj, _ = struct.unpack_from(self.LAYOUT, self.map, 0)
        where = None
        if hits:
            where = (name.rstrip(b"\0").decode(), obj.split(b"\0")[0].decode(), caller)
        return made[1:], where


class Test:
    def __init__(self, top, control_dir):
        self.top = top
        self.controls = {n: Control(f"{control_dir}/{n}") for n in CONTROLS}
        self.bytes = os.urandom(SIZE)
        self.sum = hashlib.sha256(self.bytes).hexdigest()
        self.fds = {}
        self.storers = []

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

    def keepers(self, node):
        """The keeper of a node, and for a short time also its successor."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if (os.path.basename(words[0]) == "rampfs" and words[1] != "--daemon"
                    and words[-2] == f"{self.top}/mnt/{node}"):
                found.append(int(pid))
        return found

    # ---- the paths: each returns "" or the error ----

    def run(self, *argv, **env):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False,
                                  env={**os.environ, "LC_ALL": "C", **env})
        except subprocess.TimeoutExpired:
            raise Wrong(f"hangs: {' '.join(argv)}") from None
        if done.returncode == 0:
            return "", done.stdout.strip()
        lines = done.stderr.strip().splitlines()
        if not lines or done.returncode < 0:
            raise Wrong(f"exit status {done.returncode}, and says {lines}: {' '.join(argv)}")
        return "; ".join([w for w in lines[:-1] if w.startswith("rampfs")] + lines[-1:]), ""

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
            return "a short read"  # the result of an error behind some bytes
        if got != self.bytes[:wrote]:
            raise Wrong("a file that was just written reads as something else")
        return ""

    def map(self, path, **env):
        error, out = self.run("rampfs-run", sys.executable, "-c", ATTACH, path, **env)
        if not error and out != self.sum:
            raise Wrong("a mapped program read other bytes")
        return error

    def attach(self):
        return self.map(self.mnt("a", "a", "kept"))

    def program(self):
        return self.map(self.mnt("a", "a", "kept"), INJECT_PROGRAM="program")

    def move(self, *options):
        return self.run("rampfs-migrate", "--wait", *options, self.mnt("a", "a", "moved"), "b")[0]

    def move_by_third(self):
        return self.run("rampfs-migrate", "--wait", self.mnt("c", "a", "moved"), "b")[0]

    def copy(self):
        return self.run("rampfs-migrate", "--wait", "--trace", "--mode", "copy",
                        self.mnt("a", "a", "moved"), "b")[0]

    def mv(self):
        try:
            os.rename(self.mnt("a", "a", "moved"), self.mnt("a", "b", "moved"))
        except OSError as e:
            return str(e)
        return ""

    def stopped(self):
        with subprocess.Popen(["rampfs-run", sys.executable, "-c", STOPPED, self.mnt("a", "a", "moved")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as p:
            if p.stdout.readline() != "ready\n":
                return p.communicate()[1].strip().splitlines()[-1]
            p.send_signal(signal.SIGSTOP)
            try:
                error = self.move()
            finally:
                p.send_signal(signal.SIGCONT)
            # If the segment has moved, the load is SIGBUS.
            out = p.communicate("\n", timeout=60)[0].strip()
            if out != self.sum if error else p.returncode != -signal.SIGBUS:
                raise Wrong(f"the program that was stopped ended with {p.returncode}: {out!r}; the move: {error!r}")
        return error

    def begin_stores(self):
        """Starts one at b, while the segment is there; one at a, where it is now; one on the segment that stays."""
        self.insist(self.move)
        self.storers = [Storer(self.mnt("b", "b", "moved"), 1)]
        self.insist(self.move_back)
        self.storers += [Storer(self.mnt("a", "a", "moved"), 0, INJECT_PROGRAM="program"),
                         Storer(self.mnt("a", "a", "kept"), 0)]

    @staticmethod
    def insist(move):
        """Repeats the move: a daemon that ended by the call before may not yet have connected to the others."""
        until = time.monotonic() + AGAIN_S
        while (error := move()):
            if time.monotonic() > until:
                raise Wrong(f"rampfs-migrate fails by itself: {error}")
            time.sleep(0.1)

    def move_back(self):
        return self.run("rampfs-migrate", "--wait", self.mnt("b", "b", "moved"), "a")[0]

    def agent(self, *options):
        there, here, beside = self.storers
        error = self.move(*options)
        if not error:
            here.wait("gone")
            there.wait("here")
            error = self.move_back()
        if not os.path.exists(self.mnt("a", "a", "moved")):
            self.insist(self.move_back)
        here.wait("here")
        beside.wait("here")
        there.wait("gone")
        if os.strerror(errno.EBUSY) in error:
            raise Wrong(f"says no cause: {error}")
        return error

    def precopy(self):
        return self.agent("--mode", "precopy")

    def end_stores(self):
        """Checks that every store is there and that no other byte has changed; restores the bytes."""
        try:
            wrote = [(s.slot, os.path.basename(s.path), s.end()) for s in self.storers]
        finally:
            self.kill_storers()
        for name in ("kept", "moved"):
            bytes_now = bytearray(self.bytes)
            for slot, _, stored in (w for w in wrote if w[1] == name):
                for page, number in enumerate(stored):
                    struct.pack_into("<Q", bytes_now, page * mmap.PAGESIZE + slot * 8, number)
            with open(self.mnt("a", "a", name), "r+b") as f:
                if f.read() != bytes_now:
                    raise Wrong(f"{name} does not have the stored bytes")
                f.seek(0)
                f.write(self.bytes)

    def kill_storers(self):
        for s in self.storers:
            s.kill()
        self.storers = []

    def leave(self):
        """Moves the segment; its pages stay where they are until they are touched."""
        error = self.run("rampfs-migrate", "--mode", "demand", self.mnt("a", "a", "moved"), "b")[0]
        if error:
            raise Wrong(f"rampfs-migrate --mode demand fails by itself: {error}")

    def pull(self):
        path = self.mnt("b", "b", "moved")
        try:
            with open(path, "rb", buffering=0) as f:
                got = f.read(100000)
        except OSError as e:
            return str(e)
        if got != self.bytes[:len(got)]:
            raise Wrong("read(2) gives other bytes")
        return self.map(path)

    def kill(self, node):
        """Kills the daemon, which may just have ended by the call that failed before: then its successor."""
        until = time.monotonic() + AGAIN_S
        while (pid := self.daemon(node)) is None:
            if time.monotonic() > until:
                raise Wrong(f"{node} has no daemon")
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    def restart(self):
        self.kill("a")
        return self.look("a")

    def resume(self):
        self.kill("b")
        return self.look("b") or self.pull()

    def resume_serve(self):
        self.kill("a")
        return self.look("a") or self.pull()

    def upgrade(self):
        log = "the daemon stays as it is"
        pid, stays = self.daemon("a"), self.logged("a", log)
        os.kill(self.keepers("a")[0], signal.SIGHUP)
        until = time.monotonic() + AGAIN_S
        while self.daemon("a") in (None, pid):
            if self.logged("a", log) > stays:
                return log
            if time.monotonic() > until:
                raise Wrong("a has no new daemon")
            time.sleep(0.01)
        return self.look("a")

    def umount(self):
        return self.unmount() or ""

    def adopt(self):
        before = self.logged("a", "adopted the daemon")
        os.kill(self.keepers("a")[0], signal.SIGKILL)
        until = time.monotonic() + AGAIN_S
        while self.logged("a", "adopted the daemon") == before:
            if not self.keepers("a") and self.daemon("a") is None:
                return self.mount_node("a") or "keeper and daemon have ended both"
            if time.monotonic() > until:
                raise Wrong("a has no keeper any more")
            time.sleep(0.01)
        # A keeper proves itself when it has to start a daemon.
        self.kill("a")
        self.run("ls", self.mnt("a", "a"))
        return self.look("a")

    def locker(self, node):
        with open(f"{self.top}/state/{node}/lock", encoding="utf-8") as f:
            return int(f.read())

    def logged(self, node, text):
        with open(f"{self.top}/{node}.log", encoding="utf-8", errors="replace") as f:
            return sum(text in line for line in f)

    def look(self, node):
        try:
            os.listdir(self.mnt(node, node))
            with open(f"{self.top}/mnt/{node}/.ramp/status", encoding="utf-8") as f:
                f.read()
        except OSError as e:
            return str(e)
        return ""

    def unmount(self):
        error = self.run("umount", f"{self.top}/mnt/c")[0]
        if error:
            raise Wrong(f"umount fails: {error}")
        begin, told = time.monotonic(), False
        with open(f"{self.top}/state/c/lock", "rb") as lock:
            while True:
                try:
                    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waited = time.monotonic() - begin
                if waited > AGAIN_S:
                    raise Wrong("c does not end")
                if waited > NAMESPACE_S and not told:
                    os.kill(self.locker("c"), signal.SIGTERM)
                    told = True
                time.sleep(0.01)

    def mount_node(self, node):
        return self.run("rampfs", "-o", f"log={self.top}/{node}.log", f"{self.top}/state/{node}",
                        f"{self.top}/mnt/{node}")[0]

    def start(self):
        log = f"{self.top}/c.log"
        begin = os.path.getsize(log)
        error = self.mount_node("c")
        if not error:
            return self.look("c")
        with open(log, encoding="utf-8", errors="replace") as f:
            f.seek(begin)
            said = [line.split("error: ", 1)[-1].strip() for line in f
                    if ("error: " in line or line.startswith("rampfs: "))
                    and error.removeprefix("rampfs: ") not in line]
        if "see its log" in error and not said:
            raise Wrong(f"{error}, which says nothing")
        return " | ".join([error] + said[-1:])

    def start_again(self):
        """Starts c again if it did not start, or if its keeper ended with its daemon afterwards."""
        until = time.monotonic() + AGAIN_S
        while self.look("c"):
            error = self.start()
            if error and time.monotonic() > until:
                raise Wrong(f"c does not start any more: {error}")

    # ---- as before ----

    def renew(self):
        """Makes both segments again, whatever their state."""
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
                    raise Wrong(f"can't be made again: {e}") from None
                time.sleep(0.1)

    def unmade(self):
        try:
            os.unlink(self.mnt("a", "a", "made"))
        except FileNotFoundError:
            pass

    def home(self):
        """Returns "" if both segments are stable, at a, with their bytes; else the condition that does not hold yet."""
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
        for node in NODES:
            # A new keeper that can't write there says so, and continues.
            if self.keepers(node) != [self.locker(node)] and not (
                    len(self.keepers(node)) == 1 and self.logged(node, "names a keeper that has died")):
                return f"{node}'s keeper is {self.keepers(node)}, its lock says {self.locker(node)}"
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
                continue  # the journal's readers are a pool, which grows by use
            found["socket" if to.startswith("socket:") else to] += 1
        return found

    def settle(self):
        until = time.monotonic() + AGAIN_S
        while (why := self.home()):
            if time.monotonic() > until:
                raise Wrong(f"not as before after {AGAIN_S} s: {why}")
            time.sleep(0.02)


Path = collections.namedtuple("Path", "control act before after", defaults=(None, None))
PATHS = {
    "mount": Path("a", Test.mount),
    "attach": Path("a", Test.attach),
    "program": Path("program", Test.program),
    "broker": Path("broker", Test.attach),
    "source": Path("a", Test.move),
    "target": Path("b", Test.move),
    "third": Path("c", Test.move_by_third),
    "copy-source": Path("a", Test.copy),
    "copy-target": Path("b", Test.copy),
    "mv": Path("a", Test.mv),
    "stopped": Path("a", Test.stopped),
    "agent": Path("program", Test.agent, Test.begin_stores, Test.end_stores),
    "agent-source": Path("a", Test.agent, Test.begin_stores, Test.end_stores),
    "agent-target": Path("b", Test.agent, Test.begin_stores, Test.end_stores),
    "precopy-source": Path("a", Test.precopy, Test.begin_stores, Test.end_stores),
    "precopy-target": Path("b", Test.precopy, Test.begin_stores, Test.end_stores),
    "pull": Path("b", Test.pull, before=Test.leave),
    "serve": Path("a", Test.pull, before=Test.leave),
    "restart": Path("a", Test.restart),
    "resume": Path("b", Test.resume, before=Test.leave),
    "resume-serve": Path("a", Test.resume_serve, before=Test.leave),
    "start": Path("c", Test.start, before=Test.unmount, after=Test.start_again),
    "upgrade": Path("a", Test.upgrade),
    "upgrader": Path("keeper-a", Test.upgrade),
    "umount": Path("c", Test.umount, after=Test.start_again),
    "umounter": Path("keeper-c", Test.umount, after=Test.start_again),
    "adopt": Path("a", Test.adopt),
    "adopted": Path("keeper-a", Test.adopt),
    "keeper": Path("keeper-c", Test.start, before=Test.unmount, after=Test.start_again),
}


# Calls at which something was wrong once: a keeper that waited for ever, or said nothing, or took the
# mount away with it, or was there twice; page faults that no thread read any more; a segment that was
# called damaged; a store that was covered by an empty one.
FOUND = [("adopted", "open", "signalfd", 1), ("adopted", "open", "syscall(open)", 1),
         ("adopted", "open", "fcntl", 7), ("keeper", "open", "dup2", 3), ("keeper", "open", "fcntl", 5),
         ("keeper", "open", "socketpair", 1), ("keeper", "open", "posix_spawn", 1),
         ("keeper", "open", "syscall(open)", 1), ("keeper", "send", "recv", 1),
         ("start", "send", "send", 1), ("start", "ioctl", "epoll_ctl@libuv.so.1", 8),
         ("restart", "map", "mmap", 3),
         ("resume", "ioctl", "epoll_ctl@rampfs", 8), ("restart", "file", "statfs", 2), ("restart", "file", "stat@rampfs", 2),
         ("restart", "open", "pthread_create@rampfs", 12),
         ("start", "memory", "calloc@libfuse3.so.3", 3), ("restart", "memory", "calloc@libfuse3.so.3", 3),
         ("start", "memory", "calloc@rampfs", 12), ("keeper", "memory", "calloc@rampfs", 3),
         ("broker", "send", "sendmsg", 1), ("upgrade", "send", "recv", 1), ("pull", "file", "preadv2", 1),
         ("attach", "memory", "malloc@rampfs", 12)]


class Loop:
    def __init__(self, test, one_is_enough):
        self.test = test
        self.one_is_enough = one_is_enough
        self.wrong = 0
        self.took = 0
        self.where = None  # the call that was made to fail last
        self.counts = collections.Counter()
        self.errors = collections.Counter()

    def act(self, name, kind, n, only=""):
        """Takes the path with its call n of that kind failing; returns its error, and how many calls were made."""
        path = PATHS[name]
        control, self.where = self.test.controls[path.control], None
        if path.before:
            path.before(self.test)
        control.arm(kind, n, only)
        begin = time.monotonic()
        try:
            error = path.act(self.test)
        finally:
            self.took = time.monotonic() - begin
            made, self.where = control.disarm()
        if path.after:
            path.after(self.test)
        self.test.settle()
        if self.took > (SLOW_S if name in ("mount", "attach", "program", "broker") else LONG_S):
            raise Wrong(f"took {self.took:.1f} s: {error}")
        return error, made

    def count(self, name):
        """Returns how many calls of each kind the path makes."""
        error, made = self.act(name, 0, 0)
        if error:
            raise Wrong(f"{name} fails by itself: {error}")
        return dict(zip(KINDS, made))

    def once(self, name, kind, n, only=""):
        """Fails call n (of those of one name, or NAME@OBJECT); false: there are fewer calls."""
        node = PATHS[name].control
        before = self.test.daemon(node)
        try:
            error, _ = self.act(name, KINDS.index(kind) + 1, n, only)
        except Wrong as e:
            self.test.kill_storers()
            if self.one_is_enough:
                raise Wrong(f"{name}, {kind} {n}: {self.where}: {e}") from None
            print(f"WRONG: {name} {kind} {n}: {self.where}: {e}", flush=True)
            self.wrong += 1
            if PATHS[name].after:
                self.test.start_again()
            self.test.renew()
            return True
        where = self.where
        if where is None:
            return False
        died = self.test.daemon(node) != before and name not in ("restart", "resume", "resume-serve", "start", "upgrade",
                                                                   "umount")
        result = "ended" if died else "failed" if error else "continued"
        self.counts[name, kind, result] += 1
        if error:
            self.errors[error] += 1
        print(f"{name} {kind} {n}: {where[0]} at {where[1]}+{where[2]:#x}: {self.took:.1f} s, {result} {error}",
              flush=True)
        return True

    def found(self):
        """Fails the calls at which something was wrong once."""
        for name, kind, only, times in FOUND:
            for n in range(times):
                if self.once(name, kind, n, only):
                    continue
                # The number of a library's calls depends on its version.
                if "@lib" in only:
                    print(f"{name}: this version of {only.split('@')[1]} makes no call {n} of {only}")
                    break
                raise Wrong(f"{name} makes no {only} {n} any more: FOUND is out of date")

    def all(self, cases, first, every):
        for name, kind in cases:
            n, missed = first, 0
            while missed < 3:  # other work of the process makes calls, too
                missed = 0 if self.once(name, kind, n) else missed + 1
                n += every

    def sites(self, cases, times):
        """Fails each place in the code that makes such calls, `times` times."""
        for name, kind in cases:
            control = self.test.controls[PATHS[name].control]
            control.sites(times)
            missed = 0
            while missed < 3:
                missed = 0 if self.once(name, kind, 0) else missed + 1
            control.sites(0)

    def slice(self, cases, seed, seconds):
        """Takes paths and kinds in turn, and each one's calls in golden steps: these lie evenly between the first
        and the last call, however few there is time for. The seed shifts all of them."""
        golden, made, rounds = (5 ** 0.5 - 1) / 2, {}, 0
        until = time.monotonic() + seconds
        random.Random(seed).shuffle(cases)
        while True:
            for name, kind in cases:
                if time.monotonic() > until:
                    return
                if name not in made:
                    made[name] = self.count(name)
                if made[name][kind]:
                    self.once(name, kind, int((seed + rounds) * golden % 1 * made[name][kind]))
            rounds += 1

    def report(self):
        for error, times in self.errors.most_common():
            print(f"{times:6} {error}")
        for (name, kind, result), times in sorted(self.counts.items()):
            print(f"{name} {kind}: {times} {result}")
        if self.wrong:
            raise Wrong(f"{self.wrong} of these")


def main():
    parser = argparse.ArgumentParser(
        prog="tests/inject/inject.sh", usage="%(prog)s [OPTION...]", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", help=argparse.SUPPRESS)
    parser.add_argument("control_dir", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true",
                        help="every call, to the last (hours); else as many as there is time for, evenly"
                             " spread, and the first error ends the test")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="with --all: begin at call N")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="with --all: each K-th call")
    parser.add_argument("--sites", type=int, default=0, metavar="N",
                        help="as --all, but only the first N calls of each place in the code")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="without --all: where it begins")
    parser.add_argument("--seconds", type=float, default=60, metavar="T", help="without --all: how long")
    parser.add_argument("--path", action="append", choices=PATHS, help="this path alone (may be repeated)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="this kind alone (may be repeated)")
    o = parser.parse_args()
    test = Test(o.top, o.control_dir)
    subprocess.run(["contrib/local-cluster", "start", "-c", "256M", o.top], check=True)
    test.renew()
    loop = Loop(test, not (o.all or o.sites))
    cases = [(p, k) for p in o.path or PATHS for k in o.kind or KINDS]
    for name in ("mount", "attach", "source"):  # connections that stay are made here
        PATHS[name].act(test)
        test.fds.clear()
        test.settle()
    test.fds.clear()
    if o.sites:
        loop.sites(cases, o.sites)
    elif o.all:
        loop.all(cases, o.first, o.every)
    else:
        loop.found()
        loop.slice(cases, o.seed, o.seconds)
    loop.report()


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"FAILED: {wrong}")
