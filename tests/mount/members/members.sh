#!/usr/bin/env bash
# Members that come and go, on real daemons: one joins, votes, is emptied and removed; one dies and is
# fenced; one is formatted again and comes back under a new number.
. tests/lib/cluster.sh
export LC_ALL=C
cluster=$scratch/cluster
at() { local n=$1 && shift && rampfs-node -m "$mnt/$n" "$@"; }
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
is() { [ "$(xattr "$1" "$2" 2>/dev/null)" = "$3" ]; }
says() { grep -qE "$2" "$1"; }
gone() { ! [ -e "$1" ]; }
shows() { at "$1" list | grep -q "^$2"; } # node, the beginning of a line
shows_not() { ! shows "$@"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
has_sum() { [ "$(sum "$1" 2>/dev/null)" = "$2" ]; }
processes() { pgrep -f -- "^[^ ]*rampfs (-o|--daemon|--adopt) .*$mnt/$1\$" | xargs; }
# Power fails at one node: keeper and daemon end at once, and the mount and the memory with them.
power_off() {
	local pids
	# The keeper starts the daemon again, and the daemon a keeper: neither may see the other die.
	pids=$(processes "$1")
	# shellcheck disable=SC2086 # pids are words
	kill -STOP $pids && kill -KILL $pids
	within 10 flock -n "$state/$1/lock" true
	umount -l "$mnt/$1"
	within 10 rampfs --destroy --force "$state/$1"
}
released() { flock -n "$state/$1/lock" true; }
power_on() { rampfs -o "log=$cluster/$1.log" "$state/$1" "$mnt/$1"; }
join() { contrib/local-cluster "$1" -c 256M "$2" "$cluster"; }

chmod 711 "$scratch"
cluster_start -n 3 -c 256M
head -c 20M /dev/urandom >"$mnt/a/a/data"
data=$(sum "$mnt/a/a/data")

echo "users who may not change members, and refused changes"
refused "no such node" at a fence nobody
refused "no such node" at a promote nobody
refused "has the address" at a add d "$(at a list | awk '$1 == "b" { print $4 }')" 1G
refused "HOST:PORT" at a add d nowhere 1G
refused "less than 16M" at a add d 127.0.0.1:9 1M
refused "a member already" at a add b 127.0.0.1:9 1G
refused "is alive" at a fence b
refused "this is a itself" at a remove a
refused "segments are still at a (data)" at b remove a
refused "the hook failed" at a fence --hook false b
refused "only root" setpriv --reuid 65534 --clear-groups rampfs-node -m "$mnt/a" remove b
head -c 32 /dev/urandom >"$scratch/other.key" && chmod 600 "$scratch/other.key"
b_at=$(at a list | awk '$1 == "b" { print $4 }')
newcomer=(--node d --address 127.0.0.1:9 --capacity 256M "$scratch/d")
refused "does not prove our cluster key" mkfs.rampfs --join "$b_at" --key "$scratch/other.key" "${newcomer[@]}"
refused "No such file" mkfs.rampfs --join "$b_at" --key "$scratch/none.key" "${newcomer[@]}"
refused "is a member already" mkfs.rampfs --join "$b_at" --key "$cluster/cluster.key" --node c "$scratch/d"
refused "address and capacity are needed" mkfs.rampfs --join "$b_at" --key "$cluster/cluster.key" --node d "$scratch/d"
refused "is no member" mkfs.rampfs --rejoin "$b_at" --key "$cluster/cluster.key" --node d "$scratch/d"
refused "is alive" mkfs.rampfs --rejoin "$b_at" --key "$cluster/cluster.key" --node c "$scratch/d"
[ ! -e "$scratch/d" ] && [ ! -e "$scratch/none.key" ] || fail "a refused mkfs left something behind"
same 3 "$(at a list | wc -l)" "members after the refused changes"

echo "a fourth node joins, sees the segments, takes one, votes, and survives kill -9"
join join d
shows a "d standby up" || fail "d is no standby"
has_sum "$mnt/d/a/data" "$data" && fail "bytes of a segment that is elsewhere"
same data "$(ls "$mnt/d/a")" "d's view of a"
mv "$mnt/d/a/data" "$mnt/d/d/data"
has_sum "$mnt/d/d/data" "$data" || fail "bytes after the move to d"
at c promote d
within 5 shows a "d voter up"
within 10 is "$mnt/d/d/data" state stable
old=$(daemon d)
kill -9 "$old"
within 10 another_daemon d "$old"
within 10 has_sum "$mnt/d/d/data" "$data"
within 10 shows a "d voter up"
# Three of four decide, d among them.
kill -STOP "$(daemon b)"
within 15 touch "$mnt/d/d/of-three" 2>/dev/null
kill -CONT "$(daemon b)"
within 10 shows a "b voter up"

echo "it is emptied and removed"
refused "segments are still at d" at a remove d
rm "$mnt/d/d/of-three"
mv "$mnt/a/d/data" "$mnt/a/a/data"
within 10 is "$mnt/a/a/data" state stable
within 10 at a remove d
for n in a b c; do within 5 shows_not $n "d "; done
[ ! -e "$mnt/a/d" ] || fail "d's directory is still there"
knows_it_is_out() { rampfs-status "$mnt/d" | grep -q "member: no, .*removed" && rampfs-status "$mnt/d" | grep -q "quorum: no"; }
within 10 knows_it_is_out
has_sum "$mnt/a/a/data" "$data" || fail "bytes after d has gone"
umount "$mnt/d"
within 15 flock -n "$state/d/lock" true
rampfs --destroy "$state/d"
rm -r "$state/d" "$mnt/d"
touch "$mnt/b/b/without-d" && rm "$mnt/b/b/without-d"
# No node is removed whose removal leaves no quorum: that could never be undone.
kill -STOP "$(daemon c)"
within 10 shows a "c voter down"
refused "no quorum" at a remove b
kill -CONT "$(daemon c)"
within 10 shows a "c voter up"

echo "its name is free again: added by hand, joined under a new number, removed before it was up"
at b add d 127.0.0.1:9 256M
refused "was never up" at b promote d
refused "was never up" at b fence d
at b add e 127.0.0.1:10 256M && at b remove e # a member that no node reaches delays no node
refused "was added with the address" mkfs.rampfs --join "$b_at" --key "$cluster/cluster.key" "${newcomer[@]/127.0.0.1:9/127.0.0.1:10}"
mkfs.rampfs --join "$b_at" --key "$cluster/cluster.key" --node d "$scratch/d" | grep -q "as number 5" || fail "d's number"
at b remove d

echo "another node is formatted under its name, and put away again: the first one comes back as if nothing had happened"
votes() { ! no_vote "$@"; }
no_vote() { at "$1" list | grep -q "^$2 voter .* no-vote\$"; }
umount "$mnt/c" && within 20 released c
mv "$state/c" "$scratch/c.first"
mkfs.rampfs --config "$cluster/cluster.conf" --key "$cluster/cluster.key" --node c "$state/c"
rampfs -o "log=$cluster/other.log" "$state/c" "$mnt/c"
within 20 says "$cluster/other.log" "formatted again: needs --rejoin"
within 5 no_vote a c
umount "$mnt/c" && within 20 released c
umount "$state/c/store" && rm -r "$state/c"
mv "$scratch/c.first" "$state/c"
power_on c
within 20 touch "$mnt/c/c/mine" 2>/dev/null
within 10 shows a "c voter up"
within 5 votes a c
says "$cluster/c.log" "is an old copy" && fail "the first is taken for an old copy"
rm "$mnt/c/c/mine"

echo "a node dies and is fenced: its segments are lost, one that it was giving is half there, one that it was taking goes back"
echo own >"$mnt/c/c/own"
head -c 8M /dev/urandom >"$mnt/c/c/giving"
head -c 8M /dev/urandom >"$mnt/b/b/taking"
taking=$(sum "$mnt/b/b/taking")
rampfs-migrate --mode demand "$mnt/c/c/giving" b
rampfs-migrate --mode demand "$mnt/b/b/taking" c
is "$mnt/b/b/giving" state pulling || fail "giving is not being pulled"
power_off c
within 10 shows a "c voter down"
refused "Host is down" dd if="$mnt/b/b/giving" of=/dev/null bs=4096 count=1 # silence proves nothing
is "$mnt/a/c/own" state lost && fail "lost by silence"
at a fence --hook '[ "$RAMPFS_NODE" = c ] && [ -n "$RAMPFS_INCARNATION" ]' c
shows a "c voter fenced" || fail "c is not shown as fenced"
at b fence c # again: it is so already
within 10 is "$mnt/a/c/own" state lost
within 10 is "$mnt/b/b/giving" state stable
refused "Input/output error" cat "$mnt/b/b/giving"
[ -n "$(xattr "$mnt/b/b/giving" lost)" ] || fail "no word of the lost pages"
within 10 is "$mnt/b/b/taking" state "rolled back"
refused "Input/output error" cat "$mnt/b/b/taking"
rampfs-migrate --reclaim "$mnt/b/b/taking"
has_sum "$mnt/b/b/taking" "$taking" || fail "bytes of the segment that was rolled back"
refused "lost with it (own)" at a remove c

echo "formatted again: its log and votes are lost, it takes part no more"
mkfs.rampfs --force --config "$cluster/cluster.conf" --key "$cluster/cluster.key" --node c "$state/c"
power_on c
within 20 says "$cluster/c.log" "formatted again: needs --rejoin"
refused "" touch "$mnt/a/c/new"
is_alive_for_b() { ! mkfs.rampfs --rejoin "$b_at" --key "$cluster/cluster.key" --node c "$scratch/c" 2>"$scratch/said" && grep -q "is alive" "$scratch/said"; }
within 10 is_alive_for_b
power_off c
within 10 shows a "c voter fenced"

echo "--rejoin: a new number, when no segment is named as its own any more"
refused "lost with it (own): unlink them first" join rejoin c
rm "$mnt/a/c/own"
refused "node b has the address" mkfs.rampfs --rejoin "$b_at" --key "$cluster/cluster.key" --node c --address "$b_at" "$scratch/c"
shows a "c voter fenced" || fail "a --rejoin that was refused took c away"
join rejoin c
shows a "c standby up" || fail "c is no standby after its return"
at a promote c
echo back >"$mnt/c/c/back"
mv "$mnt/c/c/back" "$mnt/c/a/back"
within 5 grep -q back "$mnt/a/a/back"
old=$(daemon c)
kill -9 "$old"
within 10 another_daemon c "$old"
within 10 shows a "c voter up"

echo "a living node is fenced by force: it takes part no more, until it comes with new memory"
at a fence --force c
within 5 shows b "c voter fenced"
within 10 says "$cluster/c.log" "was fenced: it takes part no more"
refused "" touch "$mnt/c/c/new"
power_off c
power_on c
within 20 shows a "c voter up"
within 10 touch "$mnt/c/c/new" 2>/dev/null

echo "a living node is ended by the hook: it is fenced, although it was heard just before"
at a fence --hook "kill -STOP $(processes c)" c && said=fenced || said=refused
power_off c
same fenced "$said" "the state of c"
shows a "c voter fenced" || fail "c is not shown as fenced"
power_on c
within 20 shows a "c voter up"
within 10 touch "$mnt/c/c/new" 2>/dev/null

echo "new memory, and no quorum to say so: nothing is made in the name of the old"
read_only() { LC_ALL=C touch "$mnt/$1/$1/none" 2>&1 | grep -q "Read-only"; }
power_off c
kill -STOP "$(daemon a)" "$(daemon b)"
power_on c
within 20 read_only c
within 20 says "$cluster/c.log" "no other member is heard, .* at $(at c list | awk '$1 == "c" { print $4 }')"
kill -CONT "$(daemon a)" "$(daemon b)"
echo here >"$mnt/c/c/first" || fail "a program that makes a file does not wait until the file can be made"
same here "$(cat "$mnt/c/c/first")" "the file written at c"

echo "a journal that was put back from a backup: no vote, but its segments can be moved away"
within 20 touch "$mnt/c/c/went" "$mnt/c/c/made" 2>/dev/null
went=$state/c/store/$(xattr "$mnt/c/c/went" id) made=$state/c/store/$(xattr "$mnt/c/c/made" id)
umount "$mnt/c" && within 20 released c
cp "$state/c/journal.db" "$scratch/backup.db"
rm "$made" "$made.state" # as if the daemon had died between the commit and the file
power_on c
cat "$mnt/c/c/made" || fail "a row without a file"
[ -e "$made" ] || fail "the row has no file"
within 20 mv "$mnt/c/c/went" "$mnt/c/a/went" 2>/dev/null
echo a >"$mnt/a/a/went"
within 20 gone "$went"
within 20 touch "$mnt/c/c/kept"
umount "$mnt/c" && within 20 released c
rm -f "$state/c"/journal.db-*
cp "$scratch/backup.db" "$state/c/journal.db"
kill -STOP "$(daemon a)" "$(daemon b)"
power_on c
# Its tables say that the segment is c's, and empty: so was everything that has no file yet.
said=$(sh -c 'echo c >"$1"' - "$mnt/c/c/went" 2>&1) && said=nothing
gone "$went" || said="nothing, and made a second $went"
kill -CONT "$(daemon a)" "$(daemon b)"
case $said in *"Read-only"*) ;; *) fail "a segment that an old copy shows was opened for writing: it said $said" ;; esac
within 20 says "$cluster/c.log" "is an old copy"
within 20 says "$cluster/c.log" "has an old copy of its journal and no vote: needs --rejoin"
within 20 test -e "$mnt/c/c/kept"
within 20 mv "$mnt/c/c/kept" "$mnt/c/a/kept"
within 20 mv "$mnt/a/a/went" "$mnt/a/c/went" 2>/dev/null
same a "$(cat "$mnt/c/c/went")" "the bytes that a wrote"
within 5 no_vote a c
rm "$mnt/b/b"/*
stays() { grep -q "1 have no vote (rampfs-node list): no quorum" <<<"$(at a remove b 2>&1)"; }
within 20 stays
shows a "b voter up" || fail "b has gone, without which there is no quorum"

echo "no quorum: no member changes, and the tool says why"
kill -STOP "$(daemon b)" "$(daemon c)"
within 10 says "$mnt/a/.ramp/status" '^quorum: no'
refused "no quorum" at a add e 127.0.0.1:9 1G
kill -CONT "$(daemon b)" "$(daemon c)"
within 10 says "$mnt/a/.ramp/status" '^quorum: *yes'
shows_not a "e " || fail "e was added without a quorum"
cluster_stop
echo "members: all well"
