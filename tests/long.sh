#!/usr/bin/env bash
# The random tests for hours: each with three seeds, for a million operations or as long as these take.
# A test's output goes to $RAMPFS_BUILD/long/; a test that fails does not end the others. tests/run --long
# runs this script.
#   long.sh [--percent P] [--fuzz SECONDS] [REGEX]
# --percent: P percent of each test. --fuzz: besides, each fuzzer for SECONDS. REGEX: only the tests whose
# names match; a name is the one in the output, without the seed.
set -eu
cd "$(dirname "$0")/.."
: "${RAMPFS_BUILD:?RAMPFS_BUILD names the build to test}"
percent=100 fuzz=0
while [ $# -gt 1 ]; do
	case $1 in
	--percent) percent=$2 ;;
	--fuzz) fuzz=$2 ;;
	*) break ;;
	esac
	shift 2
done
only=${1-}
mkdir -p "$RAMPFS_BUILD/long"
failed=0
of() { echo $((($1 * percent + 99) / 100)); }
long() { # NAME COMMAND...
	local name=$1 log=$RAMPFS_BUILD/long/$1.log from=$SECONDS verdict=passed
	[[ ${name%%-*} =~ $only ]] || return 0
	shift
	"$@" >"$log" 2>&1 </dev/null || verdict="FAILED with $?" failed=$((failed + 1))
	echo "$name: $verdict after $((SECONDS - from)) s ($log)"
}
for _ in 1 2 3; do
	seed=$((RANDOM * 32768 + RANDOM))
	long "fsx-$seed" tests/mount/ops/fsx.sh --ops "$(of 1000000)" --seed $seed
	long "fsx_user-$seed" tests/mount/ops/fsx.sh --user 65534 --ops "$(of 200000)" --seed $seed
	long "fsx_kills-$seed" tests/mount/ops/fsx.sh --kills 0.7 --ops "$(of 100000)" --seed $seed
	long "names-$seed" tests/mount/ops/names.sh --storm "$(of 900)" --ops "$(of 1000000)" --seed $seed
	long "crew-$seed" tests/mount/programs/crew.sh --seconds "$(of 900)" --seed $seed
	long "crew_kills-$seed" tests/mount/programs/crew.sh --seconds "$(of 900)" --kills 0.7 --seed $seed
	for pages in small huge mixed; do
		long "oracle_$pages-$seed" env ORACLE_IO=1 "ORACLE_MODES=precopy precopy auto lazy copy demand" ORACLE_PREFILL=b \
			tests/mount/moves/oracle.sh --seed $seed 64 6 "$(of 2000)" $pages
	done
	long "chaos_kills-$seed" tests/chaos/kills.sh $seed "$(of 3000)" "$(of 100)"
	long "chaos_partition-$seed" tests/chaos/partition.sh $seed "$(of 100)"
	long "chaos_restarts-$seed" tests/chaos/restarts.sh $seed "$(of 800)" "$(of 100)"
	long "chaos_middle-$seed" tests/chaos/middle.sh $seed "$(of 30)"
	long "kill_load-$seed" tests/mount/lifecycle/kill_load.sh "$(of 1500)" # takes no seed
done
long inject_sites tests/inject/inject.sh --sites 1 # an hour or two, whatever the percentage
if [ "$fuzz" -gt 0 ]; then
	for fuzzer in tests/fuzz/corpus/*/; do
		long "fuzz_$(basename "$fuzzer")" tests/fuzz/run.sh "$(basename "$fuzzer")" "$fuzz"
	done
fi
[ $failed = 0 ] || echo "$failed failed" >&2
exit $((failed != 0))
