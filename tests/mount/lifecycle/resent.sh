#!/usr/bin/env bash
# Requests to a daemon that ends before it answers them: each is done only once, or not at all.
. tests/lib/cluster.sh
export HOLD_MOUNT=$mnt/a HOLD_FILE=$scratch/hold
# The library comes before AddressSanitizer's.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
LD_PRELOAD=$build/tests/libhold.so cluster_start -n 3 -c 256M
a=$mnt/a
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
keeper() { pgrep -f -- "^rampfs -o .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
size_of() { [ "$(stat -c %s "$1")" = "$2" ]; }
says() { grep -q "$2" "$mnt/$1/.ramp/status"; }
# Makes one system call in the background; its result is in $scratch/answer.
ask() {
	rm -f "$scratch/answer"
	python3 -c '
import os, sys
try:
    if sys.argv[1] == "append":
        f = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
        print(os.write(f, b"once more\n"))
    elif sys.argv[1] == "deadly":
        f = os.open(sys.argv[2], os.O_WRONLY | int(sys.argv[3]))
        print(os.write(f, b"deadly"))
    else:
        print(os.rename(sys.argv[2], sys.argv[3]))
except OSError as e:
    print(e.strerror)
' "$@" >"$scratch/answer.new" && mv "$scratch/answer.new" "$scratch/answer" &
}
answered() {
	within 60 test -e "$scratch/answer"
	same "$1" "$(cat "$scratch/answer")" "$2"
}

echo "an append that was done, when the segment has left meanwhile"
printf 'begun\n' >"$a/a/log"
touch "$HOLD_FILE"
ask append "$a/a/log"
within 20 size_of "$a/a/log" 16
rampfs-migrate "$a/a/log" b
kill -9 "$(daemon a)"
rm "$HOLD_FILE"
answered 10 "the append"
same "begun once more" "$(tr '\n' ' ' <"$mnt/b/b/log" | sed 's/ $//')" "the appended lines"

echo "a write of which every daemon dies: neither others nor its caller wait for ever"
trap 'status=$?; rm -f "$HOLD_FILE.deadly"; cluster_cleanup $status' EXIT
for how in 0 1024; do # O_APPEND
	printf 'begun\n' >"$a/a/poisoned"
	touch "$HOLD_FILE.deadly"
	ask deadly "$a/a/poisoned" $how
	within 20 test -e "$HOLD_FILE.held"
	echo innocent >"$a/a/innocent"
	answered "Input/output error" "the deadly write"
	rm "$HOLD_FILE.deadly" "$HOLD_FILE.held"
	same innocent "$(cat "$a/a/innocent")" "the file written meanwhile"
	same begun "$(cat "$a/a/poisoned")" "the file after the deadly write"
	printf 'after\n' >>"$a/a/poisoned"
	same "begun after" "$(tr '\n' ' ' <"$a/a/poisoned" | sed 's/ $//')" "the line appended behind it"
done
within 20 grep -q "8 daemons in a row have died of request .* of process .*: it is answered EIO" "$scratch/cluster/a.log"
for _ in 1 2 3 4 5 6 7 8 9 10; do
	was=$(daemon a)
	kill -9 "$was"
	within 20 another_daemon a "$was"
	echo still >"$a/a/innocent"
done
[ "$(grep -c 'answered EIO' "$scratch/cluster/a.log")" = 2 ] || fail "others were answered EIO, too"

# A silent target keeps a move waiting. The cluster agrees without it, if another node leads.
target=b other=c
says a '^leader: *b' && target=c other=b
silence() { kill -STOP "$(daemon $target)"; }
speak() { kill -CONT "$(daemon $target)"; }
trap 'status=$?; speak || true; cluster_cleanup $status' EXIT

echo "a move whose segment is gone, and whose name another segment has at the target"
touch "$a/a/gone" "$mnt/$target/$target/another"
within 20 says a " $target/another "
silence
ask rename "$a/a/gone" "$a/$target/name"
within 20 says a connecting
rm "$mnt/$other/a/gone"
mv "$mnt/$other/$target/another" "$mnt/$other/$target/name"
within 20 says a " $target/name "
kill -9 "$(daemon a)"
answered "No such file or directory" "the move"
speak

# The daemon is killed when it has the result, before it tells any caller. No program reads there
# meanwhile: the end of a file is an answer like that one.
lose() { rm -f "$HOLD_FILE.held" && touch "$HOLD_FILE.lost"; }
kill_it() {
	kill -9 "$(daemon a)"
	rm "$HOLD_FILE.lost"
}

echo "a move that was done"
echo moved >"$a/a/done"
lose
ask rename "$a/a/done" "$a/$other/done"
within 20 test -e "$HOLD_FILE.held"
kill_it
answered None "the move that was done"
same moved "$(cat "$mnt/$other/$other/done")" "the moved segment"

echo "a move that was refused, when the move under way has taken the segment elsewhere"
touch "$a/a/taken"
silence
rampfs-migrate "$a/a/taken" $target &
faster=$!
within 20 says a connecting
lose
ask rename "$a/a/taken" "$a/$other/taken"
within 20 test -e "$HOLD_FILE.held"
speak
wait $faster
kill_it
answered "No such file or directory" "the move that was refused"
test -e "$mnt/$target/$target/taken"

echo "a move whose daemon hands over to the next, requested here and on another node"
for asker in a $other; do
	touch "$a/a/$asker"
	within 20 test -e "$mnt/$asker/a/$asker"
	silence
	ask rename "$mnt/$asker/a/$asker" "$mnt/$asker/$target/$asker"
	within 20 says a connecting
	was=$(daemon a)
	kill -HUP "$(keeper a)"
	within 20 another_daemon a "$was"
	speak
	answered None "the move that $asker asked for"
	within 20 test -e "$mnt/$target/$target/$asker"
done
cluster_stop
