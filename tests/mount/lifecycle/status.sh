#!/usr/bin/env bash
# rampfs-status: tables for people, one JSON object for programs, and lost segments in both.
. tests/lib/cluster.sh
cluster_mode=""
export LC_ALL=C
keeper() { pgrep -f -- "^rampfs -o .*$mnt/$1\$"; }
quietly() { "$@" 2>/dev/null; }
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
# Every member of the JSON is documented, with its type, in the manual page; and no documented one is missing.
cat >"$scratch/schema.py" <<'P'
import json, re, sys
text, number, boolean = str, (int, float), bool
schema = {
    "schema_version": number, "mountpoint": text, "quorum": boolean, "leader": text, "store_used_bytes": number,
    "store_capacity_bytes": number, "programs": number, "mappings": number, "requests_waiting": number, "level": number, "moves_queued": number,
    "limit_sent_bytes_s": number, "limit_received_bytes_s": number,
    "arena_bytes": number, "arena_used_bytes": number, "arena_user_max_bytes": number,
    "arena_users": {"uid": number, "bytes": number},
    "nodes": {"name": text, "role": text, "state": text, "address": text, "capacity_bytes": number, "incarnation": text, "transport": text},
    "segments": {"node": text, "name": text, "size_bytes": number, "id": number, "epoch": number, "extent_bytes": number,
                 "resident_bytes": number, "addr": text, "state": text, "owner": text, "source": text, "target": text, "pages": text,
                 "mmap": text, "mode": text, "prefill": text, "prefill_state": (dict, type(None)), "lost": text, "last_move": (dict, type(None)), "move": text, "source_silent": boolean},
    "migrations": {"name": text, "from": text, "to": text, "state": text, "age_ms": number, "side": text},
    "attention": {"node": text, "name": text, "why": text},
}
whys = "lost", "in doubt", "rolled back", "damaged", "source is silent", "pages lost"
rdma = {"rdma_" + key: number for key in ("queue_pairs", "registered_bytes", "short_parts", "memory_parts", "cut_parts", "other_parts")}
sometimes = {"nodes": {"leader": boolean, "here": boolean, "no-vote": boolean, **rdma}, "segments": {}, "migrations": {"mode": text, "why": text}, "attention": {"lost": text}, "arena_users": {}}
s = json.loads(sys.stdin.buffer.read().decode("utf-8"))
page = open("contrib/man/rampfs-status.1.scd").read()
def check(where, got, want, more={}):
    assert set(want) <= set(got) <= set(want) | set(more), (where, sorted(got), sorted(want))
    for key, value in got.items():
        kind = want[key] if key in want else more[key]
        assert isinstance(value, list if isinstance(kind, dict) else kind), (where, key, value)
        assert "*%s*" % key in page, "%s is not in the manual page" % key
check("root", s, schema, {"member": text})
for list_name, more in sometimes.items():
    for x in s[list_name]:
        check(list_name, x, schema[list_name], more)
    if list_name in sys.argv[1:]:
        assert s[list_name], list_name + " is empty"
assert {x["why"] for x in s["attention"]} <= set(whys), s["attention"]
# The states that a migration goes through, except for its end, at which it is no longer shown.
states = re.findall(r'^\t\[[A-Z_]+\] = \{"([a-z ]+)"', open("rampfs/transfer/move.c").read(), re.M)
assert states[-1] == "end" and len(states) > 10 and {x["state"] for x in s["migrations"]} <= set(states[:-1]), states
for word in (*whys, *states[:-1]):
    assert '"%s"' % word in page, '"%s" is not in the manual page' % word
P
as_documented() { rampfs-status --json "$mnt/$1" | python3 "$scratch/schema.py" "${@:2}" || fail "the JSON of $1 is not as documented"; }
cluster_start -n 3 -c 256M
head -c 1M /dev/urandom >"$mnt/a/a/two  spaces"
within 5 test -e "$mnt/b/a/two  spaces"

echo "a healthy cluster"
shows b '^nothing is lost or in doubt$'
shows b '^NODE  ROLE   STATE  ADDRESS +CAPACITY +$'
shows b '^b     voter  up     127\.0\.0\.1:[0-9]+ +256\.0 MiB  .*here$'
shows b '^SEGMENT +SIZE  STATE   AT$'
soon b '^a/two  spaces  1\.0 MiB  stable  -$'
shows b '^no migrations under way on this node$'
refused "$scratch: is not a rampfs mount" rampfs-status "$scratch"
refused "$scratch: is not a rampfs mount" rampfs-node -m "$scratch" list
refused "$scratch/none/.ramp/status: No such file" rampfs-status "$scratch/none"
for command in "rampfs-status" "rampfs-status --json" "rampfs-node list -m"; do
	refused "standard output: No space left" sh -c "$command $mnt/b >/dev/full"
done
json b 's["quorum"] is True' 's["attention"] == []' 'set(node) == {"a", "b", "c"}' \
	'segment["a", "two  spaces"]["state"] == "stable"' \
	'segment["a", "two  spaces"]["mmap"] == "none"' 'node["b"]["here"] is True' 's["migrations"] == []'

as_documented b nodes segments

echo "nodes with RDMA (tests/rdma has real ones)"
mkdir -p "$scratch/rdma/.ramp"
for name in status segments metrics nodes; do cat "$mnt/b/.ramp/$name" >"$scratch/rdma/.ramp/$name"; done
sed -Ei -e 's/transport=tcp/transport=verbs/' \
	-e '/^a /s/transport=verbs/& rdma_queue_pairs=2 rdma_registered_bytes=50331648 rdma_short_parts=1 rdma_memory_parts=0 rdma_cut_parts=2 rdma_other_parts=0/' \
	-e '/^c /s/transport=verbs/& rdma_queue_pairs=0 rdma_registered_bytes=0 rdma_short_parts=0 rdma_memory_parts=0 rdma_cut_parts=0 rdma_other_parts=0/' \
	"$scratch/rdma/.ramp/nodes"
rampfs-status "$scratch/rdma" >"$scratch/table"
for row in '^a .*RDMA: 2 queue pairs, 48\.0 MiB registered, 3 parts over TCP \(short 1, cut 2\)$' '^b .*here, RDMA$' \
	'^c .*RDMA: 0 queue pairs, 0 B registered$'; do
	grep -qE "$row" "$scratch/table" || fail "\"$row\" is not in: $(cat "$scratch/table")"
done
rampfs-status --json "$scratch/rdma" >"$scratch/json"
python3 "$scratch/schema.py" nodes <"$scratch/json" || fail "the JSON of nodes with RDMA is not as documented"
python3 - "$scratch/json" <<'P'
import json, sys
node = {x["name"]: x for x in json.load(open(sys.argv[1]))["nodes"]}
assert (node["a"]["rdma_queue_pairs"], node["a"]["rdma_registered_bytes"], node["a"]["rdma_cut_parts"]) == (2, 48 << 20, 2), node
assert not [key for key in node["b"] if key.startswith("rdma_")] and node["c"]["rdma_short_parts"] == 0, node
P

echo "what a node has is told in numbers"
mkfifo "$scratch/held"
head -c 1M /dev/urandom >"$mnt/a/a/counted"
rampfs-run python3 -c 'import mmap, sys
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m, mmap.mmap(f.fileno(), 4096, offset=8192) as n:
    print("mapped", flush=True)
    sys.stdin.read()' "$mnt/a/a/counted" <"$scratch/held" >"$scratch/mapped" &
mapper=$!
exec 7>"$scratch/held"
within 20 grep -q mapped "$scratch/mapped"
json a 's["schema_version"] == 2' 's["store_capacity_bytes"] == 256 << 20' '1 << 20 <= s["store_used_bytes"] < 8 << 20' \
	's["programs"] == 1' 's["mappings"] >= 1' 's["requests_waiting"] == 0'
json b 's["programs"] == 0 and s["mappings"] == 0'
json b 's["arena_users"] == [{"uid": 0, "bytes": 64 << 20}]' 's["arena_used_bytes"] == 64 << 20' \
	's["arena_bytes"] == 32 << 40' 's["arena_user_max_bytes"] == 4 << 40'
as_documented b arena_users
soon b '^arena: 64\.0 MiB given of 32\.0 TiB, at most 4\.0 TiB a user$'
shows b '^root +64\.0 MiB$'
exec 7>&-
wait $mapper
rm "$mnt/a/a/counted"

echo "a node's name cannot be taken for the state of a segment"
mkdir -p "$scratch/said/.ramp"
: >"$scratch/said/.ramp/nodes"
printf 'quorum: yes\n\nsegments: 3\n  a/x  1 B  moving to lost-2\n  b/y  1 B  pulling from silent, 4 %% here  at 0x20\n  c/z  1 B  %s\n' \
	stable >"$scratch/said/.ramp/status"
rampfs-status "$scratch/said" | grep -q '^nothing is lost or in doubt$' || fail "$(rampfs-status "$scratch/said")"
for word in lost "in doubt to b" "rolled back" damaged "pulling from b, 1 % here, source is silent" \
	"pulling from b, 1 % here, 3 pages lost"; do
	printf 'quorum: yes\n\nsegments: 1\n  c/z  1 B  %s\n' "$word" >"$scratch/said/.ramp/status"
	rampfs-status "$scratch/said" | grep -qx "c/z  *$word" || fail "$(rampfs-status "$scratch/said")"
done

echo "a name cannot fake a line of the table"
: >"$mnt/a/a/"$'x\n  a\e[31mfake  1 B  lost'
shows a '^nothing is lost or in doubt$'
shows a '^a/x\\x0a  a\\x1b\[31mfake  1 B  lost  +0 B  stable  -$'
rm "$mnt/a/a/"x*
: >"$mnt/a/a/"$'x\xc2\x9b31m\x9b'
shows a '^a/x\\xc2\\x9b31m\\x9b  +0 B  stable  -$'
json a 'segment["a", "x\u009b31m\\x9b"]["state"] == "stable"'
! rampfs-status --json "$mnt/a" | grep -q $'\x9b' || fail "the JSON tells a terminal what to do"
rm "$mnt/a/a/"x*
: >"$mnt/a/a/"$'\xffx\xc3\xa9\xe2\x82\xacy\xc3'
json a 'segment["a", "\\xffx\u00e9\u20acy\\xc3"]["size_bytes"] == 0'
rm "$mnt/a/a/"*y*
long=$(printf 'n%.0s' {1..255})
: >"$mnt/a/a/$long" && : >"$mnt/a/a/short"
shows a "^a/$long  +0 B  stable  -\$"
shows a '^a/short {40,80}0 B  stable  -$' # not pushed away by the long name
rm "$mnt/a/a/$long" "$mnt/a/a/short"

echo "names of 255 bytes, of any bytes: in the table, in JSON, moved"
long=$(printf 'n%.0s' {1..251})$'\xff"\\\t'
: >"$mnt/a/a/$long"
shows a "^a/n{251}"$'\xff'
json a 'segment["a", "n" * 251 + "\\xff\"\\x5c\t"]["state"] == "stable"'
within 5 test -e "$mnt/b/a/$long"
rampfs-migrate "$mnt/b/a/$long" c
mv "$mnt/b/c/$long" "$mnt/b/b/"
[ -e "$mnt/c/b/$long" ] || within 5 test -e "$mnt/c/b/$long"
same "$long" "$(ls "$mnt/c/b")" "ls"
rm "$mnt/b/b/$long"

echo "a migration under way, of a name with every kind of byte"
odd=$'  two\n\\x41 -> b  \xff'
head -c 1M /dev/urandom >"$mnt/a/a/$odd"
stopped=$(pgrep -f -- "rampfs --daemon .*$mnt/c\$")
trap 'status=$?; kill -CONT $stopped || true; cluster_cleanup $status' EXIT
kill -STOP "$stopped"
rampfs-migrate "$mnt/a/a/$odd" c 2>/dev/null &
mover=$!
soon a '^  two.x0a.x5cx41 -> b  '$'\xff''  +a -> c  +connecting  +[0-9]+ ms  source, mode auto: the default$'
as_documented a migrations
json a 's["migrations"][0]["name"] == "  two\n\\x5cx41 -> b  \\xff"' 's["migrations"][0]["to"] == "c"' \
	's["migrations"][0]["side"] == "source"' 's["migrations"][0]["mode"] == "auto"' 's["migrations"][0]["why"] == "the default"'
kill -CONT "$stopped"
trap cluster_cleanup EXIT
wait $mover || true
rm "$mnt/a/a/$odd" 2>/dev/null || within 10 rm "$mnt/c/c/$odd" 2>/dev/null

echo "a program waits for a page of a silent source: the segment is listed first, in JSON, too, until the source is back"
head -c 1M /dev/urandom >"$mnt/a/a/awaited"
rampfs-migrate --mode demand "$mnt/a/a/awaited" b
json b 's["attention"] == []' 'segment["b", "awaited"]["source_silent"] is False'
stopped=$(pgrep -f -- "rampfs --daemon .*$mnt/a\$")
trap 'status=$?; kill -CONT $stopped || true; cluster_cleanup $status' EXIT
kill -STOP "$stopped"
rampfs-run /usr/bin/python3 -c 'import mmap, sys
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    assert len(m[4096:4100]) == 4' "$mnt/b/b/awaited" &
toucher=$!
soon b '^LOST OR IN DOUBT +WHY'
shows b '^b/awaited  +pulling from a, [0-9]+ % here, source is silent$'
json b 's["attention"] == [{"node": "b", "name": "awaited", "why": "source is silent"}]' \
	'segment["b", "awaited"]["source_silent"] is True'
as_documented b attention
kill -CONT "$stopped"
trap cluster_cleanup EXIT
wait $toucher || fail "the touch failed whose page came late"
soon b '^nothing is lost or in doubt$'
json b 's["attention"] == []' 'segment["b", "awaited"]["source_silent"] is False'
rm "$mnt/b/b/awaited"

echo "half pulled, and then the source's memory is gone: the lost segment is listed first"
rampfs-migrate --mode demand "$mnt/a/a/two  spaces" b
soon b '^b/two  spaces  1\.0 MiB  pulling from a, [0-9]+ % here  -$'
kill -TERM "$(keeper a)"
within 20 ended a
rampfs --destroy --force "$state/a"
rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
soon b '^LOST OR IN DOUBT +WHY'
shows b '^b/two  spaces .* pages lost'
json b 's["attention"][0]["name"] == "two  spaces" and s["attention"][0]["lost"].startswith("0-")'
as_documented b attention

echo "tools that look for holes find a plain file"
python3 - "$mnt/a/.ramp/nodes" <<'P'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for whence in os.SEEK_DATA, os.SEEK_HOLE:
    try:
        sys.exit(f"it sought to {os.lseek(fd, 0, whence)}")
    except OSError as e:
        assert e.errno == errno.EINVAL, e
P
cp --sparse=always "$mnt/a/.ramp/nodes" "$scratch/copied" && cmp "$scratch/copied" "$mnt/a/.ramp/nodes"

echo "many readers at a time: each gets one text, and the whole of it"
python3 - "$mnt/a/.ramp" <<'P'
import os, sys

def read(name):
    fd, text = os.open(f"{sys.argv[1]}/{name}", os.O_RDONLY), b""
    while piece := os.read(fd, 700):
        text += piece
    os.close(fd)
    return text.decode()

def look():
    for _ in range(200):
        assert len(read("nodes").splitlines()) == 3
        lines = read("segments").splitlines()
        assert lines[0] == lines[-1] and len(lines) > 2, lines
        text = read("status")
        assert text.startswith("rampfs ") and text.count("\nmigrations: ") == 1, text
        assert read("metrics").count("# TYPE rampfs_fuse_waiting ") == 1

readers = []
for _ in range(5):
    readers.append(os.fork())
    if readers[-1] == 0:
        look()
        os._exit(0)
assert not any([os.waitpid(pid, 0)[1] for pid in readers])
# More readers than there are kept texts: a reader whose text is gone continues in a new one.
fds = [os.open(f"{sys.argv[1]}/nodes", os.O_RDONLY) for _ in range(100)]
begun = [os.read(fd, 20) for fd in fds]
for fd, first in zip(fds, begun):
    assert (first + os.read(fd, 4096)).decode() == read("nodes")
P

echo "a daemon that does not answer: rampfs-status says so, and ends"
daemon=$(pgrep -f -- "rampfs --daemon .*$mnt/c\$")
kill -STOP "$daemon"
refused "its daemon does not answer" timeout -k 1 60 rampfs-status "$mnt/c"
kill -CONT "$daemon"

echo "a node whose processes were all killed: its mount is dead, and start repairs it"
daemon=$(pgrep -f -- "rampfs --daemon .*$mnt/c\$")
kill -STOP "$daemon" # or it would start another keeper
kill -KILL "$(keeper c)"
kill -KILL "$daemon"
within 20 flock -n "$state/c/lock" true
said=$(contrib/local-cluster status "$scratch/cluster")
grep -qx "c: dead on $mnt/c: its processes have ended (start repairs it)" <<<"$said" || fail "status says: $said"
grep -qx "b: mounted on $mnt/b" <<<"$said" || fail "status says: $said"
contrib/local-cluster start "$scratch/cluster"
said=$(contrib/local-cluster status "$scratch/cluster")
grep -qx "c: mounted on $mnt/c" <<<"$said" || fail "status says: $said"
same 1 "$(grep -c " $mnt/c " /proc/self/mounts)" "mounts of c"
within 20 quietly touch "$mnt/c/c/again"
cluster_stop

echo "a node whose name is a number: a string in JSON"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[cluster]\nname=seven\n[node 7]\naddress=0.0.0.0:%s\ncapacity=64T\n' "$port" >"$scratch/seven.conf"
mkfs.rampfs --config "$scratch/seven.conf" --node 7 "$scratch/seven" >/dev/null
mkdir -p "$mnt/7"
rampfs -o "log=$scratch/seven.log" "$scratch/seven" "$mnt/7" 2>"$scratch/warned"
for text in "address=0.0.0.0:$port: other nodes" "capacity=67108864M is more than this machine's memory"; do
	grep -qF "rampfs: warning: node 7: $text" "$scratch/warned" || fail "at the start is not said: $text"
	same 1 "$(grep -cF "$text" "$scratch/seven.log")" "lines in the log of: $text"
done
within 20 quietly touch "$mnt/7/7/5"
json 7 'segment["7", "5"]["owner"] == "7"' 'node["7"]["here"] is True' 's["leader"] == "7"'
as_documented 7 segments
umount "$mnt/7"
within 20 flock -n "$scratch/seven/lock" true
rampfs --destroy --force "$scratch/seven"
