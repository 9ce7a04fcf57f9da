#!/usr/bin/env bash
# rampfs-node recover on state directories of which no daemon runs: what it refuses, in which words; certificates that are
# not this cluster's; kill -9 at any moment leaves the old journal or the new one.
set -eu
build=${RAMPFS_BUILD:?}
PATH=$build/bin:$PATH
export LC_ALL=C
d=$(mktemp -d /tmp/rampfs-recover.XXXXXX)
trap 'rm -rf "$d"' EXIT
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
same() { [ "$1" = "$2" ] || fail "$3: expected \"$1\", got \"$2\""; }
refused() { # expected words, arguments of recover
	local words=$1 out status=0
	shift
	out=$(rampfs-node recover "$@" 2>&1 </dev/null) || status=$?
	[ $status = 1 ] || fail "exit status $status, not 1: recover $*: $out"
	case $out in *"$words"*) ;; *) fail "recover $* should have said \"$words\": $out" ;; esac
}
recover() { rampfs-node recover "$@" </dev/null; }
cluster() {
	python3 - "$1" <<'P'
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT hex(v) FROM meta WHERE k = 'cluster'").fetchone()[0].lower())
P
}
make() { # CLUSTER NODE...: state directories $d/CLUSTER.NODE
	local c=$1 n
	shift
	{
		printf '[cluster]\nname=%s\n' "$c"
		for n in "$@"; do printf '[node %s]\naddress=127.0.0.1:%s\ncapacity=64M\n' "$n" "$((7100 + $(printf %d "'$n")))"; done
	} >"$d/$c.conf"
	for n in "$@"; do mkfs.rampfs --config "$d/$c.conf" --key "$d/$c.key" --node "$n" "$d/$c.$n" >/dev/null; done
}
# A log that is one entry longer than it was.
lengthen() {
	python3 - "$1" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("INSERT INTO log SELECT max(i) + 1, 1, 1, NULL FROM (SELECT max(idx) AS i FROM log UNION SELECT v FROM meta WHERE k = 'snap_index')")
db.commit()
P
}
make lab a b c d
make other a b

echo "what it refuses"
a=$d/lab.a
before=$(cluster "$a/journal.db")
refused "name each other member, with --lost or --survivor: b c d" --yes "$a"
refused "name each other member, with --lost or --survivor: d" --yes --lost b --survivor c "$a"
refused "no such node: z" --yes --lost z "$a"
refused "a is this node itself" --yes --lost a "$a"
refused "b is named as lost and as a survivor" --yes --lost b --survivor b --lost c --lost d "$a"
refused "NAME=HOST:PORT, not nowhere" --yes --lost b --lost c --lost d --address nowhere "$a"
refused "NAME=HOST:PORT" --yes --lost b --lost c --lost d --address b=nowhere "$a"
refused "--address: no such node: z" --address z=h:1 "$a"
refused "not a state directory" --yes --lost b "$d"
refused "not confirmed: nothing was changed" --lost b --lost c --lost d "$a"
said=$(echo yes | rampfs-node recover --lost b --lost c --lost d "$a" 2>&1) && fail "\"yes\" is not the cluster's name"
case $said in *"Type the cluster's name (lab)"*"not confirmed"*) ;; *) fail "$said" ;; esac
refused "was never recovered" --show "$a"
exec 9>"$a/lock"
flock 9
refused "a rampfs runs on it already" --yes --lost b --lost c --lost d "$a"
exec 9>&-
same "cluster.conf journal.db journal.db.lock key lock node store" "$(cd "$a" && echo *)" "the files after refusals"
same "$before" "$(cluster "$a/journal.db")" "the cluster after refusals"

echo "kill -9 at each step that changes a file"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # it needs ptrace, which strace has
old=0 new=0 whole=""
for i in $(seq 1 2 200); do
	s=$d/killed
	rm -rf "$s" && cp -r "$a" "$s"
	if { strace -f -qq -o "$d/trace" -e trace=pwrite64,fdatasync,fsync,rename,ftruncate \
		-e "inject=pwrite64,fdatasync,fsync,rename,ftruncate:signal=KILL:when=$i" \
		rampfs-node recover --yes --lost b --lost c --survivor d "$s" >/dev/null; } 2>/dev/null; then
		whole=$i
		break
	fi
	to=$(cluster "$s/journal.db")
	if [ "$before" = "$to" ]; then
		old=$((old + 1))
		[ ! -e "$s/recovered.cert" ] || fail "a certificate of a cluster that is not there"
	else
		new=$((new + 1))
		recover --show "$s" | grep -q "^to $to\$" || fail "the journal has another certificate"
	fi
	recover --yes --lost b --lost c --survivor d "$s" >"$d/said" || fail "the next run: $(cat "$d/said")"
	to=$(cluster "$s/journal.db")
	grep -q "^to $to\$" "$s/recovered.cert" || fail "the file is of another cluster than the journal"
	same "$before" "$(cluster "$s"/journal.db.????????)" "the cluster of the copy"
	recover --yes "$s" | grep -q "nothing is changed" || fail "a third run changes something"
	same "$to" "$(cluster "$s/journal.db")" "the cluster after a third run"
done
[ -n "$whole" ] && [ $old -gt 3 ] && [ $new -gt 0 ] || fail "killed $old times before and $new times after, and whole: $whole"
echo "  killed before: $old times, after: $new times"

echo "certificates"
recover --yes --lost b --lost c --survivor d "$a" >"$d/said"
grep -q "Next: start this node.*then on each survivor" "$d/said" || fail "no word of the next step: $(cat "$d/said")"
cert=$a/recovered.cert forged=$d/forged
same 600 "$(stat -c %a "$cert")" "the mode of the certificate"
recover --show "$a" | cmp - "$cert" || fail "--show shows another certificate"
dd=$d/lab.d
was=$(cluster "$dd/journal.db")
for forgery in 's/ lost / survivor /' 's/^last 1/last 9/' 's/^cluster lab/cluster lob/' 's/^mac 0/mac 1/; t; s/^mac ./mac 0/'; do
	sed "$forgery" "$cert" >"$forged"
	! cmp -s "$forged" "$cert" || fail "no forgery: $forgery"
	refused "not proved by this node's cluster key" --yes --adopt "$forged" "$dd"
done
head -n 3 "$cert" >"$forged" && refused "no certificate of a recovery" --yes --adopt "$forged" "$dd"
: >"$forged" && refused "no certificate of a recovery" --yes --adopt "$forged" "$dd"
head -c 100000 /dev/urandom >"$forged" && refused "no certificate of a recovery" --yes --adopt "$forged" "$dd"
refused "No such file" --yes --adopt "$d/none" "$dd"
refused "can't be read" --yes --adopt "$d" "$dd"
refused "not proved by this node's cluster key" --yes --adopt "$cert" "$d/other.a"
recover --yes --lost b "$d/other.a" >/dev/null
refused "not proved by this node's cluster key" --yes --adopt "$d/other.a/recovered.cert" "$dd"
refused "node b was declared lost" --yes --adopt "$cert" "$d/lab.b"
refused "of the recovered cluster already" --yes --adopt "$cert" "$a"
refused "not confirmed: nothing was changed" --adopt "$cert" "$dd"
cp -r "$dd" "$d/newer" && lengthen "$d/newer/journal.db"
refused "this node's journal is newer (term 1, entry 2) than a's was (term 1, entry 1): recover here instead" --yes --adopt "$cert" "$d/newer"
same "$was" "$(cluster "$dd/journal.db")" "the cluster after refused certificates"
[ ! -e "$dd/recovered.cert" ] || fail "a refused certificate was kept"
for i in 2 12 22 32 42; do
	rm -rf "$d/killed" && cp -r "$dd" "$d/killed"
	{ strace -f -qq -o "$d/trace" -e "inject=pwrite64,fdatasync,fsync,rename,ftruncate:signal=KILL:when=$i" \
		rampfs-node recover --yes --adopt "$cert" "$d/killed" >/dev/null || true; } 2>/dev/null
	if [ "$was" = "$(cluster "$d/killed/journal.db")" ]; then
		recover --yes --adopt "$cert" "$d/killed" >/dev/null
	else
		refused "of the recovered cluster already" --yes --adopt "$cert" "$d/killed"
	fi
	same "$(cluster "$a/journal.db")" "$(cluster "$d/killed/journal.db")" "the cluster after an adoption that was killed"
done
recover --yes --adopt "$cert" --address "a=127.0.0.1:9" "$dd" | grep -q "Done: node d is a standby" || fail "it is not adopted"
same "$(cluster "$a/journal.db")" "$(cluster "$dd/journal.db")" "the cluster of the survivor"
refused "of the recovered cluster already" --yes --adopt "$cert" "$dd"
refused "has none of the cluster's tables yet" --yes --lost a --lost b --lost c "$dd"

echo "taken back by the copy, and recovered on the other one"
mv "$a"/journal.db.???????? "$a/journal.db"
rm "$cert"
same "$before" "$(cluster "$a/journal.db")" "the cluster of the copy"
recover --yes --lost b --survivor a --lost c "$d/newer" >/dev/null
recover --yes --adopt "$d/newer/recovered.cert" "$a" >/dev/null
same "$(cluster "$d/newer/journal.db")" "$(cluster "$a/journal.db")" "the cluster that both are of"
echo "recover: all well"
