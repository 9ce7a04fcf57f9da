#!/usr/bin/env bash
# A program with the shim under gdb, strace, valgrind, AddressSanitizer; and programs that go past the
# shim: static ones and setuid ones. Cases that do not work are tested to fail as rampfs-run(1) says.
#   watched.sh gdb|strace|valgrind|asan|unshimmed
. tests/lib/cluster.sh
. tests/lib/holder.sh
export LC_ALL=C
chmod 755 "$scratch"
cluster_start -n 2 -c 128M
a=$mnt/a/a b=$mnt/b/b
quietly() { "$@" 2>/dev/null; }
away() { within 10 quietly mv "$a/f" "$mnt/a/b/" && within 10 test -e "$b/f"; }
back() { within 10 quietly mv "$b/f" "$mnt/b/a/" && within 10 test -e "$a/f"; }
cat >"$scratch/storer.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
volatile unsigned long *words;
static void mapped(void) { puts("mapped"), fflush(stdout); }
/* storer FILE: maps it, then takes commands: "store N", "load", and until it is killed "go"
   (stores, and sleeps) or "spin" (stores). */
int main(int argc, char **argv)
{
	unsigned long n;
	char line[64];
	int fd = open(argv[argc - 1], O_RDWR);

	words = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED)
		return puts(strerror(errno)), 1;
	close(fd);
	mapped();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "store %lu", &n) == 1)
			words[1] = n, puts("yes");
		else if (strcmp(line, "load\n") == 0)
			printf("%lu\n", words[1]);
		fflush(stdout);
		while (strcmp(line, "go\n") == 0)
			words[0]++, words[512 * 3]++, usleep(100);
		while (strcmp(line, "spin\n") == 0)
			words[0]++;
	}
	return 0;
}
C
gcc -g -O1 -o "$scratch/storer" "$scratch/storer.c"
truncate -s 1M "$a/f"
word() { dd if="$1" bs=8 skip="$2" count=1 status=none | od -An -tu8 | tr -d ' '; }
stores() { [ "$(word "$a/f" 0)" != "$1" ]; }
says() { grep -q "$2" "$1"; }
# A program that stores all the time while its segment leaves: it ends by SIGBUS, and every store is there,
# in its order. If the SIGBUS is the second store's, the first counter gets one ahead.
leaves_under() { # COMMAND...: runs it under COMMAND
	local status=0 first second ahead
	mkfifo "$scratch/in"
	timeout -k 5 60 rampfs-run "$@" "$a/f" <"$scratch/in" >"$scratch/out" 2>"$scratch/err" &
	watched=$!
	exec 8>"$scratch/in"
	within 30 says "$scratch/out" mapped
	first=$(word "$a/f" 0) second=$(word "$a/f" 1536)
	ahead=$((first - second))
	echo go >&8
	within 30 stores "$first"
	away
	exec 8>&-
	wait $watched || status=$?
	ended=$status
	first=$(word "$b/f" 0) second=$(word "$b/f" 1536)
	[ "$first" -gt 0 ] && [ $((first - second - ahead)) -ge 0 ] && [ $((first - second - ahead)) -le 1 ] ||
		fail "the two counters: $first and $second; $ahead ahead before"
	says "$scratch/err" '^rampfs: a/f is now on node b' || fail "it was not told: $(cat "$scratch/err")"
}

gdb_() {
	# The debugger reads and writes memory of a segment; the segment moves while the program runs under the debugger.
	cat >"$scratch/commands" <<'G'
set breakpoint pending on
break mapped
run
set var words[1] = 4711
print words[1]
delete
continue
info threads
print words[1]
G
	leaves_under gdb -q -batch -x "$scratch/commands" --args "$scratch/storer"
	says "$scratch/out" '^\$1 = 4711$' || fail "gdb's store is not there: $(cat "$scratch/out")"
	says "$scratch/out" 'received signal SIGBUS' || fail "no SIGBUS: $(cat "$scratch/out")"
	says "$scratch/err" 'Cannot access memory' || fail "gdb saw memory that is gone: $(cat "$scratch/out" "$scratch/err")"
	says "$scratch/out" 'rampfs-agent' || fail "gdb does not show the agent: $(cat "$scratch/out")"
	same 4711 "$(word "$b/f" 1)" "what gdb wrote, on b"
}

strace_() {
	leaves_under strace -f -o "$scratch/trace" "$scratch/storer"
	same 135 $ended "its end (128 + SIGBUS)"
	says "$scratch/trace" 'SIGBUS' && says "$scratch/trace" 'MREMAP_DONTUNMAP' || fail "the trace lacks the agent"
}

stands_still_or_ended() {
	says "$scratch/cluster/a.log" "process $1 still waits for segment .* its agent does not answer" ||
		! kill -0 "$1" 2>/dev/null
}
valgrind_() {
	local first status
	holder_program=(valgrind -q --error-exitcode=9 "$scratch/storer" "$a/f")
	holder one rampfs-run 2>"$scratch/err"
	same mapped "$(hear one)" "its first line: $(cat "$scratch/err")"
	same yes "$(ask one store 5)" "a store"
	same 5 "$(word "$a/f" 1)" "the same by read(2)"
	# It may leave and come back while the program does not touch it.
	away
	same 5 "$(word "$b/f" 1)" "the store, on b"
	printf '\7' | dd of="$b/f" bs=1 seek=8 conv=notrunc status=none
	back
	same 7 "$(ask one load)" "a load after it came back"
	finish one || fail "valgrind found something: $(cat "$scratch/err")"
	# Valgrind 3.19 warns of it, 3.24 does not.
	same 0 "$(grep 'unhandled ioctl' "$scratch/err" | grep -cv 0xaa00)" "warnings that rampfs-run(1) does not tell of: $(cat "$scratch/err")"
	# Not while the program touches it: the thread that waits for the page keeps valgrind's one turn, the agent gets
	# none, and SIGKILL alone ends them. The segment moves all the same. If the agent had its turn just
	# before, the program ends by SIGBUS as any other does: then the test tries again some times. It runs on one
	# processor, where the agent, which is more urgent, gets its turn when the program releases it; from another
	# processor the agent comes too late each time.
	for _ in 1 2 3 4 5; do
		holder two taskset -c 0 rampfs-run 2>"$scratch/err"
		same mapped "$(hear two)" "its first line: $(cat "$scratch/err")"
		renice -n -20 -p "${two_pid:?}" >/dev/null # only that thread: it takes its turns first
		first=$(word "$a/f" 0)
		echo spin >&"${two_in:?}"
		within 30 stores "$first"
		away
		within 20 stands_still_or_ended "$two_pid"
		kill -0 "$two_pid" 2>/dev/null && break
		status=0
		wait "$two_pid" || status=$?
		same 135 $status "its end (128 + SIGBUS)"
		back
	done
	kill -TERM "$two_pid" 2>/dev/null || return 0 # it never hung: that may be, too
	sleep 1
	same handle_userfault "$(cat "/proc/$two_pid/wchan")" "where it stands still, SIGTERM or not"
	bye two KILL
}

asan_() {
	local c
	for c in "clang -fsanitize=address" "gcc -fsanitize=address -static-libasan" "gcc -fsanitize=address"; do
		# shellcheck disable=SC2086
		$c -g -O1 -o "$scratch/asan" "$scratch/storer.c"
		if [ "$c" = "gcc -fsanitize=address" ]; then
			# Its shared runtime wants to be the first library, and says so.
			refused "ASan runtime does not come first" env -u ASAN_OPTIONS rampfs-run "$scratch/asan" "$a/f"
			export ASAN_OPTIONS=verify_asan_link_order=0
		else
			export ASAN_OPTIONS=
		fi
		leaves_under "$scratch/asan"
		says "$scratch/err" 'AddressSanitizer: BUS' || fail "$c: $(cat "$scratch/err")"
		rm "$scratch/in"
		back
	done
}

unshimmed_() {
	local p run
	gcc -g -O1 -static -o "$scratch/static" "$scratch/storer.c"
	cp "$scratch/storer" "$scratch/setuid"
	chown 65534 "$scratch/setuid" && chmod 4755 "$scratch/setuid"
	cp "$scratch/storer" "$scratch/setcap" # cap_net_bind_service=ep
	python3 -c 'import os, struct, sys
os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))' "$scratch/setcap"
	chmod 666 "$a/f"
	for p in static setuid setcap; do
		# As a user: a program of root's that does not change its user is loaded with the shim as any other.
		run=(setpriv --reuid=1001 --regid=1001 --clear-groups rampfs-run "$scratch/$p" "$a/f")
		same "No such device" "$("${run[@]}" </dev/null 2>"$scratch/err")" "mmap by a $p program"
		says "$scratch/err" "^rampfs-run: $scratch/$p .*does not load the shim" || fail "$p: $(cat "$scratch/err")"
		RAMPFS_QUIET=1 "${run[@]}" </dev/null >/dev/null 2>"$scratch/err" || true # ENODEV
		same "" "$(cat "$scratch/err")" "the message with RAMPFS_QUIET=1"
		python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp.mmap", b"passthrough")' "$a/f"
		holder_program=("${run[@]}")
		holder one
		same mapped "$(hear one)" "a $p program, with user.ramp.mmap=passthrough"
		same yes "$(ask one store 6)" "its store"
		same 6 "$(word "$a/f" 1)" "the same by read(2)"
		refused "busy" mv "$a/f" "$mnt/a/b/"
		finish one
		python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.ramp.mmap", b"none")' "$a/f"
	done
	away # no process holds it any more
}

"${1}_"
cluster_stop
echo "watched by $1: as it should be"
