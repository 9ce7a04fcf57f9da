"""A numpy index moves to another node, where a receiver searches in it at once.

    python3 index.py NODE               makes it here, and moves it there
    python3 index.py --receive          on that node, before

RAMPFS_MOUNT names the mount where there are several.
"""
import sys

import numpy
import rampfs

SHAPE = (20000, 64)
with rampfs.open() as ramp:
    if sys.argv[1:] == ["--receive"]:
        with ramp.events("index", receive=True) as watch:
            print(f"node {ramp.node} waits", flush=True)
            with watch.receive() as index:
                vectors = index.array("float32", SHAPE)
                nearest = int(numpy.argmin(((vectors - vectors[4711]) ** 2).sum(axis=1)))
                print(f"nearest to vector 4711 on node {ramp.node}: {nearest}")
                del vectors
        ramp.free("index")
    else:
        with ramp.alloc("index", SHAPE[0] * SHAPE[1] * 4) as index:
            index.array("float32", SHAPE)[:] = numpy.random.default_rng(1).random(SHAPE, "float32")
            index.migrate(sys.argv[1])
