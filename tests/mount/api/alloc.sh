#!/usr/bin/env bash
# Allocation by libramp.so on real mounts (alloc_user.c): one commit each, refusals, and a daemon that is killed in the middle.
. tests/lib/cluster.sh
cluster_start -n 3 -c 256M -A 0x200000000000:1G
alloc=$build/tests/alloc_user
user() { timeout -k 5 90 "${with[@]}" "$alloc" "$@" 2>"$scratch/err" || fail "$*: $(cat "$scratch/err")"; }
with=()
daemon() { pgrep -f "rampfs --daemon .*$mnt/$1\$"; }
kill_daemon() { pkill -9 -f "rampfs --daemon .*$mnt/$1\$"; }
at_level() { [ "$(sed -n 's/^rampfs_metadata_level //p' "$mnt/a/.ramp/metrics")" -ge "$1" ]; }
# The commands behind entry $2 of a node's log: CREATE, EXTENT, or other ones than hints (SETATTR). One that is proposed
# again, since its answer came late, counts once: by its id, behind version, type and origin (command.h).
committed() {
	python3 -c 'import collections, sqlite3, sys
names = {1: "CREATE", 4: None, 5: "EXTENT"}
rows = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True).execute("SELECT data FROM log WHERE type = 2 AND idx > ?", [sys.argv[2]])
n = collections.Counter(names.get(kind, "other") for kind, _ in {(data[1], data[30:46]) for (data,) in rows})
print(*(f"{name} {n[name]}" for name in sorted(filter(None, n))))' "$state/$1/journal.db" "$2"
}
index() { sed -n 's/^rampfs_raft_commit_index //p' "$mnt/$1/.ramp/metrics"; }
within 20 at_level 2

echo "one commit for each, by the journal, wherever the leader is"
for node in a b c; do
	before=$(index "$node")
	user many "$mnt/$node" "at_$node" 5
	same "CREATE 5" "$(committed "$node" "$before")" "what was committed for 5 allocations at $node"
done
before=$(index a)
with=(rampfs-run) && user one "$mnt/a" shimmed && with=()
same "CREATE 1" "$(committed a "$before")" "what was committed for one under rampfs-run"
same 640 "$(stat -c %a "$mnt/b/a/shimmed")" "its mode"
same small "$(xattr "$mnt/b/a/shimmed" pages)" "its pages"
same 3145728 "$(stat -c %s "$mnt/b/a/shimmed")" "its size at another node"
rm "$mnt"/a/?/*

echo "what is refused: taken, larger than the node, than the arena; more than the user may have, than the arena has"
user bad "$mnt/a"
same "EDQUOT 2" "$(setpriv --reuid 65534 --regid 65534 --clear-groups "$alloc" full "$mnt/a" 2>&1)" "a user's addresses"
within 20 user one "$mnt/a" empty
rm "$mnt/a/a/empty"
same "ENOSPC 16" "$("$alloc" full "$mnt/a" 2>&1)" "root's"

# armed NODE CALL ID: the daemon is killed (SIGKILL) when it makes the file of that segment, at such a call
armed() {
	strace -qq -f -p "$(daemon "$1")" -o "$scratch/strace" -P "$3" -P "$state/$1/store/$3" -P "$3.state.new" -e "trace=$2" -e "inject=$2:signal=KILL" &
	tracer=$!
	within 20 traced "$(daemon "$1")"
}
traced() { ! grep -L "^TracerPid:[[:space:]]*$tracer$" "/proc/$1"/task/*/status 2>/dev/null | grep -q .; }
whole() { # of 3 MiB, with its addresses, and listed once
	same "3145728 67108864" "$(stat -c %s "$mnt/a/a/$1") $(xattr "$mnt/a/a/$1" extent)" "$1"
	case $(xattr "$mnt/a/a/$1" addr) in 0x*) ;; *) fail "$1 has no addresses" ;; esac
}
# After the commit the daemon makes the file, gives it its size, and lets it be there, with its record.
for call in openat ftruncate renameat; do
	echo "the daemon is killed after the commit, at $call: the allocation is whole, and the program continues"
	touch "$mnt/a/a/before-$call"
	armed a $call "$(($(stat -c %i "$mnt/a/a/before-$call") + 1))"
	user one "$mnt/a" "killed-$call"
	wait "$tracer" || true
	grep -q "killed by SIGKILL" "$scratch/strace" || fail "the daemon was not killed: $(tail -n 3 "$scratch/strace")"
	whole "killed-$call"
done

echo "the program is killed, too: the segment is there, whole"
touch "$mnt/a/a/before"
armed a openat "$(($(stat -c %i "$mnt/a/a/before") + 1))"
timeout 60 "$alloc" one "$mnt/a" orphaned 2>"$scratch/err" &
user=$!
wait "$tracer" || true
pkill -9 -f "^$alloc one $mnt/a orphaned" || true
wait $user || true
within 20 test -e "$mnt/a/a/orphaned"
whole orphaned

echo "the daemon is killed again and again: each is whole, and there is none besides"
rm "$mnt"/a/a/*
(while [ ! -e "$scratch/enough" ]; do
	sleep 0.2
	kill_daemon a || true
done) &
killer=$!
user many "$mnt/a" storm 8
touch "$scratch/enough"
wait $killer || true
for i in 0 1 2 3 4 5 6 7; do whole "storm$i"; done
same 8 "$(ls "$mnt/a/a" | wc -l)" "segments"

echo "a file that was never made is made when it is used; bytes that are lost are an error"
rm "$mnt"/a/a/*
ask() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "ramp.alloc", sys.argv[2].encode())' "$@"; }
good="size=3145728 extent=67108864 mode=600 pages=auto name="
ask "$mnt/a/a" "${good}never made"
head -c 4096 /dev/zero >"$mnt/a/a/written"
sizes_told() { [ "$(stat -c %s "$mnt/b/a/written")" = 4096 ]; }
within 20 sizes_told
files=$(cd "$state/a/store" && ls "$(stat -c %i "$mnt/a/a/never made")"* "$(stat -c %i "$mnt/a/a/written")"*)
dead=$(daemon a) keeper=$(awk '{print $4}' "/proc/$(daemon a)/stat")
kill -STOP "$keeper"
kill -9 "$dead"
ended() { [ ! -e "/proc/$dead/fd/0" ]; }
within 20 ended
(cd "$state/a/store" && rm $files)
kill -CONT "$keeper"
within 20 test -e "$mnt/a/a/never made"
cmp -n 3145728 "$mnt/a/a/never made" /dev/zero
whole "never made"
refused "Input/output error" cat "$mnt/a/a/written"

echo "by its attribute alone: what is malformed, in another node's directory, by another user, through a mount that is read-only"
for bad in "" "size=1" "size=0 extent=0 mode=600 pages=auto name=x" "size=-1 extent=0 mode=600 pages=auto name=x" \
	"size=1 extent=1 mode=600 pages=auto name=x" "size=1 extent=0 mode=10000 pages=auto name=x" \
	"size=1 extent=0 mode=600 pages=none name=x" "size=1 extent=0 mode=600 pages=auto name=" \
	"size=1 extent=0 mode=600 pages=auto name=.." "size=1 extent=0 mode=600 pages=auto name=x/y" \
	"size=9223372036854775807 extent=0 mode=600 pages=auto name=x" "size=1 extent=2305843009213693952 mode=600 pages=auto name=x"; do
	refused "Invalid argument" ask "$mnt/a/a" "$bad"
done
refused "Object is remote" ask "$mnt/a/b" "${good}x"
refused "Operation not supported" ask "$mnt/a" "${good}x"
setpriv --reuid 65534 --regid 65533 --clear-groups /usr/bin/python3 -c 'import os, sys; os.setxattr(sys.argv[1], "ramp.alloc", sys.argv[2].encode())' "$mnt/a/a" "${good}other"
same "65534 65533 600" "$(stat -c "%u %g %a" "$mnt/a/a/other")" "another user's"
refused "Read-only file system" unshare -m sh -c 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec python3 -c "import os, sys; os.setxattr(sys.argv[1], \"ramp.alloc\", sys.argv[2].encode())" "$1/a" "$2"' sh "$mnt/a" "${good}x"
same "never made other written" "$(cd "$mnt/a/a" && ls | paste -sd" ")" "segments"

echo "a daemon of an older version: the same in several commits"
before=$(index a)
strace -qq -f -o "$scratch/strace" -e trace=fsetxattr -e inject=fsetxattr:error=EOPNOTSUPP:when=1 "$alloc" one "$mnt/a" older 2>"$scratch/err" || fail "older: $(cat "$scratch/err")"
grep -q "ramp.alloc.*INJECTED" "$scratch/strace" || fail "nothing was injected"
whole older
same "CREATE 1 EXTENT 1" "$(committed a "$before")" "what was committed for it, but for attributes"
cluster_stop
