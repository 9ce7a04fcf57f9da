"""restarts.py DIR SEED RESTARTS ROUNDS: keeper and daemon are killed at once, rampfs is started again.

The mount is gone until the start: new calls on it fail with ENOTCONN, calls under way with
ECONNABORTED. Segments, mappings and moves continue.
"""
import errno
import fcntl
import random
import subprocess
import sys
import time

import chaos

cluster = chaos.Cluster(sys.argv[1])
seed, restarts, rounds = map(int, sys.argv[2:5])


def runs(node):
    """Whether any process of the node has its lock."""
    with open(f"{cluster.top}/state/{node}/lock", "rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def kill_both(node):
    """Kills both. Each starts the other again, so it may take several tries."""
    deadline = time.monotonic() + 20
    while True:
        cluster.kill(node, keeper=True)
        if not runs(node):
            return
        if time.monotonic() > deadline:
            raise chaos.Wrong(f"{node} has processes still: {cluster.pids(node, keeper=True)}")
        time.sleep(0.005)


def start(node):
    done = subprocess.run(["rampfs", "-o", f"log={cluster.top}/{node}.log", f"{cluster.top}/state/{node}", cluster.mnt(node)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise chaos.Wrong(f"rampfs does not start again on {node}: {done.stderr.strip()}")


def while_it_is_pulled(which):
    """The source or the target is killed and started again, while a program has remote pages mapped."""
    t = chaos.Toucher(cluster, "a", "b")
    node = {"source": "a", "target": "b"}[which]
    t.touch(5, "at first")
    kill_both(node)
    t.touch(5, f"without a {which}")
    t.begin(9000)
    time.sleep(0.5)
    if not t.waits():
        raise chaos.Wrong(f"a load from a remote page did not wait without a {which}")
    start(node)
    t.expect(9000, f"when the {which} was back")
    t.touch(12000, f"after the {which} was back")
    t.end(f"after the {which} was back")
    chaos.say(f"the {which} of a pull, started again: its program continued, all bytes are right")


def test(make_load):
    rand = random.Random(seed)
    while_it_is_pulled("target")
    while_it_is_pulled("source")
    load = make_load(cluster, seed, also=(errno.ENOTCONN, errno.ECONNABORTED))
    for r in range(rounds):
        for _ in range(restarts // rounds):
            time.sleep(rand.random() * 0.5)
            moves = list(load.moving.values())
            node = rand.choice(rand.choice(moves)) if moves else rand.choice(cluster.nodes)
            kill_both(node)
            time.sleep(rand.choice([0, 0, 0.3, 1.2]))
            start(node)
            load.counts["starts"] += 1
            load.check()
        load.settle(f"round {r + 1}")
    load.end()


chaos.run(test)
