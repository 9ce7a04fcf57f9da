#!/usr/bin/env bash
# A real systemd with two nodes, rampfs@a and rampfs@b: how they start, the deaths that the service survives, an
# upgrade, a restart, fstab, and a shutdown that loses nothing.
whole_build=${RAMPFS_BUILD-} # cluster.sh may take a copy of the programs alone
. tests/lib/cluster.sh
export LC_ALL=C
shared=$scratch/host cgroup=rampfs-test-${scratch##*.} unshare="" host=""
mkdir -p "$shared" "$scratch/cluster" "$scratch/cgroups"
ends() { [ ! -d "/proc/$host" ]; }
# Every process in it ends with its first process; the kernel takes a while to release them.
cleanup() {
	local status=$?
	trap - EXIT
	set +e
	[ -z "$unshare" ] || { kill -9 "$unshare" && wait "$unshare"; } 2>/dev/null
	if mount -t cgroup2 cgroup2 "$scratch/cgroups"; then
		for _ in 1 2 3 4 5 6; do
			[ -d "$scratch/cgroups/$cgroup" ] || break
			find "$scratch/cgroups/$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null
			sleep 0.3
		done
		umount "$scratch/cgroups"
	fi
	! mountpoint -q "$shared" || umount -l "$shared"
	[ -e "$scratch/cluster/j.log" ] || journal >"$scratch/cluster/j.log"
	cluster_cleanup $status
}
trap cleanup EXIT
# in_host COMMAND: runs it as on the machine that systemd runs
in_host() {
	nsenter -t "$host" -a -r -w env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
}
journal() { journalctl --no-pager -D "$shared/journal" -o short-precise "$@" 2>/dev/null; }
# of UNIT PROPERTY: prints the unit's property
of() { in_host systemctl show -P "$2" "$1"; }
has() { [ "$(of "$1" "$2")" = "$3" ]; }
processes() { in_host sh -c "cat '/sys/fs/cgroup$(of "$1" ControlGroup)/cgroup.procs' 2>/dev/null" || true; }
daemon() { in_host pgrep -f -- "rampfs --daemon .*/var/lib/rampfs/$1 "; }
# Whether systemd's first process of UNIT is its own child, and not WAS.
has_keeper() { # unit, was
	local now
	now=$(of "$1" MainPID)
	[ "$now" != 0 ] && [ "$now" != "$2" ] && [ "$(in_host ps -o ppid= -p "$now" | tr -d ' ')" = 1 ]
}
has_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
says() { in_host grep -qs "$2" "/mnt/$1/.ramp/status"; }
serves() { within 20 says "$1" '^quorum: yes' && within 20 in_host test -d "/mnt/$1/$1"; }
logged() { in_host journalctl -q --no-pager -u "rampfs@$1" -p "$2..$2" -o cat -g "$3" >/dev/null; }
is() { in_host getfattr --absolute-names --only-values -n "user.ramp.$2" "$1" | grep -qx "$3"; }
count() { in_host head -c 20 /mnt/a/a/counter | tr -d '\0'; }
counts_on() { [ "$(count)" != "$1" ]; }
# Whether the program continues to store, and the file shows it.
goes_on() { serves a && first=$(count) && within 10 counts_on "$first"; }

cat >"$scratch/cluster.conf" <<'C'
[cluster]
name=here

[node a]
address=127.0.0.1:7400
capacity=1G

[node b]
address=127.0.0.1:7401
capacity=1G
C
cat >"$shared/counter.py" <<'P'
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
os.close(fd)
for f in os.listdir("/proc/self/fd"): # Python's own duplicate: the mount would be busy with it
    try:
        if os.readlink("/proc/self/fd/" + f) == sys.argv[1]: os.close(int(f))
    except OSError: pass
n = 0
while not os.path.exists(sys.argv[2]):
    n += 1
    m[:20] = b"%020d" % n
    time.sleep(0.0005)
print(n)
P
# The nodes as they are installed on a machine that has not been started yet. A file that only a serving
# mount has is looked for after READY=1, and not before; the umask is a careful administrator's.
# /proc is still that of other processes, in which LeakSanitizer does not find the threads that it stops.
cat >"$scratch/setup" <<'S'
for n in a b; do
	mkdir -p "$root/var/lib/rampfs"
	ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 mkfs.rampfs --config "$scratch/cluster.conf" --node $n "$root/var/lib/rampfs/$n" >/dev/null
	systemctl --root="$root" enable "rampfs@$n" 2>/dev/null
done
systemctl --root="$root" enable remote-fs.target 2>/dev/null
mkdir -p "$root/etc/systemd/system/rampfs@.service.d"
printf '[Service]\nExecStartPost=/bin/grep -q "^rampfs" /mnt/%%i/.ramp/status\nUMask=0077\n' >"$root/etc/systemd/system/rampfs@.service.d/test.conf"
S
export scratch

echo "a boot: both nodes serve before remote-fs.target is there"
unshare --mount --propagation unchanged --pid --uts --ipc --net --fork --kill-child \
	tests/lib/boot_systemd.sh "$whole_build" "$shared" "$cgroup" "$scratch/setup" >"$scratch/boot.log" 2>&1 &
unshare=$!
booted() {
	[ -d "/proc/$unshare" ] || fail "systemd does not start: $(cat "$scratch/boot.log")"
	host=$(pgrep -P "$unshare" -f '^/lib/systemd/systemd --system') && [ "$(in_host systemctl is-system-running 2>/dev/null)" = running ]
}
within 60 booted
for n in a b; do
	same "active running success" "$(of "rampfs@$n" ActiveState) $(of "rampfs@$n" SubState) $(of "rampfs@$n" Result)" "rampfs@$n after the boot"
	serves $n
done
same active "$(of remote-fs.target ActiveState)" "remote-fs.target"
[ "$(of rampfs@a ActiveEnterTimestampMonotonic)" -le "$(of remote-fs.target ActiveEnterTimestampMonotonic)" ] || fail "remote-fs.target did not wait"
[ "$(of network-online.target ActiveEnterTimestampMonotonic)" -le "$(of rampfs@a ExecMainStartTimestampMonotonic)" ] || fail "network-online.target was not waited for"
in_host systemctl status --no-pager rampfs@a >"$scratch/status" || fail "systemctl status: $(cat "$scratch/status")"
grep -q 'Status: "serving"' "$scratch/status" || fail "systemctl status says: $(cat "$scratch/status")"
logged a 6 "^node a of cluster here serves /mnt/a" || fail "the journal has no such line with its level"

echo "the unit: systemd's verdict on it, and its limits"
in_host systemd-analyze verify --man=no rampfs@a.service >"$scratch/err" 2>&1 || fail "systemd-analyze: $(cat "$scratch/err")"
same "" "$(grep rampfs "$scratch/err" || true)" "the output of systemd-analyze verify"
in_host systemd-analyze security --no-pager rampfs@a >"$scratch/security" || fail "systemd-analyze security"
same "continue infinity infinity" "$(of rampfs@a OOMPolicy) $(of rampfs@a MemoryMax) $(of rampfs@a TasksMax)" "OOMPolicy, MemoryMax, TasksMax"
# A process without CAP_SYS_RESOURCE can't lower it, here as elsewhere.
if sh -c 'echo -1 >/proc/self/oom_score_adj' 2>/dev/null; then
	same -1000 "$(in_host cat "/proc/$(of rampfs@a MainPID)/oom_score_adj")" "the keeper's oom_score_adj"
	same -900 "$(in_host cat "/proc/$(daemon a)/oom_score_adj")" "the daemon's oom_score_adj"
fi

echo "a program of a user, and a service with mounts of its own, see the mount"
in_host systemd-run -q --unit private -p PrivateTmp=yes sleep infinity
private=$(of private MainPID)
in_host grep -q " /mnt/a " "/proc/$private/mountinfo" || fail "a service with PrivateTmp does not have /mnt/a"
in_host setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'head -c 1M /dev/zero >/mnt/a/a/counter'
in_host setpriv --reuid=65534 --regid=65534 --clear-groups rampfs-run python3 "$shared/counter.py" /mnt/a/a/counter "$shared/stop" >"$shared/counted" &
program=$!
goes_on

echo "kill -9 of the daemon, and of the keeper: the service continues, and systemd waits for the new keeper"
was=$(of rampfs@a MainPID)
in_host kill -9 "$(daemon a)"
goes_on
same "$was" "$(of rampfs@a MainPID)" "the keeper"
logged a 4 "^the daemon was killed by signal 9" || fail "the journal has no warning of the daemon's end"
in_host kill -9 "$was"
within 20 has_keeper rampfs@a "$was"
goes_on
same "active 0" "$(of rampfs@a ActiveState) $(of rampfs@a NRestarts)" "rampfs@a after its keeper's end"

echo "reload, after that: a new program is executed, an upgrade"
in_host sh -c 'cp -a /usr/local/sbin/rampfs /usr/local/sbin/rampfs.new && mv /usr/local/sbin/rampfs.new /usr/local/sbin/rampfs'
was=$(daemon a)
in_host systemctl reload rampfs@a
within 20 has_daemon a "$was"
goes_on
same "$(in_host stat -L -c %i /usr/local/sbin/rampfs)" "$(in_host stat -L -c %i "/proc/$(daemon a)/exe")" "the program that runs"
within 10 has rampfs@a ActiveState active
same 0 "$(of rampfs@a NRestarts)" "restarts"

echo "keeper and daemon killed at once: systemd starts the node again, over the dead mount"
in_host sh -c "echo 1 >'/sys/fs/cgroup$(of rampfs@a ControlGroup)/cgroup.kill'"
within 30 has rampfs@a NRestarts 1
within 30 has rampfs@a ActiveState active
goes_on

echo "restart, with its memory mapped"
in_host systemctl restart rampfs@a
goes_on

echo "stop, with a file open and a keeper that has taken another's place: no dead mount"
was=$(of rampfs@a MainPID)
in_host kill -9 "$was"
within 20 has_keeper rampfs@a "$was"
in_host sh -c "exec 5</mnt/a/a/counter && echo >'$shared/open' && while [ ! -e '$shared/closed' ]; do sleep 0.1; done" &
opener=$!
within 10 test -e "$shared/open"
in_host systemctl stop rampfs@a
same "inactive success" "$(of rampfs@a ActiveState) $(of rampfs@a Result)" "rampfs@a"
same "" "$(processes rampfs@a)" "processes left"
in_host ls /mnt/a >"$scratch/left" || fail "a dead mount is left"
same "" "$(cat "$scratch/left")" "the files left in /mnt/a"
in_host mountpoint -q /var/lib/rampfs/a/store || fail "the store went with the service"
kill -0 $program || fail "the program ended with the service"
touch "$shared/closed"
wait $opener
in_host systemctl start rampfs@a
goes_on
in_host grep -q " /mnt/a " "/proc/$private/mountinfo" || fail "a service with PrivateTmp does not get a new mount"
touch "$shared/stop"
wait $program || fail "the program failed"
same "$(printf %020d "$(cat "$shared/counted")")" "$(count)" "its last store"

echo "stop of a source whose target is slow: the pages on their way get there first"
serves b
in_host sh -c 'head -c 150M /dev/urandom >/mnt/a/a/big'
sum=$(in_host sha256sum /mnt/a/a/big | cut -d' ' -f1)
within 10 in_host test -e /mnt/b/a/big
target=$(daemon b)
in_host sh -c "mv /mnt/a/a/big /mnt/a/b/ && kill -STOP $target"
in_host systemctl stop --no-block rampfs@a
# Longer than the 10 s that a daemon has when it was told to end.
in_host python3 - "$target" <<'P'
import os, signal, sys, time
for i in range(13):
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.003)
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(0.9)
os.kill(int(sys.argv[1]), signal.SIGCONT)
P
within 30 has rampfs@a ActiveState inactive
same "inactive success" "$(of rampfs@a ActiveState) $(of rampfs@a Result)" "rampfs@a"
same "$sum" "$(in_host timeout 20 sha256sum /mnt/b/b/big | cut -d' ' -f1)" "the segment that was on its way"

echo "a node that can't start: systemctl says so, and stop ends the attempts"
in_host sh -c 'echo STATE_DIR=/var/lib/rampfs/none >/etc/rampfs/none.conf' 2>/dev/null ||
	in_host sh -c 'mkdir /etc/rampfs && echo STATE_DIR=/var/lib/rampfs/none >/etc/rampfs/none.conf'
if in_host systemctl start rampfs@none 2>/dev/null; then fail "a node without a state directory starts"; fi
logged none 6 "rampfs: .*/var/lib/rampfs/none" || fail "the journal does not say why"
in_host systemctl stop rampfs@none

echo "fstab: a mount unit, and mount -a finds nothing to do"
in_host sh -c 'mkdir /mnt/fs && echo "/var/lib/rampfs/a /mnt/fs rampfs _netdev,loglevel=info,x-systemd.requires=network-online.target 0 0" >/etc/fstab'
in_host systemctl daemon-reload
in_host systemctl start mnt-fs.mount
serves_fs() { in_host grep -qs '^quorum: yes' /mnt/fs/.ramp/status; }
within 20 serves_fs
case " $(of mnt-fs.mount After) " in *" network-online.target "*) ;; *) fail "mnt-fs.mount does not wait for the network" ;; esac
case " $(of mnt-fs.mount Before) " in *" remote-fs.target "*) ;; *) fail "remote-fs.target does not wait for mnt-fs.mount" ;; esac
in_host mount -a
same 2 "$(in_host grep -c ' fuse.rampfs ' /proc/mounts)" "mounts after mount -a"
in_host systemctl stop mnt-fs.mount
gone() { [ -z "$(processes mnt-fs.mount)" ]; }
within 20 gone
in_host systemctl start rampfs@a

echo "the machine goes down while a segment is on its way: it gets there, and no unit fails"
serves a
serves b
in_host mv /mnt/b/b/big /mnt/b/a/
in_host systemctl poweroff 2>/dev/null || true # it may be gone before it answers
within 60 ends
wait "$unshare" || true
unshare=""
journal >"$scratch/cluster/j.log"
for n in a b; do
	journal -u "rampfs@$n" -g 'Deactivated successfully' >/dev/null || fail "rampfs@$n did not end as it should"
done
journal -u rampfs@a -g 'is settled here' >/dev/null || fail "the segment was left behind"
! journal -q -g '^(rampfs@[ab].service|mnt-.*mount|var-lib-rampfs-.*mount): .*(Failed|timed out|[Kk]illing)' ||
	fail "systemd says that something failed"
