#!/usr/bin/env bash
# Software RDMA in guests (vm.sh): rxe and siw side by side, each with three daemons (guest.sh), and the keys of
# a source in the hands of others (test_rdma_keys), bad requests and readers (test_rdma_input); then a wire between two
# guests (wire.sh). The daemons are built without sanitizers, which take twice as long there.
#   run.sh [rxe|siw|wire4|wire6]   all without a name
# Status 77: this machine can't have such guests, and one line says why.
set -eu
build=${RAMPFS_BUILD:?RAMPFS_BUILD names the build to test}
tests/rdma/vm.sh setup || {
	[ $? = 98 ] && exit 77
	exit 1
}
plain=$build/plain
cmake -S . -B "$plain" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRAMPFS_SANITIZE= -DRAMPFS_FUZZ=OFF >"$build/plain.log" 2>&1 &&
	cmake --build "$plain" --target rdma_guest -- --quiet >>"$build/plain.log" 2>&1 || {
	tail -n 20 "$build/plain.log" >&2
	echo "rdma: the daemons without sanitizers do not build" >&2
	exit 1
}
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT
# once NAME COMMAND...: a guest that died (99) tells nothing, and is begun once more. Shows what it said at its end.
once() {
	local name=$1 status=0
	shift
	"$@" >"$logs/$name" 2>&1 || status=$?
	if [ $status = 99 ]; then
		status=0
		"$@" >"$logs/$name" 2>&1 || status=$?
	fi
	if [ $status = 0 ]; then grep '^\[[0-9 ]* s,\|^[ab]: \[[0-9 ]* s,\|by RDMA' "$logs/$name" || true; else cat "$logs/$name"; fi | sed "s/^/$name: /"
	return $status
}
guest() { # KIND: the device is at d1
	once "$1" tests/rdma/vm.sh -m 1280 -t 900 -d "$1:d1:10.0.1.1" \
		"RAMPFS_BUILD=$plain tests/rdma/guest.sh $1-d1 d1 $1"
}
wire() { RAMPFS_BUILD=$plain once "wire$1" tests/rdma/wire.sh rxe "$1"; } # IP's version
case ${1-all} in
rxe | siw) guest "$1" ;;
wire4 | wire6) wire "${1#wire}" ;;
all)
	guest rxe &
	rxe=$!
	guest siw &
	siw=$!
	bad=0
	wait $rxe || bad=1
	wait $siw || bad=1
	wire 4 || bad=1
	wire 6 || bad=1
	exit $bad
	;;
*)
	echo "usage: $0 [rxe|siw|wire4|wire6]" >&2
	exit 2
	;;
esac
