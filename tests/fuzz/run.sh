#!/usr/bin/env bash
# tests/fuzz/run.sh NAME [SECONDS]: runs one fuzzer of the build in $RAMPFS_BUILD (default: build-test; a
# build has them where RAMPFS_FUZZ is on). SECONDS or RAMPFS_FUZZ_SECONDS 0: its corpus alone.
# An input that fails is written to $RAMPFS_BUILD/tests/fuzz/found-NAME-...; it goes to
# tests/fuzz/corpus/NAME when the defect is mended. Inputs that reach new code are kept in the build, for the next run.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?tests/fuzz/run.sh NAME [SECONDS]} seconds=${RAMPFS_FUZZ_SECONDS:-${2-15}}
dir=${RAMPFS_BUILD:-build-test}/tests/fuzz
mkdir -p "$dir/corpus-$name"
bound=-max_total_time=$seconds
[ "$seconds" != 0 ] || bound=-runs=0
exec "$dir/fuzz_$name" "$bound" -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
	-print_final_stats=1 -verbosity=0 -artifact_prefix="$dir/found-$name-" \
	"$dir/corpus-$name" "tests/fuzz/corpus/$name"
