#!/usr/bin/env bash
# Pages are cut out of a segment just as it begins to move, while a program stores as many elsewhere: the
# file has as many pages as at the look before, and others.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export HOLD_MOUNT=$mnt/a HOLD_FILE=$scratch/hold RAMPFS_QUIET=1
# The library comes before AddressSanitizer's.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
LD_PRELOAD=$build/tests/libhold.so cluster_start -n 3 -c 1G
holder_program=(rampfs-run "$build/tests/pages" "$mnt/a/a/f")
# begin WHAT COMMAND...: starts it; it waits in the daemon where that does WHAT
begin() {
	rm -f "$HOLD_FILE.held"
	touch "$HOLD_FILE.$1"
	"${@:2}" &
	within 20 test -e "$HOLD_FILE.held"
}
byte() { od -An -tx1 -j $(($1 * 4096)) -N 1 "$mnt/b/b/f" | tr -d ' '; }
cut_meanwhile() { # PAGE COMMAND...: COMMAND cuts the page out
	local cutter mover
	head -c 1M /dev/zero | tr '\0' x >"$mnt/a/a/f"
	fallocate -p -o $((200 * 4096)) -l 4096 "$mnt/a/a/f"
	holder program
	same 78 "$(ask program load 0)" "the byte that it finds" # so it has the segment mapped
	begin cut "${@:2}"
	cutter=$!
	begin proc rampfs-migrate --wait "$mnt/a/a/f" b # mv would wait for the cutter
	mover=$!
	within 20 grep -q reserved "$mnt/b/.ramp/status" # so the source has looked at it
	same "done" "$(ask program store 200)" "a store into a hole"
	rm "$HOLD_FILE.cut"
	wait "$cutter" || fail "it was not cut"
	rm "$HOLD_FILE.proc"
	wait "$mover" || fail "it was not moved"
	within 10 test -e "$mnt/b/b/f"
	same 00 "$(byte "$1")" "the byte that was cut"
	same 5a "$(byte 200)" "the byte stored meanwhile"
	bye program
	rm "$mnt/b/b/f"
}

echo "a punched hole"
cut_meanwhile 7 fallocate -p -o $((7 * 4096)) -l 4096 "$mnt/a/a/f"
echo "shorter, and as long as before"
shorter() { truncate -s $((255 * 4096)) "$mnt/a/a/f" && truncate -s 1M "$mnt/a/a/f"; }
cut_meanwhile 255 shorter

echo "a hole that is punched once the pages may be read by the target, whose freeze waits for it"
head -c 1M /dev/zero | tr '\0' x >"$mnt/a/a/f"
begin cut fallocate -p -o $((7 * 4096)) -l 4096 "$mnt/a/a/f"
cutter=$!
rampfs-migrate --wait "$mnt/a/a/f" b &
mover=$!
within 20 grep -q reserved "$mnt/b/.ramp/status"
sleep 0.3 # of the second that a freeze waits; a slower freeze finds it cut before
rm "$HOLD_FILE.cut"
wait "$cutter" || fail "it was not cut"
wait "$mover" || fail "it was not moved"
same 00 "$(byte 7)" "the byte that was cut"
same $((255 * 8)) "$(stat -c %b "$mnt/b/b/f")" "its blocks: a hole has none"
echo "a hole that cannot be punched in time is not punched later"
head -c 800M /dev/urandom >"$mnt/a/a/g"
holder_program=(rampfs-run "$build/tests/pages" "$mnt/a/a/g")
holder program
ask program load 0 >"$scratch/before" # so it has the segment mapped
target=$(pgrep -f "rampfs --daemon .*$mnt/b\$")
slow() { # 12 s; some pages now and then are enough for the copy to continue
	chrt -f -p 10 $BASHPID
	for ((i = 0; i < 12; i++)); do
		kill -STOP "$target"
		sleep 1
		kill -CONT "$target"
		sleep 0.01
	done
}
# Its program is told so, unless the machine stops and the copy ends meanwhile.
tries=0
is_late() {
	local said slowly mover
	tries=$((tries + 1))
	: >"$scratch/err"
	rampfs-migrate --mode copy --progress "$mnt/a/a/g" b 2>"$scratch/err" &
	mover=$!
	within 20 grep -q 'copying\|on node b' "$scratch/err"
	slow & slowly=$!
	said=$(ask program remove 0)
	touch "$HOLD_FILE.cut"
	kill -INT $mover || true
	wait $slowly
	wait $mover || true
	[ "$said" != "Connection timed out" ] || [ -e "$mnt/b/b/g" ] || return 0
	[ $tries -lt 5 ] || fail "a hole in a segment that is being copied: $said"
	rm "$HOLD_FILE.cut"
	[ ! -e "$mnt/b/b/g" ] || rampfs-migrate --wait "$mnt/b/b/g" a
	return 1
}
until is_late; do :; done
same "done" "$(ask program store 0)" "a store after that"
rm "$HOLD_FILE.cut"
sleep 0.5
same 5a "$(ask program load 0)" "the stored byte"
bye program
cluster_stop
