# shellcheck shell=bash
# For scripts of tests: a cluster of their own that goes away with them.
#   . tests/lib/cluster.sh; cluster_start [-n NODES] [-c CAPACITY]; $mnt/a ...; cluster_stop
set -eu
build=${RAMPFS_BUILD:?RAMPFS_BUILD names the build to test}
scratch=$(mktemp -d /tmp/rampfs-test.XXXXXX)
chmod 711 "$scratch"
. tests/lib/public.sh
public_build "$scratch/build"
export PATH=$build/bin:$PATH
export mnt=$scratch/cluster/mnt state=$scratch/cluster/state
cluster_up=""
# What moves goes lazily, unless a test says otherwise: by rampfs-migrate --mode, or, behind the line that reads this
# file, by another cluster_mode for its nodes (empty: no mount option).
export cluster_mode=lazy
rampfs() {
	if [ "${1-}" = -o ] && [ "${2-}" != help ] && [ -n "$cluster_mode" ] && [[ ,${2-} != *,mode=* ]]; then
		command rampfs -o "$2,mode=$cluster_mode" "${@:3}"
	else
		command rampfs "$@"
	fi
}
export -f rampfs # to contrib/local-cluster
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
# Fails with a text unless two values are equal.
same() { [ "$1" = "$2" ] || fail "$3: expected \"$1\", got \"$2\""; }
# Runs a command that must fail with this errno's text.
refused() {
	local text=$1 out
	shift
	if out=$(LC_ALL=C "$@" 2>&1); then fail "should have failed with \"$text\": $*"; fi
	case $out in *"$text"*) ;; *) fail "should have said \"$text\": $* said: $out" ;; esac
}
# Waits at most $1 seconds for a command to succeed: for tests of how long something takes.
at_most() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || fail "did not come true in time: $*"
		sleep 0.02
	done
}
# The same, for 20 seconds at least: on a busy machine everything comes late, and a condition that never
# comes true is found all the same.
within() { at_most $(($1 < 20 ? 20 : $1)) "${@:2}"; }
xattr() { python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.ramp." + sys.argv[2]).decode())' "$1" "$2"; }
cluster_start() {
	cluster_up=yes # also where it comes up in part
	contrib/local-cluster start "$@" "$scratch/cluster"
}
# A sanitizer's report in a log, shown: status 0.
reported() {
	local log bad=1
	for log in "$@"; do
		[ -f "$log" ] && grep -qE 'Sanitizer|runtime error:' "$log" || continue
		echo "--- a sanitizer's report in $log" && grep -E -A40 'Sanitizer|runtime error:' "$log" | head -n 60
		bad=0
	done >&2
	return $bad
}
# A daemon reports its leaks at its very end, when its log has no other name than ours.
keep_logs() { ln -f "$scratch"/cluster/?.log "$scratch/" 2>/dev/null || true; }
# Looks at the log of every daemon that a test has started, the cluster's or another (and at the reports
# that a sanitizer writes to $scratch/sanitizer.PID).
anything_reported() { reported "$scratch"/*.log "$scratch"/*/log "$scratch"/cluster/old "$scratch"/sanitizer.*; }
cluster_stop() {
	keep_logs
	contrib/local-cluster stop "$scratch/cluster" && cluster_up=""
	! anything_reported || exit 1
	rm -f "$scratch"/?.log
}
# No program of a test outlives it, nor a mount, nor a sanitizer's report, and no daemon stays stopped. A trap
# that does something else first gives it the status: trap 'status=$?; ...; cluster_cleanup $status' EXIT
cluster_cleanup() {
	local status=${1:-$?} log
	trap - EXIT
	pkill -CONT -f -- "rampfs --daemon .*$mnt/" || true
	# shellcheck disable=SC2046
	kill $(jobs -p) 2>/dev/null || true
	[ "$status" = 0 ] || echo "--- it ends with status $status" >&2 # 130: by a signal
	for log in "$scratch"/cluster/?.log; do
		[ $status = 0 ] || [ ! -e "$log" ] || { echo "--- the end of $log" && tail -n 30 "$log"; } >&2
	done
	keep_logs
	[ -z "$cluster_up" ] || contrib/local-cluster stop "$scratch/cluster" || status=1
	! anything_reported || status=1
	[ -z "${KEEP-}" ] && rm -rf "$scratch"
	exit $status
}
trap cluster_cleanup EXIT
trap 'exit 130' INT TERM
