#!/usr/bin/env bash
# A thread of a program has a short time slice while it page faults, and no other thread has.
. tests/lib/cluster.sh
export LC_ALL=C
# slices NAME CASE...: with a segment of which b has no page.
slices() {
	local status=0
	tr '\0' '\1' </dev/zero | head -c 32M >"$mnt/a/a/$1"
	rampfs-migrate --mode demand "$mnt/a/a/$1" b
	within 10 test -e "$mnt/b/b/$1"
	rampfs-run /usr/bin/python3 tests/mount/programs/slices.py "$mnt/b/b/$1" "${@:2}" || status=$?
	if [ $status = 77 ]; then
		echo "(not tried: this kernel has no slices for threads; Linux 6.12 has)"
		exit 0
	fi
	[ $status = 0 ] || fail "slices.py $2 ended with $status"
}
cluster_start -n 2 -c 512M

echo "it is short while a thread page faults, and the usual one after that; also for a thread that this thread has started"
slices f shorten

echo "a thread that has asked for a slice, or has another policy, keeps it"
slices g leave

echo "a forked child's is the usual one"
slices h children

echo "the short slices that a daemon left when it was killed with kill -9 are taken back by the next"
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/b\$"; }
slices i wait "$scratch/ready" "$scratch/killed" &
waiting=$!
within 20 test -e "$scratch/ready"
first=$(daemon)
kill -STOP "$first" # from now on it takes no slice back
touch "$scratch/killed"
program=$(pgrep -f "python3 tests/mount/programs/slices.py $mnt/b/b/i wait" | tail -n 1)
same 100100 "$(python3 -c 'import ctypes, os, struct, sys
data = ctypes.create_string_buffer(48)
number = 315 if os.uname().machine == "x86_64" else 275
ctypes.CDLL(None).syscall(number, int(sys.argv[1]), data, 48, 0)
print(struct.unpack("<IIQiIQQQ", data.raw)[5])' "$program")" "the slice when the daemon stands still"
kill -KILL "$first"
wait $waiting || fail "the slice stayed short"
[ "$(daemon)" != "$first" ] || fail "the daemon was not killed"
cluster_stop
