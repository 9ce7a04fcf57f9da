"""Pre-copy, and the figures of Slope's thesis (Figures 5.1 to 5.8), measured here: bench/run precopy.

Slope measured on two Xeon E5-2680 with 100 Gb/s InfiniBand: its figures stand in ours' texts, no pass or fail. It protects each page
while it sends it, once; then a program closes writes, and later reads, and pages that it has stored into follow. We send in rounds. A
plain pre-copy's one revoke closes both, so the end of writes and the end of reads fall together; in two steps (ramp_finish_write,
ramp_finish_read) they are apart, as Slope's are: the Bloom filter, whose threads each make one of both, moves in that way, too. Beside
each figure stand lazy moves of the same run.
"""
import contextlib
import os
import re
import signal
import statistics
import subprocess
import time

import figure
import paper

SLOPE = "Slope: two Intel E5-2680, 128 GB, 100 Gb/s InfiniBand, Linux 4.19, two machines."
MODES = ("precopy", "lazy")
TWO = "two steps"
NAMES = {"small": "4 KiB", "huge": "2 MiB"}
BEFORE_S, AFTER_S = 0.5, 1.0
LEFT = re.compile(r"(\d+) pages were stored into since round (\d+) was asked for")
PULLED = re.compile(r"pulled (\d+) pages in \d+ us")
CAME_AFTER = re.compile(r"(?:demand|prefetch)_pages=(\d+)")


class Line:
    """What one thread did to one file: `counts` of each millisecond from `begin` (s)."""

    def __init__(self, words):
        self.first, self.last, self.begin = float(words[2]), float(words[3]), float(words[4]) / 1e3
        self.counts = [int(x) for x in words[5:]]

    def between(self, begin, end):
        """Accesses a millisecond."""
        first, last = (max(0, int((t - self.begin) * 1e3)) for t in (begin, end))
        return sum(self.counts[first:last]) / max((end - begin) * 1e3, 1)

    def windows(self, since, width_ms, upto_ms):
        """[(ms since then, accesses a microsecond)...] of windows of that width."""
        return [(at + width_ms / 2, self.between(since + at / 1e3, since + (at + width_ms) / 1e3) / 1e3)
                for at in range(0, upto_ms, width_ms)]

    def steady_ms(self, since):
        """From then until three windows of 10 ms in a row reach nine tenths of the pace in the last 300 ms; all there is, if none do."""
        end = self.begin + len(self.counts) / 1e3
        usual = statistics.median(self.between(end - at / 100, end - (at - 1) / 100) for at in range(2, 32))
        begin = self.first
        while begin + 0.03 < end:
            if all(self.between(begin + n / 100, begin + (n + 1) / 100) >= 0.9 * usual for n in range(3)):
                return (begin - since) * 1e3
            begin += 0.01
        return (end - since) * 1e3


class Worker:
    """A program that works until it is told to end, and then says what it did."""

    def __init__(self, *command):
        self.program = subprocess.Popen([str(x) for x in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.command = command
        if self.program.stdout.readline() != "ready\n":
            raise SystemExit("%s did not begin" % (command,))

    def tell(self):
        self.program.stdin.write("\n")
        self.program.stdin.flush()

    def end(self):
        said = self.program.communicate(timeout=120)[0]
        if self.program.returncode:
            raise SystemExit("%s ended with %d" % (self.command, self.program.returncode))
        return {(w[0], int(w[1])): Line(w) for w in (line.split() for line in said.splitlines()) if len(w) > 4}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.program.kill()
        self.program.wait()


def await_reads(c, ended):
    """Waits until node a has sent its first page, or `ended` says so."""
    before = c.metric("a", "rampfs_served_bytes_total")
    while c.metric("a", "rampfs_served_bytes_total") == before and not ended():
        time.sleep(0.0005)


class Slope(paper.Paper):
    """The tools of bench/run; sizes are multiplied by `scale`."""

    def __init__(self, bench, runs, scale):
        super().__init__(bench, runs)
        self.scale = scale
        self.timelines = max(1, min(runs, 2))  # how often the longer programs run

    def mib(self, full):
        return max(2, int(full * self.scale) // 2 * 2)

    def drawn(self, name, title, x, y, log, text, runs):
        runs = "Median of %d run%s. " % (runs, "s" * (runs > 1)) if runs else ""
        found = figure.Figure(title, x, y, log, [*text, runs + SLOPE, *self.here.replace("loopback; ", "loopback.\n").split("\n")])
        found.path = os.path.join(paper.FIGURES, name + ".svg")
        return found

    def ahead(self, *args):
        return Worker(os.path.join(self.bench.BUILD, "bin/rampfs-run"), os.path.join(self.bench.BUILD, "bench/bench-ahead"), *args)

    def slope(self, *args):
        return os.path.join(self.bench.BUILD, "bench/bench-slope"), *map(str, args)

    def log(self, c, node):
        with open(os.path.join(c.dir, node + ".log"), encoding="utf-8") as f:
            return f.read()


class Move:
    """One move of a's FILE to b, with what both logs say of it."""

    def __init__(self, p, c, mode, name="f"):
        marks = {n: len(p.log(c, n)) for n in "ab"}
        self.begin = time.monotonic()
        if mode == TWO:
            said = p.bench.run(*p.slope("two", os.path.join(c.dir, "mnt/a"), name, "b"))
            self.closing_ms, self.handing_ms = (float(x) for x in said.split())
        else:
            said = p.bench.run(os.path.join(p.bench.BUILD, "bin/rampfs-migrate"), "--mode", mode, "--trace", c.path("a", name),
                               "b").split("page fault at")[0]
        self.took_ms = (time.monotonic() - self.begin) * 1e3
        self.steps = [(float(m.group(1)) / 1e3, m.group(2)) for m in re.finditer(r"(?m)^ *([\d.]+) +-?[\d.]+ +\w+ +(.*\S) *$", said)]
        for _ in range(6000):
            if "is settled here" in p.log(c, "b")[marks["b"]:]:
                break
            time.sleep(0.005)
        self.whole_ms = (time.monotonic() - self.begin) * 1e3
        found = [int(m.group(1)) for m in LEFT.finditer(p.log(c, "a")[marks["a"]:])]
        self.rounds = found  # pages that each round has left
        pulls = [int(pages) for pages in PULLED.findall(p.log(c, "b")[marks["b"]:])]
        # A pull a round, and one for what is left: none, where nothing is.
        self.left = pulls[-1] if len(pulls) > len(found) else 0
        if mode == TWO:  # the last pull is that of what was stored into before it was closed
            self.left = sum(map(int, CAME_AFTER.findall(os.getxattr(c.path("b", name), "user.ramp.last_move").decode())))

    def step_ms(self, text, which=0):
        """When that was done, since the move began; None where it was not."""
        at = [ms for ms, words in self.steps if words == text]
        return at[which] if at else None


def place(p, c, mib, kind, name="f"):
    """Makes a segment at b, for a program there to map it; returns its path there."""
    path = c.path("b", name)
    with open(path, "wb") as f:
        f.truncate(mib << 20)
    if kind == "small":
        os.setxattr(path, "user.ramp.pages", b"small")
    return path


def fetch(p, c, mib, kind, name="f"):
    """Moves it to a, and fills it there."""
    c.migrate(c.path("b", name), "a", "--wait")
    for _ in range(500):
        if os.path.exists(c.path("a", name)):
            break
        time.sleep(0.01)
    p.bench.touch("fill", c.path("a", name), mib, kind)


def handed_over(p, c, mib, kind, mode, program, others=()):
    """The program works at a, its segment moves, and one like it works at b. Returns the move, and what both did."""
    path = place(p, c, mib, kind)
    with p.ahead(program[0], path, *program[1:], "await") as target:
        fetch(p, c, mib, kind)
        with p.ahead(program[0], c.path("a", "f"), *program[1:], *others) as source:
            time.sleep(BEFORE_S)
            move = Move(p, c, mode)
            time.sleep(max(AFTER_S - (move.whole_ms - move.took_ms) / 1e3, 0.4))
            at_source = source.end()
        at_target = target.end()
    c.unlink(c.path("b", "f"))
    return move, at_source, at_target


# ---- writers at a pace --------------------------------------------------------------------------

def writers(p, c, report):
    """A program that stores into so much of its segment a second, and loads; and one that only stores, flat out."""
    mib = p.mib(256)
    for pace, kind in (("0", "small"), ("1", "small"), ("50", "small"), ("flat out", "small"), ("1", "huge")):
        program = ("flat",) if pace == "flat out" else ("paced", pace)
        case = "%s, %d MiB, %s pages" % (pace if pace == "flat out" else pace + " %/s", mib, NAMES[kind])
        found = {key: {mode: [] for mode in MODES} for key in ("before", "during", "left", "gap", "steady", "took")}
        for _ in range(p.runs):
            for mode in MODES:  # by turns
                move, source, target = handed_over(p, c, mib, kind, mode, program)
                s, t = source["store", 0], target["store", 0]
                for key, value in (("before", s.between(move.begin - BEFORE_S * 0.8, move.begin)),
                                   ("during", s.between(move.begin, s.last)), ("left", 100 * move.left / (mib * 256)),
                                   ("gap", (t.first - s.last) * 1e3), ("steady", t.steady_ms(s.last)),
                                   ("took", (s.last - move.begin) * 1e3)):
                    found[key][mode].append(value)
        during, before = found["during"]["precopy"], found["before"]["precopy"]
        report.add(case + ": while pre-copying, against before", during, "/ms", before, ">= 0.9" if pace != "flat out" else "")
        report.add(case + ": left at the hand-over", found["left"]["precopy"], "%", None,
                   "<= 1" if pace == "1" and kind == "small" else "")
        report.add(case + ": the pre-copy", found["took"]["precopy"], "ms")
        report.add(case + ": last store to first store, against lazy", found["gap"]["precopy"], "ms", found["gap"]["lazy"])
        report.add(case + ": last store to 90 % of the pace, against lazy", found["steady"]["precopy"], "ms", found["steady"]["lazy"])


LIMITS = {(): "", ("--limit", "200M"): " with a limit of 200M"}


@contextlib.contextmanager
def copied_ahead(p, c, mib, options):
    """A segment of its own is copied ahead from a to b meanwhile, and given up where it is under way still. None: nothing is."""
    if options is None:
        yield
        return
    p.bench.touch("fill", c.path("a", "g"), mib, "huge")
    moves = subprocess.Popen([os.path.join(p.bench.BUILD, "bin/rampfs-migrate"), "--mode", "precopy", *options, c.path("a", "g"), "b"],
                             stderr=subprocess.DEVNULL)
    await_reads(c, lambda: moves.poll() is not None)
    yield
    moves.send_signal(signal.SIGINT)
    moves.wait()
    for node in "ab" * 50:  # it may have been about to be handed over
        with contextlib.suppress(OSError):
            os.unlink(c.path(node, "g"))
            return
        time.sleep(0.02)
    raise SystemExit("g is nowhere")


def faults(p, c, report):
    """Page faults of a program at the target, of another segment, while one is copied ahead."""
    mib, count, found = p.mib(2048), 4000, {how: [] for how in (None, *LIMITS)}
    for _ in range(p.runs):
        for how, delays in found.items():
            p.bench.touch("fill", c.path("a", "f"), 64, "small")
            c.migrate(c.path("a", "f"), "b", "--mode", "demand")
            with copied_ahead(p, c, mib, how):
                delays.append([float(x) for x in p.bench.touch("fault", c.path("b", "f"), count).split()])
            c.unlink(c.path("b", "f"))
    for how, words in LIMITS.items():
        for name, q in (("median", 0.5), ("p99", 0.99)):
            report.add("page fault beside a pre-copy of %d MiB%s, %s, against without" % (mib, words, name),
                       [p.bench.percentile(v, q) for v in found[how]], "us", [p.bench.percentile(v, q) for v in found[None]])


# ---- Figures 5.1 to 5.4: a vector ---------------------------------------------------------------

VECTOR = {  # Slope: pages, and its figures at the first and the last (ms): prefill, end to end; dirtied: prefill, dirty pages, all
    "small": ("5.1-slope-vector-4k", "5.3-slope-dirtied-4k", (1, 20000, 60000, 100000), 4096, (2.4, 3.3, 3170, 3825), (3087, 1069, 5712)),
    "huge": ("5.2-slope-vector-2m", "5.4-slope-dirtied-2m", (1, 40, 120, 200), 2 << 20, (0.7, 1.0, 138.9, 141.3), (136.0, 40.8, 256.3)),
}


def vector(p, c, kind, report):
    """5.1, 5.2: a segment that nobody stores into. 5.3, 5.4: each 4 KiB of it is stored into between the rounds and the hand-over, which
    the two steps of a move in steps allow. All end when all pages are there and the source is free."""
    clean_name, dirty_name, pages, page_bytes, clean, dirty = VECTOR[kind]
    lines = {}

    def note(name, line, count, values):
        lines.setdefault((name, line), []).append((count, statistics.median(values)))
    for full in pages:
        count = max(1, int(full * p.scale))
        took, windows = {"clean": [], "dirty": [], "lazy": []}, {"clean": [], "dirty": [], "lazy": []}
        for _ in range(p.timelines):
            for how, found in took.items():
                said = p.bench.run(*p.slope("vector", os.path.join(c.dir, "mnt/a"), "b", count, kind, how))
                found.append([float(x) for x in said.split()])
                windows[how].append(c.metric("a", "rampfs_window_last_microseconds") / 1e3)
                c.unlink(c.path("b", "vector"))
        for name, how in ((clean_name, "clean"), (dirty_name, "dirty")):
            note(name, "prefill", count, [x[0] for x in took[how]])
            note(name, "without owner", count, windows[how])
            note(name, "end to end", count, [sum(x) for x in took[how]])
        note(clean_name, "lazy, end to end", count, [sum(x) for x in took["lazy"]])
        note(dirty_name, "transferring dirty pages", count, [x[2] for x in took["dirty"]])
        case, all_of = "vector of %d pages of %s" % (count, NAMES[kind]), {how: [sum(x) for x in found] for how, found in took.items()}
        report.add(case + ": end to end, against lazy", all_of["clean"], "ms", all_of["lazy"])
        report.add(case + ", all dirtied: end to end, against clean", all_of["dirty"], "ms", all_of["clean"])
        report.add(case + ": without owner", windows["clean"], "ms")
    last, kib = pages[-1], page_bytes >> 10
    draw_vector(p, clean_name, "Figure %s: a clean vector, pages of %s" % (clean_name[:3], NAMES[kind]), lines, [
        ("Slope: prefill", [(1, clean[0]), (last, clean[2])]), ("Slope: end to end", [(1, clean[1]), (last, clean[3])])], [
        "%d pages of %d KiB at the most. Prefill: connecting, and all rounds. End to end: until all is there and the source is free." % (
            int(last * p.scale), kib), "Slope's lines join its figures for the fewest and the most pages; without owner 0.001 to 0.33 ms."])
    draw_vector(p, dirty_name, "Figure %s: each 4 KiB stored into once, pages of %s" % (dirty_name[:3], NAMES[kind]), lines, [
        ("Slope: prefill", [(1, clean[0]), (last, dirty[0])]), ("Slope: end to end", [(1, clean[1]), (last, dirty[2])])], [
        "A program copies its vector ahead (ramp_prepare), stores into each 4 KiB once, and hands it over; with us dirty pages follow that.",
        "Slope: transferring dirty pages %g ms at the most; without owner 0 to 0.65 ms." % dirty[1]])


def draw_vector(p, name, title, lines, slope, text):
    drawn = p.drawn(name, title, "pages", "ms", "xy", text, p.timelines)
    for at, (line, points) in enumerate((key[1], v) for key, v in lines.items() if key[0] == name):
        drawn.line(line, [(x, max(y, 0.001)) for x, y in points], dashed=line.startswith("lazy"), like=at)
    for at, (line, points) in enumerate(slope):
        drawn.line(line, points, dashed=True, like=4 + at)
    drawn.write(drawn.path)


# ---- Figures 5.5 and 5.6: a Bloom filter under load ---------------------------------------------

BLOOM = {"small": ("5.5-slope-bloom-4k", "writes gone 2.7 s, steady after 3.8 s; reads gone 1.0 s, steady after 2.2 s"),
         "huge": ("5.6-slope-bloom-2m", "writes gone 70 ms, steady after 83 ms or more; reads gone 23 ms, steady after 50 ms")}


def steps_of(drawn, move, source, since):
    """Marks in a figure: when rounds are over, and when the source's programs lose it."""
    over = move.step_ms("rounds are over")
    if over is not None:
        drawn.mark("rounds are over", over)
    drawn.mark("last access at the source", (max(x.last for x in source) - since) * 1e3)


def bloom(p, c, kind, report):
    """Two filters at a, a thread that puts and one that gets at each node; one filter moves."""
    mib, (name, slope) = p.mib(800), BLOOM[kind]
    found = {}
    p.bench.touch("fill", c.path("a", "other"), mib, kind)
    for _ in range(p.timelines):
        for mode in (*MODES, TWO):
            move, source, target = handed_over(p, c, mib, kind, mode, ("bloom",), (c.path("a", "other"),))
            if mode == TWO:
                for key, value in (("closing", move.closing_ms), ("handing over", move.handing_ms), ("left", 100 * move.left / (mib * 256))):
                    found.setdefault(key, []).append(value)
            for what in ("put", "get"):
                s, t = source[what, 0], target[what, 0]
                for key, value in (("gap", (t.first - s.last) * 1e3), ("steady", t.steady_ms(s.last)),
                                   ("before", s.between(move.begin - BEFORE_S * 0.8, move.begin)),
                                   ("during", s.between(move.begin, s.last))):
                    found.setdefault((what, key, mode), []).append(value)
            if mode == "precopy":
                last = move, source, target
    os.unlink(c.path("a", "other"))
    case = "Bloom filter, %d MiB, pages of %s: " % (mib, NAMES[kind])
    for what, words in (("put", "writes"), ("get", "reads")):
        report.add(case + words + " while pre-copying, against before", found[what, "during", "precopy"], "/ms", found[what, "before", "precopy"])
        for key, text in (("gap", " gone"), ("steady", " at 90 % of the pace after")):
            report.add(case + words + text + ", against lazy", found[what, key, "precopy"], "ms", found[what, key, "lazy"])
            report.add(case + "two steps, " + words + text + ", against pre-copy", found[what, key, TWO], "ms", found[what, key, "precopy"])
    report.add(case + "two steps, left at the hand-over", found["left"], "%", None, "<= 0")
    for key in ("closing", "handing over"):
        report.add(case + "two steps, " + key, found[key], "ms")
    print("    Slope, 800 MB: " + slope)
    move, source, target = last
    drawn = p.drawn(name, "Figure %s: a Bloom filter of %d MiB moves, pages of %s" % (name[:3], mib, NAMES[kind]),
                    "ms since the move began", "million operations a second", "", [
                        "Two filters at the source; at each node one thread puts and one gets, keys of 1 to 10 letters, two positions each.",
                        "Flat out, four threads and two nodes on the processors. Windows of 20 ms; one run.", "Slope, 800 MB: " + slope + "."], 0)
    begin = move.begin - BEFORE_S * 0.8
    upto = int((max(t.begin + len(t.counts) / 1e3 for t in target.values()) - begin) * 1e3) // 20 * 20
    for at, (what, words) in enumerate((("put", "puts"), ("get", "gets"))):
        for lines, where, dashed in ((source, "source", False), (target, "target", True)):
            points = [(ms - BEFORE_S * 800, y) for ms, y in lines[what, 0].windows(begin, 20, upto)]
            drawn.line("%s, %s" % (words, where), points, dashed=dashed, like=at)
    points = [(ms - BEFORE_S * 800, y + z) for (ms, y), (_, z) in zip(source["put", 1].windows(begin, 20, upto),
                                                                     source["get", 1].windows(begin, 20, upto))]
    drawn.line("the filter that stays", points, like=5)
    steps_of(drawn, move, [source["put", 0], source["get", 0]], move.begin)
    drawn.write(drawn.path)


# ---- Figures 5.7 and 5.8: a partition of a hash table -------------------------------------------

PARTITION = {"small": ("5.7-slope-partition-4k", "prefill 3197 ms, then writes gone for 155 ms and reads for 85 ms"),
             "huge": ("5.8-slope-partition-2m", "prefill 2382 ms, then writes gone for 11 ms and reads for 5 ms")}


def partition_once(p, c, mib, kind, mode):
    a, b = (os.path.join(c.dir, "mnt", n) for n in "ab")
    with Worker(*p.slope("target", b, "mp")) as target, \
            Worker(*p.slope("source", a, "mp", mib, kind)) as source:
        time.sleep(BEFORE_S)
        source.tell()
        time.sleep(0.02)
        move = Move(p, c, mode, "mp")
        time.sleep(AFTER_S)
        found = source.end(), target.end()
    c.unlink(c.path("b", "mp"))
    return (move, *found)


def partition(p, c, kind, report):
    """A map of 40 MB whose nodes lie anywhere: a third each of inserts (none while it moves), updates and reads."""
    mib, (name, slope) = p.mib(40), PARTITION[kind]
    found = {}
    for _ in range(p.timelines):
        for mode in MODES:
            move, source, target = partition_once(p, c, mib, kind, mode)
            for what in ("update", "read"):
                s, t = source[what, 0], target[what, 0]
                found.setdefault((what, "gap", mode), []).append((t.first - s.last) * 1e3)
                found.setdefault((what, "steady", mode), []).append(t.steady_ms(s.last))
            if mode == "precopy":
                last = move, source, target
    for what, words in (("update", "writes"), ("read", "reads")):
        for key, text in (("gap", " gone"), ("steady", " at 90 % of the pace after")):
            report.add("partition, %d MiB, pages of %s: %s%s, against lazy" % (mib, NAMES[kind], words, text),
                       found[what, key, "precopy"], "ms", found[what, key, "lazy"])
    print("    Slope, 40 MB: " + slope)
    move, source, target = last
    drawn = p.drawn(name, "Figure %s: a map of %d MiB moves, pages of %s" % (name[:3], mib, NAMES[kind]), "ms since the move began",
                    "million operations a second", "", [
                        "One thread at each node: insert, update, read by turns; no inserts from 20 ms before the move until it is received.",
                        "Windows of 10 ms; one run.", "Slope, 40 MB: %s." % slope], 0)
    begin = move.begin - 0.2
    upto = int(move.took_ms + 200 + AFTER_S * 500) // 10 * 10
    for at, what in enumerate(("insert", "update", "read")):
        for lines, where, dashed in ((source, "source", False), (target, "target", True)):
            drawn.line("%s, %s" % (what, where), [(ms - 200, y) for ms, y in lines[what, 0].windows(begin, 10, upto)], dashed=dashed, like=at)
    steps_of(drawn, move, [source["update", 0], source["read", 0]], move.begin)
    drawn.write(drawn.path)


def precopy(bench, runs, scale):
    p = Slope(bench, runs, scale)
    report = bench.Report("precopy")
    with bench.Cluster("10G") as c:
        writers(p, c, report)
        faults(p, c, report)
        for kind in NAMES:
            vector(p, c, kind, report)
            bloom(p, c, kind, report)
            partition(p, c, kind, report)
    report.write()
    print("  figures: " + os.path.relpath(paper.FIGURES))
