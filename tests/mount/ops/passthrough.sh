#!/usr/bin/env bash
# user.ramp.mmap=passthrough: a program without the shim maps a segment's very pages, and holds it.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
keeper() { pgrep -f -- "^rampfs -o .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
quietly() { "$@" 2>/dev/null; }
set_xattr() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp." + sys.argv[2], sys.argv[3].encode())' "$@"; }
# A program that keeps a mapping and takes commands, a line at a time, and answers each.
cat >"$scratch/holder.py" <<'P'
import ctypes, os, sys
# mmap(2) itself: Python's own keeps a duplicate of the file.
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
fd = at = size = None
for line in sys.stdin:
    word, *rest = line.split()
    try:
        out = "yes"
        if word == "open":
            fd = os.open(rest[0], os.O_RDWR)
            size = os.fstat(fd).st_size
        elif word == "map":
            at = libc.mmap(None, size, 3, 1, fd, 0)
            if at == ctypes.c_void_p(-1).value:
                out = os.strerror(ctypes.get_errno())
        elif word == "close":
            os.close(fd)
        elif word == "unmap":
            libc.munmap(at, size)
        elif word == "put":
            ctypes.memmove(at + int(rest[0]), rest[1].encode(), len(rest[1]))
        elif word == "get":
            out = ctypes.string_at(at + int(rest[0]), int(rest[1])).decode()
    except OSError as e:
        out = e.strerror
    print(out, flush=True)
P
holder_program=(python3 "$scratch/holder.py")
# A move is refused, and the log's last refusal says why. RELEASE comes a little after close(2).
stays_because() {
	refused "Device or resource busy" mv "$mnt/a/a/seg" "$mnt/a/b/"
	grep 'stays: ' "$scratch/cluster/a.log" | tail -n 1 | grep -q "$1"
}
moves() { mv "$mnt/a/$1/seg" "$mnt/a/$2/"; }
is() { [ "$(xattr "$1" "$2")" = "$3" ]; }
cluster_start -n 2 -c 256M
head -c 8M /dev/zero >"$mnt/a/a/seg"

echo "without the attribute there is no shared mapping; with it there is"
holder plain
same yes "$(ask plain open "$mnt/a/a/seg")" "an open before"
same "No such device" "$(ask plain map)" "a mapping without the attribute"
ask plain close >/dev/null
set_xattr "$mnt/a/a/seg" mmap passthrough
same passthrough "$(xattr "$mnt/a/a/seg" mmap)" "the attribute"
same yes "$(ask plain open "$mnt/a/a/seg")" "an open with it"
same yes "$(ask plain map)" "a mapping with it"

echo "the same pages: with the shim, without it, and by read(2) and write(2)"
holder shim rampfs-run
same yes "$(ask shim open "$mnt/a/a/seg")" "the shim's open"
same yes "$(ask shim map)" "the shim's mapping"
ask plain put 5000 plain >/dev/null
same plain "$(ask shim get 5000 5)" "a store without the shim, by a load with it"
same plain "$(tail -c +5001 "$mnt/a/a/seg" | head -c 5)" "the same by read(2)"
ask shim put 4000000 shimmed >/dev/null
same shimmed "$(ask plain get 4000000 7)" "a store with the shim, by a load without it"
printf written | dd of="$mnt/a/a/seg" bs=1 seek=6000000 conv=notrunc status=none
same written "$(ask plain get 6000000 7)" "a write(2), by a load without the shim"
ask shim unmap >/dev/null
ask shim close >/dev/null

echo "it does not move while it is open, nor while a mapping outlives the open file"
within 5 stays_because "open for mapping"
ask plain close >/dev/null
within 5 stays_because "mapped without the shim"
same plain "$(ask plain get 5000 5)" "after the refused moves"

echo "a daemon that is killed: the mapping continues, and others can be made beside an open one"
holder other
same yes "$(ask other open "$mnt/a/a/seg")" "a second open"
for _ in 1 2 3; do
	was=$(daemon a)
	kill -9 "$was"
	ask plain put 7000 "$was" >/dev/null
	within 20 another_daemon a "$was"
	same "$was" "$(tail -c +7001 "$mnt/a/a/seg" | head -c ${#was})" "a store while there was no daemon"
	same yes "$(ask other map)" "a mapping by an open of the old daemon's"
	same "$was" "$(ask other get 7000 ${#was})" "its load"
	ask other unmap >/dev/null
done
within 10 stays_because "open for mapping"
ask other close >/dev/null
ask plain unmap >/dev/null

echo "when all is closed it moves, and is mapped there; while pages are elsewhere there is no mapping"
within 10 quietly moves a b
within 10 test -e "$mnt/b/b/seg"
within 10 is "$mnt/b/b/seg" state stable
same yes "$(ask plain open "$mnt/b/b/seg")" "an open on b"
same yes "$(ask plain map)" "a mapping on b"
same shimmed "$(ask plain get 4000000 7)" "the bytes stored on a"
ask plain put 100 on-b >/dev/null
ask plain unmap >/dev/null
ask plain close >/dev/null
within 10 quietly rampfs-migrate --mode demand "$mnt/b/b/seg" a
within 10 test -e "$mnt/a/a/seg"
same yes "$(ask plain open "$mnt/a/a/seg")" "an open of a half-pulled segment"
same "No such device" "$(ask plain map)" "a mapping of a half-pulled segment"
ask plain close >/dev/null
same on-b "$(tail -c +101 "$mnt/a/a/seg" | head -c 4)" "the bytes stored on b"
cat "$mnt/a/a/seg" >/dev/null # pulls all of it
within 10 is "$mnt/a/a/seg" state stable

echo "keeper and daemon killed: the mapping lives on, and is known to the next mount"
same yes "$(ask plain open "$mnt/a/a/seg")" "an open before"
same yes "$(ask plain map)" "a mapping before"
keeper_was=$(keeper a) was=$(daemon a)
kill -STOP "$was"
kill -9 "$keeper_was" "$was"
while kill -0 "$keeper_was" "$was" 2>/dev/null; do sleep 0.02; done
rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
within 20 grep -q '^quorum: yes' "$mnt/a/.ramp/status"
ask plain put 200 lives >/dev/null
same lives "$(tail -c +201 "$mnt/a/a/seg" | head -c 5)" "a store through the old mount"
within 10 stays_because "mapped without the shim"
ask plain unmap >/dev/null
ask plain close >/dev/null

echo "an open between CONNECT and the prepare gets no mapping, and the move continues"
begun() { sed -n 's/^rampfs_migrations_started_total //p' "$mnt/a/.ramp/metrics"; }
has_begun() { [ "$(begun)" -gt "$1" ]; }
# The target is stopped, so that CONNECT has no answer; too long a stop, and the move gives up.
opened_meanwhile() {
	local was move done=0
	was=$(begun)
	kill -STOP "$(daemon b)"
	rampfs-migrate "$mnt/a/a/seg" b 2>/dev/null &
	move=$!
	within 10 has_begun "$was"
	same yes "$(ask plain open "$mnt/a/a/seg")" "an open meanwhile"
	same "No such device" "$(ask plain map)" "its mapping"
	kill -CONT "$(daemon b)"
	wait "$move" || done=$?
	ask plain close >/dev/null
	return $done
}
within 20 opened_meanwhile
within 10 test -e "$mnt/b/b/seg"
same lives "$(tail -c +201 "$mnt/b/b/seg" | head -c 5)" "the bytes stored before the move"
same yes "$(ask plain open "$mnt/b/b/seg")" "an open there"
within 10 is "$mnt/b/b/seg" state stable
ask plain close >/dev/null
same yes "$(ask plain open "$mnt/b/b/seg")" "an open there, when it has settled"
same yes "$(ask plain map)" "its mapping"
ask plain unmap >/dev/null
ask plain close >/dev/null

echo "passthrough is off again: as it was before"
within 10 test -e "$mnt/b/b/seg"
set_xattr "$mnt/b/b/seg" mmap none
within 10 is "$mnt/b/b/seg" state stable
same yes "$(ask plain open "$mnt/b/b/seg")" "an open at the end"
same "No such device" "$(ask plain map)" "a mapping at the end"
bye plain
bye shim
bye other
cluster_stop
