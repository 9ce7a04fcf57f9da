#!/usr/bin/env bash
# rampfs-migrate --trace: the steps of a transfer and of page faults, of both ends and in the order in
# which they must have been done; asked for at the source, and at a node that has neither end.
. tests/lib/cluster.sh
cluster_start -n 3 -c 256M
# Reads a trace; each argument is a list of steps "node:text", parted by ";", that must be there in this
# order, of the transfer or, after "fault:", of the first page fault that has all of them.
cat >"$scratch/read.py" <<'P'
import re, sys
tables, table = [], None
for line in open(sys.argv[1], encoding="utf-8"):
    if not line.startswith(" "):
        table = []
        tables.append((line.strip(), table))
    elif m := re.fullmatch(r" +(\d+\.\d) +(\d+\.\d) +(\S+) +(.+)\n", line):
        table.append((float(m[1]), float(m[2]), m[3] + ":" + m[4]))
assert tables and tables[0][0].endswith(": the transfer"), tables
for _, steps in tables:
    assert steps and steps[0][:2] == (0, 0), steps
    for before, after in zip(steps, steps[1:]):  # took: since the line before
        assert abs(after[0] - before[0] - after[1]) < 0.15, (before, after)
def has(steps, wanted):
    names, at = [s[2] for s in steps], 0
    for w in wanted:
        if w not in names[at:]:
            return False
        at = names.index(w, at)
    return True
for wanted in sys.argv[2:]:
    fault = wanted.startswith("fault:")
    wanted = wanted.removeprefix("fault:").split(";")
    looked = tables[1:] if fault else tables[:1]
    assert any(has(steps, wanted) for _, steps in looked), "%s in\n%s" % (wanted, open(sys.argv[1]).read())
P
steps() { /usr/bin/python3 "$scratch/read.py" "$scratch/trace" "$@"; }
# One clock: what one end sends the other has after it, which the test may ask since they are one machine.
source_steps() {
	echo "$1:the move begins;$1:CONNECT goes out;$1:ACCEPT has come;$1:prepare is committed;$1:mappings are watched, the window opens;$1:access is revoked;$1:GIVEN is recorded;$1:TRANSFER goes out;$1:TAKEN has come, the window is closed;$1:the tables show the new owner"
}
target_steps() {
	echo "$1:CONNECT has come;$1:room is taken;$1:ACCEPT goes out;$1:TRANSFER has come;$1:TAKEN is recorded and goes out;$1:page faults are answered;$1:taken is committed"
}
fault() { echo "fault:T:the page fault is read;T:the request goes out;S:the page is asked for;S:the page goes out;T:the page is in its place;T:CONTINUE is done" | sed "s/S:/$1:/g; s/T:/$2:/g"; }

echo "nothing is printed where nobody asks"
head -c 8M /dev/urandom >"$mnt/a/a/f"
sum=$(sha256sum <"$mnt/a/a/f")
same "" "$(rampfs-migrate --wait "$mnt/a/a/f" b 2>&1)" "a move without --trace"

echo "asked at the source; a program at the target touches it, and its page faults are there"
rampfs-migrate --wait "$mnt/b/b/f" c
cat >"$scratch/touch.py" <<'P'
import mmap, os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    for page in (1500, 3, 900):
        assert len(m[page * 4096:page * 4096 + 1]) == 1
P
rampfs-run /usr/bin/python3 "$scratch/touch.py" "$mnt/a/a/f" &
rampfs-migrate --trace --mode demand "$mnt/c/c/f" a >"$scratch/trace"
wait $!
steps "$(source_steps c)" "$(target_steps a)" "$(fault c a)" \
	"c:TRANSFER goes out;a:TRANSFER has come;a:TAKEN is recorded and goes out;c:TAKEN has come, the window is closed"
grep -q "node a's clock is put .* us beside the source's, within .* us: by the shortest of 8 round trips" "$scratch/trace" ||
	fail "nothing is said of the clocks"

echo "asked at a third node, until every page is there"
rampfs-migrate --trace --wait "$mnt/c/a/f" b >"$scratch/trace"
steps "$(source_steps a)" "$(target_steps b)" "b:page faults are answered;b:every page is here" \
	"a:CONNECT goes out;b:CONNECT has come;b:ACCEPT goes out;a:ACCEPT has come;a:prepare is committed;b:taken is committed"
same "$sum" "$(sha256sum <"$mnt/b/b/f")" "the bytes after all moves"

echo "a target that refuses: what the source did is shown, and the reason as ever"
: >"$mnt/c/c/f"
if rampfs-migrate --trace "$mnt/b/b/f" c >"$scratch/trace" 2>"$scratch/err"; then fail "moved onto another"; fi
grep -q "something is named f there" "$scratch/err" || fail "no reason: $(cat "$scratch/err")"
steps "b:the move begins;b:CONNECT goes out"
cluster_stop
