#!/usr/bin/env bash
# Common tools on segments: local, another node's, half pulled, come back.
. tests/lib/cluster.sh
for tool in rsync tar cp find du df stat cmp; do command -v "$tool" >/dev/null || fail "$tool is not installed"; done
cluster_start -n 3 -c 512M
a=$mnt/a/a beside=$scratch/beside
mkdir "$beside"
field() { stat -c "$1" "$2"; }
# The view of a node that does not own a segment is at most a second old.
shows() { [ "$(field "$2" "$3")" = "$1" ]; }
used() { df -B1 --output=used "$1" | tail -n 1; }
df_of() { df -B1 --output=size,used,avail "$1" | tail -n 1; }
used_at_most() { [ "$(used "$1")" -le "$2" ]; }
blocks() { echo $(($(du -B1 "$1" | cut -f1))); }
# 96 MiB long: 3 MiB, a hole, 5 crooked bytes, a hole
dd if=/dev/urandom of="$beside/sparse" bs=1M count=3 status=none
printf 'tail!' | dd of="$beside/sparse" bs=1 seek=$((50 * 1024 * 1024 + 77)) conv=notrunc status=none
truncate -s 96M "$beside/sparse"
dd if=/dev/urandom of="$beside/whole" bs=1M count=48 status=none
touch "$beside/empty"
touch -d '2001-02-03 04:05:06' "$beside"/*
chmod 640 "$beside/sparse"
chown 12:34 "$beside/sparse"

echo "-- in: cp -a --sparse=always, rsync -S, tar -S"
before=$(used "$a")
cp -a --sparse=always "$beside/sparse" "$a/sparse"
rsync -a "$beside/whole" "$beside/empty" "$a/"
for f in sparse whole empty; do
	cmp "$beside/$f" "$a/$f"
	same "$(field '%s %Y %a %u %g' "$beside/$f")" "$(field '%s %Y %a %u %g' "$a/$f")" "stat of $f"
done
[ "$(blocks "$a/sparse")" -le $((8 * 1024 * 1024)) ] || fail "du: the sparse file takes $(blocks "$a/sparse") bytes"
same "$((48 * 1024 * 1024))" "$(blocks "$a/whole")" "du of the whole one"
same 0 "$(blocks "$a/empty")" "du of the empty one"
after=$(used "$a")
[ $((after - before)) -ge $((51 * 1024 * 1024)) ] && [ $((after - before)) -le $((60 * 1024 * 1024)) ] ||
	fail "df: $((after - before)) bytes more are used"
read -r size now free <<<"$(df_of "$a")"
same "$((512 * 1024 * 1024)) $after" "$size $now" "df: of 512 MiB, as much is used as before"
same "$size" "$((now + free))" "df: used and free space"
same "$(df_of "$a")" "$(df_of "$mnt/a/b")" "df of another node's directory: the store of the node that is asked"
[ "$(df_of "$mnt/b/a")" != "$(df_of "$a")" ] || fail "df on b shows what is used on a"
(cd "$beside" && tar -cSf "$scratch/in.tar" sparse)
rm "$a/sparse"
tar -C "$a" -xSf "$scratch/in.tar"
cmp "$beside/sparse" "$a/sparse"
[ "$(blocks "$a/sparse")" -le $((8 * 1024 * 1024)) ] || fail "tar -x -S made it whole"
rsync -a --checksum --itemize-changes "$beside"/* "$a/" >"$scratch/changes"
[ ! -s "$scratch/changes" ] || fail "rsync would copy files that are equal"

shape='%s %Y %a %u %g'
# Every reading tool, on the files of directory $1 (on its owner's mount)
out() {
	local dir=$1 got=$scratch/got
	rm -rf "$got" && mkdir "$got"
	cp -a --sparse=always "$dir/sparse" "$dir/whole" "$dir/empty" "$got/"
	diff -r "$beside" "$got"
	[ "$(blocks "$got/sparse")" -le $((8 * 1024 * 1024)) ] || fail "cp --sparse=always made a whole file of it"
	same "$(field "$shape" "$beside/sparse")" "$(field "$shape" "$got/sparse")" "what cp -a copied"
	cp "$dir/sparse" "$got/" # by default it finds holes with SEEK_HOLE
	cmp "$beside/sparse" "$got/sparse"
	[ "$(blocks "$got/sparse")" -le $((8 * 1024 * 1024)) ] || fail "cp makes a whole file of it"
	rm "$got"/*
	rsync -aS "$dir/" "$got/"
	diff -r "$beside" "$got"
	rm "$got"/*
	tar -C "$dir" -cf "$scratch/plain.tar" . && tar -C "$dir" -cSf "$scratch/sparse.tar" .
	for f in plain sparse; do
		tar -C "$got" -xpf "$scratch/$f.tar"
		diff -r "$beside" "$got"
		rm "$got"/*
	done
	[ "$(field %s "$scratch/sparse.tar")" -lt $((60 * 1024 * 1024)) ] || fail "tar -S does not see the holes"
	for f in sparse whole empty; do same "$(field "$shape" "$beside/$f")" "$(field "$shape" "$dir/$f")" "stat of $f"; done
}
# The view that any node has of directory $1
seen() {
	local dir=$1 f
	same "$(printf 'empty\nsparse\nwhole')" "$(cd "$dir" && find . -mindepth 1 -type f -printf '%P\n' | sort)" "find in $dir"
	for f in empty sparse whole; do
		within 3 shows "$(field "$shape" "$beside/$f")" "$shape" "$dir/$f"
	done
	same "-rw-r----- 1 12 34 100663296" "$(cd "$dir" && LC_ALL=C ls -ln sparse | awk '{print $1, $2, $3, $4, $5}')" "ls -l"
	same 1 "$(find "$dir" -type f -empty | wc -l)" "find -empty in $dir"
	[ "$(du -sB1 --apparent-size "$dir" | cut -f1)" -ge $((144 * 1024 * 1024)) ] || fail "du --apparent-size of $dir"
	touch -d '2001-02-03 04:05:05' "$scratch/older"
	touch -d '2001-02-03 04:05:07' "$scratch/younger"
	same 3 "$(find "$dir" -type f -newer "$scratch/older" | wc -l)" "find -newer in $dir"
	same 0 "$(find "$dir" -type f -newer "$scratch/younger" | wc -l)" "find -newer in $dir"
}

echo "-- local"
out "$a"
seen "$a"

echo "-- another node's"
seen "$mnt/b/a"
refused "Object is remote" cp "$mnt/b/a/whole" "$scratch/no"
refused "Object is remote" dd if="$mnt/b/a/sparse" of=/dev/null status=none
if tar -C "$mnt/b/a" -cf "$scratch/no.tar" . 2>"$scratch/err"; then fail "tar read another node's segments"; fi
grep -q 'remote' "$scratch/err" || fail "tar said: $(cat "$scratch/err")"
refused "Object is remote" cp "$beside/whole" "$mnt/b/a/new"

echo "-- half pulled"
rampfs-migrate --mode demand "$a/sparse" "$a/whole" "$a/empty" b
b=$mnt/b/b
within 5 test -e "$b/empty"
dd if="$b/whole" of="$scratch/part" bs=1M skip=20 count=5 status=none
cmp -n $((5 * 1024 * 1024)) -i $((20 * 1024 * 1024)):0 "$beside/whole" "$scratch/part"
same pulling "$(xattr "$b/whole" state)" "the state after a part was read"
echo "-- written in the middle of a pull: that time is the time of change"
touch "$scratch/before_write"
sleep 0.05 # times are those of the kernel's last tick
dd if="$beside/whole" of="$b/whole" bs=4096 count=1 conv=notrunc status=none
[ "$b/whole" -nt "$scratch/before_write" ] || fail "a write while pages were coming left the time of change"
touch -d '2001-02-03 04:05:06' "$b/whole"
same pulling "$(xattr "$b/whole" state)" "the state after a part was written"
echo "-- all of it, while it is pulled"
seen "$b"
out "$b"
seen "$mnt/c/b"
[ "$(blocks "$b/sparse")" -le $((10 * 1024 * 1024)) ] || fail "du: the move made the sparse file take $(blocks "$b/sparse")"

echo "-- back, and df as before"
rampfs-migrate --wait "$b/sparse" "$b/whole" "$b/empty" a
within 5 test -e "$a/empty"
out "$a"
seen "$a"
echo "-- written just before a move: the time of that write moves along"
touch "$scratch/before_write"
printf x | dd of="$a/empty" conv=notrunc status=none
written=$(stat -c %y "$a/empty")
rampfs-migrate --wait "$a/empty" b
within 5 test -e "$b/empty"
same "$written" "$(stat -c %y "$b/empty")" "the time of a write just before a move"
rampfs-migrate --wait "$b/empty" a
within 5 test -e "$a/empty"
within 5 used_at_most "$mnt/b" $((4 * 1024 * 1024))
echo "-- to and fro: the time of the last access moves along each time"
touch -a -d '2001-02-03 04:05:06' "$a/empty"
accessed=$(stat -c %x "$a/empty") at=a
within 5 shows "$accessed" %x "$mnt/b/a/empty"
for to in b a b a; do
	within 5 test -e "$mnt/$at/$at/empty"
	rampfs-migrate --wait "$mnt/$at/$at/empty" $to
	at=$to
	within 5 shows "$accessed" %x "$mnt/$at/$at/empty"
	same "$written" "$(stat -c %y "$mnt/$at/$at/empty")" "the time of the last write, at $at"
done
rm "$a"/*
within 5 used_at_most "$a" "$((before + 1024 * 1024))"

echo "-- removed by another node, under a name that its owner knew and one that it didn't: memory is free"
empty=$(used "$a")
cp "$beside/whole" "$a/whole"
cp "$beside/whole" "$a/renamed"
exec 7<"$a/whole"
within 5 test -e "$mnt/b/a/renamed"
mv "$mnt/b/a/renamed" "$mnt/b/a/otherwise"
rm "$mnt/b/a/whole" "$mnt/b/a/otherwise"
# no look at the names on the owner's mount from here on
within 10 used_at_most "$a" "$((empty + 49 * 1024 * 1024))"
cmp "$beside/whole" - <&7
exec 7<&-
within 10 used_at_most "$a" "$((empty + 1024 * 1024))"
cluster_stop
