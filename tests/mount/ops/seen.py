#!/usr/bin/env python3
# What one node's mount has committed the others see at once: creates, renames, moves, listings.
#   seen.py DIR, with the mounts DIR/a, DIR/b, DIR/c of three nodes
import os, sys, time

MNT = sys.argv[1]
# A node that has asked and got no answer answers from its own tables, but not before this.
PATIENCE_S = 0.1
LATE = []


def at(mount, node, name):
    return f"{MNT}/{mount}/{node}/{name}"


def found(what, fn, *args):
    """Calls fn, which must find its file, unless the leader was silent for PATIENCE_S."""
    begun = time.monotonic()
    while True:
        try:
            return fn(*args)
        except FileNotFoundError:
            took = time.monotonic() - begun
            assert took >= PATIENCE_S, f"{what}: ENOENT after {took * 1e3:.1f} ms"
            LATE.append(what)
            assert len(LATE) <= 10, f"the leader is silent again and again: {LATE}"
            begun = time.monotonic()


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def created(times):
    """Made on its owner a, looked for on b or c."""
    for i in range(times):
        make(at("a", "a", f"made{i}"))
        found(f"create {i}", os.stat, at("bc"[i % 2], "a", f"made{i}"))
    for i in range(times):
        os.unlink(at("a", "a", f"made{i}"))


def renamed_and_gone(times):
    """Made on one node, renamed on a second one, unlinked on a third one."""
    for i in range(times):
        first, second, third = ("abc"[(i + n) % 3] for n in range(3))
        make(at(first, first, "old"))
        found(f"rename {i}", os.rename, at(second, first, "old"), at(second, first, "new"))
        found(f"unlink {i}", os.unlink, at(third, first, "new"))
        # The names may stand in old tables still: unlink on the node where the next one is made.
        while os.path.exists(at(first, first, "new")) or os.path.exists(at(first, first, "old")):
            time.sleep(0.001)


def renamed_elsewhere(times):
    """A node finds in its own directory what another one has renamed there."""
    for i in range(times):
        home, asker = ("abc"[(i + n) % 3] for n in range(2))
        make(at(home, home, f"here{i}"))
        found(f"rename of {i}", os.rename, at(asker, home, f"here{i}"), at(asker, home, f"there{i}"))
        found(f"home of {i}", os.stat, at(home, home, f"there{i}"))
        assert not os.path.exists(at(home, home, f"here{i}")), f"{i} is at home under its old name"
        os.unlink(at(home, home, f"there{i}"))


def listed(times):
    for i in range(times):
        make(at("a", "a", f"entry{i}"))
        found(f"entry {i}", in_listing, at("bc"[i % 2], "a", ""), f"entry{i}")
    for i in range(times):
        os.unlink(at("a", "a", f"entry{i}"))


def in_listing(directory, name):
    if name not in os.listdir(directory):
        raise FileNotFoundError(name)


def moved(times):
    """Moved from a to b: found on b, on the node that asked for it, and on the third one."""
    for i in range(times):
        make(at("a", "a", f"goes{i}"))
        asker, third = ("a", "c") if i % 2 else ("c", "a")
        found(f"move {i}", os.rename, at(asker, "a", f"goes{i}"), at(asker, "b", f"goes{i}"))
        assert not os.path.exists(at(asker, "a", f"goes{i}")), f"{i} is in its old place on the node that asked"
        for mount in ("b", asker, third):
            found(f"moved {i} on {mount}", os.stat, at(mount, "b", f"goes{i}"))
        os.unlink(at("b", "b", f"goes{i}"))


created(300)
renamed_and_gone(400)
renamed_elsewhere(200)
listed(100)
moved(60)
print(f"seen: all; the leader was silent {len(LATE)} times {LATE}")
