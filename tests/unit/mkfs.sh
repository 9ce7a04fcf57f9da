#!/usr/bin/env bash
# mkfs.rampfs: what it refuses, with which words, and that it leaves nothing behind then.
set -eu
build=${RAMPFS_BUILD:?}
mkfs=$build/bin/mkfs.rampfs
d=$(mktemp -d /tmp/rampfs-mkfs.XXXXXX)
trap 'umount "$d/disk" 2>/dev/null || true; rm -rf "$d"' EXIT
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
refused() { # expected words, arguments
	local words=$1 out status=0
	shift
	out=$("$mkfs" "$@" 2>&1) || status=$?
	[ $status = 1 ] || fail "exit status $status, not 1: mkfs.rampfs $*: $out"
	case $out in *"$words"*) ;; *) fail "should have said \"$words\": $out" ;; esac
}
n=0
for conf in tests/conf-bad/*.conf; do
	refused "$conf:$(cat "${conf%.conf}.reason")" --config "$conf" --node a --key "$d/key" "$d/state"
	[ -z "$(ls -A "$d")" ] || fail "$conf left something behind: $(ls -A "$d")"
	n=$((n + 1))
done
[ $n -ge 35 ] || fail "only $n bad configurations"

cat >"$d/good.conf" <<'C'
[cluster]
name=lab
[node a]
address=127.0.0.1:7001
capacity=1G
[node b]
address=127.0.0.1:7002
capacity=512M
voter=no
C
# allowed, and hardly meant: it is said of every node's address, and of the capacity of this machine alone
sed 's/127.0.0.1:7001/0.0.0.0:7001/; s/127.0.0.1:7002/[0::0]:7002/; s/1G/64T/' "$d/good.conf" >"$d/odd.conf"
for n in a b; do
	"$mkfs" --config "$d/odd.conf" --node $n "$d/odd.$n" 2>"$d/said" >/dev/null
	grep -qF "mkfs.rampfs: warning: node a: address=0.0.0.0:7001: other nodes can't reach it there" "$d/said" || fail "of a's address: $(cat "$d/said")"
	grep -qF "mkfs.rampfs: warning: node b: address=[0::0]:7002: other nodes" "$d/said" || fail "of b's address: $(cat "$d/said")"
	[ "$(grep -cF "warning: node a: capacity=67108864M is more than this machine's memory, " "$d/said")" = "$([ $n = a ] && echo 1 || echo 0)" ] ||
		fail "of the capacity: $(cat "$d/said")"
done
rm -r "$d"/odd.* "$d/said"

# a founder's setting is a row of the first tables, and there is none without it
in_tables() { python3 -c 'import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT v FROM counter WHERE k = ?", ("arena_user_max",)).fetchall())' "$1/journal.db"; }
sed 's/^name=lab/&\narena-user-max=3G/' "$d/good.conf" >"$d/bound.conf"
"$mkfs" --config "$d/bound.conf" --node a "$d/bound" >/dev/null
[ "$(in_tables "$d/bound")" = "[(3221225472,)]" ] || fail "arena-user-max in the tables: $(in_tables "$d/bound")"
"$mkfs" --config "$d/good.conf" --key "$d/bound.conf.key" --node a "$d/unbound" >/dev/null
[ "$(in_tables "$d/unbound")" = "[]" ] || fail "without arena-user-max: $(in_tables "$d/unbound")"
rm -r "$d/bound" "$d/unbound" "$d"/bound.conf*

good=(--config "$d/good.conf")
refused "no [node c]" "${good[@]}" --node c "$d/state"
[ ! -e "$d/good.conf.key" ] || fail "a refused mkfs made a key"
"$mkfs" "${good[@]}" --node a "$d/state" | grep -q 'made the cluster key' || fail "no word of the key"
[ "$(stat -c %a "$d/good.conf.key")" = 600 ] || fail "the key's mode"
[ "$(stat -c %a "$d/state/key")" = 600 ] || fail "the mode of the key's copy"
[ "$(stat -c %a "$d/state")" = 700 ] || fail "the state directory's mode"
for f in journal.db key cluster.conf node store; do [ -e "$d/state/$f" ] || fail "no $f"; done
refused "holds a node already" "${good[@]}" --node a "$d/state"
before=$(md5sum <"$d/state/journal.db")
refused "holds a node already" "${good[@]}" --node b "$d/state"
[ "$before" = "$(md5sum <"$d/state/journal.db")" ] || fail "a refused mkfs changed the journal"
rm "$d/state/journal.db" # a node is there all the same
refused "holds a node already" "${good[@]}" --node a "$d/state"
"$mkfs" --force "${good[@]}" --node b "$d/state"
[ "$(cat "$d/state/node")" = b ] || fail "--force did not replace the node"
[ "$(find "$d" -maxdepth 1 | wc -l)" = 4 ] || fail "--force left something behind: $(ls -A "$d")"
# what can't be taken away stays beside the new node, which keeps its key
mkdir -p "$d/state/mine" && echo mine >"$d/state/mine/notes" && rm "$d/good.conf.key"
"$mkfs" --force "${good[@]}" --node a "$d/state" >/dev/null 2>"$d/said" || fail "a node that was replaced: $(cat "$d/said")"
grep -q "that was replaced is left: .*/mine: Directory not empty" "$d/said" || fail "what is left: $(cat "$d/said")"
cmp "$d/state/key" "$d/good.conf.key" || fail "the key of the node that was made"
[ "$(cat "$d"/.mkfs.rampfs.*.old/mine/notes)" = mine ] || fail "what was not the node's own"
rm -r "$d"/.mkfs.rampfs.*.old "$d/said"
# two at once: one makes it, and the other leaves it alone, and the key that both have read
for i in 1 2 3 4 5 6 7 8 9 10; do
	made=""
	rm "$d/good.conf.key"
	"$mkfs" "${good[@]}" --node a "$d/race" 2>"$d/said.a" & first=$!
	"$mkfs" "${good[@]}" --node b "$d/race" 2>"$d/said.b" & second=$!
	! wait $first || made=a
	! wait $second || made=${made}b
	[ "$made" = "$(cat "$d/race/node")" ] || fail "round $i: made by \"$made\", and is $(cat "$d/race/node")'s"
	grep -qE "is not empty any more|holds a node already" "$d"/said.? || fail "round $i: $(cat "$d"/said.?)"
	cmp "$d/race/key" "$d/good.conf.key" || fail "round $i: the key that the node has"
	rm -r "$d/race" "$d"/said.?
done
# a rampfs runs on it
(
	exec 9>>"$d/state/lock"
	flock 9
	refused "a rampfs runs on it already" --force "${good[@]}" --node a "$d/state"
)
mkdir "$d/other" && touch "$d/other/file"
refused "not empty, and not a state directory" "${good[@]}" --node a "$d/other"
refused "not empty, and not a state directory" --force "${good[@]}" --node a "$d/other"
mkdir "$d/empty" && "$mkfs" "${good[@]}" --node a "$d/empty"
# where a symbolic link leads
mkdir "$d/far" && ln -s far "$d/link"
"$mkfs" "${good[@]}" --node a "$d/link"
"$mkfs" --force "${good[@]}" --node b "$d/link/"
[ -L "$d/link" ] && [ "$(cat "$d/far/node")" = b ] || fail "the node is not where the link leads"
refused "$d/no/where: No such file" "${good[@]}" --node a "$d/no/where/state"
if [ "$(id -u)" = 0 ]; then
	mkdir "$d/disk"
	mount -t tmpfs rampfs-test "$d/disk"
	refused "is a mount point" "${good[@]}" --node a "$d/disk"
	umount "$d/disk"
	[ -z "$(find "$d" -maxdepth 1 -name '.mkfs*')" ] || fail "a refused mkfs left its directory"
fi
# what README says is what it takes
sed -n '/^   \[cluster\]/,/^   ```/p' README.md | sed '$d; s/^   //' >"$d/readme.conf"
"$mkfs" --config "$d/readme.conf" --node a "$d/readme" >/dev/null
"$mkfs" --config "$d/readme.conf" --node c "$d/readme-c"
# keys
# an mkfs that waits for another program says so
(
	exec 9<"$d/good.conf.key"
	flock 9
	"$mkfs" "${good[@]}" --node b "$d/waits" 2>"$d/said" 9<&- & waits=$!
	for _ in $(seq 200); do
		! grep -q "waiting for the process that has locked it" "$d/said" || break
		sleep 0.05
	done
	flock -u 9
	wait $waits || fail "$(cat "$d/said")"
	grep -q "good.conf.key: waiting for the process that has locked it" "$d/said" || fail "it waited and said nothing"
)
chmod 644 "$d/good.conf.key"
refused "others may read it" "${good[@]}" --node a "$d/new"
chmod 600 "$d/good.conf.key"
printf short >"$d/short.key" && chmod 600 "$d/short.key"
refused "a key has 16 to 4096 bytes" "${good[@]}" --node a --key "$d/short.key" "$d/new"
refused "not a regular file" "${good[@]}" --node a --key /dev/null "$d/new"
refused "No such file" --config "$d/none.conf" --node a "$d/new"
ln -s nowhere "$d/link.key"
refused "link.key: File exists" "${good[@]}" --node a --key "$d/link.key" "$d/new"
[ -z "$(find "$d" -maxdepth 1 -name '*.key.*')" ] || fail "a refused mkfs left a key"
[ ! -e "$d/new" ] || fail "a refused mkfs left its directory"
# joining, as far as it needs no cluster (tests/mount/members/members.sh has one)
join=(--join 127.0.0.1:1 --node c --key "$d/good.conf.key" --address 127.0.0.1:7003 --capacity 1G)
refused "127.0.0.1:1: connecting" "${join[@]}" "$d/new"
refused "holds a node already" "${join[@]}" "$d/state"
refused "nowhere is not HOST:PORT" --join nowhere "${join[@]:2}" "$d/new"
refused "No such file" "${join[@]}" --key "$d/none.key" "$d/new"
refused "--address is HOST:PORT" "${join[@]}" --address 127.0.0.1 "$d/new"
refused "not a size like 512M or 8G" "${join[@]}" --capacity much "$d/new"
refused "less than 16M" "${join[@]}" --capacity 1M "$d/new"
refused "not a node's name" "${join[@]}" --node ../c "$d/new"
refused "no [node c]" --config "$d/good.conf" "${join[@]}" "$d/new"
[ ! -e "$d/none.key" ] || fail "one who joins made a key"
usage() { # arguments: exit status 2, nothing done
	local status=0
	"$mkfs" "$@" >/dev/null 2>&1 || status=$?
	[ $status = 2 ] || fail "usage: exit status $status, not 2: $*"
}
usage --join 127.0.0.1:1 --node c "$d/new"
usage --join 127.0.0.1:1 --rejoin 127.0.0.1:1 --node c --key "$d/good.conf.key" "$d/new"
usage "${good[@]}" --node a --address 127.0.0.1:7003 "$d/new"
usage "${good[@]}" --node a --capacity 1G "$d/new"
mkdir "$d/here"
(cd "$d/here" && usage "${good[@]}" --node a . && usage "${good[@]}" --node a ./)
[ ! -e "$d/new" ] || fail "a refused mkfs left its directory"
status=0
"$mkfs" --node a "$d/new" 2>/dev/null || status=$?
[ $status = 2 ] || fail "usage: exit status $status, not 2"
"$mkfs" --help | grep -q 'Usage: mkfs.rampfs' || fail "--help"
"$mkfs" --version | grep -q '^mkfs.rampfs [0-9]' || fail "--version"
