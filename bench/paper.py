"""The figures of RAMP's thesis (Memon, Waterloo 2018), measured here: bench/run paper, bench/run containers.

Each figure's text says on which hardware the thesis measured, and on which this one was: no pass or fail, other machines. Goals
stand in the table of `containers`.
"""
import os
import re
import statistics
import subprocess
import time

import figure

FIGURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures")
THESIS = "Thesis: two Intel E5-2620v2, 64 GB, Mellanox 10 GbE with RDMA, Linux 3.13, two machines."
MODES = {"stop": ("lazy", "whole"), "demand": ("demand", "at-once"), "prefetch": ("lazy", "at-once")}
NAMES = {"stop": "stop-and-copy", "demand": "demand", "prefetch": "demand + prefetch"}
SECONDS = {"stop": 2, "demand": 4, "prefetch": 2}


def busy_share():
    """Which part of the processors' time others take just now."""
    def times():
        with open("/proc/stat", encoding="ascii") as f:
            each = [int(x) for x in f.readline().split()[1:9]]
        return sum(each), each[3] + each[4]
    (all1, idle1), _, (all2, idle2) = times(), time.sleep(2), times()
    return 1 - (idle2 - idle1) / max(all2 - all1, 1)


def here():
    """How this machine is, in a line; "loaded" where it is not quiet."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = re.search(r"model name\s*:\s*(.*)", f.read())
    share = busy_share()
    return "Here: %s, %d processors, Linux %s, both nodes on it, TCP on loopback%s." % (
        model.group(1).strip() if model else os.uname().machine, os.cpu_count(), os.uname().release.split("-")[0],
        "; LOADED: others take %d %% of the processors" % (100 * share) if share > 0.1 else "; quiet")


class Paper:
    """The tools of bench/run, which is handed in."""

    def __init__(self, bench, runs):
        self.bench, self.runs, self.here = bench, runs, here()
        self.program = os.path.join(bench.BUILD, "bench/bench-moving")
        os.makedirs(FIGURES, exist_ok=True)
        print("  " + self.here)

    def figure(self, name, title, x, y, log="", text=()):
        found = figure.Figure(title, x, y, log, [*text, THESIS, self.here, "Median of %d run%s." % (self.runs, "s" * (self.runs > 1))])
        found.path = os.path.join(FIGURES, name + ".svg")
        return found

    def moving(self, *args):
        return self.bench.run(self.program, *map(str, args))

    def begin(self, *args):
        """Starts the program, and returns when it says that it waits."""
        program = subprocess.Popen([self.program, *map(str, args)], stdout=subprocess.PIPE, text=True)
        if program.stdout.readline() != "waits\n":
            raise SystemExit("moving %s did not begin" % (args,))
        return program

    def end(self, program):
        said = program.communicate(timeout=300)[0]
        if program.returncode:
            raise SystemExit("moving ended with %d" % program.returncode)
        return said


# ---- a hash table right after its transfer (Figures 5.3 and 5.4) ----------------------------------

def table_once(p, c, mib, mode):
    """One transfer. Returns {window in ms: [(operations, mean us, p95 us)...]}, ms until the first operation, and entries."""
    how, begin = MODES[mode]
    a, b = (os.path.join(c.dir, "mnt", n) for n in "ab")
    user = p.begin("use", b, "table", SECONDS[mode], begin)
    entries = int(p.moving("fill", a, "table", mib, "b", how).split()[0])
    windows, unavailable = {10: [], 100: []}, 0
    for line in p.end(user).splitlines():
        words = line.split()
        if words[0] == "unavailable":
            unavailable = float(words[1])
        else:
            windows[int(words[0])].append((int(words[2]), float(words[3]) / 1e3, float(words[4]) / 1e3))
    return windows, unavailable, entries


def first_window(windows):
    """The first 100 ms in which there were operations: a program that gets no processor has none."""
    return next(w for w in windows[100] if w[0])


def local_speed(windows):
    """Mean us of an operation in the last half second."""
    return statistics.median(mean for count, mean, _ in windows[10][-50:] if count)


def local_again(windows, usual):
    """ms until three windows of 10 ms in a row have a mean of at most 1.5 times the usual; the whole length where none have."""
    good = [bool(count) and mean <= 1.5 * usual for count, mean, _ in windows[10]]
    return next((10.0 * i for i in range(len(good) - 2) if all(good[i:i + 3])), 10.0 * len(good))


def median_windows(runs, width, which):
    """[(ms, median over the runs)...], for windows in which there were operations."""
    found = []
    for i in range(min(len(w[width]) for w in runs)):
        values = [w[width][i][which] for w in runs if w[width][i][0]]
        if len(values) > len(runs) / 2:
            found.append((width * (i + 0.5), statistics.median(values)))
    return found


def table_figure(p, name, title, found, width, upto_ms, marks):
    drawn = p.figure(name, title, "ms since the node owns it", "us an operation", "y", [
        "unordered_map, 8 B keys, 128 B values, get:set 1:1 in random order, one thread; windows of %d ms." % width,
        "Stop-and-copy operates when all pages have come. Thesis: 500,000 and a million entries, 256 bytes each."])
    for n, mode in enumerate(MODES):
        for which, words in ((1, "mean"), (2, "p95")):
            points = [x for x in median_windows([w for w, _, _ in found[mode]], width, which) if x[0] <= upto_ms]
            drawn.line("%s, %s" % (NAMES[mode], words), points, dashed=which == 2, like=n)
    for words, at in marks:
        if at <= upto_ms:
            drawn.mark(words, at)
    drawn.write(drawn.path)


def fault_p95(p, c):
    """p95 of a page fault without prefetch, as of bench/run pagefault."""
    p.bench.touch("fill", c.path("a", "f"), 64, "small")
    c.migrate(c.path("a", "f"), "b", "--mode", "demand")
    took = [float(x) for x in p.bench.touch("fault", c.path("b", "f"), 8000).split()]
    c.unlink(c.path("b", "f"))
    return p.bench.percentile(took, 0.95)


def containers(bench, runs, p=None):
    p = p or Paper(bench, runs)
    report = bench.Report("containers")
    thesis = {128: ("5.3", (("thesis: stop-and-copy operates", 230), ("thesis: prefetch is local", 650), ("thesis: demand is local", 750))),
              256: ("5.4", (("thesis: stop-and-copy operates", 350), ("thesis: prefetch is local", 1300), ("thesis: demand is local", 1500)))}
    with bench.Cluster("4G") as c:
        for mib, (number, marks) in thesis.items():
            found, faults, pulls = {mode: [] for mode in MODES}, [], []
            for _ in range(runs):
                faults.append(fault_p95(p, c))
                for mode in MODES:  # by turns
                    found[mode].append(table_once(p, c, mib, mode))
                    if mode == "stop":
                        pulls.append(c.last_pull("b")[1] * 1e3)
            report.add("%d MiB, stop-and-copy, unavailable" % mib, [ms for _, ms, _ in found["stop"]], "ms", pulls)
            usual = statistics.median(local_speed(w) for w, _, _ in found["stop"])
            for mode in ("demand", "prefetch"):
                case = "%d MiB, %s" % (mib, NAMES[mode])
                report.add(case + ", p95 in the first 100 ms", [first_window(w)[2] for w, _, _ in found[mode]], "us", faults, "<= 2")
                report.add(case + ", mean in the first 100 ms", [first_window(w)[1] for w, _, _ in found[mode]], "us")
                report.add(case + ", local speed again", [local_again(w, usual) for w, _, _ in found[mode]], "ms", pulls,
                           "<= 1.3" if mode == "prefetch" else "")
            title = "Figure %s: a hash table of %d entries in %d MiB, right after its transfer" % (number, found["stop"][0][2], mib)
            table_figure(p, "5.%s-container-%d" % (number[2:], mib), title, found, 100, 4000, marks)
            table_figure(p, "5.%s-container-%d-close" % (number[2:], mib), title, found, 10, 500, marks)
    report.write()


# ---- segments of a size (Figures 5.1 and 5.2) ----------------------------------------------------

SIZES = (1, 4, 16, 64, 128, 256, 512)


def whole_move(p, c):
    """5.1: connect and transfer of a filled segment."""
    drawn = p.figure("5.1-move", "Figure 5.1: ownership of a segment, all in use, by size", "MiB", "ms", "xy", [
        "Connect, and transfer with its commit, until the other node owns it (ramp_connect, ramp_transfer); no page follows.",
        "Thesis: linear in the size, hundreds of ms at 512 MB, since memory is pinned at both ends."])
    report, points = p.bench.Report("move"), {"connect": [], "transfer": [], "window": []}
    for mib in SIZES:
        took = {name: [] for name in points}
        for _ in range(p.runs):
            connect, transfer = (float(x) / 1e3 for x in p.moving("send", os.path.join(c.dir, "mnt/a"), "b", mib).split())
            took["connect"].append(connect)
            took["transfer"].append(transfer)
            took["window"].append(c.metric("a", "rampfs_window_last_microseconds") / 1e3)
            c.unlink(c.path("b", "sent"))
        for name, values in took.items():
            report.add("%d MiB, %s" % (mib, name), values, "ms")
            points[name].append((mib, statistics.median(values)))
    drawn.line("connect", points["connect"])
    drawn.line("transfer", points["transfer"])
    drawn.line("of that neither end can touch it", points["window"])
    drawn.write(drawn.path)
    report.write()


def pingpong(p, c):
    """5.2: two nodes transfer a prepared segment each to each other; half of the time until the beginner has the other's."""
    drawn = p.figure("5.2-pingpong", "Figure 5.2: two segments change places: half of the time, by size", "MiB", "us", "xy", [
        "Connected and prepared before; from transfer until the other's is received and mapped, halved. Window: neither end can touch it.",
        "Thesis: 40 to 60 us for Transfer alone, connected before, at any size; a message 15 to 20 us."])
    report, lines = p.bench.Report("pingpong"), {"half": [], "window": [], "message": []}
    for mib in SIZES:
        other = p.begin("pingpong", os.path.join(c.dir, "mnt/b"), "a", mib, p.runs)
        begins = p.begin("pingpong", os.path.join(c.dir, "mnt/a"), "b", mib, p.runs, "begin")
        said = [[float(x) for x in line.split()] for line in p.end(begins).splitlines()]
        p.end(other)
        messages = [statistics.median(p.bench.floor("roundtrip", 50)) / 2 for _ in range(p.runs)]
        for node in "ab":
            for name in ("ball-a", "ball-b"):
                if os.path.exists(c.path(node, name)):
                    os.unlink(c.path(node, name))
        report.add("%d MiB, half" % mib, [x for x, _ in said], "us")
        report.add("%d MiB, window" % mib, [x for _, x in said], "us", messages)
        lines["half"].append((mib, statistics.median(x for x, _ in said)))
        lines["window"].append((mib, statistics.median(x for _, x in said)))
        lines["message"].append((mib, statistics.median(messages)))
    for name, words in (("half", "transfer and receive"), ("window", "of that the window"), ("message", "a message")):
        drawn.line(words, lines[name])
    drawn.write(drawn.path)
    report.write()


# ---- beside the thesis ---------------------------------------------------------------------------

def first_load(p, c):
    """From the last store at the source to the first load at the target, of programs that had it mapped."""
    drawn = p.figure("first-load", "From the last store at the source to the first load at the target", "MiB", "us", "xy", [
        "Three threads store until it leaves; a program that has mapped it before waits at the target."])
    report, lines = p.bench.Report("first-load"), {"seen": [], "window": []}
    for mib in (1, 16, 64, 256):
        both = [p.bench.window_once(c, mib, "small", True) for _ in range(p.runs)]
        report.add("%d MiB, last store to first load" % mib, [seen for _, seen in both], "us")
        report.add("%d MiB, beyond the window" % mib, [seen - window for window, seen in both], "us", goal="<= 150")
        lines["window"].append((mib, statistics.median(window for window, _ in both)))
        lines["seen"].append((mib, statistics.median(seen for _, seen in both)))
    drawn.line("last store to first load", lines["seen"])
    drawn.line("the window", lines["window"])
    drawn.write(drawn.path)
    report.write()


def heap(p):
    """The heap in a segment against malloc: the ratio for each pattern of use."""
    drawn = p.figure("heap", "The heap in a segment against glibc's malloc: time of a block, as a ratio", "pattern: one block, small, "
                     "nodes of trees, all sizes, large", "ratio to malloc", "", ["By turns, in one program each; below 1 the heap is faster."])
    for threads in (1, 2):
        points = []
        for n, pattern in enumerate(("one", "small", "nodes", "mixed", "large"), 1):
            both = [[float(x) for x in p.bench.run(os.path.join(p.bench.BUILD, "bench/bench-heap"), pattern, str(threads)).split()]
                    for _ in range(p.runs)]
            points.append((n, statistics.median(ours / malloc for malloc, ours in both)))
        drawn.line("%d thread%s" % (threads, "s" if threads > 1 else ""), points)
    drawn.line("malloc", [(1, 1), (5, 1)], dashed=True)
    drawn.write(drawn.path)


def paper(bench, runs):
    p = Paper(bench, runs)
    with bench.Cluster("4G") as c:
        whole_move(p, c)
        pingpong(p, c)
        first_load(p, c)
    heap(p)
    containers(bench, runs, p)
    print("  figures: " + os.path.relpath(FIGURES))
