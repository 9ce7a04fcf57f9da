#!/bin/bash
# Programs that use no rampfs file: the same output, exit status and count of processes and threads
# with the shim as without. One line a program; exit status 1 where any differs.
set -u
build=${RAMPFS_BUILD:?the build directory}
work=$(mktemp -d "${TMPDIR:-/tmp}/rampfs-compat.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
chmod 711 "$work"
. "$(dirname "$0")/public.sh"
public_build "$work/build"
run=$build/bin/rampfs-run
export LC_ALL=C HOME=$work GIT_CONFIG_NOSYSTEM=1
fails=0 skipped=0 passed=0

prepare() { # a fresh directory with the same files for each run
	rm -rf "$work/run" && mkdir "$work/run" && cd "$work/run" || exit 1
	seq 1 20000 >numbers
	printf 'int main(void) { return 42; }\n' >forty.c
	printf 'all: one two\none two:\n\t@echo make $@\n' >Makefile
	mkdir -p tree/a tree/b && cp numbers tree/a && echo word >tree/b/w
	printf 'import mmap, os, subprocess, multiprocessing, threading\n
f = open("numbers", "r+b"); m = mmap.mmap(f.fileno(), 0); print(m[:8]); m[0:1] = b"9"; m.resize(8192); m.close()
a = mmap.mmap(-1, 1 << 20); a[5:9] = b"anon"; print(a[5:9])
pid = os.fork()
if pid == 0: os._exit(7)
print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
print(subprocess.run(["echo", "child"], capture_output=True).stdout)
print(os.system("exit 3") >> 8)
t = threading.Thread(target=lambda: print("thread")); t.start(); t.join()
if __name__ == "__main__":
    with multiprocessing.Pool(2) as p: print(p.map(abs, [-1, -2, 3]))
' >p.py
}

# one SUFFIX PREFIX... -- COMMAND: runs it in a fresh directory, keeps what it did
one() {
	local suffix=$1 command=$2
	shift 2
	prepare
	"$@" bash -c "$command" >"$work/out.$suffix" 2>"$work/err.$suffix" </dev/null
	echo "status $?" >>"$work/out.$suffix"
}

# How many processes and threads it starts in all. Counted, where strace(1) is there.
count() {
	local suffix=$1 command=$2
	shift 2
	command -v strace >/dev/null || { echo 0 >"$work/count.$suffix"; return; }
	prepare
	strace -f -qq -e signal=none -e trace=clone,clone3,fork,vfork -o "$work/trace" \
		"$@" bash -c "$command" >/dev/null 2>&1 </dev/null
	grep -cE '(clone3?|fork)\(|<\.\.\. (clone3?|v?fork) resumed' "$work/trace" |
		cat >"$work/count.$suffix"
}

check() { # check NEEDS COMMAND
	local needs=$1 command=$2 name=${2:0:60}
	if ! command -v "$needs" >/dev/null; then
		echo "skip  $needs is not installed"
		skipped=$((skipped + 1))
		return
	fi
	one plain "$command"
	one shim "$command" "$run"
	count plain "$command"
	count shim "$command" "$run"
	local what=
	cmp -s "$work/out.plain" "$work/out.shim" || what="$what output"
	cmp -s "$work/err.plain" "$work/err.shim" || what="$what stderr"
	# Some programs start a thread more or less from run to run, with or without us.
	local _
	for _ in 1 2 3; do
		cmp -s "$work/count.plain" "$work/count.shim" && break
		count plain "$command"
		count shim "$command" "$run"
	done
	cmp -s "$work/count.plain" "$work/count.shim" ||
		what="$what threads($(cat "$work/count.plain"),$(cat "$work/count.shim"))"
	if [ -n "$what" ]; then
		echo "FAIL  $name:$what"
		diff "$work/out.plain" "$work/out.shim" | head -5
		diff "$work/err.plain" "$work/err.shim" | head -5
		fails=$((fails + 1))
	else
		echo "ok    $name"
		passed=$((passed + 1))
	fi
}

# What is not here, and why.
left_out() { echo "out   $1: $2"; }

"$run" cat /proc/self/maps | grep -q librampfs-preload.so || { echo "FAIL  the shim is not loaded"; exit 1; }
# A program with capabilities of its own does not load the shim, which one line says.
cp /bin/cat "$work/capable" # cap_net_bind_service=ep
python3 -c 'import os, struct, sys
os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))' "$work/capable"
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
if findmnt -n -o OPTIONS -T "$work" | grep -qw nosuid; then
	echo "skip  capabilities: $work is mounted nosuid"
	skipped=$((skipped + 1))
else
	$user "$run" "$work/capable" /proc/self/maps >"$work/out" 2>"$work/err"
	{ grep -q "^rampfs-run: $work/capable has capabilities (setcap) and does not load the shim" "$work/err" &&
		! grep -q librampfs "$work/out"; } || { echo "FAIL  capabilities: $(cat "$work/err")"; fails=1; }
fi
"$run" "$work/capable" /proc/self/maps >"$work/out" 2>"$work/err" # as root, which has them anyway
{ [ ! -s "$work/err" ] && grep -q librampfs "$work/out"; } || { echo "FAIL  root's capabilities: $(cat "$work/err")"; fails=1; }
check sh 'ls /proc/self/task | wc -l; ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E "^(Threads|Sig(Blk|Ign|Cgt)):"'
check bash 'for i in 1 2 3; do (echo $i) | cat; done; exit 9'
check dash 'dash -c "echo hello; exit 7"'
check ls 'ls tree/a tree/b'
check cp 'cp -r tree copy && diff -r tree copy && rm -r copy'
check sort 'sort -R --random-source=numbers numbers | sort -n --parallel=2 -S 64K | tail -2'
check grep 'grep -c 77 numbers; grep nothing numbers'
check awk 'awk "{ s += \$1 } END { print s }" numbers'
check sed 'sed -n 5,7p numbers'
check find 'find tree -type f -exec echo {} + | tr " " "\n" | sort'
check xargs 'seq 20 | xargs -n 5 -P 1 echo'
check tar 'tar cf - tree | tar tf - | sort'
check gzip 'gzip -c numbers | gzip -dc | tail -1'
check xz 'xz -T2 -c numbers | xz -dc | tail -1'
check sha256sum 'sha256sum numbers'
check perl 'perl -e "my \$p = fork; exit 4 unless \$p; wait; print \$? >> 8, qq{\n}; print qx{echo sub}; exit 6"'
check perl 'perl -Mthreads -e "print threads->create(sub { 6 * 7 })->join, qq{\n}"'
check python3 'python3 p.py; echo $?'
check git 'git init -q . && git add numbers && git -c user.name=n -c user.email=e commit -qm m --date=@1 && git log --format=%s && git gc -q && git fsck'
check sqlite3 'sqlite3 x.db "pragma mmap_size=1000000; pragma journal_mode=wal; create table t(a); insert into t select value from generate_series(1,2000); select sum(a) from t; select count(*) from t"'
check gcc 'gcc -O1 -o forty forty.c && ./forty; echo $?'
check gcc 'gcc -static -o forty forty.c && ./forty; echo $?'
check clang 'clang -O1 -o forty forty.c && ./forty; echo $?'
check g++ 'printf "#include <iostream>\n#include <thread>\nint main() { std::thread t([] { std::cout << 6 * 7 << std::endl; }); t.join(); try { throw 5; } catch (int n) { return n; } }\n" >t.cc && g++ -pthread -o t t.cc && ./t; echo $?'
check gcc 'gcc -g -fsanitize=address -o forty forty.c && ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 ./forty; echo $?'
check musl-gcc 'musl-gcc -o forty forty.c && ./forty; echo $?; sh -c ./forty; echo $?'
check make 'make -j2 --no-print-directory all | sort'
check ssh 'ssh -V'
check ssh-keygen 'ssh-keygen -q -t ed25519 -N "" -f key && ls key key.pub'
check openssl 'openssl dgst -sha256 numbers'
check gdb 'gdb -q -batch -ex "print 6*7"'
check gdb 'gcc -g -o forty forty.c && gdb -q -batch -ex "break main" -ex run -ex "info breakpoints" -ex continue ./forty </dev/null 2>&1 | sed "s/process [0-9]*/process N/; s/0x[0-9a-f]*/ADDRESS/g"'
check strace 'strace -f -qq -e trace=exit_group -o t sh -c "exit 3"; echo $?; sed "s/^[0-9]* *//" t'
check valgrind 'gcc -g -o forty forty.c && valgrind -q --error-exitcode=9 ./forty; echo $?'
check rsync 'rsync -a tree/ copy/ && diff -r tree copy && rsync -a --delete tree/a/ copy/ && ls copy'
check java 'java -Xint -XX:+UseSerialGC -version 2>&1 | tail -1'
check node 'node -e "new (require(\"worker_threads\").Worker)(\"console.log(1)\", {eval: true}).on(\"exit\", () => console.log(2))" | sort'
check su 'su nobody -s /bin/bash -c "id -un; exit 5"'
check sudo 'sudo -n -u nobody id -un'
check setpriv 'setpriv --reuid=65534 --regid=65534 --clear-groups id -u'
check timeout 'timeout 0.2 sleep 5; echo $?'
check memcached 'memcached -u nobody -p 0 -s "$PWD/sock" & sleep 0.5; kill %1; wait; echo $?'
left_out "gcc -fsanitize=address as it is" "its runtime wants to be first in LD_PRELOAD; the check above says verify_asan_link_order=0"
left_out "segments under gdb, valgrind, numpy, Java..." "tests/mount/programs/watched.sh and languages.sh have them"
left_out "Go programs" "they call the kernel by themselves, past any preloaded library, as static ones do"

echo "compat: $passed the same, $fails differ, $skipped not installed"
[ "$fails" -eq 0 ]
