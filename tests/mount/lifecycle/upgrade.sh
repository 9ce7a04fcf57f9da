#!/usr/bin/env bash
# A cluster of a released commit is upgraded under living segments and programs: one that is mapped and
# used, one that is being pulled, one whose program is stopped; each daemon reads the released files,
# serves agents of the released shim, and refuses daemons of the other version until they are upgraded, too.
. tests/lib/cluster.sh
. tests/lib/holder.sh
. tests/lib/released.sh
export LC_ALL=C RAMPFS_QUIET=1
commit=6d1843d
new=$build
released_build $commit || {
	echo "skipped: this clone has no history, so no commit $commit to upgrade from"
	exit 77
}
# The programs stand at one place, where an upgrade puts others.
place() {
	mkdir -p "$scratch/place/bin" "$scratch/place/lib"
	local f
	for f in "$1"/bin/* "$1"/lib/*.so; do
		cp "$f" "$scratch/place/new" && mv "$scratch/place/new" "$scratch/place/${f#"$1"/}"
	done
}
keeper() { sed -n 's/^\([0-9][0-9]*\)$/\1/p' "$state/$1/lock"; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ] && [ -e "$mnt/$1/.ramp/status" ]; }
upgrade() {
	local old
	old=$(daemon "$1")
	kill -HUP "$(keeper "$1")"
	within 10 another_daemon "$1" "$old"
}
quorum() { grep -q '^quorum: *yes' "$mnt/$1/.ramp/status"; }
is() { [ "$(xattr "$1" "$2" 2>/dev/null)" = "$3" ]; }
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }
# A number in a node's journal.
journal() { python3 -c 'import sqlite3, sys
print((sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True).execute(sys.argv[2]).fetchone() or [0])[0])' "$state/$1/journal.db" "$2"; }
format() { journal "$1" "SELECT v FROM meta WHERE k = 'format'"; }
level() { journal "$1" "SELECT v FROM counter WHERE k = 'level'"; }
is_level() { [ "$(level "$1")" = "$2" ]; }
stopped() { umount "$mnt/$1" && within 20 flock -n "$state/$1/lock" true; }
place "$released"
export RAMPFS_BUILD=$scratch/place PATH=$scratch/place/bin:$PATH
cluster_mode="" # the released commit knows none
cluster_start -n 3 -c 256M

echo "what the released commit has made"
for name in still mapped stopped pulled; do head -c 16M /dev/urandom >"$mnt/a/a/$name"; done
setfattr -n user.ramp.pages -v small "$mnt/a/a/still"
still=$(sum "$mnt/a/a/still") mapped=$(sum "$mnt/a/a/mapped") pulled=$(sum "$mnt/a/a/pulled")
for name in mapped stopped pulled; do
	holder_program=(rampfs-run "$new/tests/pages" "$mnt/a/a/$name")
	holder $name
	ask $name load 0 >/dev/null
done
addr=$(xattr "$mnt/a/a/mapped" addr)
kill -STOP "$(pgrep -f "pages $mnt/a/a/stopped")"
rampfs-migrate --mode demand "$mnt/a/a/pulled" b
holder_program=(rampfs-run "$new/tests/pages" "$mnt/b/b/pulled")
holder reader
first=$(ask reader load 5)
same "$(od -An -tx1 -j 20480 -N 1 "$mnt/b/b/pulled" | tr -d ' ')" "$first" "a page that was pulled"
is "$mnt/b/b/pulled" state pulling || fail "nothing is left to pull: $(xattr "$mnt/b/b/pulled" state)"

echo "one after the other; until all are, they refuse each other with a line"
place "$new"
upgrade a
within 20 grep -qE "version" "$scratch/cluster/b.log"
same "$still" "$(sum "$mnt/a/a/still")" "a segment on a, alone"
same 5a "$(ask mapped store 3 >/dev/null && ask mapped load 3)" "a program on a, alone"
same "2 1 0" "$(format a) $(format b) $(level a)" "the formats of a's and b's journals, and the level of the rules"
upgrade b
upgrade c
for n in a b c; do within 20 quorum $n; done
for n in a b c; do within 20 is_level $n 3; done

echo "everything is as it was"
for n in a b c; do within 20 test -e "$mnt/$n/a/still"; done
same "$still" "$(sum "$mnt/a/a/still")" "a segment"
same small "$(xattr "$mnt/a/a/still" pages)" "its kind of pages"
same "$addr" "$(xattr "$mnt/a/a/mapped" addr)" "an address"
same "$first" "$(ask reader load 5)" "a page that was pulled before"
for page in 6 700 4095; do
	want=$(ask reader load $page)
	same "$(od -An -tx1 -j $((page * 4096)) -N 1 "$mnt/b/b/pulled" | tr -d ' ')" "$want" "page $page, pulled across the upgrade"
done
same "$pulled" "$(sum "$mnt/b/b/pulled")" "a segment that was being pulled"
within 20 is "$mnt/b/b/pulled" state stable

echo "agents of the released shim obey: away and back"
kill -CONT "$(pgrep -f "pages $mnt/a/a/stopped")"
for name in mapped stopped; do
	mv "$mnt/a/a/$name" "$mnt/a/c/"
	same BUS_ADRERR "$(ask $name load 9)" "$name, which has left"
	mv "$mnt/a/c/$name" "$mnt/a/a/"
	ask $name load 9 >/dev/null
done
same 5a "$(ask mapped load 3)" "what was stored before, after away and back"
same "5a" "$(od -An -tx1 -j 12288 -N 1 "$mnt/a/a/mapped" | tr -d ' ')" "the same by read(2)"
printf 'Z' | dd of="$mnt/a/a/mapped" bs=1 seek=20480 conv=notrunc status=none
same 5a "$(ask mapped load 5)" "what read(2) and the program see"
[ "$mapped" != "$(sum "$mnt/a/a/mapped")" ] || fail "the stores are not there"

echo "what is new works beside it"
echo new >"$mnt/c/c/new"
mv "$mnt/c/c/new" "$mnt/c/a/"
same new "$(cat "$mnt/a/a/new")" "a new segment"
holder_program=(rampfs-run "$new/tests/pages" "$mnt/a/a/mapped")
holder second
same 5a "$(ask second load 3)" "a program with the new shim beside one with the released one"
for name in mapped stopped pulled reader second; do bye $name; done

echo "the released commit refuses a journal that was brought up, and this one refuses a newer one: each with a line"
stopped c
refused "is no journal of rampfs" "$released/bin/rampfs" "$state/c" "$mnt/c"
set_format() { python3 -c 'import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db: db.execute("UPDATE meta SET v = ? WHERE k = ?", (int(sys.argv[2]), "format"))' "$state/c/journal.db" "$1"; }
set_format 99
refused "journal.db: is of format 99, a newer rampfs has used it, and rampfs " rampfs "$state/c" "$mnt/c"
set_format 2
rampfs -o "log=$scratch/cluster/c.log" "$state/c" "$mnt/c"
within 20 quorum c
within 20 test -e "$mnt/c/a/still"
cluster_stop
