#!/usr/bin/env bash
# The programs' --help, their manual pages and bash's completion: the same options everywhere; pages without
# a warning; a unit that systemd takes.
set -eu
build=${RAMPFS_BUILD:?RAMPFS_BUILD names the build to test}
PATH=$build/bin:$PATH
export LC_ALL=C.UTF-8
scratch=$(mktemp -d /tmp/rampfs-tools.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
same() { [ "$1" = "$2" ] || fail "$3: expected \"$1\", got \"$2\""; }
# shellcheck source=contrib/completion/rampfs
. contrib/completion/rampfs
compopt() { :; } # only readline has it
# complete WORD...: prints the words that are offered for the last one, a line each
complete_words() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	_rampfs "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	printf '%s\n' "${COMPREPLY[@]}"
}
options_in() { grep -oE -- '(^|[^-a-z])--[a-z][a-z-]*' "$1" | grep -oE -- '--[a-z-]+' | sort -u; }
letters_in() { grep -oE -- '(^|[^-a-zA-Z])-[a-zA-Z]($|[^-a-zA-Z])' "$1" | grep -oE -- '-[a-zA-Z]' | sort -u; }

tools="rampfs:8 mkfs.rampfs:8 rampfs-node:8 rampfs-migrate:1 rampfs-status:1 rampfs-run:1"
for entry in $tools; do
	# Another program's options may be named: behind its name.
	others=$(for entry2 in $tools; do
		[ "$entry2" = "$entry" ] || echo "s/\*?${entry2%:*}\*?(\([0-9]\))?,? \*?--[a-z]+//g;"
	done)" s/fusermount3 -u//"
	tool=${entry%:*} page=contrib/man/${entry%:*}.${entry#*:}.scd
	"$tool" --version >"$scratch/version"
	grep -qxE "$tool [0-9]+\.[0-9]+\.[0-9]+" "$scratch/version" || fail "$tool --version: $(cat "$scratch/version")"
	"$tool" --help >"$scratch/help" 2>"$scratch/err" || fail "$tool --help: status $?"
	same "" "$(cat "$scratch/err")" "$tool --help, on stderr"
	for option in --help --version; do
		status=0
		"$tool" $option >/dev/full 2>"$scratch/err" || status=$?
		same "$([ "$tool" = rampfs-run ] && echo 125 || echo 1)" $status "the exit status of $tool $option on a full disk"
	done
	status=0
	"$tool" --no-such-option >"$scratch/out" 2>"$scratch/err" || status=$?
	same "$([ "$tool" = rampfs-run ] && echo 125 || echo 2)" $status "the exit status of a wrong option of $tool"
	[ -s "$scratch/err" ] && [ ! -s "$scratch/out" ] || fail "a wrong option of $tool is not said on stderr"
	sed -E "$others" "$scratch/help" >"$scratch/own"
	options_in "$scratch/own" >"$scratch/said"
	letters_in "$scratch/own" >>"$scratch/said"
	# Of other people's tools, and of rampfs-node's recover, with their options, one section tells.
	sed -E "$others" "$page" | sed '/^# WHAT PEOPLE TRY/,/^# /d; /^# WHEN THE QUORUM/,/^# /d' >"$scratch/page"
	for option in $(cat "$scratch/said"); do
		grep -qE -- "[^-a-z]$option([^-a-z]|\$)" "$page" || fail "$page does not have $option, which $tool --help has"
		complete_words "$tool" "$option" | grep -qx -- "$option" || fail "$option of $tool is not completed"
	done
	for option in $(options_in "$scratch/page"); do
		grep -qx -- "$option" "$scratch/said" || fail "$page has $option, which $tool --help has not"
	done
	for option in $(complete_words "$tool" -); do
		grep -qx -- "$option" "$scratch/said" || fail "$option is completed for $tool, and is none"
	done
done

# A word too many or too few is named, without the whole of --help.
misused() {
	local status=0 text=$1
	shift
	"$@" >"$scratch/out" 2>"$scratch/err" || status=$?
	same 2 $status "the exit status of $*"
	same "$(printf '%s\n' "$text" "Try '$1 --help'.")" "$(cat "$scratch/out" "$scratch/err")" "what $* says"
}
misused "rampfs: unknown option -x" rampfs -xf /tmp /mnt
misused "rampfs: option -o needs a value" rampfs -o
misused "rampfs: --destroy=now: it takes no value" rampfs --destroy=now /tmp
misused "rampfs: log=stderr is for -f: in the background there is none" rampfs -o log=stderr /tmp /mnt
misused "rampfs: unknown mount option user_id (-o help lists them)" rampfs -o user_id=0 /tmp /mnt
misused "rampfs-status: one MOUNTPOINT at a time" rampfs-status /mnt /mnt
misused "rampfs-node: one of list, add, promote, fence, remove, set and recover is needed" rampfs-node
misused "rampfs-node: it knows list, add, promote, fence, remove, set and recover" rampfs-node lists
misused "rampfs-node: recover takes one STATE_DIR" rampfs-node recover
misused "rampfs-node: recover takes a STATE_DIR, no mount" rampfs-node -m /mnt recover /tmp
misused "rampfs-node: --adopt goes with --address and --yes alone" rampfs-node recover --adopt x --lost b /tmp
misused "rampfs-node: --show goes alone" rampfs-node recover --show --lost b /tmp
misused "rampfs-node: --lost, --survivor, --adopt, --address, --show and --yes are recover's" rampfs-node --yes list
misused "rampfs-node: add takes NAME HOST:PORT CAPACITY" rampfs-node -m /mnt add d
misused "rampfs-node: set takes arena-user-max SIZE, or arena-user-max default" rampfs-node -m /mnt set arena-user-max
misused "rampfs-node: list takes nothing" rampfs-node -m /mnt list d
misused "rampfs-node: --hook and --force are fence's" rampfs-node --force remove d
misused "rampfs-migrate: no such mode: fast" rampfs-migrate --mode fast /mnt/a/x b
misused "rampfs-migrate: --limit is at least 1M (bytes a second), not: 0" rampfs-migrate --limit 0 /mnt/a/x b
misused "rampfs-migrate: --limit takes bytes a second, as 200M or 1G, not: fast" rampfs-migrate --limit fast /mnt/a/x b
misused "rampfs-migrate: --reclaim takes at least one FILE" rampfs-migrate --reclaim
for n in 0 -1 101 many 3x ""; do
	misused "rampfs-migrate: --max-rounds takes 1 to 100: $n" rampfs-migrate --max-rounds "$n" /mnt/a/x b
done
misused "rampfs-migrate: --max-rounds is of modes precopy and auto" rampfs-migrate --max-rounds 3 --mode lazy /mnt/a/x b
misused 'rampfs: mount option mode does not take "fast"' rampfs -o mode=fast /tmp /mnt

rampfs -o help >"$scratch/help"
# mount(8)'s options, of which x-* may be anything
generic=$(sed -n 's/^and of mount(8): //; T; :more N; s/\. nosuid.*//; T more; s/[,\n]/ /g; p' "$scratch/help")
case $generic in *" x-*"*) ;; *) fail "mount(8)'s options are read wrong: $generic" ;; esac
tr -d '\\' <contrib/man/rampfs.8.scd >"$scratch/page"
for option in $(grep -oE '^  [a-z_]+=' "$scratch/help") ${generic/x-\*/}; do
	grep -qF "*$option*" "$scratch/page" || fail "mount option $option is not in rampfs(8)"
	complete_words rampfs -o "${option:0:3}" | grep -qx -- "$option" || fail "mount option $option is not completed"
done
for option in $(complete_words rampfs -o "" | grep -vx help); do
	[[ $option == *= ]] && end="" || end='([ ,]|$)'
	grep -qE -- "(^|[ ,])$option$end" "$scratch/help" || fail "mount option $option is completed, and is none"
done
same "ro,loglevel=" "$(complete_words rampfs -o ro,logl)" "the second of two mount options"
same "error warning info debug" "$(complete_words rampfs -o ro,loglevel = | xargs)" "values of loglevel"
same "auto" "$(complete_words rampfs -o rollback = au)" "a value of rollback"
same "auto lazy demand copy precopy" "$(complete_words rampfs-migrate --mode "" | xargs)" "modes"
same "auto lazy demand copy precopy" "$(complete_words rampfs -o mode = | xargs)" "values of mode"
same "hint refuse" "$(complete_words rampfs-run --fixed = | xargs)" "values of --fixed"
complete_words rampfs-run --fixed = hint rampfs-stat | grep -qx rampfs-status || fail "no program is completed behind --fixed"
same "auto lazy demand copy precopy" "$(complete_words rampfs-migrate --mode = | xargs)" "modes behind ="
same "demand" "$(complete_words rampfs-migrate --mode = de)" "a mode behind ="
same "contrib/man" "$(complete_words mkfs.rampfs --config = contrib/ma)" "a file behind ="
for mode in $(complete_words rampfs-migrate --mode ""); do
	rampfs-migrate --help | grep -q -- "--mode $mode " || fail "mode $mode is completed, and is none"
done
for command in $(complete_words rampfs-node ""); do
	rampfs-node --help | grep -q "^  $command " || fail "$command is completed for rampfs-node, and is none"
done

status=0
rampfs-run --fixed=yes true >"$scratch/out" 2>"$scratch/err" || status=$?
same 125 $status "the exit status of a wrong value of --fixed"
same "rampfs-run: --fixed takes hint or refuse, not yes" "$(cat "$scratch/out" "$scratch/err")" "what --fixed=yes says"
for words in --fixed=hint "--fixed refuse"; do
	# shellcheck disable=SC2086 # words
	same "${words#*[= ]}" "$(rampfs-run $words sh -c 'echo $RAMPFS_FIXED' -- --fixed=x)" "what $words sets"
done

# A kernel that is too old is named, and what it lacks, and on Debian 12 the package of a newer one.
lacks="lacks PAGEMAP_SCAN and userfaultfd's asynchronous write protection: Linux 6.7 or later is needed"
if grep -qx VERSION_CODENAME=bookworm /etc/os-release; then
	lacks="$lacks (package linux-image-6.12-amd64 of bookworm-backports)"
fi
status=0
setarch --uname-2.6 rampfs "$scratch" /mnt >"$scratch/out" 2>"$scratch/err" || status=$?
same 1 $status "the exit status of rampfs on an old kernel"
same "rampfs: Linux $(setarch --uname-2.6 uname -r) $lacks" "$(cat "$scratch/out" "$scratch/err")" "what rampfs on an old kernel says"
setarch --uname-2.6 rampfs --version >/dev/null || fail "rampfs --version needs no kernel"

# mount(8) passes on its helper's exit status: 1 is a wrong option there, 32 a mount that failed.
ln -s "$(command -v rampfs)" "$scratch/mount.rampfs"
helper() {
	local want=$1 text=$2 status=0
	shift 2
	"$scratch/mount.rampfs" "$scratch/none" /mnt "$@" 2>"$scratch/err" || status=$?
	same "$want" $status "the exit status of mount.rampfs $*"
	grep -q -- "$text" "$scratch/err" || fail "mount.rampfs $* says: $(cat "$scratch/err")"
}
helper 1 'unknown mount option fast' -o rw,fast
helper 1 'remount: its own options change by umount' -o rw,remount
if [ "$(id -u)" = 0 ]; then
	helper 32 'none: No such file' -s -o rw,fast
	for option in $(echo "$generic" | sed 's/=/=x/g; s/x-\*/x-y/'); do
		helper 32 'none: No such file' -o "$option"
	done
	for flag in -n -s -v -r -w "-t rampfs"; do
		grep -qF -- "*${flag% *}*" contrib/man/mount.rampfs.8.scd || fail "mount.rampfs(8) does not have $flag"
		# shellcheck disable=SC2086 # -t and its value
		helper 32 'none: No such file' $flag
	done
fi

pages=0
for page in "$build"/contrib/*.[1-8]; do
	pages=$((pages + 1))
	groff -man -Tutf8 -ww -K utf8 "$page" >"$scratch/text" 2>"$scratch/err"
	same "" "$(cat "$scratch/err")" "warnings of groff for $page"
	if command -v mandoc >/dev/null; then
		mandoc -T lint -W error "$page" || fail "mandoc does not take $page"
	fi
	for other in $(grep -oE '(rampfs|mkfs\.rampfs|mount\.rampfs|rampfs-[a-z.]+)\([0-9]\)' "$scratch/text" | sort -u); do
		[ -e "$build/contrib/$(echo "$other" | tr '(' . | tr -d ')')" ] || fail "$page names $other, which is not there"
	done
done
same "$(find contrib/man -name "*.scd" | wc -l)" $pages "manual pages"

# Installs everything, under a prefix that is named only then.
DESTDIR=$scratch/root cmake --install "$build" --prefix /usr >/dev/null
root=$scratch/root
for file in sbin/mount.rampfs usr/sbin/rampfs usr/sbin/mkfs.rampfs usr/sbin/rampfs-node usr/bin/rampfs-migrate \
	usr/bin/rampfs-status usr/bin/rampfs-run usr/lib/systemd/system/rampfs@.service usr/include/ramp.h \
	usr/lib/python3/dist-packages/rampfs.py; do
	[ -e "$root/$file" ] || [ -L "$root/$file" ] || fail "/$file is not installed"
done
same /usr/sbin/rampfs "$(readlink "$root/sbin/mount.rampfs")" "what mount(8) is led to"
for entry in $tools; do
	[ -r "$root/usr/share/bash-completion/completions/${entry%:*}" ] || fail "no completion for ${entry%:*} is installed"
	[ -s "$root/usr/share/man/man${entry#*:}/${entry%:*}.${entry#*:}" ] || fail "no manual page of ${entry%:*} is installed"
done
[ -s "$root/usr/share/man/man3/rampfs-mmap.3" ] || fail "rampfs-mmap(3) is not installed"
for page in ramp_heap ramp_containers; do
	[ -s "$root/usr/share/man/man3/$page.3" ] || fail "$page(3) is not installed"
done
# man(1) finds each call by its name, and its page tells of it.
for call in $(sed -nE 's/^(const |struct |unsigned )?[a-z0-9_]+ \**(ramp_[a-z_]+)\(.*/\2/p' libramp/include/ramp.h libramp/include/ramp_heap.h); do
	grep -qw "$call" "$root/usr/share/man/man3/$call.3" || fail "$call(3) is not installed"
done
# For programs that are built elsewhere, pkg-config says all.
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name ramp-heap.pc)") && export PKG_CONFIG_PATH
flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --cflags --libs ramp-heap)
for flag in $flags; do
	case $flag in
	-I*) [ -s "${flag#-I}/ramp_heap.h" ] || fail "ramp_heap.h is not where pkg-config says: $flag" ;;
	-L*) [ -s "${flag#-L}/libramp-heap.a" ] || fail "libramp-heap.a is not where pkg-config says: $flag" ;;
	esac
done
case $flags in *-I*-L*-lramp-heap*) ;; *) fail "pkg-config: $flags" ;; esac
nm -D --defined-only "$(find "$root" -name 'libramp.so.1')" >"$scratch/symbols"
grep -qw ramp_heap_open "$scratch/symbols" || fail "libramp.so has no heap"
# The examples of the manual pages are programs.
example() { sed -n '/^```$/,/^```$/p' "contrib/man/$1" | sed 's/^```$//; s/\\\\/\\/g'; }
# shellcheck disable=SC2086 # flags are words
example ramp_heap.3.scd | gcc -x c -std=gnu11 -Wall -Werror -Wno-unused-result -fsyntax-only $flags - || fail "the example of ramp_heap(3)"
# shellcheck disable=SC2086
example ramp_containers.3.scd | g++ -x c++ -std=c++17 -Wall -Werror -fsyntax-only $flags - || fail "the example of ramp_containers(3)"
same /usr/sbin/rampfs "$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$root/usr/lib/systemd/system/rampfs@.service")" "what the unit starts"
"$root/usr/bin/rampfs-run" cat /proc/self/maps | grep -q "$root/usr/lib.*/librampfs-preload.so" || fail "the shim that is installed is not found"

# And removes it again by its list.
sed "s|^|$root|" "$build/install_manifest.txt" | xargs -d '\n' rm
same "" "$(find "$root" ! -type d)" "what the list of what is installed leaves behind"

if command -v systemd-analyze >/dev/null; then
	sed "s|^ExecStart=[^ ]*|ExecStart=$build/bin/rampfs|; /^Documentation/d" "$build/contrib/rampfs@.service" >"$scratch/rampfs@.service"
	systemd-analyze verify "$scratch/rampfs@.service" >"$scratch/err" 2>&1 || fail "systemd: $(cat "$scratch/err")"
	same "" "$(grep -F rampfs "$scratch/err" || true)" "what systemd says of the unit"
fi
echo "tools: all say the same"
