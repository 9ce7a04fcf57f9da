#!/usr/bin/env bash
# A user's processes that block every thread that looks into them, or that releases their memory (held.py). A move says
# EBUSY, and the log names the process; all other work continues; and when those processes have ended all is as before.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
move() { timeout 60 python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$2"; }
cat >"$scratch/pages.py" <<'P'
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
print("mapped", flush=True)
for line in sys.stdin:
    at = int(line) * 4096
    m[at + 8] = 7
    print(m[at:at + 4].decode(), flush=True)
P
cluster_start -n 2 -c 96M
# Found now: while processes are held pgrep waits, too.
was_a=$(daemon a) was_b=$(daemon b) broker=$(pgrep -P "$(daemon b)" -f -- --broker)
python3 -c 'import sys; sys.stdout.buffer.write(b"".join(b"p%03d" % i + bytes(4092) for i in range(1000)))' >"$mnt/a/a/secret"
cp "$mnt/a/a/secret" "$mnt/b/b/mine"
cp "$mnt/a/a/secret" "$mnt/b/b/theirs"
chown 65534:65534 "$mnt/b/b/theirs"
rampfs-migrate --mode demand "$mnt/a/a/secret" b
within 5 test -e "$mnt/b/b/secret"
holder_program=(rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/secret")
holder victim
same mapped "$(hear victim)" "the victim"
page=0
touch_page() {
	same "$(printf 'p%03d' $page)" "$(ask victim $page)" "page $page"
	page=$((page + 1))
}
touch_page

echo "-- an execve that does not end"
holder_program=(python3 tests/mount/hostile/held.py exec "$mnt/b" 1)
holder held
pid=$(hear held)
refused "busy" move "$mnt/b/b/mine" "$mnt/b/a/mine"
grep -q "process $pid .* can't be looked into, and may map it" "$scratch/cluster/b.log" ||
	fail "the log does not name the process: $(tail -n 4 "$scratch/cluster/b.log")"
from=$SECONDS
for _ in 1 2 3 4 5 6; do refused "busy" move "$mnt/b/b/mine" "$mnt/b/a/mine"; done # it is known: no waiting
[ $((SECONDS - from)) -lt 15 ] || fail "six refusals took $((SECONDS - from)) s"
same 1 "$(grep -c "process $pid .* can't be looked into (an execve" "$scratch/cluster/b.log")" "lines about it"
holder_program=(rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/mine")
holder newcomer
same mapped "$(hear newcomer)" "a program that comes meanwhile"
same p005 "$(ask newcomer 5)" "its page"
bye newcomer
touch_page
finish held
within 20 move "$mnt/b/b/mine" "$mnt/b/a/mine"
within 20 move "$mnt/a/a/mine" "$mnt/a/b/mine"
within 5 test -e "$mnt/b/b/mine"

echo "-- a process whose agent had priority"
holder_program=(python3 tests/mount/hostile/held.py agent "$mnt/b" 1)
holder held
hear held >"$scratch/pids"
# A program of the same user: its sessions look into each other.
holder_program=(setpriv --reuid 65534 --regid 65534 --clear-groups rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/theirs")
holder theirs
for _ in 1 2 3; do
	holder_program=(rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/mine")
	holder newcomer
	same mapped "$(hear newcomer)" "a program of another user that comes meanwhile"
	same p005 "$(ask newcomer 5)" "its page"
	bye newcomer
	touch_page
done
same mapped "$(hear theirs)" "another program of that user"
bye theirs
finish held

echo "-- memories that can't be released"
holder_program=(python3 tests/mount/hostile/held.py memory "$mnt/b" 12)
holder held
hear held >"$scratch/pids"
same 12 "$(wc -w <"$scratch/pids")" "processes that hold theirs"
# The daemon looks each second, until all of them have been released, or hang.
for _ in 1 2 3 4; do
	sleep 1
	touch_page
	holder_program=(rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/mine")
	holder newcomer
	same mapped "$(hear newcomer)" "a program that comes meanwhile"
	bye newcomer
done
sleeping=$(grep -ls '^State:.D' "/proc/$was_b"/task/*/status || true)
[ -z "$sleeping" ] || fail "threads of the daemon hang: $(for task in $sleeping; do cat "${task%status}comm"; done)"
[ "$(grep -ls '^State:.D' "/proc/$broker"/task/*/status | wc -l)" -gt 0 ] || fail "no thread hangs in the broker: no attack"
# A kernel that takes that lock to tell what is mapped (before Linux 6.17) lets no process look into them now.
if said=$(move "$mnt/b/b/mine" "$mnt/b/a/mine" 2>&1); then
	within 20 move "$mnt/a/a/mine" "$mnt/a/b/mine"
	within 5 test -e "$mnt/b/b/mine"
else
	[[ $said == *busy* ]] || fail "a move meanwhile: $said"
fi
touch_page
finish held
none_hangs() { ! grep -qs '^State:.D' "/proc/$broker"/task/*/status; }
within 20 none_hangs
within 20 move "$mnt/b/b/mine" "$mnt/b/a/mine"
same "$was_a $was_b" "$(daemon a) $(daemon b)" "the daemons"

echo "-- a memory that can't be released when a pull ends"
within 20 move "$mnt/b/b/theirs" "$mnt/b/a/theirs"
rampfs-migrate --mode demand "$mnt/a/a/theirs" b
within 5 test -e "$mnt/b/b/theirs"
holder_program=(rampfs-run python3 tests/mount/hostile/held.py pulled "$mnt/b/b/theirs")
holder held
hear held >"$scratch/pids"
theirs=$(stat -c %i "$mnt/b/b/theirs")
same "$(seq -f p%03g 0 999 | md5sum)" "$(timeout 60 rampfs-run python3 -c '
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for page in range(1000):
    print(m[page * 4096:page * 4096 + 4].decode())' "$mnt/b/b/theirs" | md5sum)" "the pages of the pulled segment"
within 20 grep -q "segment $theirs: pulled 1000 pages" "$scratch/cluster/b.log"
touch_page
# Not in mode demand: a prefetch ends by itself.
mine=$(stat -c %i "$mnt/b/a/mine")
settled() { grep -c "segment $mine is settled here" "$scratch/cluster/b.log" || true; }
before=$(settled)
within 20 move "$mnt/a/a/mine" "$mnt/a/b/mine"
more_settled() { [ "$(settled)" -gt "$before" ]; }
within 20 more_settled
finish held
within 20 move "$mnt/b/b/theirs" "$mnt/b/a/theirs"

echo "-- a memory that can't be entered when its pages come"
rampfs-migrate --mode demand "$mnt/a/a/theirs" b
within 5 test -e "$mnt/b/b/theirs"
holder_program=(rampfs-run python3 tests/mount/hostile/held.py entered "$mnt/b/b/theirs")
holder held
pid=$(hear held)
for _ in 1 2 3; do
	same touches "$(ask held)" "it touches a page"
	touch_page
	touch_page
	holder_program=(rampfs-run python3 "$scratch/pages.py" "$mnt/b/b/secret")
	holder newcomer
	same mapped "$(hear newcomer)" "a program that comes meanwhile"
	same p$((500 + page)) "$(ask newcomer $((500 + page)))" "its page"
	bye newcomer
	# A write(2) reaches the segment, too.
	printf p%03d $((100 + page)) |
		timeout 20 dd of="$mnt/b/b/theirs" bs=4096 seek=$((100 + page)) conv=notrunc,nocreat status=none ||
		fail "a write meanwhile"
done
same 1 "$(grep -c "process $pid keeps the lock of its memory" "$scratch/cluster/b.log")" "lines about it"
finish held
same p000p001p002 "$(hear held)" "its own pages"
same "$(seq -f p%03g 0 999 | md5sum)" "$(timeout 60 rampfs-run python3 -c '
import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
for page in range(1000):
    print(m[page * 4096:page * 4096 + 4].decode())' "$mnt/b/b/theirs" | md5sum)" "all pages"
within 20 move "$mnt/b/b/theirs" "$mnt/b/a/theirs"

echo "-- memories that are held when all segments that they have mapped are moved at once"
# More of them than a daemon has threads for the moves of one user. Not by rename(2): within a mount the kernel does
# moves to another directory one at a time.
migrate() { timeout 60 rampfs-migrate "$mnt/$1" "$2"; }
many=$(seq 0 17)
for i in $many; do head -c 65536 /dev/zero >"$mnt/b/b/many.$i"; done
chown 65534:65534 "$mnt"/b/b/many.*
holder_program=(python3 tests/mount/hostile/held.py mapped "$mnt/b" 18)
holder held
pids=$(hear held)
moves=()
for i in $many; do
	migrate "b/b/many.$i" a >"$scratch/many.$i" 2>&1 &
	moves+=($!)
done
sleep 1 # until they wait there
timeout -k 2 20 rampfs-migrate "$mnt/b/b/mine" a || fail "a move of another user meanwhile: $?"
timeout -k 2 20 rampfs-migrate "$mnt/a/a/mine" b || fail "a move of another user to here meanwhile: $?"
within 5 test -e "$mnt/b/b/mine"
timeout 20 fallocate -l 8M "$mnt/b/b/mine" || fail "fallocate(2) of another user's segment meanwhile: $?"
touch_page
for i in $many; do
	! wait "${moves[i]}" || fail "many.$i has moved: no attack"
	grep -q "keeps the lock of its memory" "$scratch/many.$i" || fail "many.$i: $(cat "$scratch/many.$i")"
done
finish held
for pid in $pids; do
	grep -q "process $pid .* holds its mmap lock" "$scratch/cluster/b.log" || fail "the log does not name $pid"
done
for i in $many; do within 20 migrate "b/b/many.$i" a; done
bye victim
same "$was_a $was_b" "$(daemon a) $(daemon b)" "the daemons"
cluster_stop
echo "held: no other process waits for them"
