#!/usr/bin/env bash
# A node was down while others came: the member that it knows leads no more, and the leader has never heard
# of the node. Members tell it of each other. And a node that can have no vote.
. tests/lib/cluster.sh
says() { grep -q "$2" "$mnt/$1/.ramp/status"; }
leave() {
	umount "$mnt/$1"
	within 20 flock -n "$state/$1/lock" true
}
come_back() { rampfs -o "log=$scratch/cluster/$1.log" "$state/$1" "$mnt/$1"; }
newcomer() {
	contrib/local-cluster join -c 64M "$1" "$scratch/cluster"
}
cluster_start -n 1 -c 64M
newcomer b
echo kept >"$mnt/b/b/kept"

echo "b is down while c and d come, and lead"
leave b
was=$(sed -n '/^\[node b\]/,/^address=/s/^address=//p' "$state/b/cluster.conf")
sed -i "s/^address=$was\$/address=127.0.0.1:9/" "$state/b/cluster.conf"
newcomer c
newcomer d
within 20 rampfs-node -m "$mnt/a" promote c
within 20 rampfs-node -m "$mnt/a" promote d
leave a
within 20 says c '^leader: *[cd]'
come_back a
within 20 says a '^leader: *[cd]'

echo "b knows only a when it comes back"
come_back b
within 20 says b '^leader: *[cd]'
grep -q "cluster.conf: address=127.0.0.1:9 does not count: the cluster knows this node at $was " "$scratch/cluster/b.log" ||
	fail "nothing is said of an address that does not count"
within 20 grep -q '^d voter up' "$mnt/b/.ramp/nodes"
same kept "$(cat "$mnt/b/b/kept")" "its own segment"
echo new >"$mnt/b/b/new"
mv "$mnt/b/b/kept" "$mnt/b/d/"
same kept "$(cat "$mnt/d/d/kept")" "the segment that was moved to a node that b had not known"

echo "a standby with an old copy of its journal is not promoted, and so hinders no other node"
newcomer e
leave e
cp "$state/e/journal.db" "$scratch/backup.db"
come_back e
within 20 touch "$mnt/e/e/new"
rm "$mnt/e/e/new"
leave e
rm -f "$state/e"/journal.db-*
cp "$scratch/backup.db" "$state/e/journal.db"
come_back e
within 20 grep -q "no vote: needs --rejoin" "$scratch/cluster/e.log"
within 20 grep -q '^e standby up' "$mnt/a/.ramp/nodes"
refused "e gets no vote: its state directory was formatted again, or put back from a backup: it needs --rejoin" \
	rampfs-node -m "$mnt/a" promote e
grep -q '^e standby up' "$mnt/a/.ramp/nodes" || fail "e has become $(grep '^e ' "$mnt/a/.ramp/nodes")"
rampfs-node -m "$mnt/a" promote b
cluster_stop
