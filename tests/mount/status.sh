#!/usr/bin/env bash
# rampfs-status: tables for people, one JSON object for programs, and what is lost in both.
. tests/lib/cluster.sh
export LC_ALL=C
keeper() { pgrep -f -- "^rampfs -o .*$mnt/$1\$"; }
ended() { ! pgrep -f -- "rampfs .*$mnt/$1\$" >/dev/null; }
table() { rampfs-status "$mnt/$1" >"$scratch/table" && grep -qE "$2" "$scratch/table"; }
shows() { table "$@" || fail "\"$2\" is not in: $(cat "$scratch/table")"; }
# The same within ten seconds.
soon() {
	for _ in {1..200}; do
		table "$@" && return
		sleep 0.05
	done
	shows "$@"
}
json() { rampfs-status --json "$mnt/$1" | python3 -c 'import json, sys
s = json.loads(sys.stdin.buffer.read().decode("utf-8"))
segment = {(x["node"], x["name"]): x for x in s["segments"]}
node = {x["name"]: x for x in s["nodes"]}
for check in sys.argv[1:]:
    assert eval(check), "%s in %s" % (check, json.dumps(s, indent=1))' "${@:2}"; }
cluster_start -n 3 -c 256M
head -c 1M /dev/urandom >"$mnt/a/a/two  spaces"
within 5 test -e "$mnt/b/a/two  spaces"

echo "a healthy cluster"
shows b '^nothing is lost or in doubt$'
shows b '^NODE  ROLE   STATE  ADDRESS +CAPACITY +$'
shows b '^b     voter  up     127\.0\.0\.1:[0-9]+ +0\.2 GiB  .*here$'
shows b '^SEGMENT +SIZE  STATE   AT$'
soon b '^a/two  spaces  1\.0 MiB  stable  -$'
shows b '^no migrations under way on this node$'
json b 's["quorum"] is True' 's["attention"] == []' 'set(node) == {"a", "b", "c"}' \
	'segment["a", "two  spaces"]["state"] == "stable"' \
	'segment["a", "two  spaces"]["mmap"] == "none"' 'node["b"]["here"] is True' 's["migrations"] == []'

echo "a name cannot fake a line of the table"
: >"$mnt/a/a/"$'x\n  a\e[31mfake  1 B  lost'
shows a '^nothing is lost or in doubt$'
shows a '^a/x\\x0a  a\\x1b\[31mfake  1 B  lost  +0 B  stable  -$'
rm "$mnt/a/a/"x*
: >"$mnt/a/a/"$'\xffx\xc3\xa9\xe2\x82\xacy\xc3'
json a 'segment["a", "\\xffx\u00e9\u20acy\\xc3"]["size"] == 0'
rm "$mnt/a/a/"*y*

echo "names of 255 bytes, of any bytes: in the table, in JSON, moved"
long=$(printf 'n%.0s' {1..251})$'\xff"\\\t'
: >"$mnt/a/a/$long"
shows a "^a/n{251}"$'\xff'
json a 'segment["a", "n" * 251 + "\\xff\"\\\t"]["state"] == "stable"'
within 5 test -e "$mnt/b/a/$long"
rampfs-migrate "$mnt/b/a/$long" c
mv "$mnt/b/c/$long" "$mnt/b/b/"
[ -e "$mnt/c/b/$long" ] || within 5 test -e "$mnt/c/b/$long"
same "$long" "$(ls "$mnt/c/b")" "ls"
rm "$mnt/b/b/$long"

echo "half pulled, and then the source's memory is gone: what is lost stands first"
rampfs-migrate --mode demand "$mnt/a/a/two  spaces" b
soon b '^b/two  spaces  1\.0 MiB  pulling from a, [0-9]+ % here  -$'
kill -TERM "$(keeper a)"
within 20 ended a
rampfs --destroy --force "$state/a"
rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
soon b '^LOST OR IN DOUBT +WHY'
shows b '^b/two  spaces .* pages lost'
json b 's["attention"][0]["name"] == "two  spaces" and s["attention"][0]["lost"].startswith("0-")'
cluster_stop
