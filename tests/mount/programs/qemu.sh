#!/usr/bin/env bash
# contrib/recipes/qemu as its page has it: a guest moves there and back, and by pre-copy; all that it stored is
# right. And where mv is refused the guest continues. Exit status 77, with a line, where QEMU can't be had.
. tests/lib/cluster.sh
recipe=contrib/recipes/qemu
timeout 100 $recipe/prepare --install >"$scratch/prepared" 2>&1 || {
	echo "SKIPPED: no QEMU guest can be had here: $(tail -n 1 "$scratch/prepared")"
	exit 77
}
# The page's commands, but for what builds and installs.
awk '/^```/ { fence++; next } fence == 3' $recipe/README.md | sed "/prepare/d; s|/tmp/ramp|$scratch/cluster|;
	s|^contrib/local-cluster stop|ln $scratch/cluster/?.log $scratch; &|" >"$scratch/commands"
same "start move-guest stop" "$(grep -oE 'start|stop|move-guest' "$scratch/commands" | xargs)" "the commands of the page"
cluster_up=yes
bash -eux "$scratch/commands" >"$scratch/said" 2>&1 || fail "the page's commands: $(cat "$scratch/said")"
cat "$scratch/said"
same 3 "$(grep -cE '^(rampfs|pre-copy) +(a to b|b to a) +yes ' "$scratch/said")" "moves that were right"
same 1 "$(grep -c '^3 of 3 moves right; ' "$scratch/said")" "lines that say so"
! anything_reported || exit 1

echo "mv is refused: the guest stays where it is"
cluster_start -n 2
touch "$mnt/b/b/guest"
refused "The guest continues on node a, after " $recipe/move-guest "$scratch/cluster"
[ ! -e "$mnt/a/a/guest" ] && [ -e "$mnt/b/b/guest" ] || fail "what is left: $(ls "$mnt/a"/?)"
cluster_stop
echo "qemu: all as it should be"
