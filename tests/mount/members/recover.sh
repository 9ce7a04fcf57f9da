#!/usr/bin/env bash
# A quorum that is lost for good, on real daemons: rampfs-node recover on a survivor, and recover --adopt on
# another. three: two of three are gone. five: three of five. backup: the survivor's journal is old.
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C RAMPFS_QUIET=1
cluster=$scratch/cluster
at() { local n=$1 && shift && rampfs-node -m "$mnt/$n" "$@"; }
is() { [ "$(xattr "$1" "$2" 2>/dev/null)" = "$3" ]; }
says() { grep -qE "$2" "$1"; }
shows() { at "$1" list | grep -q "^$2"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
has_sum() { [ "$(sum "$1" 2>/dev/null)" = "$2" ]; }
processes() { pgrep -f -- "^[^ ]*rampfs (-o|--daemon|--adopt) .*$mnt/$1\$" | xargs; }
released() { flock -n "$state/$1/lock" true; }
address() { sed -n "/^\[node $1\]/,/^\$/s/^address=//p" "$cluster/cluster.conf"; }
# A node is gone, at once. Its memory stays, for a test that lets it come back.
lose() {
	local n pids
	for n in "$@"; do
		pids=$(processes "$n")
		# shellcheck disable=SC2086 # pids are words
		kill -STOP $pids && kill -KILL $pids
		within 10 released "$n"
		umount -l "$mnt/$n"
	done
}
end() { umount "$mnt/$1" && within 20 released "$1"; }
begin() { rampfs -o "log=$cluster/$1.log" "$state/$1" "$mnt/$1"; }
writes() { within 20 touch "$mnt/$1/$1/written" 2>/dev/null && rm "$mnt/$1/$1/written"; }
read_only() { touch "$mnt/$1/$1/none" 2>&1 | grep -q "Read-only"; }
settles() { within 20 is "$1" state stable; }
recover() { rampfs-node recover "$@" </dev/null; }
holder_program=(rampfs-run "$build/tests/pages")
program() { # NAME PATH
	local keep=("${holder_program[@]}")
	holder_program+=("$2" closed)
	holder "$1"
	holder_program=("${keep[@]}")
}
random() { head -c "$1" /dev/urandom >"$2"; }

# ---- members that are not lost, and what is said (tests/unit/recover.sh has the other refusals) ---------------

refusals() {
	begin b
	refused "node b answers at $(address b): it is not lost" recover --yes --lost b --lost c "$state/a"
	within 20 says "$cluster/b.log" "asked whether this node lives"
	! says "$cluster/b.log" "wants to join" || fail "b takes the question for a wish to join"
	# shellcheck disable=SC2046
	kill -STOP $(processes b)
	refused "node b takes connections at $(address b) and is silent" recover --yes --lost b --lost c "$state/a"
	lose b
	recover --lost b --lost c "$state/a" >"$scratch/said" 2>&1 || true
	for line in "^  lost: 1 segment \(theirs\)" "\(coming\) .*lost node" "\(leaving\) .*lost node" "\(data.* are here, whole" \
		"^node c is declared lost"; do
		says "$scratch/said" "$line" || fail "it does not say \"$line\": $(cat "$scratch/said")"
	done
}

# ---- three nodes, two are gone ------------------------------------------------------------------------------

three() {
	local data leaving byte id
	cluster_start -n 3 -c 256M
	random 20M "$mnt/a/a/data" && data=$(sum "$mnt/a/a/data")
	random 8M "$mnt/b/b/coming"
	random 8M "$mnt/a/a/leaving" && leaving=$(sum "$mnt/a/a/leaving")
	echo lost >"$mnt/b/b/theirs"
	rampfs-migrate --mode demand "$mnt/b/b/coming" a
	rampfs-migrate --mode demand "$mnt/a/a/leaving" b
	head -c 4096 "$mnt/a/a/coming" >/dev/null
	program mapper "$mnt/a/a/data"
	byte=$(ask mapper load 7)
	echo "two of three are gone"
	lose b c
	within 20 read_only a
	refused "a rampfs runs on it already" recover --yes --lost b --lost c "$state/a"
	end a
	refusals
	same "$byte" "$(ask mapper load 7)" "what the program reads while no daemon runs"
	echo "a goes on alone"
	recover --yes --lost b --lost c "$state/a"
	begin a
	writes a
	same 5a "$(ask mapper store 9 >/dev/null && ask mapper load 9)" "what the program has stored"
	same "$byte" "$(ask mapper load 7)" "what the program reads afterwards"
	within 10 shows a "b standby fenced"
	shows a "a voter up" || fail "a is no voter"
	settles "$mnt/a/a/coming"
	[ -n "$(xattr "$mnt/a/a/coming" lost)" ] || fail "no word of lost pages"
	head -c 4096 "$mnt/a/a/coming" >/dev/null || fail "a page that was here before"
	within 20 is "$mnt/a/a/leaving" state "rolled back"
	rampfs-migrate --reclaim "$mnt/a/a/leaving"
	has_sum "$mnt/a/a/leaving" "$leaving" || fail "the bytes of the segment that came back"
	is "$mnt/a/b/theirs" state lost || fail "b's segment is not lost: $(xattr "$mnt/a/b/theirs" state)"
	mv "$mnt/a/a/data" "$mnt/a/a/renamed"
	bye mapper
	program second "$mnt/a/a/leaving" # a new mapping, a new extent
	ask second load 1 >/dev/null
	bye second
	id=$(xattr "$mnt/a/a/renamed" id)
	touch "$mnt/a/a/new"
	[ "$(xattr "$mnt/a/a/new" id)" -ge $((1 << 32)) ] || fail "an id that the old cluster may have given: $(xattr "$mnt/a/a/new" id)"
	[ "$id" -lt $((1 << 32)) ] || fail "the old segment's id: $id"
	echo "a new node joins, takes a segment, and votes; the lost ones leave"
	data=$(sum "$mnt/a/a/renamed")
	contrib/local-cluster join -c 256M d "$cluster"
	mv "$mnt/a/a/renamed" "$mnt/a/d/renamed"
	has_sum "$mnt/d/d/renamed" "$data" || fail "the bytes at the new node"
	at a promote d
	within 10 shows d "d voter up"
	rm "$mnt/a/b/theirs"
	within 20 at a remove b
	at a remove c
	writes d
	echo "the lost nodes come back after all, with their memory: a cluster of their own, which none of ours follows"
	begin b
	begin c
	within 20 says "$cluster/a.log" "rejected: it is of another cluster"
	same lost "$(cat "$mnt/b/b/theirs")" "the old cluster's segment, where it is"
	writes b # the old cluster's quorum: the operator's word was wrong
	[ ! -e "$mnt/a/b" ] || fail "a knows b again"
	writes a
	same 2 "$(at a list | wc -l)" "the new cluster's members"
	cluster_stop
}

# ---- five nodes, three are gone -----------------------------------------------------------------------------

five() {
	local both port to_b to_a
	cluster_start -n 5 -c 128M
	random 8M "$mnt/a/a/both" && both=$(sum "$mnt/a/a/both")
	random 8M "$mnt/b/b/kept"
	rampfs-migrate --mode demand "$mnt/a/a/both" b # its pages are still at a
	random 1M "$mnt/c/c/to-b" && to_b=$(sum "$mnt/c/c/to-b")
	mv "$mnt/c/c/to-b" "$mnt/c/b/to-b" && settles "$mnt/b/b/to-b"
	random 1M "$mnt/a/a/to-a" && to_a=$(sum "$mnt/a/a/to-a")
	program mapper "$mnt/b/b/kept"
	ask mapper load 3 >/dev/null
	echo "a ends first; b sees a change that a does not"
	end a
	within 20 touch "$mnt/b/b/newer" 2>/dev/null
	lose c d e
	within 20 read_only b
	end b
	echo "recovered on the wrong node: the other one refuses, and that is taken back"
	recover --yes --lost c --lost d --lost e --survivor b "$state/a"
	refused "journal is newer" recover --yes --adopt "$state/a/recovered.cert" "$state/b"
	mv "$state/a"/journal.db.???????? "$state/a/journal.db"
	rm "$state/a/recovered.cert"
	port=$(address a) && port=${port%:*}:$((${port##*:} + 1))
	recover --yes --lost c --lost d --lost e --survivor a --address "a=$port" "$state/b"
	begin b
	writes b
	same 5a "$(ask mapper store 5 >/dev/null && ask mapper load 5)" "what b's program stores"
	shows b "a standby down" || fail "a is no standby"
	local cert=$state/b/recovered.cert
	echo "a is adopted, at another address, with its segments"
	recover --yes --adopt "$cert" --address "a=$port" "$state/a"
	begin a
	within 20 shows b "a standby up $port"
	within 20 shows a "a standby up $port"
	within 20 has_sum "$mnt/a/a/to-a" "$to_a"
	rampfs-migrate --wait "$mnt/b/b/both" b || true
	within 20 has_sum "$mnt/b/b/both" "$both" || fail "the bytes of the segment that moved between the survivors"
	settles "$mnt/b/b/both"
	same "$to_b" "$(sum "$mnt/b/b/to-b")" "the bytes of the segment that came to b"
	[ -e "$mnt/b/b/newer" ] || fail "the change that b alone had seen"
	within 20 at b promote a
	within 20 shows b "a voter up"
	mv "$mnt/a/a/to-a" "$mnt/a/b/to-a"
	has_sum "$mnt/b/b/to-a" "$to_a" || fail "the bytes after a move between the survivors"
	bye mapper
	mv "$mnt/b/b/kept" "$mnt/b/a/kept"
	[ -s "$mnt/a/a/kept" ] || fail "the segment that a program had mapped"
	cluster_stop
}

# ---- the survivor's journal is an old copy ------------------------------------------------------------------

backup() {
	local fresh mine known half
	cluster_start -n 3 -c 128M
	random 1M "$mnt/b/b/known" && known=$(sum "$mnt/b/b/known")
	random 1M "$mnt/b/b/known-half" && half=$(sum "$mnt/b/b/known-half")
	touch "$mnt/a/a/mine"
	end a
	cp "$state/a/journal.db" "$scratch/backup.db"
	begin a
	within 20 touch "$mnt/a/a/first" 2>/dev/null
	random 1M "$mnt/b/b/fresh" && fresh=$(sum "$mnt/b/b/fresh")
	rm "$mnt/a/a/mine" # the old journal has another segment of that name
	random 1M "$mnt/a/a/mine" && mine=$(sum "$mnt/a/a/mine")
	within 20 mv "$mnt/b/b/fresh" "$mnt/b/a/fresh" 2>/dev/null && settles "$mnt/a/a/fresh"
	mv "$mnt/b/b/known" "$mnt/b/a/known" && settles "$mnt/a/a/known"
	rampfs-migrate --mode demand "$mnt/b/b/known-half" a
	cat "$mnt/a/a/known-half" >/dev/null # read, and not settled perhaps
	random 8M "$mnt/b/b/fresh-half"
	rampfs-migrate --mode demand "$mnt/b/b/fresh-half" a
	head -c 4096 "$mnt/a/a/fresh-half" >"$scratch/page"
	mine_id=$(xattr "$mnt/a/a/mine" id)
	lose b c
	end a
	rm -f "$state/a"/journal.db-*
	cp "$scratch/backup.db" "$state/a/journal.db"
	echo "segments that the journal does not know have the names that are noted beside them, where those are free"
	recover --yes --lost b --lost c "$state/a"
	begin a
	writes a
	within 20 test -e "$mnt/a/a/fresh"
	within 20 test -e "$mnt/a/a/recovered-$mine_id"
	within 20 test -e "$mnt/a/a/fresh-half"
	has_sum "$mnt/a/a/fresh" "$fresh" || fail "the bytes of what came to a"
	has_sum "$mnt/a/a/recovered-$mine_id" "$mine" || fail "the bytes of what was made at a"
	cmp -n 4096 "$scratch/page" "$mnt/a/a/fresh-half" || fail "the page that had come"
	settles "$mnt/a/a/fresh-half"
	[ -n "$(xattr "$mnt/a/a/fresh-half" lost)" ] || fail "no word of lost pages"
	within 20 has_sum "$mnt/a/a/known" "$known" || fail "a segment that b's row still names"
	within 20 has_sum "$mnt/a/a/known-half" "$half" || fail "a segment that b's row still names, half settled"
	echo "and they are segments like any other"
	mv "$mnt/a/a/fresh" "$mnt/a/a/renamed"
	rm "$mnt/a/a/recovered-$mine_id"
	end a
	begin a
	writes a
	has_sum "$mnt/a/a/renamed" "$fresh" || fail "the bytes after a restart"
	[ ! -e "$mnt/a/a/recovered-$mine_id" ] || fail "a removed segment is back"
	gone_file() { ! [ -e "$state/a/store/$mine_id" ]; }
	within 20 gone_file
	program mapper "$mnt/a/a/renamed"
	ask mapper load 0 >/dev/null
	bye mapper
	cluster_stop
}

# ---- all addresses have changed, and no node is lost ---------------------------------------------------------

addresses() {
	local n m to=() data
	local -A new
	cluster_start -n 3 -c 64M
	random 1M "$mnt/c/c/data" && data=$(sum "$mnt/c/c/data")
	for n in a b c; do
		end $n
		m=$(address $n)
		new[$n]=${m%:*}:$((${m##*:} + 7))
		to+=(--address "$n=${new[$n]}")
	done
	refused "no such node: z" recover --address z=h:1 "$state/a"
	for n in a b c; do recover "${to[@]}" "$state/$n" | grep -q "Nothing else was changed" || fail "the addresses of $n"; done
	for n in a b c; do begin $n; done
	for n in a b c; do writes $n; done
	for n in a b c; do
		for m in a b c; do within 20 shows $n "$m voter up ${new[$m]}"; done
	done
	mv "$mnt/c/c/data" "$mnt/c/a/data"
	has_sum "$mnt/a/a/data" "$data" || fail "the bytes after a move between the new addresses"
	cluster_stop
}

for part in "${@:-three}"; do "$part"; done
echo "recover: all well"
