# shellcheck shell=bash
# For scripts of tests: programs that do what they are told, a line at a time. After cluster.sh.
#   holder_program=(COMMAND...); holder NAME [PREFIX...]: starts one, by `PREFIX... COMMAND...`
#   ask NAME WORDS: its answer; bye NAME [SIGNAL]: ends it
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
ask() {
	local name=$1 in=${1}_in out=${1}_out answer
	shift
	echo "$*" >&"${!in}"
	read -r -t 20 answer <&"${!out}" || fail "$name does not answer: $*"
	echo "$answer"
}
bye() {
	local pid=${1}_pid
	kill "-${2:-TERM}" "${!pid}"
	wait "${!pid}" || true
	eval "exec {${1}_in}>&- {${1}_out}<&-"
}
