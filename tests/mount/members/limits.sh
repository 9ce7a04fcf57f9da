#!/usr/bin/env bash
# The limits of a cluster: 64 nodes, an arena that is full, and what each user may have of it.
. tests/lib/cluster.sh
export LC_ALL=C
port=""
pick() { # a free port; below the kernel's range for outgoing connections
	while :; do
		port=$((10000 + (RANDOM * 32768 + RANDOM) % 20000))
		grep -qs ":$port\$" "$scratch/big.conf" && continue
		(: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
	done
}
run=(0 1 2 3 4 63) # the nodes that are started
sees() { [ "$(grep -c ' up ' "$scratch/m$1/.ramp/nodes" 2>/dev/null)" = ${#run[@]} ]; }
down() {
	local status=$? i
	set +e
	for i in "${run[@]}"; do umount "$scratch/m$i" 2>/dev/null; done
	# A test in a mount namespace of its own may hold copies of these mounts: the nodes end all the same.
	pkill -TERM -f -- "^rampfs -o log=$scratch/n"
	for i in "${run[@]}"; do
		[ -d "$scratch/s$i" ] || continue
		flock -w 20 "$scratch/s$i/lock" rampfs --destroy --force "$scratch/s$i" 2>/dev/null ||
			rampfs --destroy --force "$scratch/s$i" || status=1
	done
	cluster_cleanup $status
}
trap down EXIT

echo "64 nodes: each can be made, some are started, one more is too many"
{
	printf '[cluster]\nname=big\n'
	for i in {0..63}; do
		pick
		printf '[node n%d]\naddress=127.0.0.1:%d\ncapacity=64M\n' "$i" "$port"
	done
} >"$scratch/big.conf"
for i in {0..63}; do
	mkfs.rampfs --config "$scratch/big.conf" --node "n$i" "$scratch/s$i" >/dev/null
done
for i in "${run[@]}"; do
	mkdir "$scratch/m$i"
	rampfs -o "log=$scratch/n$i.log" "$scratch/s$i" "$scratch/m$i" &
done
for i in "${run[@]}"; do within 30 sees "$i"; done
same 64 "$(find "$scratch/m63" -mindepth 1 -maxdepth 1 ! -name .ramp | wc -l)" "directories"
same "5 59" "$(rampfs-node -m "$scratch/m3" list | awk '{ n[$2]++ } END { print n["voter"], n["standby"] }')" "voters and standbys"
echo hello >"$scratch/m63/n63/f"
mv "$scratch/m2/n63/f" "$scratch/m2/n1/f"
within 5 grep -q hello "$scratch/m1/n1/f"
refused "No route to host" mv "$scratch/m2/n1/f" "$scratch/m2/n40/f"
same hello "$(cat "$scratch/m1/n1/f")" "after a move to a node that never was up"
refused "as many nodes as it can (64)" rampfs-node -m "$scratch/m0" add n64 127.0.0.1:9 1G

echo "an arena that is full: ENOMEM, the reason on stderr, and room again after an unlink"
cluster_start -n 1 -c 256M -A 0x200000000000:128M
map='import mmap, sys
f = open(sys.argv[1], "r+b")
mmap.mmap(f.fileno(), 0)[0] = 65'
for i in 1 2 3; do head -c 100000 /dev/zero >"$mnt/a/a/f$i"; done
rampfs-run python3 -c "$map" "$mnt/a/a/f1"
rampfs-run python3 -c "$map" "$mnt/a/a/f2"
refused "rampfs: mmap: the cluster's arena has no free range that is large enough" rampfs-run python3 -c "$map" "$mnt/a/a/f3"
refused "[Errno 12]" rampfs-run python3 -c "$map" "$mnt/a/a/f3"
rampfs-run python3 -c "$map" "$mnt/a/a/f2" # a segment with an extent continues to work
echo B | dd of="$mnt/a/a/f3" conv=notrunc status=none && same B "$(head -c 1 "$mnt/a/a/f3")" "a segment that is not mapped works"
rm "$mnt/a/a/f1"
mapped() { rampfs-run python3 -c "$map" "$mnt/a/a/f3" 2>/dev/null; }
within 10 mapped
same A "$(head -c 1 "$mnt/a/a/f3")" "the byte that the mapping wrote"
cluster_stop

echo "what one user's segments have of the arena is bounded: EDQUOT, and the reason on stderr"
cluster_start -n 2 -c 256M -A 0x200000000000:1G
user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
as_user() { "${user[@]}" rampfs-run python3 -c "$map" "$mnt/a/a/$1"; }
make() { # NAME [EXTENT]: a segment of that user
	"${user[@]}" sh -c "head -c 100000 /dev/zero >'$mnt/a/a/$1'"
	[ -z "${2-}" ] || "${user[@]}" setfattr -n user.ramp.extent -v "$2" "$mnt/a/a/$1"
}
value() { sed -n "s/^rampfs_$2 //p" "$mnt/$1/.ramp/metrics"; }
is() { [ "$(value "$1" "$2")" = "$3" ]; }
used='arena_user_bytes{uid="65534"}'
for n in a b; do within 20 is $n metadata_level 3; done
same 134217728 "$(value b arena_user_max_bytes)" "an eighth of the arena"
for i in 1 2 3; do make u$i; done
as_user u1
as_user u2
why="rampfs: mmap: the segments of user 65534 would have more than 128 MiB of addresses; unlink some that were mapped"
refused "$why" as_user u3
refused "[Errno 122]" as_user u3
same none "$(xattr "$mnt/a/a/u3" addr)" "the address of what was refused"
as_user u1 # it has its extent
within 5 is b "$used" 134217728
rampfs-run python3 -c "$map" "$mnt/a/a/u3" 2>/dev/null && fail "root maps the user's segment beyond the bound"
for i in 1 2 3; do head -c 100000 /dev/zero >"$mnt/a/a/r$i" && rampfs-run python3 -c "$map" "$mnt/a/a/r$i"; done

echo "an unlinked segment counts while it is mapped, and its addresses are given out again"
addr=$(xattr "$mnt/a/a/u2" addr)
mkfifo "$scratch/held"
"${user[@]}" rampfs-run python3 -c "$map
print('mapped', flush=True)
m = mmap.mmap(f.fileno(), 0)
sys.stdin.read()" "$mnt/a/a/u2" <"$scratch/held" >"$scratch/mapped" &
exec 7>"$scratch/held"
within 20 grep -q mapped "$scratch/mapped"
rm "$mnt/a/a/u2"
refused "[Errno 122]" as_user u3
exec 7>&-
wait $!
now_user() { as_user "$1" 2>/dev/null; }
within 20 now_user u3
same "$addr" "$(xattr "$mnt/a/a/u3" addr)" "the address that was free again"
is b "$used" 134217728 || within 5 is b "$used" 134217728

echo "rampfs-node set, by root, with a value that makes sense, and known to all nodes"
refused "only root may change" "${user[@]}" rampfs-node -m "$mnt/b" set arena-user-max 1G
refused "there is no such setting" rampfs-node -m "$mnt/b" set arena 1G
refused "not a size like 512M or 8G, nor default" rampfs-node -m "$mnt/b" set arena-user-max half
refused "less than 64M" rampfs-node -m "$mnt/b" set arena-user-max 1M
rampfs-node -m "$mnt/b" set arena-user-max 640M
within 5 is a arena_user_max_bytes 671088640
echo "an extent that was asked for is taken as it is"
make big 512M
"${user[@]}" truncate -s 400M "$mnt/a/a/big"
as_user big
same 536870912 "$(xattr "$mnt/a/a/big" extent)" "the extent of 400 MiB that asked for 512"
rampfs-status "$mnt/b" | grep -qE '^arena: .* given of 1\.0 GiB, at most 640\.0 MiB a user$' || fail "$(rampfs-status "$mnt/b")"
rampfs-node -m "$mnt/a" set arena-user-max default
within 5 is b arena_user_max_bytes 134217728
make more
refused "[Errno 122]" as_user more
as_user big
cluster_stop
echo "limits: all well"
