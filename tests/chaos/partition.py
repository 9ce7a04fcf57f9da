"""partition.py DIR NET SEED ROUNDS: nodes lose each other, both ways or one way.

NET: the prefix of the namespaces that net.sh has made.
"""
import random
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
    """A node's packets to another node go to a machine that is not there; answers still come."""

    def __init__(self, node, to):
        self.node, self.to = node, to

    def begin(self):
        ip(self.node, "neigh", "replace", address(self.to), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")

    def heal(self):
        ip(self.node, "neigh", "del", address(self.to), "dev", "eth0")

    def __str__(self):
        return f"every packet from {self.node} to {self.to} is lost"


def silent_source(fault):
    """A page fault waits as long as its source is silent; a read(2) says EHOSTDOWN."""
    t = chaos.Toucher(cluster, "a", "b")
    t.touch(5, f"before {fault}")
    fault.begin()
    t.begin(9000)
    got = t.read(12000)
    if got != "EHOSTDOWN":
        raise chaos.Wrong(f"a read of a remote page while {fault}: {got!r}")
    if t.read(5) != t.right(5):
        raise chaos.Wrong(f"a read of a page that is here, while {fault}: {t.read(5)!r}")
    if not t.waits():
        raise chaos.Wrong(f"a load from a remote page did not wait while {fault}")
    fault.heal()
    t.expect(9000, f"after {fault}")
    t.end(f"after {fault}")
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
