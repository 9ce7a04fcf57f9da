#!/usr/bin/env bash
# What is registered with userfaultfd while pages are missing, on real mounts: after a pre-copy from under a program
# that stores, at a program that had the segment mapped, and in a child that it makes; a mapping that grows meanwhile.
. tests/lib/slow_net.sh
slow_net_enter "$@"
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
daemon_of() { pgrep -f "rampfs --daemon .*$mnt/$1\$"; }
settled() { [ "$(xattr "$1" state)" = stable ]; }
cat >"$scratch/stores.py" <<'P'
import mmap, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
n = 0
while True:  # SIGBUS ends it
    n += 1
    for at in range(32 << 20, 48 << 20, 4096):
        m[at:at + 8] = n.to_bytes(8, "little")
    if n == 1:
        print("stores", flush=True)
P
# comes_back PAGES [grow]
comes_back() {
	head -c 64M /dev/urandom >"$scratch/mirror"
	: >"$mnt/b/b/f"
	setfattr -n user.ramp.pages -v "$1" "$mnt/b/b/f"
	cp "$scratch/mirror" "$mnt/b/b/f"
	: >"$scratch/said"
	: >"$scratch/stores"
	mkfifo "$scratch/hold.$1"
	env RAMPFS_QUIET=1 rampfs-run /usr/bin/python3 tests/mount/moves/stretches.py "$mnt/b/b/f" "$scratch/mirror" \
		"$mnt/b/.ramp/metrics" "$(daemon_of a)" ${2-} <"$scratch/hold.$1" >"$scratch/said" &
	watcher=$!
	exec 4>"$scratch/hold.$1"
	within 20 grep -q mapped "$scratch/said"
	rampfs-migrate --wait "$mnt/b/b/f" a
	within 20 grep -q gone "$scratch/said"
	env RAMPFS_QUIET=1 rampfs-run /usr/bin/python3 "$scratch/stores.py" "$mnt/a/a/f" >"$scratch/stores" 2>/dev/null &
	writer=$!
	within 20 grep -q stores "$scratch/stores"
	slow_net 200mbit
	rampfs-migrate --mode precopy --max-rounds 1 "$mnt/a/a/f" b
	wait $writer && fail "the program at the old node continued"
	fast_net
	at_most 60 grep -qE "looked|Error" "$scratch/said"
	within 60 settled "$mnt/b/b/f"
	exec 4>&-
	wait $watcher || fail "$1: $(cat "$scratch/said")"
	grep -q whole "$scratch/said" || fail "$1: $(cat "$scratch/said")"
	rm "$mnt/b/b/f"
}
echo "huge pages: what is present is not registered, what is missing is, and a child finds the same"
comes_back auto
echo "small pages, and a mapping that grows from what is present over what is missing"
comes_back small grow
cluster_stop
