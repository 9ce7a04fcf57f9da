"""kills.py DIR SEED KILLS ROUNDS: daemons of sources, targets and the leader are killed -9."""
import random
import sys
import time

import chaos

cluster = chaos.Cluster(sys.argv[1])
seed, kills, rounds = map(int, sys.argv[2:5])


def victim(load, rand):
    """A node that takes part in a move just now, and its part in it."""
    part = rand.choice(["source", "target", "leader", "any"])
    moves = list(load.moving.values())
    if part in ("source", "target") and moves:
        return part, rand.choice(moves)[part == "target"]
    if part == "leader":
        return part, cluster.leader(rand.choice(cluster.nodes))
    return "any", rand.choice(cluster.nodes)


def test(make_load):
    rand = random.Random(seed)
    load = make_load(cluster, seed)
    done = 0
    for r in range(rounds):
        while done < kills * (r + 1) // rounds:
            time.sleep(rand.random() * 0.5)
            part, node = victim(load, rand)
            hits = cluster.kill(node)
            done += hits
            load.counts[f"killed: {part}"] += hits
            load.check()
        load.settle(f"round {r + 1}, {done} kills")
    load.end()


chaos.run(test)
