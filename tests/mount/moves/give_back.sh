#!/usr/bin/env bash
# Addresses given back (setfattr -x user.ramp.extent): only where no process of any node has anything of the
# segment there; and what has gone never comes back with the bytes of another place.
. tests/lib/cluster.sh
export LC_ALL=C RAMPFS_QUIET=1
cluster_start -n 3 -c 256M
f=$mnt/a/a/f
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
value() { sed -n "s/^rampfs_$2 //p" "$mnt/$1/.ramp/metrics"; }
is() { [ "$(value "$1" "$2")" = "$3" ]; }
is_state() { [ "$(xattr "$1" state)" = "$2" ]; }
give_back() { setfattr -x user.ramp.extent "$1"; }
gives_back() { give_back "$1" 2>/dev/null; }
said() { within 5 grep -q "keeps its addresses: .*$2" "$scratch/cluster/$1.log"; }
cat >"$scratch/map.py" <<'P'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
os.close(fd)
print("mapped", m[8191], flush=True)
for line in sys.stdin:
    if line == "unmap\n":
        m.close()
        print("unmapped", flush=True)
    else:
        print("byte", m[8191], flush=True)
P
hold() { # FILE: a program that maps it, as the coprocess
	coproc P { exec rampfs-run python3 "$scratch/map.py" "$1"; }
	read -r -t 20 line <&"${P[0]}"
	pid=$P_PID
}
ask() {
	echo "$1" >&"${P[1]}"
	read -r -t 20 line <&"${P[0]}"
}
end() {
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
}
map() { rampfs-run python3 "$scratch/map.py" "$1" </dev/null; }
make() { # FILE BYTE: 4 MiB, whose byte 8191 is that character
	truncate -s 4M "$1"
	printf %s "$2" | dd of="$1" bs=1 seek=8191 conv=notrunc status=none
}
for n in a b c; do within 20 is $n metadata_level 3; done

echo "what has no address; other users; other names; another node"
make "$f" A
refused "No such attribute" give_back "$f"
same "mapped 65" "$(map "$f")" "a mapping"
first=$(xattr "$f" addr)
used=$(value a arena_used_bytes)
chmod 666 "$f"
refused "Operation not permitted" setpriv --reuid 65534 --regid 65534 --clear-groups setfattr -x user.ramp.extent "$f"
chmod 644 "$f"
refused "Permission denied" setpriv --reuid 65534 --regid 65534 --clear-groups setfattr -x user.ramp.extent "$f"
refused "Operation not permitted" setfattr -x user.ramp.pages "$f"
refused "Object is remote" give_back "$mnt/b/a/f"
same "$first" "$(xattr "$f" addr)" "the address"

echo "given back; the place is free, and the next mapping gets another"
give_back "$f"
same none "$(xattr "$f" addr)" "the address"
same $((used - 67108864)) "$(value a arena_used_bytes)" "the addresses in use"
refused "No such attribute" give_back "$f"
make "$mnt/b/b/other" O
same "mapped 79" "$(map "$mnt/b/b/other")" "another segment's mapping"
same "$first" "$(xattr "$mnt/b/b/other" addr)" "another segment's address"
same "mapped 65" "$(map "$f")" "the next mapping"
[ "$(xattr "$f" addr)" != "$first" ] || fail "the old address once more"
setfattr -n user.ramp.extent -v 128M "$f" 2>/dev/null && fail "it has an extent"
give_back "$f"
setfattr -n user.ramp.extent -v 128M "$f"

echo "a mapping: at the owner, and gone on another node; by name, and the process keeps it"
hold "$f"
refused "Device or resource busy" give_back "$f"
said a "process $pid (python3) maps it"
mv "$f" "$mnt/a/b/f"
within 20 is_state "$mnt/b/b/f" stable
refused "Device or resource busy" give_back "$mnt/b/b/f"
said b "node a: process $pid (python3) had it mapped"
kill -9 "$(daemon a)" # the keeper starts another, which knows it from /proc, or from its agent
named() { # by the last refusal
	refused "Device or resource busy" give_back "$mnt/b/b/f"
	grep "keeps its addresses" "$scratch/cluster/b.log" | tail -n 1 | grep -q "node a: process $pid (python3)"
}
within 20 named
back() { mv "$mnt/b/b/f" "$mnt/b/a/f" 2>/dev/null; }
within 20 back
ask load
same "byte 65" "$line" "a byte at the old address, after the segment came back"
ask unmap
same unmapped "$line" "the program's word"
within 20 gives_back "$f"
same none "$(xattr "$f" addr)" "the address"
end

echo "a node that does not answer, or is not there"
map "$f" >/dev/null
keep=$(xattr "$f" addr)
stopped=$(daemon c)
kill -STOP "$stopped"
refused "Device or resource busy" give_back "$f"
said a "node c \(does not answer\|is not connected\)"
refused "Device or resource busy" give_back "$f"
same "mapped 65" "$(map "$f")" "a mapping after that"
same "$keep" "$(xattr "$f" addr)" "the address after that"
kill -CONT "$stopped"

echo "the owner's daemon is killed while it asks: the request ends, and no address goes under a mapping"
for i in 1 2 3 4 5 6; do
	within 20 gives_back "$f" || true
	same "mapped 65" "$(map "$f")" "a mapping, round $i"
	give_back "$f" 2>/dev/null &
	giver=$!
	sleep "0.0$i"
	kill -9 "$(daemon a)"
	hold "$f"
	same "mapped 65" "$line" "a mapping right after, round $i"
	wait $giver || true
	at=$(xattr "$f" addr)
	grep -q "^${at#0x}-" "/proc/$pid/maps" || fail "its address is $at, and process $pid has: $(grep rampfs "/proc/$pid/maps")"
	same none "$(python3 - "$mnt" "$at" <<'P'
import os, sys
mnt, at = sys.argv[1:]
others = [p for n in "abc" for p in [mnt + "/a/" + n] for p in [os.path.join(p, x) for x in os.listdir(p)]
          if os.getxattr(p, "user.ramp.addr").decode() == at]
print("none" if len(others) == 1 else others)
P
)" "another segment at that address"
	end
done
cluster_stop
