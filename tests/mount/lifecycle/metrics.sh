#!/usr/bin/env bash
# .ramp/metrics, read as Prometheus reads it, before and after a segment has moved.
. tests/lib/cluster.sh
cluster_start -n 2 -c 256M
# Uses Prometheus' own parser if Debian's Python has it, else the format's grammar. With both: a
# histogram's buckets never fall and end with its count; counters are not negative.
cat >"$scratch/parse.py" <<'P'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
values = {}
try:
    from prometheus_client.parser import text_string_to_metric_families
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown" and family.documentation, family.name
        for s in family.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            assert key not in values, key
            values[key] = s.value
except ImportError:
    label = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"'
    line = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{(%s(?:,%s)*)\})? (\S+)' % (label, label))
    for l in text.splitlines():
        if re.fullmatch(r"# HELP \w+ .+|# TYPE \w+ (counter|gauge|histogram)", l):
            continue
        m = line.fullmatch(l)
        assert m, l
        labels = re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"', m[2] or "")
        plain = tuple(sorted((k, re.sub(r"\\(.)", r"\1", v)) for k, v in labels))
        assert (m[1], plain) not in values, l
        values[m[1], plain] = float(m[3])
for (name, labels), value in values.items():
    assert value >= 0, (name, value)
    if name.endswith("_bucket"):
        base, bounds = name[:-7], [(float(dict(k)["le"]), v) for (n, k), v in values.items() if n == name]
        bounds.sort()
        assert all(a[1] <= b[1] for a, b in zip(bounds, bounds[1:])), name
        assert bounds[-1] == (float("inf"), values[base + "_count", ()]), name
        assert (base + "_sum", ()) in values, name
def value(name, **labels):
    return values["rampfs_" + name, tuple(sorted(labels.items()))]
for check in sys.argv[2:]:
    assert eval(check), "%s in\n%s" % (check, text)
P
metrics() { /usr/bin/python3 "$scratch/parse.py" "$mnt/$1/.ramp/metrics" "${@:2}"; }
quietly() { "$@" 2>/dev/null; }

echo "before anything has moved"
metrics a 'value("nodes") == 2' 'value("peer_up", peer="b") == 1' 'value("uptime_seconds") < 600' \
	'value("window_seconds_count") == 0' 'value("raft_commit_index") >= value("raft_applied_index") > 0' \
	'value("raft_leader", node="a") + value("raft_leader", node="b") == 1' 'value("raft_term") > 0'

echo "a window at the source; pages by demand, and a segment that is being pulled, at the target"
name=$'we"ird \\ \n n\xc3\xa4me'
head -c 1M /dev/urandom >"$mnt/a/a/$name"
within 5 quietly test -e "$mnt/b/a/$name"
rampfs-migrate --mode demand "$mnt/a/a/$name" b
within 10 test -e "$mnt/b/b/$name"
head -c 40K "$mnt/b/b/$name" >/dev/null
metrics a 'value("window_seconds_count") == 1' 'value("window_seconds_sum") > 0' 'value("migrations_done_total") == 1'
id=$(xattr "$mnt/b/b/$name" id)
metrics b 'value("peer_pulled_pages_total", peer="a", by="demand") == value("demand_pages_total") >= 10' \
	'value("peer_pulled_bytes_total", peer="a") == value("pulled_bytes_total") >= 40960' \
	'value("peer_prefetch_connections", peer="a") == 0' \
	"value('segment_pages', id='$id', segment=r'we\"ird \\x5c \\x0a n\\xc3\\xa4me') == 256" \
	"0 < value('segment_missing_pages', id='$id', segment=r'we\"ird \\x5c \\x0a n\\xc3\\xa4me') <= 246"

echo "page faults of a program are in the histogram; prefetch and demand are counted apart"
rampfs-run python3 -c 'import mmap, os, sys
m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
sum(m[i] for i in range(0, 1 << 20, 4096))' "$mnt/b/b/$name"
metrics b 'value("fault_seconds_count") > 0' 'value("fault_seconds_sum") > 0' 'value("page_faults_total") > 0'
head -c 4M /dev/urandom >"$mnt/b/b/second"
within 5 test -e "$mnt/a/b/second"
rampfs-migrate --wait "$mnt/a/b/second" a
metrics a 'value("peer_pulled_pages_total", peer="b", by="prefetch") == value("prefetch_pages_total") > 0' \
	'value("segments", phase="stable") == 2'
cluster_stop
