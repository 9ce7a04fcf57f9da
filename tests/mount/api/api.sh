#!/usr/bin/env bash
# libramp.so on real mounts (api_user.c, python.py): by itself, and in programs that run under rampfs-run.
. tests/lib/slow_net.sh
slow_net_enter "$@"
. tests/lib/cluster.sh
cluster_start -n 3 -c 1G
user() { timeout -k 5 90 "${with[@]}" "$build/tests/api_user" "$@" 2>"$scratch/err" || fail "$*, ${with[*]:-alone}: $(cat "$scratch/err")"; }

echo "the example, from an installed tree, by pkg-config and by CMake"
cmake --install "$built" --prefix "$scratch/installed" >"$scratch/install.log" || fail "$(tail "$scratch/install.log")"
[ "$(readlink /sbin/mount.rampfs)" != "$scratch/installed/sbin/rampfs" ] || fail "mount -t rampfs of this machine leads to the test's tree"
[ -x "$scratch/installed/sbin/mount.rampfs" ] || fail "no mount.rampfs in the installed tree"
PKG_CONFIG_PATH=$(dirname "$(find "$scratch/installed" -name libramp.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
cc -std=c11 -pedantic -Wall -Wextra -Werror contrib/examples/hello.c -o "$scratch/hello" $(pkg-config --cflags --libs libramp)
libs=$(pkg-config --variable=libdir libramp)
chmod -R a+rX "$scratch/installed"
hello() { LD_LIBRARY_PATH=$libs RAMPFS_MOUNT=$mnt/$1 "$scratch/hello" "$2"; }
hello b --receive >"$scratch/received" &
receiver=$!
within 20 grep -q waits "$scratch/received"
hello a b
wait $receiver
same "node b waits
made on node a, now on node b" "$(cat "$scratch/received")" "the example's receiver"
[ ! -e "$mnt/b/b/hello" ] || fail "the example left its segment"
LD_LIBRARY_PATH=$libs refused "there are several rampfs mounts" "$scratch/hello" b
mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<'M'
cmake_minimum_required(VERSION 3.25)
project(hello C)
find_package(ramp 0.1 REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE ramp::ramp)
M
cp contrib/examples/hello.c "$scratch/project/"
cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$scratch/installed" >"$scratch/cmake.log" 2>&1 &&
	cmake --build "$scratch/project/build" >>"$scratch/cmake.log" 2>&1 || fail "$(cat "$scratch/cmake.log")"

echo "Python: the module and its example, from the installed tree"
PYTHONPATH=$(dirname "$(find "$scratch/installed" -name rampfs.py)")
export PYTHONPATH
timeout -k 5 120 /usr/bin/python3 tests/mount/api/python.py "$mnt/a" "$mnt/b" || fail "python.py"
timeout -k 5 120 rampfs-run /usr/bin/python3 tests/mount/api/python.py "$mnt/a" "$mnt/b" 2>"$scratch/err" || fail "python.py under rampfs-run: $(cat "$scratch/err")"
RAMPFS_MOUNT=$mnt/b timeout 120 /usr/bin/python3 contrib/examples/index.py --receive >"$scratch/received" &
receiver=$!
within 20 grep -q waits "$scratch/received"
RAMPFS_MOUNT=$mnt/a timeout 120 /usr/bin/python3 contrib/examples/index.py b
wait $receiver
same "node b waits nearest to vector 4711 on node b: 4711" "$(paste -sd' ' "$scratch/received")" "the example's receiver"

echo "received by its number; another user's receiver does not keep pages from coming"
head -c 1M /dev/urandom >"$mnt/a/a/wanted"
PYTHONPATH=libramp/python RAMPFS_LIBRAMP=$build/lib/libramp.so.1 setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -B -c 'import rampfs, sys
with rampfs.open(sys.argv[1]).events(id=int(sys.argv[2]), receive=True, demand=True) as watch:
    print("armed", flush=True)
    watch.receive(60, read_only=True)' "$mnt/b" "$(stat -c %i "$mnt/a/a/wanted")" >"$scratch/received" &
receiver=$!
within 20 grep -q armed "$scratch/received"
rampfs-migrate --mode lazy "$mnt/a/a/wanted" b
is_stable() { [ "$(xattr "$mnt/b/b/wanted" state)" = stable ]; }
within 20 is_stable
wait $receiver
rm "$mnt/b/b/wanted"

for with in "" "rampfs-run"; do
	# shellcheck disable=SC2206
	with=($with)
	echo "allocated, grown, listed, moved and back, refused, removed: ${with[*]:-alone}"
	user life "$mnt/a" "$mnt/b" b
	same "" "$(grep -v 'is now on node' "$scratch/err" || true)" "lines on stderr"
	echo "children: ${with[*]:-alone}"
	user fork "$mnt/a"
	echo "moves under stores: ${with[*]:-alone}"
	user moves "$mnt/a" b 20
done

echo "by mmap and by the library: one mapping"
truncate -s 1M "$mnt/a/a/both"
with=(rampfs-run)
user both "$mnt/a" "$mnt/a/a/both"

echo "received: armed, told once, mapped; others hear of it, too; a stranger hears of nothing"
for i in 1 2 3; do
	head -c 8M /dev/zero | tr '\0' "\\$i" >"$mnt/a/a/cache$i"
	chmod 600 "$mnt/a/a/cache$i"
done
"$build/tests/api_user" receive "$mnt/b" 3 >"$scratch/received" 2>"$scratch/err" &
receiver=$!
setpriv --reuid 65534 --regid 65534 --clear-groups "$build/tests/api_user" hears "$mnt/b" 2 >"$scratch/stranger" &
stranger=$!
"$build/tests/api_user" hears "$mnt/a" 6 >"$scratch/heard" &
hears=$!
within 20 grep -q armed "$scratch/received"
within 20 grep -q hears "$scratch/stranger"
within 20 grep -q hears "$scratch/heard"
for i in 1 2 3; do rampfs-migrate "$mnt/a/a/cache$i" b; done
wait $receiver || fail "the receiver: $(cat "$scratch/err")"
same "armed cache1 16843009 cache2 33686018 cache3 50529027" "$(paste -sd' ' "$scratch/received")" "what was received"
mv "$mnt/b/b/cache1" "$mnt/b/a/renamed"
within 20 grep -q "whole renamed" "$scratch/heard" # else that may come after the next event
mv "$mnt/a/a/both" "$mnt/a/b/" # all may read it
wait $stranger
same "hears arrived both a whole both a" "$(paste -sd' ' "$scratch/stranger")" "what a stranger hears at b"
wait $hears
same "hears left cache1 b left cache2 b left cache3 b arrived renamed b whole renamed b left both b" \
	"$(paste -sd' ' "$scratch/heard")" "what is heard at a"

echo "the daemon is killed: what was missed is told"
"$build/tests/api_user" hears "$mnt/a" 3 >"$scratch/heard" &
hears=$!
within 20 grep -q hears "$scratch/heard"
pkill -9 -f "rampfs --daemon .*$mnt/a\$"
within 20 grep -q missed "$scratch/heard"
mv "$mnt/b/b/cache2" "$mnt/b/a/"
wait $hears
same "hears missed   arrived cache2 b whole cache2 b" "$(paste -sd' ' "$scratch/heard")" "what is heard of two daemons"

echo "the destination of what is moving, a copy that is cancelled, and one whose daemon is killed"
with=()
head -c 300M /dev/urandom >"$mnt/a/a/big"
id=$(stat -c %i "$mnt/a/a/big")
slow_net 400mbit
mkfifo "$scratch/go"
"$build/tests/api_user" cancel "$mnt/a" "$id" b <"$scratch/go" >"$scratch/said" 2>"$scratch/err" &
user=$!
exec 7>"$scratch/go"
within 20 grep -q progress "$scratch/said"
same b "$(xattr "$mnt/a/a/big" target)" "the target of what is moving"
same b "$(rampfs-status --json "$mnt/c" | python3 -c 'import json, sys; print([s["target"] for s in json.load(sys.stdin)["segments"] if s["name"] == "big"][0])')" "the same in JSON"
echo >&7
exec 7>&-
wait $user || fail "cancel: $(cat "$scratch/err")"
same none "$(xattr "$mnt/a/a/big" target)" "the target of what stays"
: >"$scratch/said"
"$build/tests/api_user" wait "$mnt/a" "$id" b >"$scratch/said" 2>"$scratch/err" &
user=$!
within 20 grep -q progress "$scratch/said"
pkill -9 -f "rampfs --daemon .*$mnt/a\$"
fast_net
wait $user || fail "wait: $(cat "$scratch/err")"
within 20 test -e "$mnt/b/b/big"
cluster_stop
