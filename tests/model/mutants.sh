#!/bin/sh
# Every mistake in tests/model/mutants is made in a copy of meta/, and must be caught.
#
#	mutants.sh [--quick] [NAME...]
#
# A patch names the suites that must catch it, each of them: `scripted`, `explore ARGUMENTS`, `sim FROM-TO`.
# The same suites must pass on the unchanged copy first. A patch that does not apply, a copy that does not
# compile, and a mistake that a suite does not catch are failures. --quick: the scripted suites alone.
# shellcheck disable=SC2046 # lists of words on purpose
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${CC:=cc}"
flags="-std=gnu11 -O1 -w -D_GNU_SOURCE -I$here -I$root/tests -I$root/libramp"
small=-DRAFT_APPEND_MAX=2 # for the explorer, and all that is linked with it
names() { # FOLDER/FILE.c... -> FILE...
	for file; do basename "$file" .c; done
}
core=$(names "$root"/meta/raft*.c)
rest=$(names "$root"/meta/command.c "$root"/meta/fsm*.c "$root"/meta/journal*.c "$root"/meta/replica*.c)
stage="scripted scripted_log scripted_votes scripted_leader stage puppet"
search="explore explore_node puppet"
world="sim_main sim_world sim_node sim_faults sim_client sim_wild sim_check sim_vfs"
base="err ids log visible wire"

# compile META SOURCE OBJECT [FLAG...]
compile() {
	meta=$1 source=$2 object=$3
	shift 3
	$CC $flags -include "$work/version.h" -I"$(dirname "$meta")" "$@" -c "$source" -o "$object"
}

objects() { # FOLDER NAME... -> paths; those of the mutant first where it has its own
	folder=$1
	shift
	for name; do
		if [ -e "$folder/$name.o" ]; then echo "$folder/$name.o"; else echo "$work/base/$name.o"; fi
	done
}

link() { # PROGRAM FOLDER SUFFIX-OF-CORE NAME...; libraries from $libraries
	program=$1 folder=$2 suffix=$3
	shift 3
	$CC $(objects "$folder" "$@") $(for n in $core; do objects "$folder" "$n$suffix"; done) \
		-o "$program" $libraries
}

# build FOLDER SUITE: links the suite's program, with the folder's own objects first
build() {
	case $2 in
	scripted)
		libraries=$(pkg-config --libs check)
		link "$1/run" "$1" "" $stage wire
		;;
	explore)
		libraries=
		link "$1/run" "$1" _small $(for n in $search; do echo "${n}_small"; done) wire
		;;
	sim)
		libraries="$(pkg-config --libs sqlite3) -lpthread"
		link "$1/run" "$1" "" $world $rest $base
		;;
	esac
}

# run FOLDER SUITE ARGUMENTS: returns its exit status; its output is in FOLDER/log
run() {
	case $2 in
	scripted) set -- "$1" ;;
	explore) set -- "$1" $3 ;;
	sim) set -- "$1" --seeds "$3" --jobs 1 --stop ;;
	esac
	folder=$1
	shift
	CK_VERBOSITY=normal CK_DEFAULT_TIMEOUT=10 timeout 300 "$folder/run" "$@" > "$folder/log" 2>&1
}

# Runs one mutant: prints a line for each suite that must catch it; returns 1 when one doesn't.
one() {
	work=$1 patch=$2
	name=$(basename "$patch" .patch)
	copy=$work/$name
	mkdir -p "$copy"
	cp -r "$root/meta" "$copy/meta"
	if ! patch -s -p1 -F2 -d "$copy" < "$patch" > "$copy/log" 2>&1; then
		echo "$name: the patch does not apply"
		return 1
	fi
	for file in $(sed -n 's,^+++ b/\(meta/[a-z_]*\.c\).*,\1,p' "$patch"); do
		n=$(basename "$file" .c)
		if ! compile "$copy/meta" "$copy/$file" "$copy/$n.o" ||
			! compile "$copy/meta" "$copy/$file" "$copy/${n}_small.o" $small; then
			echo "$name: does not compile"
			return 1
		fi
	done
	caught=0
	suites_of "$patch" > "$copy/suites"
	while read -r suite arguments; do
		build "$copy" "$suite"
		status=0
		run "$copy" "$suite" "$arguments" || status=$?
		case $status in
		0) echo "$name: SURVIVED $suite $arguments" && caught=1 ;;
		124) echo "$name: $suite $arguments did not end" && caught=1 ;;
		*) echo "$name: caught by $suite: $(why "$copy/log")" ;;
		esac
	done < "$copy/suites"
	rm -rf "$copy"
	return $caught
}

suites_of() {
	sed -n 's/^Caught: *//p' "$@" | if [ "$quick" ]; then grep '^scripted'; else cat; fi
}

why() {
	grep -m1 -E ':[FE]:|^FAILED|^seed' "$1" | sed 's,^.*/\([a-z_]*\.c\),\1,' | cut -c1-110
}

# The script calls itself, several times at once.
quick=${RAFT_MUTANTS_QUICK:-}
case ${1:-} in
--one)
	one "$2" "$3"
	exit
	;;
--compile)
	work=$2
	shift 2
	compile "$root/meta" "$@"
	exit
	;;
esac

if [ "${1:-}" = --quick ]; then
	quick=1
	export RAFT_MUTANTS_QUICK=1
	shift
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/raft-mutants-XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/base"
echo '#define RAMPFS_VERSION "0"' > "$work/version.h"
{
	for n in $stage $world; do echo "$here/$n.c $work/base/$n.o"; done
	for n in $base; do echo "$root/libramp/base/$n.c $work/base/$n.o"; done
	for n in $core $rest; do echo "$root/meta/$n.c $work/base/$n.o"; done
	for n in $search; do echo "$here/$n.c $work/base/${n}_small.o $small"; done
	for n in $core; do echo "$root/meta/$n.c $work/base/${n}_small.o $small"; done
} | xargs -P "$(nproc)" -L 1 "$0" --compile "$work"

# The unchanged copy must pass the suites that are to catch the mistakes.
if [ $# -gt 0 ]; then
	patches=$(for n; do echo "$here/mutants/$n.patch"; done)
elif [ "$quick" ]; then
	patches=$(grep -l '^Caught: scripted' "$here"/mutants/*.patch)
else
	patches=$(ls "$here"/mutants/*.patch)
fi
suites_of $patches | sort -u > "$work/suites"
while read -r suite arguments; do
	build "$work/base" "$suite"
	[ "$suite" != sim ] || arguments=1-20 # the rest of them is raft_sim's
	if ! run "$work/base" "$suite" "$arguments"; then
		echo "the unchanged code fails $suite $arguments:"
		tail -20 "$work/base/log"
		exit 1
	fi
done < "$work/suites"

failed=0
echo "$patches" | xargs -P "$(nproc)" -n 1 "$0" --one "$work" || failed=1
echo "$(echo "$patches" | wc -l) mistakes, $([ $failed = 0 ] && echo all caught || echo "NOT all caught")"
exit $failed
