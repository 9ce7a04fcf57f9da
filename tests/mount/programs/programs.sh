#!/usr/bin/env bash
# Real programs whose files move between nodes: LMDB, SQLite, Python's mmap, and programs that
# know nothing of the shim, on local and on half-pulled segments.
#   programs.sh lmdb|sqlite|wal|python|plain
. tests/lib/cluster.sh
. tests/lib/holder.sh
cluster_start -n 3 -c 1G
a=$mnt/a b=$mnt/b c=$mnt/c
# When mv returns, its own node shows the new place; others do when the commit has reached them.
mv() {
	local n
	command mv "$@"
	for n in a b c; do within 20 test -e "$mnt/$n/$(basename "$2")/$(basename "$1")"; done
}

lmdb() {
	local user=$build/tests/lmdb_user at
	rampfs-run "$user" put "$a/a/db" 0 100000
	rampfs-run "$user" check "$a/a/db" 100000
	at=$(rampfs-run "$user" where "$a/a/db")
	rm -f "$a/a/db-lock"
	mv "$a/a/db" "$a/b/"
	rampfs-run "$user" check "$b/b/db" 100000
	same "$at" "$(rampfs-run "$user" where "$b/b/db")" "the map's address on b"
	rampfs-run "$user" put "$b/b/db" 100000 150000
	rampfs-run "$user" check "$b/b/db" 150000
	rampfs-run mdb_copy -n "$b/b/db" "$scratch/copy"
	"$user" check "$scratch/copy" 150000
	rm -f "$b/b/db-lock"
	mv "$b/b/db" "$b/c/"
	rampfs-run "$user" check "$c/c/db" 150000
}

# SQLite reads and writes if it can't map, and says nothing: so the test checks that it has mapped.
sums="SELECT count(*), sum(length(v)), sum(k) FROM t;"
mapped_by() { # NAME, a segment
	local pid=${1}_pid addr
	addr=$(xattr "$2" addr)
	grep -q "^${addr#0x}-[0-9a-f]* r..s 00000000 " "/proc/${!pid}/maps" ||
		fail "$1 has not mapped $2 at $addr: $(cat "/proc/${!pid}/maps")"
}
sqlite_on() { # NAME DATABASE: starts a program that answers queries
	holder_program=(rampfs-run sqlite3 -cmd "PRAGMA mmap_size=268435456" -batch "$2")
	holder "$1"
	same 268435456 "$(hear "$1")" "how many bytes it may map"
}

sqlite() {
	local sum addr
	sql() { rampfs-run sqlite3 -cmd "PRAGMA mmap_size=268435456" -batch "$@" | tail -n +2; }
	sql "$a/a/s.db" "CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100000)
		INSERT INTO t SELECT i, hex(i * 2654435761) FROM n;"
	sum=$(sql "$a/a/s.db" "$sums")
	sqlite_on here "$a/a/s.db"
	same "$sum" "$(ask here "$sums")" "the sums on a, asked again"
	mapped_by here "$a/a/s.db"
	addr=$(xattr "$a/a/s.db" addr)
	finish here
	mv "$a/a/s.db" "$a/b/"
	same "$sum" "$(sql "$b/b/s.db" "$sums")" "the sums on b"
	same ok "$(sql "$b/b/s.db" "PRAGMA integrity_check;")" "integrity on b"
	sql "$b/b/s.db" "UPDATE t SET v = v || 'x' WHERE k % 7 = 0;"
	sum=$(sql "$b/b/s.db" "$sums")
	sqlite_on there "$b/b/s.db"
	same "$sum" "$(ask there "$sums")" "the sums on b, asked again"
	mapped_by there "$b/b/s.db"
	same "$addr" "$(xattr "$b/b/s.db" addr)" "its address on b"
	finish there
	mv "$b/b/s.db" "$b/a/"
	same "$sum" "$(sql "$a/a/s.db" "$sums")" "the sums back on a"
	same ok "$(sql "$a/a/s.db" "PRAGMA integrity_check;")" "integrity back on a"
}

# A database with a log beside it, whose index (-shm) SQLite uses only by mapping it. It moves there and back
# under a program that has all three files open, and another program changes it there.
wal() {
	local sum step part
	move_all() { # from, to
		for part in w.db w.db-wal w.db-shm; do mv "$mnt/$1/$1/$part" "$mnt/$1/$2/"; done
	}
	sqlite_on one "$a/a/w.db"
	same wal "$(ask one "PRAGMA journal_mode=WAL;")" "the mode"
	same 100000 "$(ask one "CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT);" \
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100000)" \
		"INSERT INTO t SELECT i, hex(i * 2654435761) FROM n; SELECT max(k) FROM t;")" "the last row"
	for step in 1 2 3; do
		same "0|0|0" "$(ask one "PRAGMA wal_checkpoint(TRUNCATE);")" "checkpoint $step on a"
		sum=$(ask one "UPDATE t SET v = v || 'a' WHERE k % 7 = $step; $sums")
		mapped_by one "$a/a/w.db"
		mapped_by one "$a/a/w.db-shm"
		[ "$(stat -c %s "$a/a/w.db-wal")" -gt 100000 ] || fail "nothing is in the log"
		move_all a b
		# No program there knows that a program at home has it open: the last one that closes it there must keep the log.
		sqlite_on two "$b/b/w.db"
		same 1 "$(ask two .filectrl persist_wal 1)" "the log that stays"
		same "$sum" "$(ask two "$sums")" "the sums on b"
		same ok "$(ask two "PRAGMA integrity_check;")" "integrity on b"
		sum=$(ask two "UPDATE t SET v = v || 'b' WHERE k % 5 = $step; $sums")
		mapped_by two "$b/b/w.db"
		mapped_by two "$b/b/w.db-shm"
		if [ $step = 2 ]; then bye two KILL; else finish two; fi
		move_all b a
		same "$sum" "$(ask one "$sums")" "the sums back on a, by the program that had it open"
		same ok "$(ask one "PRAGMA integrity_check;")" "integrity back on a"
	done
	finish one
	same "$sum" "$(rampfs-run sqlite3 "$a/a/w.db" "$sums")" "the sums when all is closed"
	[ ! -e "$a/a/w.db-wal" ] || fail "the log is still there"
}

python() {
	cat >"$scratch/p.py" <<'P'
import mmap, os, sys
mode, path = sys.argv[1:]
SIZE = 64 << 20
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
if mode == "make":
    os.ftruncate(fd, SIZE)
m = mmap.mmap(fd, SIZE)
os.close(fd)
def block(i):
    return (b"%012d" % (i * 7919)) * 341 + b"tail"
if mode == "make":
    for i in range(0, SIZE // 4096, 3):
        m[i * 4096:(i + 1) * 4096] = block(i)
else:
    for i in range(SIZE // 4096):
        want = block(i) if i % 3 == 0 else bytes(4096)
        assert m[i * 4096:(i + 1) * 4096] == want, i
    m[4096:4100] = b"back"
    m[4096:4100] = bytes(4)
m.flush()
P
	rampfs-run python3 "$scratch/p.py" make "$a/a/p"
	for step in a:b b:c c:a a:c; do
		mv "$a/${step%:*}/p" "$a/${step#*:}/"
		rampfs-run python3 "$scratch/p.py" check "$mnt/${step#*:}/${step#*:}/p"
	done
}

plain() {
	local sum
	head -c 100000000 /dev/urandom >"$scratch/data"
	sum=$(sha256sum <"$scratch/data")
	cp "$scratch/data" "$a/a/x"
	same "$sum" "$(sha256sum <"$a/a/x")" "what cp wrote"
	for step in a:b b:c c:b b:a; do
		mv "$c/${step%:*}/x" "$c/${step#*:}/"
		at=$mnt/${step#*:}/${step#*:}/x
		same "$sum" "$(sha256sum <"$at")" "sha256sum while pages are coming to ${step#*:}"
		cp "$at" "$scratch/again"
		cmp "$scratch/data" "$scratch/again"
	done
	# a half-pulled file is written to, in whole pages and in parts
	rampfs-migrate --mode demand "$a/a/x" b
	dd if=/dev/zero of="$b/b/x" bs=1000 seek=5000 count=3000 conv=notrunc status=none
	dd if=/dev/zero of="$scratch/data" bs=1000 seek=5000 count=3000 conv=notrunc status=none
	cmp "$scratch/data" "$b/b/x"
	refused "Object is remote" cat "$a/b/x"
	refused "No such device" python3 -c 'import mmap, sys; f = open(sys.argv[1], "r+b"); mmap.mmap(f.fileno(), 0)' "$b/b/x"
	# sparse stays sparse
	truncate -s 1T "$a/a/sparse"
	for at in 0 500G 1048575M; do
		echo "at $at" | dd of="$a/a/sparse" bs=1 seek=$at conv=notrunc status=none
	done
	mv "$a/a/sparse" "$a/b/"
	same $((1 << 40)) "$(stat -c %s "$b/b/sparse")" "the sparse file's size"
	for at in 0 500G 1048575M; do
		same "at $at" "$(dd if="$b/b/sparse" bs=1 skip=$at count=$((3 + ${#at})) status=none)" "the page at $at"
	done
	[ "$(du -k "$b/b/sparse" | cut -f1)" -le 8192 ] || fail "the sparse file takes $(du -k "$b/b/sparse" | cut -f1) KiB on b"
	: >"$a/a/empty"
	mv "$a/a/empty" "$a/c/"
	same 0 "$(stat -c %s "$c/c/empty")" "the empty file's size"
}

"$1"
cluster_stop
