# shellcheck shell=bash
# For scripts of tests: programs that do what they are told, a line at a time. After cluster.sh.
#   holder_program=(COMMAND...); holder NAME [PREFIX...]: starts one, by `PREFIX... COMMAND...`
#   ask NAME WORDS: its answer; hear NAME: a line that it says by itself; bye NAME [SIGNAL]: ends it;
#   finish NAME: it has read all that it is told, and ends as wait(1) says
: "${scratch:?cluster.sh makes it}"
holder_program=()
holder() {
	local name=$1
	shift
	rm -f "$scratch/$name.in" "$scratch/$name.out"
	mkfifo "$scratch/$name.in" "$scratch/$name.out"
	"$@" "${holder_program[@]}" <"$scratch/$name.in" >"$scratch/$name.out" &
	eval "${name}_pid=$!"
	eval "exec {${name}_in}>\"$scratch/$name.in\" {${name}_out}<\"$scratch/$name.out\""
}
hear() {
	local out=${1}_out answer
	read -r -t 20 answer <&"${!out}" || fail "$1 does not answer: ${*:2}"
	echo "$answer"
}
ask() {
	local in=${1}_in
	echo "${@:2}" >&"${!in}"
	hear "$@"
}
finish() {
	local pid=${1}_pid
	eval "exec {${1}_in}>&-"
	wait "${!pid}"
}
bye() {
	local pid=${1}_pid
	kill "-${2:-TERM}" "${!pid}"
	wait "${!pid}" || true
	eval "exec {${1}_in}>&- {${1}_out}<&-"
}
