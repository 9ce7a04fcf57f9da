#!/usr/bin/env bash
# rampfs-migrate --trace: the steps of a transfer and of page faults, of both ends, whose clocks differ, and in the order
# in which they must have been done; requested at the source, and at a node that has neither end.
. tests/lib/cluster.sh
cluster_start -n 3 -c 256M
# Node a gets a clock that is 1000 s ahead of the others' (CLOCK_MONOTONIC, as on another machine).
ahead=1000
if unshare --time --fork --monotonic $ahead true 2>"$scratch/err"; then
	umount "$mnt/a"
	within 20 flock -n "$state/a/lock" true
	unshare --time --fork --monotonic $ahead rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
	contrib/local-cluster start "$scratch/cluster" # waits until all are up again
else
	ahead=0
	echo "(no time namespaces here: there is only one clock) $(cat "$scratch/err")"
fi
# FILE TOOK AHEAD LIST...: a trace, how many microseconds the command took, and by how many the target's clock is before
# the source's. Each list of steps "node:text", parted by ";", must be there in this order, of the transfer or, after
# "fault:", of the first page fault that has all of them; and nothing may have been done before or after the command.
cat >"$scratch/read.py" <<'P'
import re, sys
tables, table = [], None
took, ahead = int(sys.argv[2]), int(sys.argv[3])
for line in open(sys.argv[1], encoding="utf-8"):
    if not line.startswith(" "):
        table = []
        tables.append((line.strip(), table))
    elif m := re.match(r"  \(node .'s clock is put ([-+]\d+\.\d) us beside the source's, within (\d+\.\d) us", line):
        assert abs(float(m[1]) - ahead) <= float(m[2]) + 0.15, (line, ahead)
    elif m := re.fullmatch(r" +(\d+\.\d) +(\d+\.\d) +(\S+) +(.+)\n", line):
        table.append((float(m[1]), float(m[2]), m[3] + ":" + m[4]))
assert tables and tables[0][0].endswith(": the transfer"), tables
for _, steps in tables:
    assert steps and steps[0][:2] == (0, 0) and steps[-1][0] <= took, (took, steps)
    for before, after in zip(steps, steps[1:]):  # took: since the line before
        assert abs(after[0] - before[0] - after[1]) < 0.15, (before, after)
def has(steps, wanted):
    names, at = [s[2] for s in steps], 0
    for w in wanted:
        if w not in names[at:]:
            return False
        at = names.index(w, at)
    return True
for wanted in sys.argv[4:]:
    fault = wanted.startswith("fault:")
    wanted = wanted.removeprefix("fault:").split(";")
    looked = tables[1:] if fault else tables[:1]
    assert any(has(steps, wanted) for _, steps in looked), "%s in\n%s" % (wanted, open(sys.argv[1]).read())
P
steps() { /usr/bin/python3 "$scratch/read.py" "$scratch/trace" "$took" "$@"; }
traced() {
	local begin=${EPOCHREALTIME/[.,]/} status=0
	rampfs-migrate --trace "$@" >"$scratch/trace" || status=$?
	took=$((${EPOCHREALTIME/[.,]/} - begin))
	return $status
}
# On one clock the other end receives a message after it was sent.
source_steps() {
	echo "$1:the move begins;$1:CONNECT goes out;$1:ACCEPT has come;$1:prepare is committed;$1:mappings are watched, the window opens;$1:access is revoked;$1:GIVEN is recorded;$1:TRANSFER goes out;$1:TAKEN has come, the window is closed;$1:the tables show the new owner"
}
target_steps() {
	echo "$1:CONNECT has come;$1:room is taken;$1:ACCEPT goes out;$1:TRANSFER has come;$1:TAKEN is recorded and goes out;$1:page faults are answered;$1:taken is committed"
}
fault() { echo "fault:T:the page fault is read;T:the request goes out;S:the page is asked for;S:the page goes out;T:the page is in its place;T:CONTINUE is done" | sed "s/S:/$1:/g; s/T:/$2:/g"; }

echo "nothing is printed without --trace"
head -c 8M /dev/urandom >"$mnt/a/a/f"
sum=$(sha256sum <"$mnt/a/a/f")
same "" "$(rampfs-migrate --wait "$mnt/a/a/f" b 2>&1)" "a move without --trace"

echo "requested at the source; a program at the target touches the segment, and its page faults are there"
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
toucher=$!
traced --mode demand "$mnt/c/c/f" a
wait $toucher
steps $((ahead * 1000000)) "$(source_steps c)" "$(target_steps a)" "$(fault c a)" \
	"c:TRANSFER goes out;a:TRANSFER has come;a:TAKEN is recorded and goes out;c:TAKEN has come, the window is closed"
grep -q "node a's clock is put .* us beside the source's, within .* us: by the shortest of 8 round trips" "$scratch/trace" ||
	fail "nothing is said of the clocks"

echo "requested at a third node, until every page is there"
traced --wait "$mnt/c/a/f" b
steps $((ahead * -1000000)) "$(source_steps a)" "$(target_steps b)" "b:page faults are answered;b:every page is here" \
	"a:CONNECT goes out;b:CONNECT has come;b:ACCEPT goes out;a:ACCEPT has come;a:prepare is committed;b:taken is committed"
same "$sum" "$(sha256sum <"$mnt/b/b/f")" "the bytes after all moves"

echo "a target that refuses: the source's steps are shown, and the reason as usual"
: >"$mnt/c/c/f"
if traced "$mnt/b/b/f" c 2>"$scratch/err"; then fail "moved onto another"; fi
grep -q "something is named f there" "$scratch/err" || fail "no reason: $(cat "$scratch/err")"
steps 0 "b:the move begins;b:CONNECT goes out"
cluster_stop
