"""partition.py DIR NET SEED ROUNDS: nodes lose each other, both ways or one way.

NET: the prefix of the namespaces that net.sh has made.
"""
import errno
import os
import random
import select
import subprocess
import sys
import time

import chaos

cluster = chaos.Cluster(sys.argv[1])
net = sys.argv[2]
seed, rounds = map(int, sys.argv[3:5])


def ip(where, *words):
    subprocess.run(["nsenter", f"--net=/run/netns/{net}-{where}", "ip", *words], check=True)


def address(node):
    return f"10.111.0.{ord(node) - ord('a') + 1}"


class Cut:
    """A node's cable is out."""

    def __init__(self, node):
        self.node = node

    def begin(self):
        ip("hub", "link", "set", f"to-{self.node}", "down")

    def heal(self):
        ip("hub", "link", "set", f"to-{self.node}", "up")

    def __str__(self):
        return f"{self.node} is cut off"


class Lost:
    """What one node sends to another goes to a machine that is not there; answers still come."""

    def __init__(self, node, to):
        self.node, self.to = node, to

    def begin(self):
        ip(self.node, "neigh", "replace", address(self.to), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")

    def heal(self):
        ip(self.node, "neigh", "del", address(self.to), "dev", "eth0")

    def __str__(self):
        return f"what {self.node} sends to {self.to} is lost"


PULLED_MIB = 64
TOUCH = """
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
print("mapped", flush=True)
for line in sys.stdin:
    page = int(line)
    print(page, m[page * 4096:page * 4096 + 16].hex(), flush=True)
"""


def read_page(path, page):
    """The bytes of a page by read(2), or the name of the errno."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, 16, page * chaos.PAGE)
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        os.close(fd)


def silent_source(fault):
    """A page fault waits as long as its source is silent, a read(2) says EHOSTDOWN."""
    name = f"pulled{time.monotonic_ns()}"
    data = random.Random(seed).randbytes(PULLED_MIB << 20)
    with open(f"{cluster.mnt('a')}/a/{name}", "wb") as f:
        f.write(data)
    right = lambda page: data[page * chaos.PAGE:page * chaos.PAGE + 16]  # noqa: E731
    subprocess.run(["rampfs-migrate", "--mode", "demand", f"{cluster.mnt('a')}/a/{name}", "b"], check=True)
    path = f"{cluster.mnt('b')}/b/{name}"
    program = subprocess.Popen(["rampfs-run", sys.executable, "-c", TOUCH, path],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    chaos.children.append(program)
    answers = []

    def touch(page):
        program.stdin.write(f"{page}\n")
        program.stdin.flush()

    def answer():
        answers.append(program.stdout.readline().split())
        return answers[-1]

    answer()
    touch(5)
    if answer() != ["5", right(5).hex()]:
        raise chaos.Wrong(f"page 5 before {fault}: {answers}")
    fault.begin()
    touch(9000)
    got = read_page(path, 12000)
    if got != "EHOSTDOWN":
        raise chaos.Wrong(f"a read of a remote page while {fault}: {got!r}")
    if read_page(path, 5) != right(5):
        raise chaos.Wrong(f"a page that is here, while {fault}")
    with open(f"/proc/{program.pid}/stat") as f:
        if f.read().split()[2] in "ZX":
            raise chaos.Wrong(f"the program that touches a remote page ended while {fault}")
    if select.select([program.stdout], [], [], 0)[0]:
        raise chaos.Wrong(f"a remote page was had while {fault}: {answer()}")
    fault.heal()
    if answer() != ["9000", right(9000).hex()]:
        raise chaos.Wrong(f"page 9000 after {fault}: {answers[-1]}")
    deadline = time.monotonic() + chaos.SETTLE_S
    while read_page(path, 12000) != right(12000):
        if time.monotonic() > deadline:
            raise chaos.Wrong(f"page 12000 after {fault}: {read_page(path, 12000)}")
    program.stdin.close()
    program.wait()
    with open(path, "rb") as f:
        if f.read() != data:
            raise chaos.Wrong(f"the bytes after {fault}")
    os.unlink(path)
    chaos.say(f"{fault}: the page fault waited, the read was EHOSTDOWN, all came after healing")


def test(make_load):
    rand = random.Random(seed)
    silent_source(Cut("a"))
    silent_source(Lost("a", "b"))
    load = make_load(cluster, seed)
    for r in range(rounds):
        told = []
        for _ in range(3):
            time.sleep(rand.random() * 0.3)
            node, to = rand.sample(cluster.nodes, 2)
            fault = rand.choice([Cut(node), Lost(node, to)])
            fault.begin()
            told.append(str(fault))
            time.sleep(rand.choice([0.05, 0.3, 1, 2.5]))
            fault.heal()
            load.check()
        load.settle(f"round {r + 1}: " + ", ".join(told))
    load.end()


chaos.run(test)
