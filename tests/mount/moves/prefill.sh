#!/usr/bin/env bash
# A node that is kept near (rampfs-migrate --prefill, user.ramp.prefill) on real mounts: a move finds nearly all there, from
# under a writing program; it goes elsewhere; daemons are killed; what stands in the way is said; bad values.
. tests/lib/cluster.sh
cluster_start -n 3 -c 512M
settled() { [ "$(xattr "$1" state)" = stable ]; }
# is FILE STATE [WORDS]: what its owner says of its prefill
is() { xattr "$1" prefill_state | grep -qE "^state=$2 .*${3:-}"; }
# pages that came after TRANSFER, of the last move of a file
after() { xattr "$1" last_move | sed 's/.* demand_pages=\([0-9]*\) prefetch_pages=\([0-9]*\) .*/\1 + \2/'; }
# rounds have brought most of FILE, and at most MAX pages came after TRANSFER
came_ahead() {
	within 20 settled "$1"
	xattr "$1" last_move | grep -q ' round_pages=[1-9]' || fail "no round: $(xattr "$1" last_move)"
	[ $(($(after "$1"))) -le "$2" ] || fail "$(after "$1") pages came afterwards"
}

echo "a program that stores all the time: b is kept near, and mv finds nearly all there"
head -c 64M /dev/urandom >"$scratch/mirror"
cp "$scratch/mirror" "$mnt/a/a/f"
within 20 setfattr -n user.ramp.pages -v small "$mnt/a/a/f"
: >"$scratch/said"
rampfs-run /usr/bin/python3 tests/mount/moves/few.py "$mnt/a/a/f" 3<>"$scratch/said" 2>/dev/null &
program=$!
within 20 test -s "$scratch/said"
within 20 rampfs-migrate --prefill --limit 200M "$mnt/c/a/f" b # c's tables raise the level, too
within 20 is "$mnt/a/a/f" keeping "have_bytes=[1-9]"
same "b 200M" "$(xattr "$mnt/c/a/f" prefill)" "the attribute at c"
getfattr -d "$mnt/a/a/f" 2>/dev/null | grep -q '^user.ramp.prefill="b 200M"$' || fail "the attribute is not listed"
rampfs-status "$mnt/a" | grep -qE '^a/f  +a -> b  +keeping  +[0-9.]+ MiB there, [0-9.]+ .*B behind' ||
	fail "status: $(rampfs-status "$mnt/a")"
rampfs-status --json "$mnt/a" | python3 -c '
import json, sys
s = [s for s in json.load(sys.stdin)["segments"] if s["name"] == "f"][0]
p = s["prefill_state"]
assert s["prefill"] == "b 200M" and p["state"] == "keeping" and p["have_bytes"] > 32 << 20, s
assert p["behind_bytes"] <= p["have_bytes"] and p["since_ms"] >= 0 and p["why"] == "", p'
used=$(df --output=used -B1 "$mnt/b" | tail -n 1)
[ "$used" -ge $((64 << 20)) ] || fail "b counts no room for it: $used"
kill -0 $program || fail "the program has ended"
mv "$mnt/a/a/f" "$mnt/a/b/g" # under another name
wait $program && fail "the program at the old node continued"
came_ahead "$mnt/b/b/g" 4096
grep -q 'moves in mode precopy: user.ramp.prefill' "$scratch/cluster/a.log" || fail "mv did not continue it"
is "$mnt/b/b/g" here || fail "at b: $(xattr "$mnt/b/b/g" prefill_state)"
/usr/bin/python3 tests/mount/moves/few_came.py "$mnt/b/b/g" "$scratch/mirror" "$scratch/said"

echo "a segment at rest; it goes elsewhere, and the wish goes with it"
rm "$mnt/b/b/g"
cp "$scratch/mirror" "$mnt/a/a/x"
setfattr -n user.ramp.prefill -v b "$mnt/b/a/x"
within 20 is "$mnt/a/a/x" keeping "behind_bytes=0"
mv "$mnt/a/a/x" "$mnt/a/c/"
within 20 is "$mnt/c/c/x" keeping
rampfs-migrate --wait "$mnt/c/c/x" b
came_ahead "$mnt/b/b/x" 512
cmp "$scratch/mirror" "$mnt/b/b/x"
setfattr -x user.ramp.prefill "$mnt/b/b/x"
refused "No such attribute" getfattr -n user.ramp.prefill "$mnt/b/b/x"
refused "No such attribute" setfattr -x user.ramp.prefill "$mnt/b/b/x"
! getfattr -d "$mnt/b/b/x" | grep -q prefill || fail "it is listed still"

echo "a move that comes in the first, slow round ends its limit"
rampfs-migrate --prefill --limit 1M "$mnt/b/b/x" a
within 20 is "$mnt/b/b/x" filling "have_bytes=[1-9]"
rampfs-migrate --wait "$mnt/b/b/x" a # 64 s with that limit
came_ahead "$mnt/a/a/x" 512
grep -q 'moves in mode precopy: user.ramp.prefill' "$scratch/cluster/b.log" || fail "the move did not continue it"
cmp "$scratch/mirror" "$mnt/a/a/x"
setfattr -x user.ramp.prefill "$mnt/a/a/x"
rampfs-migrate --wait "$mnt/a/a/x" b

echo "it ends with the wish, and with the name; its room is free then"
free_at() { [ "$(df --output=used -B1 "$mnt/$1" | tail -n 1)" -le $((8 << 20)) ]; }
rampfs-migrate --prefill "$mnt/b/b/x" a
within 20 is "$mnt/b/b/x" keeping
rampfs-migrate --prefill "$mnt/b/b/x" none
within 20 free_at a
rampfs-migrate --prefill "$mnt/b/b/x" a
within 20 is "$mnt/b/b/x" keeping
rm "$mnt/b/b/x"
within 20 free_at a

echo "write(2), chmod, rename, truncate and holes meanwhile"
cp "$scratch/mirror" "$mnt/a/a/io"
cp "$scratch/mirror" "$scratch/io"
rampfs-migrate --prefill "$mnt/a/a/io" b
within 20 is "$mnt/a/a/io" keeping
chmod 640 "$mnt/a/a/io"
mv "$mnt/a/a/io" "$mnt/a/a/named"
for file in "$mnt/a/a/named" "$scratch/io"; do
	printf 'some bytes' | dd of="$file" bs=1 seek=5000000 conv=notrunc status=none
	fallocate -p -o 8M -l 3M "$file"
	truncate -s 40M "$file"
	truncate -s 48M "$file"
	printf 'grown' | dd of="$file" bs=1M seek=44 conv=notrunc status=none
done
within 20 is "$mnt/a/a/named" keeping
mv "$mnt/a/a/named" "$mnt/a/b/"
within 20 settled "$mnt/b/b/named"
cmp "$scratch/io" "$mnt/b/b/named"
rm "$mnt/b/b/named"

echo "daemons killed: the wish survives, what was there is thrown away"
cp "$scratch/mirror" "$mnt/a/a/k"
rampfs-migrate --prefill "$mnt/a/a/k" b
for victim in a b; do
	within 20 is "$mnt/a/a/k" keeping
	daemon=$(pgrep -f "rampfs --daemon .*$mnt/$victim\$")
	kill -9 $daemon
	# The next daemon begins another attempt: the old one's state is not taken for its own.
	within 20 sh -c "! kill -0 $daemon" 2>/dev/null
	[ $victim = a ] || within 20 grep -qE 'no prefill now: .*(gave the pre-copy up|is down|does not answer)' "$scratch/cluster/a.log"
	within 40 is "$mnt/a/a/k" keeping
done
same b "$(xattr "$mnt/a/a/k" prefill)" "the attribute"
mv "$mnt/a/a/k" "$mnt/a/b/"
within 20 settled "$mnt/b/b/k"
cmp "$scratch/mirror" "$mnt/b/b/k"
rm "$mnt/b/b/k"

echo "what stands in the way is said: the node is full, down, fenced; the name is taken; a program could store unseen"
head -c 420M /dev/zero >"$mnt/c/c/large"
cp "$scratch/mirror" "$mnt/a/a/w"
rampfs-migrate --prefill "$mnt/a/a/w" c
within 20 is "$mnt/a/a/w" waiting "again_ms=.*why=.*too little room"
rampfs-status "$mnt/a" | grep -qE '^a/w  +a -> c  +waiting .* too little room .*; again in [0-9]+ s$' || fail "status does not say why"
rm "$mnt/c/c/large"
: >"$mnt/c/c/w"
within 60 is "$mnt/a/a/w" waiting "why=.*named w there"
rm "$mnt/c/c/w"
within 60 is "$mnt/a/a/w" keeping
cat >"$scratch/pins.py" <<'P'
import mmap, os, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
direct = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
print("ready", flush=True)
sys.stdin.readline()
P
mkfifo "$scratch/hold"
direct=$(mktemp /var/tmp/rampfs-direct.XXXXXX) # not every tmpfs knows O_DIRECT
: >"$scratch/pins"
rampfs-run /usr/bin/python3 "$scratch/pins.py" "$mnt/a/a/w" "$direct" <"$scratch/hold" >"$scratch/pins" &
program=$!
exec 4>"$scratch/hold"
within 20 grep -q ready "$scratch/pins"
within 20 is "$mnt/a/a/w" waiting "why=.*[0-9].*direct I/O"
exec 4>&-
wait $program || true
rm -f "$direct"
within 60 is "$mnt/a/a/w" keeping
setfattr -n user.ramp.mmap -v passthrough "$mnt/a/a/w" 2>/dev/null &&
	within 20 is "$mnt/a/a/w" waiting "why=user.ramp.mmap is passthrough" &&
	setfattr -n user.ramp.mmap -v none "$mnt/a/a/w"
within 60 is "$mnt/a/a/w" keeping
umount "$mnt/c"
within 20 is "$mnt/a/a/w" waiting "why="
within 20 flock -n "$state/c/lock" true
within 60 is "$mnt/a/a/w" waiting "why=the node is down"
rampfs-node -m "$mnt/a" fence --force c </dev/null
within 60 is "$mnt/a/a/w" waiting "why=the node is fenced"

echo "bad values, other users"
set_to() { setfattr -n user.ramp.prefill -v "$1" "$mnt/a/a/w"; }
refused "No such file or directory" set_to nowhere
refused "Invalid argument" set_to "b fast"
refused "Invalid argument" set_to "b 1"
refused "Invalid argument" set_to "b "
grep -q 'user.ramp.prefill does not take "b fast": a limit is bytes a second' "$scratch/cluster/a.log" || fail "the log does not say why"
refused "no such node: nowhere" rampfs-migrate --prefill "$mnt/a/a/w" nowhere
refused "--prefill moves nothing" rampfs-migrate --prefill --wait "$mnt/a/a/w" b
refused "is not on a rampfs mount" rampfs-migrate --prefill "$scratch/mirror" b
chmod 666 "$mnt/a/a/w"
refused "Operation not permitted" setpriv --reuid 65534 --regid 65534 --clear-groups setfattr -n user.ramp.prefill -v b "$mnt/a/a/w"
rampfs-migrate --prefill "$mnt/a/a/w" a # its own node: nothing to do until it leaves
within 20 is "$mnt/a/a/w" here
rampfs-migrate --prefill "$mnt/a/a/w" b
within 20 is "$mnt/a/a/w" keeping
umount "$mnt/a" # nothing waits for it
within 20 flock -n "$state/a/lock" true
within 20 free_at b
cluster_stop
