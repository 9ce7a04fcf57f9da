#!/usr/bin/env bash
# A node has lost its journal, and not its store: --rejoin brings it back under its number, with its segments,
# the programs that map them, and its pulls. mkfs.rampfs and the daemon are killed in between.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C RAMPFS_QUIET=1
cluster=$scratch/cluster
at() { local n=$1 && shift && rampfs-node -m "$mnt/$n" "$@"; }
is() { [ "$(xattr "$1" "$2" 2>/dev/null)" = "$3" ]; }
shows() { at "$1" list | grep -q "^$2"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
has_sum() { [ "$(sum "$1" 2>/dev/null)" = "$2" ]; }
random() { head -c "$1" /dev/urandom >"$2"; }
processes() { pgrep -f -- "^[^ ]*rampfs (-o|--daemon|--adopt) .*$mnt/$1\$" | xargs; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
released() { flock -n "$state/$1/lock" true; }
begin() { rampfs -o "log=$cluster/$1.log" "$state/$1" "$mnt/$1"; }
end() { umount "$mnt/$1" && within 20 released "$1"; }
needs_rejoin() { rampfs-status "$mnt/c" 2>/dev/null | grep -q "^metadata: none.*needs --rejoin"; }
address() { sed -n "/^\[node $1\]/,/^\$/s/^address=//p" "$cluster/cluster.conf"; }
rejoin=(mkfs.rampfs --rejoin "" --key "$cluster/cluster.key" --node c "$state/c")
# All processes of c at once.
kill_node() {
	local pids
	pids=$(processes c)
	# shellcheck disable=SC2086 # pids are words
	kill -STOP $pids && kill -KILL $pids
	within 10 released c
	umount -l "$mnt/c"
}
program() { # NAME PATH
	# shellcheck disable=SC2034 # by holder
	holder_program=(rampfs-run "$build/tests/pages" "$2" closed)
	holder "$1"
}

cluster_start -n 3 -c 128M
rejoin[2]=$(address a)
random 8M "$mnt/c/c/data"
chmod 640 "$mnt/c/c/data"
random 4M "$mnt/c/c/given" && given=$(sum "$mnt/c/c/given")
random 4M "$mnt/b/b/taken" && taken=$(sum "$mnt/b/b/taken")
random 1M "$mnt/c/c/doomed"
rampfs-migrate --mode demand "$mnt/c/c/given" a
rampfs-migrate --mode demand "$mnt/b/b/taken" c
program mapper "$mnt/c/c/data"
ask mapper store 9 >/dev/null
data=$(sum "$mnt/c/c/data")
id=$(xattr "$mnt/c/c/data" id) doomed=$state/c/store/$(xattr "$mnt/c/c/doomed" id)
incarnation=$(cat "$state/c/store/incarnation")

echo "c's journal is gone: it serves by its records"
refused "a rampfs runs on it already" "${rejoin[@]}"
kill_node
rm "$state/c"/journal.db*
begin c
within 20 needs_rejoin
has_sum "$mnt/c/c/data" "$data" || fail "the bytes by the record"
same 5a "$(ask mapper load 9)" "what the program has stored"
end c

echo "mkfs.rampfs is killed at each step: c is as it was"
rm "$mnt/a/c/doomed"
for step in 3 4 5; do # the renames that put the files in place; two before them find no journal
	strace -qq -f -o /dev/null -e trace=rename -e "inject=rename:signal=KILL:when=$step" "${rejoin[@]}" >/dev/null 2>&1 || true
done
begin c
within 20 needs_rejoin
same 5a "$(ask mapper load 9)" "what the program has stored"
end c

echo "it comes back"
"${rejoin[@]}" >"$scratch/said" || fail "--rejoin"
grep -q "comes again, as number 3, with the segments" "$scratch/said" || fail "it says: $(cat "$scratch/said")"
begin c
kill -9 "$(daemon c)"
within 20 shows a "c standby up"
within 20 has_sum "$mnt/c/c/data" "$data" || fail "its own bytes"
same "$incarnation" "$(cat "$state/c/store/incarnation")" "the store's incarnation"
same "$id" "$(xattr "$mnt/a/c/data" id)" "the segment, as a knows it"
same 640 "$(stat -c %a "$mnt/c/c/data")" "its mode"
same 5a "$(ask mapper load 9)" "what the program has stored"
ask mapper store 10 >/dev/null
same 5a "$(ask mapper load 10)" "what the program stores"
within 20 has_sum "$mnt/a/a/given" "$given" || fail "what a pulls from c"
within 20 has_sum "$mnt/c/c/taken" "$taken" || fail "what c pulls from b"
within 20 is "$mnt/c/c/taken" state stable
within 20 is "$mnt/a/a/given" state stable
[ ! -e "$mnt/c/c/doomed" ] || fail "a segment that was unlinked meanwhile is back"
gone() { [ ! -e "$doomed" ]; }
within 20 gone
within 20 at a promote c
touch "$mnt/c/c/new"
data=$(sum "$mnt/c/c/data")
mv "$mnt/c/c/data" "$mnt/c/b/data"
has_sum "$mnt/b/b/data" "$data" || fail "the bytes after a move"
bye mapper
mv "$mnt/b/b/data" "$mnt/b/c/data"
within 20 is "$mnt/c/c/data" state stable

echo "where the node was fenced meanwhile the rows win, and its bytes are kept aside"
kill_node
rm "$state/c"/journal.db*
within 10 shows a "c voter down"
at a fence c
refused "was fenced: " "${rejoin[@]}"
"${rejoin[@]}" 2>&1 | grep -q "kept aside: segment $id, 8388608 bytes: $state/c/store/$id" || fail "it does not name the segment"
has_sum "$state/c/store/$id" "$data" || fail "the bytes that are kept aside"
cluster_stop
echo "again: all well"
