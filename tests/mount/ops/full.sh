#!/usr/bin/env bash
# A store that fills up by mapped stores, by writes and by segments that come, all at once: promises are
# kept (allocated room can be filled, a segment that has moved there has room for every page), requests
# for more room are refused, and no program loses a byte.
. tests/lib/cluster.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
cluster_start -n 2 -c 192M
a=$mnt/a/a b=$mnt/b/b
before="$(daemon a) $(daemon b)"
quietly() { "$@" 2>/dev/null; }
cat >"$scratch/fill.py" <<'P'
import errno, mmap, os, sys
how, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
def page(number):
    return (b"%s %d|" % (os.path.basename(path).encode(), number)).ljust(64, b"#") * 64
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
progress = os.open(sys.argv[4], os.O_RDWR | os.O_CREAT) if len(sys.argv) > 4 else -1
if how in ("make", "write"):
    for n in range(size // 4096):
        try:
            assert os.pwrite(fd, page(n), n * 4096) == 4096
        except OSError as e:
            assert e.errno == errno.ENOSPC and how == "write", e
            sys.exit(0)
        if progress >= 0:
            os.pwrite(progress, b"%20d" % (n + 1), 0)
elif how == "store": # until SIGBUS: it is not told how much room there is
    if os.fstat(fd).st_size < size:
        os.ftruncate(fd, size)
    m = mmap.mmap(fd, size)
    for n in range(size // 4096):
        m[n * 4096:n * 4096 + 4096] = page(n)
        if progress >= 0:
            os.pwrite(progress, b"%20d" % (n + 1), 0)
else: # check: that number of pages
    with open(path, "rb") as f:
        for n in range(int(os.pread(progress, 20, 0)) if progress >= 0 else size // 4096):
            assert f.read(4096) == page(n), (path, n)
P
fill() { python3 "$scratch/fill.py" "$@"; }
for i in 1 2 3 4 5 6 7 8 9 10; do fill make "$a/s$i" 10; done
fallocate -l 24M "$b/promised" # and not touched yet
rampfs-migrate --mode demand "$a/s1" b # room for all of it is reserved, its pages are elsewhere
within 10 test -e "$b/s1"

echo "filled from three sides"
mkfifo "$scratch/held"
head -c 4096 /dev/zero >"$b/watched"
map_and_wait='import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
sys.stdin.read()'
rampfs-run python3 -c "$map_and_wait" "$b/watched" <"$scratch/held" 2>"$scratch/warned" &
watcher=$!
exec 7>"$scratch/held"
for f in stored written; do printf '%20d' 0 >"$scratch/$f"; done
RAMPFS_QUIET=1 rampfs-run python3 "$scratch/fill.py" store "$b/stored" 400 "$scratch/stored" 2>/dev/null &
storer=$!
fill write "$b/written" 400 "$scratch/written" &
writer=$!
moved=(s1) stayed=()
half_full() { [ $(($(cat "$scratch/stored") + $(cat "$scratch/written"))) -ge 24000 ]; }
within 60 half_full
for i in 2 3 4 5 6 7 8 9 10; do
	mode=$([ $((i % 2)) = 0 ] && echo demand || echo lazy)
	if rampfs-migrate --mode "$mode" "$a/s$i" b 2>"$scratch/err"; then
		moved+=("s$i")
	else
		grep -qi 'room\|No space' "$scratch/err" || fail "s$i was refused for another reason: $(cat "$scratch/err")"
		stayed+=("s$i")
	fi
done
status=0
wait $storer || status=$?
same 135 $status "the end of the program that stored (SIGBUS)"
wait $writer || fail "the writer found something else than ENOSPC"
echo "  moved: ${moved[*]}; refused: ${stayed[*]-none}; $(cat "$scratch/stored") pages stored, $(cat "$scratch/written") written"
[ ${#stayed[@]} -gt 0 ] || fail "all found room: nothing was tried"
refused "No space left" dd if=/dev/zero of="$b/more" bs=1M count=8 status=none
rm -f "$b/more"

echo "it is full: programs are told, in one line, and the log; and it takes an empty file"
nearly="the store of this node is nearly full, [0-9.]+ of 192\.0 MiB are free: a program's store into a page that takes no memory yet is SIGBUS"
within 20 grep -qE "^rampfs: $nearly" "$scratch/warned"
same 1 "$(grep -cE "warning: $nearly" "$scratch/cluster/b.log")" "lines in the log"
same 0 "$(grep -c "nearly full" "$scratch/cluster/a.log" || true)" "lines in the log of the other node"
rampfs-run python3 -c "$map_and_wait" "$b/watched" <"$scratch/held" 2>"$scratch/warned.late" 7>&- &
late=$!
within 20 grep -qE "^rampfs: $nearly" "$scratch/warned.late"
exec 7>&-
wait $watcher $late
same 1 "$(wc -l <"$scratch/warned")" "lines at the program"
: >"$b/empty"
refused "No space left" dd if=/dev/zero of="$b/empty" bs=1M count=8 status=none
rm "$b/empty" "$b/watched"

echo "it is full: allocated room, and segments that have moved there, can be filled to the last page"
rampfs-run python3 "$scratch/fill.py" store "$b/promised" 24
fill check "$b/promised" 24
for s in "${moved[@]}"; do
	within 10 test -e "$b/$s"
	fill check "$b/$s" 10
	rampfs-run python3 "$scratch/fill.py" store "$b/$s" 10
	within 20 eval '[ "$(xattr "$b/$s" state)" = stable ]'
	same none "$(xattr "$b/$s" lost)" "lost pages of $s"
	fill check "$b/$s" 10
done
for s in "${stayed[@]}"; do fill check "$a/$s" 10; done
fill check "$b/stored" 400 "$scratch/stored"
fill check "$b/written" 400 "$scratch/written"
same "$before" "$(daemon a) $(daemon b)" "the daemons"

echo "and room again"
rm "$b/stored" "$b/written"
for s in "${stayed[@]}"; do
	within 20 quietly rampfs-migrate --wait "$a/$s" b
	within 10 test -e "$b/$s"
	fill check "$b/$s" 10
done
cluster_stop
echo "full: every promise was kept"
