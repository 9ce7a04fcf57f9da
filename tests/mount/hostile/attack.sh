#!/usr/bin/env bash
# Hostile neighbours, one attack after the other (attacker.py), on a node that pulls a segment and on its source.
# No attacker gets a byte; the daemons stay the same processes and give back what they took; pages arrive as they
# were; and programs come and go meanwhile.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
# A sanitized daemon gives freed memory back at once, so that the memory that it holds says something.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=4
seconds=${1:-2} pages=2048 keeps_mib=16
# Its allocator keeps what each thread has freed, and where each block was made: some 60 MiB after 300,000 steps.
grep -q __asan_init "$build/bin/rampfs" && keeps_mib=160
cat >"$scratch/secret.py" <<'P'
import mmap, os, struct, sys
def page(number):
    return b"".join(b"secret!!" + struct.pack("<Q", number * 256 + i) for i in range(256))
if sys.argv[2] == "make":
    with open(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        for number in range(int(sys.argv[3])):
            f.write(page(number))
else: # a program that has the segment mapped, and says whether a page is right
    m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
    for line in sys.stdin:
        at = int(line)
        print("right" if m[at * 4096:at * 4096 + 4096] == page(at) else "WRONG", flush=True)
P
# A program that comes while the node is attacked.
cat >"$scratch/newcomer.py" <<'P'
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
m[0] = (m[0] + 1) % 256
P
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
descriptors() { find "/proc/$(daemon "$1")/fd" -mindepth 1 2>/dev/null | wc -l; }
own_kib() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$(daemon "$1")/status"; }
gave_back() { [ "$(descriptors "$1")" -le $((${files[$1]} + 8)) ]; }
declare -A was files kib
cluster_start -n 2 -c 96M

python3 "$scratch/secret.py" "$mnt/a/a/secret" make $pages
sum=$(sha256sum <"$mnt/a/a/secret")
rampfs-migrate --mode demand "$mnt/a/a/secret" b
within 5 test -e "$mnt/b/b/secret"
head -c 1M /dev/zero >"$mnt/b/b/own"
holder_program=(rampfs-run python3 "$scratch/secret.py" "$mnt/b/b/secret" hold)
holder victim
page=0
touch_pages() { # the next $1 pages that are not touched yet
	local _
	for _ in $(seq "$1"); do
		same right "$(ask victim "$page")" "page $page"
		page=$((page + 1))
	done
}
touch_pages 8
rampfs-run python3 "$scratch/newcomer.py" "$mnt/b/b/own"
# Threads that answer page faults sleep at real-time priority; threads that work for strangers do not.
policy() { # of node $1's threads of that name
	local task
	for task in "/proc/$(daemon "$1")"/task/*; do
		[ "$(cat "$task/comm")" != "$2" ] || chrt -p "${task##*/}" | sed -n 's/.*policy: //p'
	done | sort -u
}
is_policy() { [ "$(policy "$1" "$2")" = "$3" ]; }
for node in a b; do
	for thread in pager serve; do
		within 5 is_policy $node $thread 'SCHED_RR|SCHED_RESET_ON_FORK' ||
			fail "$thread of node $node: $(policy $node $thread)"
	done
	same SCHED_OTHER "$(policy $node rampfs)" "the other threads of node $node"
done
for node in a b; do
	was[$node]=$(daemon $node) files[$node]=$(descriptors $node) kib[$node]=$(own_kib $node)
done

for attack in $(python3 tests/mount/hostile/attacker.py list); do
	: >"$scratch/attack"
	python3 tests/mount/hostile/attacker.py "$attack" "$seconds" "$mnt/b" "$scratch/cluster/cluster.key" >"$scratch/attack" 2>&1 &
	attacker=$!
	within 20 grep -q ready "$scratch/attack"
	touch_pages 32
	timeout 20 rampfs-run python3 "$scratch/newcomer.py" "$mnt/b/b/own" || fail "$attack: a program could not map its file"
	touch_pages 32
	wait "$attacker" || fail "$attack: status $?: $(cat "$scratch/attack")"
	tail -n 1 "$scratch/attack"
	for node in a b; do
		same "${was[$node]}" "$(daemon $node)" "$attack: the daemon of node $node"
		within 15 gave_back $node
	done
	touch_pages 8
done
for node in a b; do
	echo "node $node: ${files[$node]} descriptors, ${kib[$node]} KiB before; $(descriptors $node), $(own_kib $node) after"
	[ "$(own_kib $node)" -le $((${kib[$node]} + keeps_mib * 1024)) ] || fail "node $node has taken memory and kept it"
done
[ "$(xattr "$mnt/b/b/secret" state)" = pulling ] || fail "it was not half pulled: $(xattr "$mnt/b/b/secret" state)"
same "$sum" "$(sha256sum <"$mnt/b/b/secret")" "the segment, all of it"
touch_pages 8
bye victim
cluster_stop
echo "attack: no attacker got a byte"
