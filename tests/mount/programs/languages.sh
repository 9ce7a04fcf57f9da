#!/usr/bin/env bash
# Programs in several languages, whose files move between nodes while they run and between their runs:
# C++ (Boost.Interprocess; the heap in a segment), numpy, Perl, Java.
#   languages.sh cxx|heap|numpy|perl|java
. tests/lib/cluster.sh
. tests/lib/holder.sh
cluster_start -n 3 -c 256M
a=$mnt/a b=$mnt/b c=$mnt/c
quietly() { "$@" 2>/dev/null; }
# Moves a file to a node, from the node that has it: as soon as the last move is over.
to() {
	local n from=""
	for n in a b c; do [ ! -e "$mnt/$n/$n/$2" ] || from=$n; done
	within 10 quietly mv "$mnt/$from/$from/$2" "$mnt/$from/$1/"
	within 10 test -e "$mnt/$1/$1/$2"
}

cxx_() {
	local user=$build/tests/boost_user at
	at=$(rampfs-run "$user" make "$a/a/f" 20000)
	case $at in 0x20*) ;; *) fail "it is mapped at $at" ;; esac
	to b f
	same "$at" "$(rampfs-run "$user" check "$b/b/f" 20000)" "the map's address on b"
	same "$at" "$(rampfs-run "$user" make "$b/b/f" 50000)" "the map's address on b"
	to c f
	same "$at" "$(rampfs-run "$user" check "$c/c/f" 50000)" "the map's address on c"
}

heap_() {
	local user=$build/tests/heap_user from=b at before pid
	at=$(rampfs-run "$user" make "$a/a/f" 20000)
	case $at in 0x20*) ;; *) fail "it is mapped at $at" ;; esac
	to b f
	same "$at" "$(rampfs-run "$user" check "$b/b/f" 20000)" "the heap's address on b"
	# It is killed in the middle of a call, and what was cut off is undone on another node.
	for n in c a b; do
		rampfs-run "$user" busy "$mnt/$from/$from/f" 0 >"$scratch/busy" &
		pid=$!
		within 10 grep -q busy "$scratch/busy"
		kill -9 $pid
		wait $pid 2>/dev/null || true
		to $n f
		from=$n
		same "$at" "$(rampfs-run "$user" check "$mnt/$n/$n/f" 20000)" "the heap's address on $n"
	done
	# Pages without blocks do not travel.
	before=$(stat -c %b "$b/b/f")
	same "$at" "$(rampfs-run "$user" drop "$b/b/f" 100)" "the heap's address on b"
	to c f
	[ "$(stat -c %b "$c/c/f")" -lt $((before / 3)) ] || fail "$(stat -c %b "$c/c/f") blocks of $before came"
	same "$at" "$(rampfs-run "$user" check "$c/c/f" 100)" "the heap's address on c"
}

numpy_() {
	cat >"$scratch/n.py" <<'P'
import sys
import numpy as np
mode, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
shape = (2048, 1024)
m = np.memmap(path, dtype=np.float64, mode="w+" if mode == "make" else "r+", shape=shape)
if mode == "make":
    m[:] = np.arange(shape[0] * shape[1], dtype=np.float64).reshape(shape)
want = np.arange(shape[0] * shape[1], dtype=np.float64).reshape(shape)
for _ in range(rounds):
    want = want[::-1] * 3 + 1
assert np.array_equal(m, want)
m[:] = m[::-1] * 3 + 1
m.flush()
P
	rampfs-run /usr/bin/python3 "$scratch/n.py" make "$a/a/f" 0
	to b f
	rampfs-run /usr/bin/python3 "$scratch/n.py" go "$b/b/f" 1
	to c f
	rampfs-run /usr/bin/python3 "$scratch/n.py" go "$c/c/f" 2
}

perl_() {
	# File::Map for writing, PerlIO's own :mmap for reading.
	cat >"$scratch/p.pl" <<'P'
use strict; use warnings; use File::Map "map_file";
my ($mode, $path) = @ARGV;
map_file my $map, $path, "+<";
for my $i (0 .. 1023) {
	my $text = sprintf "page %d of perl", $i;
	if ($mode eq "make") { substr($map, $i * 4096, length $text) = $text }
	elsif (substr($map, $i * 4096, length $text) ne $text) { die "page $i is not right" }
}
open my $in, "<:mmap", $path or die $!;
read $in, my $first, 14 or die $!;
die "by :mmap: $first" unless $first eq "page 0 of perl";
P
	truncate -s 4M "$a/a/f"
	rampfs-run perl "$scratch/p.pl" make "$a/a/f"
	for n in b c a; do
		to $n f
		rampfs-run perl "$scratch/p.pl" check "$mnt/$n/$n/f"
	done
}

java_() {
	cat >"$scratch/Holder.java" <<'J'
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;

class Holder {
	public static void main(String[] args) throws Exception {
		MappedByteBuffer map;
		try (FileChannel c = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
			map = c.map(FileChannel.MapMode.READ_WRITE, 0, 4 << 20);
		}
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = in.readLine()) != null; System.out.flush()) {
			String[] word = line.split(" ");
			try {
				if (word[0].equals("put")) {
					map.putLong(Integer.parseInt(word[1]), Long.parseLong(word[2]));
					map.force();
					System.out.println("yes");
				} else {
					System.out.println(map.getLong(Integer.parseInt(word[1])));
				}
			} catch (InternalError e) { // how the JVM says SIGBUS
				System.out.println("gone");
			}
		}
	}
}
J
	truncate -s 4M "$a/a/f"
	javac -d "$scratch" "$scratch/Holder.java"
	holder_program=(java -Xshare:auto -XX:+UseSerialGC -Xmx64m -cp "$scratch" Holder "$a/a/f")
	holder one rampfs-run
	same yes "$(ask one put 8192 42)" "a store"
	same 42 "$(ask one get 8192)" "a load"
	to b f
	same gone "$(ask one get 8192)" "a load from a segment that has left"
	same 42 "$(dd if="$b/b/f" bs=8 skip=1024 count=1 status=none | od -An -t d8 --endian=big | tr -d ' ')" "the store, on b"
	printf 'x' | dd of="$b/b/f" bs=1 seek=8199 conv=notrunc status=none
	to a f
	is_back() { [ "$(ask one get 8192)" = 120 ]; }
	within 10 is_back
	same yes "$(ask one put 16384 7)" "a store after it came back"
	bye one
	same 7 "$(dd if="$a/a/f" bs=8 skip=2048 count=1 status=none | od -An -t d8 --endian=big | tr -d ' ')" "that store"
}

"${1}_"
cluster_stop
echo "$1: as it should be"
