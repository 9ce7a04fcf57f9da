"""Shared by the tests of this folder: a cluster under load, and the conditions that it must meet.

Load: unmapped segments, with a model of their bytes (one thread each reads, compares and
overwrites); one segment mapped by live programs on every node (the program `live`); and one mover
for each segment, which sends it from node to node with rename(2) and rampfs-migrate. A test injects its
faults meanwhile and then calls settle(): the movers rest, and within a bounded time every segment
must be stable at one node, the same on all nodes, with the model's bytes, in that node's store alone.

Wrong at any time: a read that shows other bytes than the model's, an error that the specification
does not name, SIGBUS of lost pages.
"""
import collections
import errno
import os
import random
import select
import subprocess
import sys
import threading
import time
import traceback

PAGE = 4096
SETTLE_S = 60
HINT_S = 3  # other nodes see a size a second late, and up to this much later on a busy machine
# Errors of rename(2) and rampfs-migrate that contrib/doc/design.md, "What a user sees", names. ENOENT: the segment moved by
# itself after EINPROGRESS.
MOVE_ERRORS = {errno.EBUSY, errno.EHOSTUNREACH, errno.EINPROGRESS, errno.EROFS, errno.ETIMEDOUT,
               errno.ENOENT, errno.EINTR}
# of rampfs-migrate
MODES = [[], ["--wait"], ["--mode", "demand"], ["--mode", "copy"], ["--mode", "precopy"], ["--mode", "auto"]]
# Errors of read(2) and write(2): the segment is elsewhere, or its source is silent.
IO_ERRORS = {errno.ENOENT, errno.EREMOTE, errno.EHOSTDOWN}
started = time.monotonic()
children = []  # programs that must not stay when a test fails


class Wrong(Exception):
    """Raised for a behaviour that the specification forbids."""


def say(text):
    print(f"{time.monotonic() - started:7.2f} {text}", flush=True)


def processes(words):
    """The processes whose command line ends with these words (and maybe begins with others)."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if line[-len(words):] == words and os.path.basename(line[0]) == "rampfs":
            found.append((int(pid), "--daemon" in line))
    return found


def read_file(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError as e:
        return str(e)


def is_quorum(text):
    return "quorum: yes" in text


class Cluster:
    """A cluster that contrib/local-cluster has made, or one with the same layout."""

    def __init__(self, top):
        self.top = top
        self.nodes = sorted(os.listdir(f"{top}/state"))

    def mnt(self, node):
        return f"{self.top}/mnt/{node}"

    def text(self, node, name="status"):
        with open(f"{self.mnt(node)}/.ramp/{name}") as f:
            return f.read()

    def pids(self, node, daemon=True, keeper=False):
        words = [f"{self.top}/state/{node}", self.mnt(node)]
        return [pid for pid, is_daemon in processes(words) if (daemon if is_daemon else keeper)]

    def kill(self, node, **which):
        n = 0
        for pid in self.pids(node, **which):
            try:
                os.kill(pid, 9)
                n += 1
            except ProcessLookupError:
                pass
        return n

    def leader(self, default):
        """The leader in the view of the first node that knows one; a fault may hit any node."""
        for node in self.nodes:
            for line in self.text(node).splitlines():
                if line.startswith("leader: ") and line[8:] in self.nodes:
                    return line[8:]
        return default

    def xattr(self, seen_by, node, name, key):
        return os.getxattr(f"{self.mnt(seen_by)}/{node}/{name}", "user.ramp." + key).decode()

    def place(self, name, seen_by):
        for node in self.nodes:
            if os.path.lexists(f"{self.mnt(seen_by)}/{node}/{name}"):
                return node
        return None


TOUCH = """
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
print("mapped", flush=True)
for line in sys.stdin:
    page = int(line)
    print(page, m[page * 4096:page * 4096 + 16].hex(), flush=True)
"""


class Toucher:
    """A segment of random bytes that has moved to another node in demand mode, and a program there
    that has mapped it and loads from it on request."""

    def __init__(self, cluster, source, target, mib=64):
        self.name = f"touched{time.monotonic_ns()}"
        self.data = random.Random(mib).randbytes(mib << 20)
        with open(f"{cluster.mnt(source)}/{source}/{self.name}", "xb") as f:
            f.write(self.data)
        subprocess.run(["rampfs-migrate", "--mode", "demand",
                        f"{cluster.mnt(source)}/{source}/{self.name}", target], check=True)
        self.path = f"{cluster.mnt(target)}/{target}/{self.name}"
        self.program = subprocess.Popen(["rampfs-run", sys.executable, "-c", TOUCH, self.path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(self.program)
        if self.program.stdout.readline() != "mapped\n":
            raise Wrong(f"{self.name} was not mapped")

    def begin(self, page):
        self.program.stdin.write(f"{page}\n")
        self.program.stdin.flush()

    def expect(self, page, when):
        if not select.select([self.program.stdout], [], [], SETTLE_S)[0]:
            raise Wrong(f"a page fault on page {page} {when} does not end")
        got = self.program.stdout.readline()
        if got != f"{page} {self.right(page).hex()}\n":
            raise Wrong(f"page {page} {when}: {got!r}, exit status {self.program.poll()}")

    def touch(self, page, when):
        self.begin(page)
        self.expect(page, when)

    def waits(self):
        """True while the load that was begun has not ended, nor the program."""
        return not select.select([self.program.stdout], [], [], 0)[0] and self.program.poll() is None

    def right(self, page):
        return self.data[page * PAGE:page * PAGE + 16]

    def read(self, page):
        """16 bytes of a page by read(2), or the name of the errno."""
        fd = -1
        try:
            fd = os.open(self.path, os.O_RDONLY)
            return os.pread(fd, 16, page * PAGE)
        except OSError as e:
            return errno.errorcode[e.errno]
        finally:
            if fd >= 0:
                os.close(fd)

    def end(self, when):
        """Compares all bytes by read(2), within the time to settle; then removes the segment."""
        deadline = time.monotonic() + SETTLE_S
        for page in range(0, len(self.data) // PAGE, 512):
            while self.read(page) != self.right(page):
                if time.monotonic() > deadline:
                    raise Wrong(f"a read of page {page} {when}: {self.read(page)!r}")
                time.sleep(0.02)
        self.program.stdin.close()
        if self.program.wait():
            raise Wrong(f"the program {when} ended with {self.program.returncode}")
        with open(self.path, "rb") as f:
            if f.read() != self.data:
                raise Wrong(f"the bytes {when}")
        os.unlink(self.path)


class Load:
    def __init__(self, cluster, seed, files=5, live_mib=8, also=()):
        """also: further errors that these faults bring, in any call on a mount."""
        self.cluster = cluster
        self.move_errors = MOVE_ERRORS | set(also)
        self.io_errors = IO_ERRORS | set(also)
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.failures = []
        self.ending = threading.Event()
        self.rest = threading.Event()
        self.moving = {}
        self.files = [File(self, f"s{i}", 1 + i * 4 * 256, seed + i) for i in range(files)]
        self.names = [f.name for f in self.files]
        self.live = Live(self, live_mib) if live_mib else None
        if self.live:
            self.names.append(self.live.name)
        self.threads = [threading.Thread(target=self.guard, args=(f.work,)) for f in self.files]
        for i, name in enumerate(self.names):
            self.threads.append(threading.Thread(target=self.guard, args=(self.mover, name, seed + 100 + i)))
        for t in self.threads:
            t.daemon = True
            t.start()

    def guard(self, work, *args):
        try:
            work(*args)
        except Exception as e:  # the test must say any exception and fail
            self.failures.append(f"{type(e).__name__}: {e}")
            say(f"WRONG {self.failures[-1]}")

    def check(self):
        if self.live and self.live.process.poll() is not None:
            self.failures.append(f"live ended: {self.live.said()}")
        if self.failures:
            raise Wrong("; ".join(self.failures))

    def mover(self, name, seed):
        rand = random.Random(seed)
        nodes = self.cluster.nodes
        while not self.ending.is_set():
            if self.rest.is_set():
                self.moving.pop(name, None)
                time.sleep(0.02)
                continue
            via, to = rand.choice(nodes), rand.choice(nodes)
            at = self.cluster.place(name, via)
            if at is None or at == to:
                time.sleep(0.002)
                continue
            self.moving[name] = (at, to)
            before = time.monotonic()
            if rand.random() < 0.75:
                self.move_by_rename(name, via, at, to)
            else:
                self.move_by_tool(name, via, at, to, rand.choice(MODES))
            took = time.monotonic() - before
            self.counts["longest move, s"] = max(self.counts["longest move, s"], round(took, 1))
            time.sleep(rand.random() * 0.05)
        self.moving.pop(name, None)

    def move_by_rename(self, name, via, at, to):
        root = self.cluster.mnt(via)
        try:
            os.rename(f"{root}/{at}/{name}", f"{root}/{to}/{name}")
            self.counts["moved by rename"] += 1
        except OSError as e:
            self.counts[f"rename {errno.errorcode[e.errno]}"] += 1
            if e.errno not in self.move_errors:
                raise Wrong(f"rename of {name} from {at} to {to} through {via}: {e}") from e

    def move_by_tool(self, name, via, at, to, options):
        done = subprocess.run(["rampfs-migrate", *options, f"{self.cluster.mnt(via)}/{at}/{name}", to],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            self.counts["moved by rampfs-migrate"] += 1
            return
        text = done.stderr.strip()
        self.counts["rampfs-migrate: " + text.split(": ", 2)[-1]] += 1
        if done.returncode != 1 or not text:
            raise Wrong(f"rampfs-migrate of {name} from {at} to {to}: status {done.returncode}, {text}")

    # ---- at rest ----

    def await_true(self, what, deadline):
        """Waits until what() returns None; until then it returns a text that says what is not right yet."""
        while True:
            self.check()
            try:
                why = what()
            except OSError as e:
                why = str(e)
            if not why:
                return
            if time.monotonic() > deadline:
                raise Wrong(f"not settled {SETTLE_S} s after the last fault: {why}"
                            + (self.live.waiting() if self.live else ""))
            time.sleep(0.05)

    def settle(self, title):
        """Lets the movers rest; every condition must come true within SETTLE_S."""
        self.rest.set()
        since = time.monotonic()
        deadline = since + SETTLE_S
        self.await_true(lambda: f"the movers have not come back: {self.moving}" if self.moving else None, deadline)
        if self.live:
            self.live.compare_all(deadline)  # touches every page, which a demand pull waits for
        self.await_true(self.unsettled, deadline)
        took = time.monotonic() - since
        for f in self.files:
            f.compare_all()
        if self.live:
            self.live.compare_all(time.monotonic() + SETTLE_S)
            say("live " + self.live.lines[-1])
        self.check()
        say(f"{title}: settled after {took:.1f} s; "
            + " ".join(f"{n}@{self.cluster.place(n, self.cluster.nodes[0])}" for n in self.names))
        self.rest.clear()

    def unsettled(self):
        """Returns a text about the first condition that does not hold at rest, or None."""
        c = self.cluster
        for node in c.nodes:
            text = c.text(node)
            if not is_quorum(text):
                return f"{node} has no quorum"
            if "\nmigrations: 0\n" not in text + "\n":
                return f"{node} shows migrations: {text[text.index('migrations:'):]!r}"
        for name in self.names:
            places = {n: [d for d in c.nodes if os.path.lexists(f"{c.mnt(n)}/{d}/{name}")] for n in c.nodes}
            at = places[c.nodes[0]]
            if len(at) != 1 or any(p != at for p in places.values()):
                return f"{name} is seen at {places}"
            at = at[0]
            for n in c.nodes:
                state, owner = c.xattr(n, at, name, "state"), c.xattr(n, at, name, "owner")
                if (state, owner) != ("stable", at):
                    return f"{n} says of {name}: {state}, owner {owner}"
            if c.xattr(at, at, name, "lost") != "none":
                raise Wrong(f"{name} lost pages: {c.xattr(at, at, name, 'lost')}")
            number = c.xattr(at, at, name, "id")
            held = [n for n in c.nodes if os.path.exists(f"{c.top}/state/{n}/store/{number}")]
            if held != [at]:
                return f"{name} ({number}) is {at}'s, and lies in the stores of {held}"
        return None

    def end(self):
        self.ending.set()
        for t in self.threads:
            t.join(30)
        if self.live:
            self.live.end()
            self.live = None
        self.check()
        for key, n in sorted(self.counts.items()):
            say(f"  {n:8} {key}")


    def drop(self):
        """After a failure: ends all threads that would keep the mounts busy."""
        self.ending.set()
        for t in self.threads:
            t.join(2)


class File:
    """A segment that no program maps, and the bytes that it must have."""

    def __init__(self, load, name, pages, seed):
        self.load, self.name, self.pages = load, name, pages
        self.random = random.Random(seed)
        self.model = [self.random.randbytes(PAGE) for _ in range(pages)]
        self.maybe = {}  # page: the bytes that an unconfirmed write may have left
        self.whole = threading.Event()  # set once every page was compared since it was cleared
        self.whole.set()
        node = self.load.cluster.nodes[seed % len(self.load.cluster.nodes)]
        with open(f"{load.cluster.mnt(node)}/{node}/{name}", "xb", buffering=0) as f:
            data = b"".join(self.model)
            while data:
                data = data[f.write(data):]

    def compare(self, first, data, where):
        n = len(data) // PAGE
        data = data[:n * PAGE]
        if data == b"".join(self.model[first:first + n]):
            for page in range(first, first + n):
                self.maybe.pop(page, None)
            return
        for page in range(first, first + n):
            got = data[(page - first) * PAGE:(page - first + 1) * PAGE]
            other = self.maybe.pop(page, None)
            if got == self.model[page]:
                continue
            if other != got:
                what = "zeros" if not any(got) else "other bytes"
                raise Wrong(f"{self.name} page {page} read on {where}: {what}")
            self.model[page] = got

    def step(self, node):
        count = self.load.counts
        fd = -1
        try:
            fd = os.open(f"{self.load.cluster.mnt(node)}/{node}/{self.name}", os.O_RDWR)
            if self.load.rest.is_set() or not self.whole.is_set():  # demand pulls the missing pages
                self.compare_whole(fd, node)
            for _ in range(8):
                n = min(self.pages, self.random.choice([1, 1, 16, 256]))
                first = self.random.randrange(self.pages - n + 1)
                data = os.pread(fd, n * PAGE, first * PAGE)
                if len(data) < n * PAGE:  # the segment left between the requests of one read
                    if not data:
                        raise Wrong(f"{self.name}: nothing to read at page {first} on {node}")
                    count["reads cut short"] += 1
                self.compare(first, data, node)
                count["pages read"] += len(data) // PAGE
                self.write(fd, self.random.randrange(self.pages), node)
        except OSError as e:
            count[f"read, write, open {errno.errorcode[e.errno]}"] += 1
            if e.errno not in self.load.io_errors:
                raise Wrong(f"{self.name} on {node}: {e}") from e
        finally:
            if fd >= 0:
                os.close(fd)

    def compare_whole(self, fd, node):
        for first in range(0, self.pages, 256):
            n = min(256, self.pages - first)
            data = os.pread(fd, n * PAGE, first * PAGE)
            self.compare(first, data, node)
            if len(data) != n * PAGE:
                return
        self.whole.set()

    def write(self, fd, page, node):
        if page in self.maybe:
            self.compare(page, os.pread(fd, PAGE, page * PAGE), node)
        new = self.random.randbytes(PAGE)
        self.maybe[page] = new
        if os.pwrite(fd, new, page * PAGE) != PAGE:
            raise Wrong(f"{self.name}: a short write on {node}")
        self.model[page] = new
        del self.maybe[page]
        self.load.counts["pages written"] += 1

    def work(self):
        while not self.load.ending.is_set():
            for node in self.load.cluster.nodes:
                self.step(node)
            time.sleep(0.02)

    def sizes(self):
        cluster = self.load.cluster
        return {os.stat(f"{cluster.mnt(n)}/{cluster.place(self.name, n)}/{self.name}").st_size for n in cluster.nodes}

    def compare_all(self):
        """Asks the worker, which alone knows the model, to compare."""
        end = time.monotonic() + HINT_S
        while (sizes := self.sizes()) != {self.pages * PAGE}:
            if time.monotonic() > end:
                raise Wrong(f"{self.name}: sizes {sizes}")
            time.sleep(0.05)
        self.whole.clear()
        if not self.whole.wait(SETTLE_S):
            raise Wrong(f"{self.name} could not be read as a whole within {SETTLE_S} s")


class Live:
    """The segment that programs on all nodes have mapped."""

    name = "live"

    def __init__(self, load, mib):
        c = load.cluster
        first = c.nodes[0]
        with open(f"{c.mnt(first)}/{first}/{self.name}", "xb") as f:
            f.truncate(mib << 20)
        build = os.environ["RAMPFS_BUILD"]
        self.stderr = open(f"{os.path.dirname(c.top)}/live.err", "w+")
        self.process = subprocess.Popen(
            ["rampfs-run", f"{build}/tests/chaos_live", self.name, *[f"{c.mnt(n)}/{n}" for n in c.nodes]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        children.append(self.process)
        self.lines = []
        threading.Thread(target=self.listen, daemon=True).start()
        self.asked = 0
        while "filled" not in self.lines and self.process.poll() is None:
            time.sleep(0.01)

    def listen(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def said(self):
        self.stderr.seek(0)
        return " | ".join(self.lines[-5:]) + " | " + self.stderr.read()[-500:]

    def waiting(self):
        """Where the threads of the processes wait; process 0, 1, ... maps the segment at the first, second, ... node."""
        text = ""
        for n, pid in enumerate(filter(None, read_file(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split(" "))):
            for tid in os.listdir(f"/proc/{pid}/task"):
                where = read_file(f"/proc/{pid}/task/{tid}/wchan")
                text += f"\n  process {n} ({pid}) thread {tid}: {where}"
        return text

    def compare_all(self, deadline):
        self.asked += 1
        self.process.stdin.write("check\n")
        self.process.stdin.flush()
        while sum(line.startswith("checked") for line in self.lines) < self.asked:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"live: no whole check {SETTLE_S} s after the last fault: {self.said()}{self.waiting()}")
            time.sleep(0.02)

    def end(self):
        self.process.stdin.close()
        if self.process.wait(60) != 0:
            raise Wrong(f"live ended with status {self.process.returncode}: {self.said()}")


def run(test):
    """The main of a test, which gets a function that makes its load. Exits with 0, or with 1 after a message."""
    load = []

    def make(*args, **options):
        load.append(Load(*args, **options))
        return load[0]

    try:
        test(make)
    except Exception as e:  # no process stays after any exception
        say(f"FAILED: {e}")
        if not isinstance(e, Wrong):
            traceback.print_exc()
        if os.environ.get("HOLD"):
            input("Everything stays as it is until a line comes: ")
        for child in children:
            child.kill()
        for made in load:
            made.drop()
        os._exit(1)
    sys.exit(0)
