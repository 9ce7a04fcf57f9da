#!/usr/bin/env bash
# The effects of mount options on programs: which users may map (uffd_group=), that nothing is executed (noexec),
# the scheduler's share for pulls (nice=), and the fate of a segment whose new owner's memory is gone
# (rollback=).
. tests/lib/cluster.sh
export LC_ALL=C
is() { [ "$(xattr "$1" "$2" 2>/dev/null)" = "$3" ]; }
map='import mmap, sys
f = open(sys.argv[1], "r+b")
mmap.mmap(f.fileno(), 0)[0] = 65'
# Maps the file as another user with these options of setpriv(1), and stores an A.
maps() { setpriv --reuid=65534 "$@" rampfs-run /usr/bin/python3 -c "$map" "$mnt/a/a/f"; }
stored() {
	same A "$(head -c 1 "$mnt/a/a/f")" "the byte that $1 stored"
	printf 0 | dd of="$mnt/a/a/f" conv=notrunc status=none
}
chmod 755 "$scratch" # for that user

echo "uffd_group=: root and members map, by their first group or another; another user is told why not, and reads and writes"
group=$(getent group daemon | cut -d: -f3)
cluster_start -n 1 -c 64M -o uffd_group=daemon
head -c 8K /dev/zero >"$mnt/a/a/f"
chmod 666 "$mnt/a/a/f"
rampfs-run /usr/bin/python3 -c "$map" "$mnt/a/a/f"
stored root
maps --regid="$group" --clear-groups
stored "a member by the first group"
maps --regid=65534 --groups="1000,$group"
stored "a member by another group"
maps --regid=65534 --groups="$(seq -s, 2000 2399),$group"
stored "a member by one of 401 groups"
for others in --clear-groups --groups=1000; do
	refused "rampfs: mmap: mapping is for members of the group that uffd_group= names" maps --regid=65534 $others
	refused "[Errno 1] Operation not permitted" maps --regid=65534 $others
done
same 0 "$(head -c 1 "$mnt/a/a/f")" "the byte, which no member stored"
setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'printf B | dd of="$1" conv=notrunc status=none && head -c 1 "$1"' \
	sh "$mnt/a/a/f" >"$scratch/said"
same B "$(cat "$scratch/said")" "by read and write"
cluster_stop

echo "noexec: for mappings, too; the next mount decides again"
executable() {
	rampfs-run /usr/bin/python3 -c 'import mmap, sys
f = open(sys.argv[1], "r+b")
mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)' "$mnt/a/a/true"
}
cluster_start -n 1 -c 64M -o noexec
cp /bin/true "$mnt/a/a/"
refused "Permission denied" "$mnt/a/a/true"
refused "Permission denied" executable
umount "$mnt/a"
within 20 flock -n "$state/a/lock" true
rampfs -o "log=$scratch/cluster/a.log" "$state/a" "$mnt/a"
within 20 test -e "$mnt/a/a/true"
"$mnt/a/a/true"
executable
cluster_stop

daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
# The nice value of a node's session.
session() {
	local line
	read -r line <"/proc/$(daemon "$1")/autogroup"
	echo "${line##* }"
}
# The nice values of its threads of that name.
threads() {
	for t in /proc/"$(daemon "$1")"/task/*; do
		if [ "$(cat "$t/comm")" = "$2" ]; then sed 's/.*) //' "$t/stat" | cut -d' ' -f17; fi
	done | sort -u
}
# pulls [WANTED]: while b pulls from a, and no longer, the sessions have these nice values (none: 0).
pulls() {
	local pids line seen=""
	pids="$(daemon a) $(daemon b)"
	head -c 300M /dev/zero >"$mnt/a/a/f"
	rampfs-migrate --wait "$mnt/a/a/f" b &
	while kill -0 $! 2>/dev/null; do
		for pid in $pids; do
			read -r line <"/proc/$pid/autogroup"
			seen="$seen $pid=${line##* }"
		done
	done
	wait $!
	for pid in $pids; do
		same "${1-}" "$(tr ' ' '\n' <<<"$seen" | sed -n "s/^$pid=//p" | grep -vx 0 | sort -u)" \
			"nice values of the session other than 0 in a pull"
		rests() { read -r line <"/proc/$pid/autogroup" && [ "${line##* }" = 0 ]; }
		within 10 rests
	done
	rm "$mnt/b/b/f"
}
keeper() { pgrep -f -- "rampfs (--adopt )?.*$mnt/$1\$" | grep -vx "$(daemon "$1")"; }
# b's daemon ends by this signal to it or to its keeper while its session goes before others, as in a
# pull: the next daemon's session does not.
ends_raised() {
	local before
	before=$(daemon b)
	echo -15 >"/proc/$before/autogroup"
	kill "$@"
	comes_again() { [ "$(daemon b)" != "$before" ] && [ -d "$mnt/b/b" ] && [ "$(session b)" = 0 ]; }
	within 20 comes_again
}
if [ -e /proc/self/autogroup ]; then
	echo "nice=: threads that pull go before others, at both ends, only while they pull; also after a kill -9 of the daemon in the middle, and of its keeper"
	cluster_start -n 2 -c 512M
	same -15 "$(threads b prefetch)" "the nice value of a thread that moves pages"
	pulls -15
	ends_raised -KILL "$(daemon b)"
	pulls -15
	ends_raised -HUP "$(cat "$state/b/lock")"
	pulls -15
	was=$(keeper b)
	kill -9 "$was"
	adopted() { [ -n "$(keeper b)" ] && [ "$(keeper b)" != "$was" ]; }
	within 20 adopted
	ends_raised -KILL "$(daemon b)"
	pulls -15
	cluster_stop

	echo "nice=N says how much, and another value is refused"
	cluster_start -n 2 -c 512M -o nice=5
	same 5 "$(threads b prefetch)" "the nice value of what pulls"
	same 0 "$(threads a serve)" "the nice value of what page faults wait for, too"
	pulls
	cluster_stop
	refused 'mount option nice does not take "-21"' rampfs -o nice=-21 "$state/a" "$mnt/a"
	refused 'mount option nice does not take "much"' rampfs -o nice=much "$state/a" "$mnt/a"
else
	echo "nice=: not tried, since this kernel has no autogroup"
fi

echo "limit=: how much goes ahead of need; status shows it; nothing and nonsense are refused"
cluster_start -n 2 -c 64M -o limit=64M:8M
head -c 16M /dev/urandom >"$mnt/a/a/f"
sum=$(sha256sum <"$mnt/a/a/f")
rampfs-migrate --limit 4M "$mnt/a/a/f" b
rampfs-status "$mnt/b" >"$scratch/status"
grep -qF "limit of pages ahead: sent 64.0 MiB/s, received 8.0 MiB/s" "$scratch/status" || fail "$(cat "$scratch/status")"
grep -q "pulling from a.*, at most 4.0 MiB/s" "$scratch/status" || fail "$(cat "$scratch/status")"
grep -qF 'rampfs_limit_bytes{direction="received"} 8388608' "$mnt/b/.ramp/metrics" || fail "metrics show no limit"
same "$sum" "$(sha256sum <"$mnt/b/b/f")" "what was read on demand, which no limit delays"
cluster_stop
for limit in 0 fast 64M: 1M:512K 64MB; do
	refused "mount option limit does not take \"$limit\": it is SENT or SENT:RECEIVED" rampfs -o "limit=$limit" "$state/a" "$mnt/a"
done

# lose MODE: with rollback=MODE, the memory of a new owner is lost before it has pulled its segment.
lose() {
	cluster_start -n 3 -c 64M -o "rollback=$1"
	head -c 8M /dev/urandom >"$mnt/a/a/f"
	sum=$(sha256sum <"$mnt/a/a/f")
	rampfs-migrate --mode demand "$mnt/a/a/f" b
	printf 'of b, and lost with it' | dd of="$mnt/b/b/f" conv=notrunc status=none
	kill -TERM "$(cat "$state/b/lock")"
	within 20 flock -n "$state/b/lock" true
	rampfs --destroy --force "$state/b"
	rampfs -o "log=$scratch/cluster/b.log,rollback=$1" "$state/b" "$mnt/b"
}
echo "rollback=auto: a segment that left for a node whose memory is gone is where it was, as it was, and works at once"
lose auto
within 20 is "$mnt/a/a/f" state stable
same "$sum" "$(sha256sum <"$mnt/a/a/f")" "the bytes as they left"
within 5 is "$mnt/c/a/f" owner a
echo x >>"$mnt/a/a/f"
rampfs-migrate --wait "$mnt/a/a/f" c
same "$(((8 << 20) + 2))" "$(stat -c %s "$mnt/c/c/f")" "its size on the next node"
cluster_stop

echo "rollback=ask: the segment is EIO until the user accepts that"
lose ask
within 20 is "$mnt/a/a/f" state "rolled back"
refused "Input/output error" cat "$mnt/a/a/f"
# Ctrl-C comes too late: before the tool waits for the answer, which comes at once.
python3 -c '
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.kill(os.getpid(), signal.SIGINT)
os.execvp(sys.argv[1], sys.argv[1:])' rampfs-migrate --reclaim "$mnt/a/a/f" 2>"$scratch/said" ||
	fail "a reclaim that could not be cancelled ended with $?: $(cat "$scratch/said")"
same "$(printf '%s\n' "rampfs-migrate: $mnt/a/a/f: cancelling" "rampfs-migrate: $mnt/a/a/f: it is reclaimed already")" \
	"$(cat "$scratch/said")" "the message of a reclaim that could not be cancelled"
same "$sum" "$(sha256sum <"$mnt/a/a/f")" "the bytes as they left"
cluster_stop
echo "options: all as it should be"
