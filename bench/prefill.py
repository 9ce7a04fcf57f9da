"""A standing prefill, measured: bench/run prefill.

A program works at a pace in a segment that is kept near another node: how much it slows down, what goes over the link for that, and
what a mv that comes then costs, beside mv of a segment that is not kept near, in mode auto and lazily, in the same run.
"""
import errno
import os
import re
import statistics
import time

import slope

PACES = (0, 1, 50)  # % of the pages that the program stores into in a second
BEFORE_S, STANDING_S, AFTER_S = 0.8, 2.0, 0.4
WAYS = ("prefill", "auto", "lazy")
LIMIT_S = 30


def attribute(path, name):
    return os.getxattr(path, "user.ramp." + name).decode()


def until(holds, what):
    """Looks until it holds."""
    for _ in range(LIMIT_S * 200):
        if holds():
            return
        time.sleep(0.005)
    raise SystemExit("%s did not come true within %d s" % (what, LIMIT_S))


def is_settled(path):
    try:
        return attribute(path, "state") == "stable"
    except OSError as e:
        if e.errno not in (errno.ENOENT, errno.ENODATA, errno.EREMOTE):
            raise
        return False


def keep_near(path):
    """Returns when all of it was at b once. In a new cluster the rules have to rise first."""
    for _ in range(LIMIT_S * 10):
        try:
            os.setxattr(path, "user.ramp.prefill", b"b")
            break
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EAGAIN):
                raise
            time.sleep(0.1)
    until(lambda: attribute(path, "prefill_state").startswith("state=keeping"), "the prefill")


class Once:
    """One program, and one mv from under it. Times are CLOCK_MONOTONIC, in s."""

    def __init__(self, p, c, mib, pace, way):
        there, here = slope.place(p, c, mib, "small"), c.path("a", "f")
        with p.ahead("paced", there, pace, "await") as target:
            slope.fetch(p, c, mib, "small")
            with p.ahead("paced", here, pace) as source:
                began = time.monotonic()
                time.sleep(BEFORE_S)
                before = time.monotonic()
                self.standing(c, here, way)
                self.move(c, here, there, way)
                time.sleep(AFTER_S)
                s = source.end()["store", 0]
            t = target.end()["store", 0]
        self.before = s.between(began + BEFORE_S * 0.2, before)
        self.during = s.between(self.begin, self.end)
        self.gap_ms = (t.first - s.last) * 1e3
        c.unlink(there)

    def standing(self, c, path, way):
        """It is kept near for a while."""
        self.begin = time.monotonic()
        if way == "prefill":
            keep_near(path)
            self.fill_ms = (time.monotonic() - self.begin) * 1e3
            self.begin, served = time.monotonic(), c.metric("a", "rampfs_served_bytes_total")
            time.sleep(STANDING_S)
            served = c.metric("a", "rampfs_served_bytes_total") - served
            self.link_mb_s = served / 1e6 / (time.monotonic() - self.begin)
        self.end = time.monotonic()

    def move(self, c, here, there, way):
        if way != "prefill":
            os.setxattr(here, "user.ramp.mode", way.encode())
        begin = time.monotonic()
        os.rename(here, c.path("b", "f", mount="a"))
        self.mv_ms = (time.monotonic() - begin) * 1e3
        until(lambda: is_settled(there), "the end of a move")
        self.whole_ms = (time.monotonic() - begin) * 1e3
        last = dict(re.findall(r"(\w+)=(\d+)", attribute(there, "last_move")))
        self.left = int(last["demand_pages"]) + int(last["prefetch_pages"])


def measure_link(p, c, mib):
    """A daemon that has measured no link yet bounds a prefill by a guess."""
    p.bench.touch("fill", c.path("a", "warm"), mib, "small")
    c.migrate(c.path("a", "warm"), "b", "--wait")
    c.unlink(c.path("b", "warm"))
    p.bench.touch("fill", c.path("b", "warm"), mib, "small")
    c.migrate(c.path("b", "warm"), "a", "--wait")
    c.unlink(c.path("a", "warm"))


def one_pace(p, c, report, mib, pace):
    """The three by turns; where nothing is stored, or much, the prefill alone."""
    ways = WAYS if pace == 1 else WAYS[:1]
    found = {way: [] for way in ways}
    for _ in range(p.runs):
        for way in ways:
            found[way].append(Once(p, c, mib, pace, way))
    near, case = found["prefill"], "%d %%/s, %d MiB" % (pace, mib)

    def add(text, what, unit, floors=None, goal=""):
        report.add("%s: %s" % (case, text), [what(x) for x in near], unit, floors, goal)
    add("beside a standing prefill, against before", lambda x: x.during, "/ms", [x.before for x in near], ">= 0.9")
    # The program makes 1,000 accesses a ms, where it is not late, and its stores in proportion.
    stored = [mib * pace / 100 * 1.048576 * x.during / 1000 for x in near] if pace else None
    add("on the link, against what is stored", lambda x: x.link_mb_s, "MB/s", stored)
    add("until all is near", lambda x: x.fill_ms, "ms")
    add("left at mv", lambda x: 100 * x.left / (mib * 256), "%", None, "<= 1" if pace <= 1 else "")
    if len(ways) == 1:
        add("mv", lambda x: x.mv_ms, "ms")
        return
    for way in ways[1:]:
        other = found[way]
        add("mv, against %s without it" % way, lambda x: x.mv_ms, "ms", [x.mv_ms for x in other])
        add("... until all pages are there", lambda x: x.whole_ms, "ms", [x.whole_ms for x in other])
        add("last store to first store, against %s" % way, lambda x: x.gap_ms, "ms", [x.gap_ms for x in other])
        print("    %s left %.3g %% of the pages" % (way, statistics.median(100 * x.left / (mib * 256) for x in other)))


def prefill(bench, runs, scale):
    p = slope.Slope(bench, runs, scale)
    report = bench.Report("prefill")
    mib = p.mib(128)
    with bench.Cluster("2G") as c:
        measure_link(p, c, max(mib, 16))
        for pace in PACES:
            one_pace(p, c, report, mib, pace)
    report.write()
