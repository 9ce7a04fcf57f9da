#!/usr/bin/env bash
# What one mount has committed the others see; absent names while there is no leader, and very many of them.
. tests/lib/cluster.sh
cluster_start -n 3 -c 128M
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
metric() { sed -n "s/^rampfs_$2 //p" "$mnt/$1/.ramp/metrics"; }

echo "-- creates, renames, moves and listings"
python3 tests/mount/ops/seen.py "$mnt"

echo "-- mkdir is said once in the log"
for name in one two three; do refused "Operation not supported" mkdir "$mnt/a/a/$name"; done
same 1 "$(grep -c 'mkdir one: .*WHAT PEOPLE TRY' "$scratch/cluster/a.log")" "hints in the log"
same 1 "$(grep -c 'WHAT PEOPLE TRY' "$scratch/cluster/a.log")" "hints in all"

echo "-- very many absent names: one question at a time, and the leader goes on committing"
cat >"$scratch/absent.py" <<'P'
import multiprocessing, os, sys, time
where, seconds, changed = sys.argv[1], float(sys.argv[2]), sys.argv[3]
counts, end = multiprocessing.Array("q", 16), time.monotonic() + seconds
def look(n):
    while time.monotonic() < end:
        assert not os.path.exists(f"{where}/absent{n}.{counts[n]}")
        counts[n] += 1
programs = [multiprocessing.Process(target=look, args=(n,)) for n in range(len(counts))]
for p in programs:
    p.start()
commits = 0
while time.monotonic() < end:
    os.chmod(changed, 0o600 + commits % 64)
    commits += 1
for p in programs:
    p.join()
    assert p.exitcode == 0
print(sum(counts), commits)
P
touch "$mnt/a/a/changed"
before=$(metric b name_questions_total)
read -r looks commits <<<"$(python3 "$scratch/absent.py" "$mnt/b/a" 2 "$mnt/a/a/changed")"
asked=$(($(metric b name_questions_total) - before))
echo "$looks look-ups, $asked questions, $commits commits meanwhile"
[ "$asked" -gt 0 ] || fail "an absent name was not asked for"
[ $((asked * 2)) -le "$looks" ] || fail "$asked questions for $looks look-ups"
[ "$commits" -ge 20 ] || fail "$commits commits in two seconds"

echo "-- own directory: no question"
before=$(metric a name_questions_total)
for i in {1..50}; do [ ! -e "$mnt/a/a/absent$i" ] || fail "absent$i is there"; done
same "$before" "$(metric a name_questions_total)" "questions"

echo "-- no leader: absent names are answered at once, and the listing comes"
silent="$(daemon a) $(daemon c)"
# shellcheck disable=SC2086
kill -STOP $silent
no_leader() { ! grep -q '^rampfs_raft_leader.* 1$' "$mnt/b/.ramp/metrics"; }
within 10 no_leader
cat >"$scratch/alone.py" <<'P'
import os, sys, time
begun = time.monotonic()
for i in range(200):
    assert not os.path.exists(f"{sys.argv[1]}/alone{i}")
assert "changed" in os.listdir(sys.argv[1])
took = time.monotonic() - begun
assert took < 10, f"200 absent names took {took:.1f} s"
P
before=$(metric b name_questions_total)
python3 "$scratch/alone.py" "$mnt/b/a"
same "$before" "$(metric b name_questions_total)" "questions while no leader is known"
# shellcheck disable=SC2086
kill -CONT $silent
within 10 test -e "$mnt/b/a/changed"
cluster_stop
