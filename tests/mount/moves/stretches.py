# Has a segment mapped that comes back after a pre-copy, and looks which parts of it are registered with
# userfaultfd: FILE MIRROR METRICS SOURCE [grow]. Each line that it writes says how far it is. SOURCE: the daemon
# that still has the missing pages, which lie in FIRST to LAST; it is stopped for a while.
import ctypes, mmap, os, re, signal, sys, time

MIB = 1 << 20
ALL, FIRST, LAST = 64 * MIB, 32 * MIB, 48 * MIB
STRETCH = 2 * MIB


def say(text):
    print(text, flush=True)


def look():
    """Of each stretch: gone, yes or no (is it registered?), or unmapped."""
    seen, flags = ["unmapped"] * (ALL // STRETCH), None
    with open("/proc/self/smaps") as maps:
        for line in maps:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if head:
                here, gone = (int(x, 16) - start for x in head.groups()), "/gone." in line
                here = [max(0, min(ALL, x)) for x in here]
            elif line.startswith("VmFlags:"):
                flags = line.split()[1:]
                assert ("um" in flags) == ("ui" in flags), flags  # a move arms with "uw" alone
                assert "um" not in flags or "uw" in flags, flags
                for i in range(here[0] // STRETCH, (here[1] + STRETCH - 1) // STRETCH):
                    seen[i] = "gone" if gone else "yes" if "um" in flags else "no"
    return seen


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if what(seen):
            return seen
        assert time.monotonic() < end, seen
        time.sleep(0.001)


def faults():
    with open(metrics) as f:
        return int(re.search(r"^rampfs_page_faults_total (\d+)", f.read(), re.M).group(1))


def same(start, end):
    assert m[start:end] == mirror[start:end], "other bytes"


path, mirror, metrics, source, grows = *sys.argv[1:4], int(sys.argv[4]), len(sys.argv) > 5
with open(mirror, "rb") as f:
    mirror = f.read()
f = open(path, "r+b")
length = FIRST if grows else ALL
m = mmap.mmap(f.fileno(), length)
view = ctypes.c_char.from_buffer(m)
start = ctypes.addressof(view)
del view
mapped = range(length // STRETCH)
missing = range(FIRST // STRETCH, LAST // STRETCH)
there = [i for i in mapped if i not in missing]
say("mapped")
until(lambda seen: all(seen[i] == "gone" for i in mapped), 60)
say("gone")
until(lambda seen: not any(seen[i] == "gone" for i in mapped), 120)
os.kill(source, signal.SIGSTOP)
try:
    signal.alarm(60)  # a page that does not come would be waited for
    seen = until(lambda seen: all(seen[i] == "no" for i in there))
    assert grows or any(seen[i] == "yes" for i in missing), seen
    before = faults()
    for i in there:
        same(i * STRETCH, (i + 1) * STRETCH)
    m[8:16] = b"it is me"
    child = os.fork()
    if child == 0:
        try:
            seen = look()
            assert all(seen[i] == "no" for i in there), seen
            same(STRETCH, FIRST)
            os._exit(0 if m[8:16] == b"it is me" else 1)
        except BaseException as e:
            say(f"the child: {e}")
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert faults() == before, (before, faults())
    if grows:
        m.resize(ALL)
        seen = look()
        assert all(seen[i] == "yes" for i in range(LAST // STRETCH)), seen
    signal.alarm(0)
finally:
    os.kill(source, signal.SIGCONT)
say("looked")
values = [int.from_bytes(m[at:at + 8], "little") for at in range(FIRST, LAST, 4096)]
assert sorted(values, reverse=True) == values and values[0] - values[-1] <= 1, (values[0], values[-1])
same(16, FIRST)
same(LAST, ALL)
until(lambda seen: all(s == "no" for s in seen), 60)
say("whole")
sys.stdin.readline()
