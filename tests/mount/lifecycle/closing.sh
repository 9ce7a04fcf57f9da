#!/usr/bin/env bash
# A daemon ends while work of it is under way: a thread that comes back finds everything that it needs, or that the
# daemon is over. The sanitizers look.
. tests/lib/cluster.sh
export HOLD_MOUNT=$mnt/a HOLD_FILE=$scratch/hold
# The library comes before AddressSanitizer's.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
# There is one voter, so that its own sync decides.
LD_PRELOAD=$build/tests/libhold.so cluster_start -n 1 -c 64M
contrib/local-cluster join -c 64M b "$scratch/cluster"
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/a\$" | head -n 1; }
keeper() { pgrep -f -- "^rampfs -o .*$mnt/a\$"; }
another_daemon() { local now && now=$(daemon) && [ "$now" != "$1" ]; }
serves_nobody() { ! grep -qx fuse /proc/"$1"/task/*/comm 2>/dev/null; }
at() { [ "$(xattr "$1" state)" = stable ]; }
# begin WHAT: threads that do WHAT wait from now on; end_under: the daemon ends, and then they continue
begin() { rm -f "$HOLD_FILE.held" && touch "$HOLD_FILE.$1"; }
end_under() {
	local was
	within 20 test -e "$HOLD_FILE.held"
	was=$(daemon)
	kill -HUP "$(keeper)"
	within 20 serves_nobody "$was"
	sleep 0.2 # it closes everything that does not wait
	rm "$HOLD_FILE.$1"
	within 20 another_daemon "$was"
}

echo "a file's times are decided when the daemon has closed its store"
echo bytes >"$mnt/a/a/f"
sleep 1
begin sync
touch -d @1000000000 "$mnt/a/a/f"
end_under sync
same 1000000000 "$(stat -c %Y "$mnt/a/a/f")" "the time that was set"

echo "the programs that have a segment open are looked for when the daemon serves its mount no more"
begin proc
rampfs-migrate "$mnt/a/a/f" b &
end_under proc
wait $! || true # the move was given up, and requested again or not
within 20 eval "[ -e '$mnt/a/a/f' ] || [ -e '$mnt/b/b/f' ]"
f=$mnt/a/a/f
[ -e "$f" ] || f=$mnt/b/b/f
within 20 at "$f"
same bytes "$(cat "$f")" "its bytes"
cluster_stop
