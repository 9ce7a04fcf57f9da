# shellcheck shell=bash
# For scripts of tests: programs that take commands, a line at a time. After cluster.sh.
#   holder_program=(COMMAND...); holder NAME [PREFIX...]: starts one, by `PREFIX... COMMAND...`
#   ask NAME WORDS: its answer; tell NAME WORDS: the answer is not waited for; hear NAME: the next line that it says;
#   is_mute NAME: there is none; pid_of NAME; bye NAME [SIGNAL]: ends it;
#   finish NAME: waits until it has read all its commands; ends with its status, as wait(1) does
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
is_mute() {
	local out=${1}_out
	! read -r -t 0.1 -u "${!out}"
}
tell() {
	local in=${1}_in
	echo "${@:2}" >&"${!in}"
}
ask() {
	tell "$@"
	hear "$@"
}
pid_of() {
	local pid=${1}_pid
	echo "${!pid}"
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
