#!/usr/bin/env bash
# The owner and the directory of a segment are checked when a change is committed, not when the kernel
# of the caller's node looked (owners.py); and ctime on all nodes.
. tests/lib/cluster.sh
chmod 755 "$scratch" # also for the users
cluster_start -n 3 -c 512M
python3 tests/mount/ops/owners.py "$mnt"

echo "ctime: other nodes see the effect of a write, and ctime does not go back when the segment moves"
ctime() { stat -c %.Z "$1" 2>/dev/null; }
alike() { [ -n "$(ctime "$1")" ] && [ "$(ctime "$1")" = "$(ctime "$2")" ]; }
echo one >"$mnt/a/a/dated"
sleep 1.1 # a time that is older than its row by less may stay
echo two >>"$mnt/a/a/dated"
within 20 alike "$mnt/a/a/dated" "$mnt/b/a/dated"
before=$(ctime "$mnt/a/a/dated")
sleep 2.1
mv "$mnt/a/a/dated" "$mnt/a/b/"
after=$(ctime "$mnt/a/b/dated")
[ "${after/./}" -ge "${before/./}" ] || fail "ctime went from $before to $after"
within 20 alike "$mnt/a/b/dated" "$mnt/b/b/dated"
cluster_stop
