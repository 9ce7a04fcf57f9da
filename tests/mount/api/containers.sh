#!/usr/bin/env bash
# C++ objects that move between nodes: ramp_container.hpp and ramp_host.hpp (container_user.cpp), by themselves and
# under rampfs-run; and the examples in C++, built by pkg-config from an installed tree.
. tests/lib/cluster.sh
. tests/lib/holder.sh
cluster_start -n 2 -c 1G

for with in "" rampfs-run; do
	echo "containers and hosts: ${with:-alone}"
	# shellcheck disable=SC2086
	timeout -k 5 120 $with "$build/tests/container_user" "$mnt/a" "$mnt/b" 2>"$scratch/err" || fail "container_user: $(cat "$scratch/err")"
	rm -f "$mnt"/?/?/*
done

echo "the examples, from an installed tree"
cmake --install "$built" --prefix "$scratch/installed" >"$scratch/install.log" || fail "$(tail "$scratch/install.log")"
PKG_CONFIG_PATH=$(dirname "$(find "$scratch/installed" -name libramp.pc)")
export PKG_CONFIG_PATH
LD_LIBRARY_PATH=$(pkg-config --variable=libdir libramp)
export LD_LIBRARY_PATH
for example in pingpong vector table; do
	# shellcheck disable=SC2046
	c++ -std=c++17 -pedantic -Wall -Wextra -Werror "contrib/examples/$example.cpp" -o "$scratch/$example" $(pkg-config --cflags --libs libramp) -pthread &
done
wait
on() { RAMPFS_MOUNT=$mnt/$1 timeout -k 5 60 "$scratch/$2" "${@:3}"; }

echo "pingpong"
on b pingpong a 5 >"$scratch/b" 2>"$scratch/err" &
other=$!
within 20 grep -q waits "$scratch/b"
on a pingpong b 5 begin >"$scratch/a"
wait $other || fail "$(cat "$scratch/err")"
same "node a begins node a has a ball that was caught 5 times" "$(paste -sd' ' "$scratch/a")" "the player that begins"
same "node b waits node b has a ball that was caught 5 times" "$(paste -sd' ' "$scratch/b")" "the other player"

echo "vector"
on b vector --receive >"$scratch/b" &
other=$!
within 20 grep -q waits "$scratch/b"
on a vector b
wait $other
same "node b waits the sum of 4000000 numbers is 7999998000000" "$(paste -sd' ' "$scratch/b")" "the receiver"

echo "table"
holder_program=("$scratch/table")
for n in a b; do holder $n env RAMPFS_MOUNT="$mnt/$n"; done
answers() { [ "$(ask "$1" "${@:3}")" = "$2" ]; } # node, answer, words
says() { same "$2" "$(ask "$1" "${@:3}")" "node $1: ${*:3}"; }
says a made make fruit
says a put put fruit apple red
says a moved move fruit b
within 20 answers b fruit list
says a "fruit is not here" get fruit apple
says b red get fruit apple
says b put put fruit banana yellow
says b "nowhere: no such node: nowhere" move fruit nowhere
says b moved move fruit a
within 20 answers a fruit list
says a yellow get fruit banana
says a none get fruit cherry
bye a
bye b
# Another process finds them.
holder a env RAMPFS_MOUNT="$mnt/a"
says a red get fruit apple
bye a

echo "the manual's examples, with the heap alone, from an installed tree"
# Those that are built with a sanitizer cannot take the archive.
heap=ramp-heap
! nm "$(pkg-config --variable=libdir ramp-heap)/libramp-heap.a" | grep -q __asan_init || heap=libramp
manual() { sed -n '/^```$/,/^```$/{/^```$/d;s/\\\\/\\/g;p}' "contrib/man/$1.3.scd" | sed "s,/mnt/ramp/a,\$mnt/$2/$2,;s,\$mnt,$mnt,"; }
manual ramp_heap a >"$scratch/list.c"
for n in a b; do manual ramp_containers $n >"$scratch/index_$n.cpp"; done
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror "$scratch/list.c" -o "$scratch/list" $(pkg-config --cflags --libs $heap)
for n in a b; do
	# shellcheck disable=SC2046
	c++ -std=c++17 -Wall -Wextra -Werror "$scratch/index_$n.cpp" -o "$scratch/index_$n" $(pkg-config --cflags --libs $heap)
done
run=$scratch/installed/bin/rampfs-run
for _ in 1 2; do same hello "$("$run" "$scratch/list")" "the example of ramp_heap(3)"; done
same "1 runs" "$("$run" "$scratch/index_a")" "the example of ramp_containers(3)"
mv "$mnt/a/a/index" "$mnt/a/b/"
within 20 test -e "$mnt/b/b/index"
same "2 runs" "$("$run" "$scratch/index_b")" "the example of ramp_containers(3), on node b"

echo "what cannot move does not compile"
stays() {
	local out
	# shellcheck disable=SC2046
	out=$(printf '#include <ramp.hpp>\nstruct v { virtual void f() {} };\n%s\n' "$1" |
		c++ -std=c++17 -fsyntax-only $(pkg-config --cflags ramp-heap) -x c++ - 2>&1) && fail "it compiles: $1"
	case $out in *"virtual functions, code and ordinary memory do not move with a segment"*) ;; *) fail "$1: $out" ;; esac
}
stays 'void f(ramp::vector<v> &x) { x.resize(1); }'
stays 'void f(ramp::scoped::list<void (*)()> &x) { x.push_back(nullptr); }'
stays 'void f(ramp_heap *heap) { ramp::mig_ptr<ramp::map<int, std::string>>::make(heap); }'
cluster_stop
