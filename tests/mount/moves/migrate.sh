#!/usr/bin/env bash
# rampfs-migrate for people: the bar on a terminal, several files, Ctrl-C once and twice, exit statuses.
. tests/lib/cluster.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
says() { grep -q "$2" "$1"; }
hung=""
hang() { hung="$hung $(daemon "$1")" && kill -STOP "$(daemon "$1")"; }
wake() {
	# shellcheck disable=SC2086
	kill -CONT $hung
	hung=""
}
# exits STATUS COMMAND...: its stderr is in $scratch/err
exits() {
	local want=$1 status=0
	shift
	timeout -k 1 30 "$@" 2>"$scratch/err" >"$scratch/out" || status=$?
	same "$want" $status "the exit status of $* ($(cat "$scratch/err"))"
}
ends() {
	local status=0
	wait $mover || status=$?
	same "$1" $status "the exit status ($(cat "$scratch/err"))"
}
cluster_start -n 3 -c 512M
a=$mnt/a/a

echo "a name that another user chose controls no terminal, in our lines and in the daemon's"
odd=$a/$'\e]0;x\a\xc2\x9b'
: >"$odd"
exits 1 rampfs-migrate "$odd" nowhere
says "$scratch/err" '/\\x1b\]0;x\\x07\\xc2\\x9b: no such node: nowhere$' || fail "migrate shows: $(cat -v "$scratch/err")"
refused "segments are still at a (\\x1b]0;x\\x07\\xc2\\x9b)" rampfs-node -m "$mnt/b" remove a
rm "$odd"

echo "on a terminal: one line that is drawn again and again, with pages, GB/s and time left"
head -c 200M /dev/urandom >"$a/large"
cat >"$scratch/terminal.py" <<'P'
import fcntl, os, pty, re, signal, struct, subprocess, sys, termios, time
# Runs the command in a terminal of that many columns; while its source is stopped it can be seen half-way.
daemon, columns = int(sys.argv[1]), int(sys.argv[2])
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execvp(sys.argv[3], sys.argv[3:])
seen, stopped, until = b"", False, time.monotonic() + 60
while time.monotonic() < until:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
    if not stopped and b"pages" in seen:
        stopped = True
        os.kill(daemon, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(daemon, signal.SIGCONT)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
drawn = seen.decode().split("\r\x1b[K")
if columns:
    assert status == 0 and all(len(line) < columns for line in drawn[1:-1]), (columns, drawn)
    assert any(re.match(r"\.\.\.\S*large( \[[#.]{8,}\])? \d+ %  \d+ of", line) for line in drawn), drawn
    sys.exit()
bar = re.compile(r"\S*large \[([#.]{24})\] (\d+) %  (\d+) of 51200 pages(?:  (\d+\.\d\d) GB/s  (\d+) s left)?")
bars = [m for m in map(bar.fullmatch, drawn) if m]
assert status == 0 and bars, (status, drawn)
assert any(m[4] for m in bars), drawn
last = -1
for m in bars:
    assert int(m[2]) == int(m[3]) * 100 // 51200 and m[1].count("#") == int(m[3]) * 24 // 51200, m[0]
    assert int(m[3]) >= last, drawn
    last = int(m[3])
assert re.fullmatch(r"\S*large: on node b with every page after \d+\.\d{3} s\r\n", drawn[-1]), drawn[-1]
P
python3 "$scratch/terminal.py" "$(daemon a)" 0 rampfs-migrate --progress --wait "$a/large" b
for columns in 80 60; do
	long=$mnt/a/a/$(printf 'a-long-name-%.0s' {1..20})large
	rampfs-migrate --wait "$mnt/b/b/large" a
	mv "$a/large" "$long"
	python3 "$scratch/terminal.py" "$(daemon a)" $columns rampfs-migrate --progress --wait "$long" b
	mv "$mnt/b/b/${long##*/}" "$mnt/b/b/large"
done
rampfs-migrate --wait "$mnt/b/b/large" a
rm "$mnt/a/a/large"

echo "exit statuses and messages"
echo one >"$a/one" && echo two >"$a/two"
exits 2 rampfs-migrate
exits 2 rampfs-migrate "$a/one"
says "$scratch/err" 'FILE and a NODE are needed' || fail "$(cat "$scratch/err")"
for option in "--mode copy" --wait --trace; do
	# shellcheck disable=SC2086
	exits 2 rampfs-migrate --reclaim $option "$a/one"
done
exits 2 rampfs-migrate --mode fast "$a/one" b
exits 1 rampfs-migrate "$a/one" nowhere
says "$scratch/err" 'one: .*no such node: nowhere' || fail "$(cat "$scratch/err")"
exits 1 rampfs-migrate "$scratch/err" b
says "$scratch/err" 'is not on a rampfs mount' || fail "$(cat "$scratch/err")"
exits 1 rampfs-migrate "$mnt/a/.ramp/status" b
says "$scratch/err" 'is not a segment' || fail "$(cat "$scratch/err")"
exits 1 rampfs-migrate "$a/none" "$a/one" b
within 5 test -e "$mnt/b/b/one" # the others are moved all the same
exits 0 rampfs-migrate "$mnt/b/b/one" b # it is there already
exits 0 rampfs-migrate --wait "$mnt/b/b/one" "$mnt/b/a/two" c
same "one two" "$(cat "$mnt/c/c/one" "$mnt/c/c/two" | xargs)" "two files at once"
rampfs-migrate --wait "$mnt/c/c/one" "$mnt/c/c/two" a

echo "closed outputs: the daemon gets no line that was meant for them"
exits 0 rampfs-migrate --progress --wait "$a/one" b
rampfs-migrate --progress --wait "$mnt/b/b/one" a 2>&- || fail "without stderr: exit status $?"
for to in '&-' /dev/full; do
	exits 1 sh -c "rampfs-migrate --trace '$a/one' b >$to"
	says "$scratch/err" '^rampfs-migrate: standard output: ' || fail "$(cat "$scratch/err")"
	rampfs-migrate --wait "$mnt/b/b/one" a # it was moved all the same
done

echo "it is there, on demand alone: a caller that waits has every page, whichever node it asks"
head -c 64M /dev/urandom >"$a/large"
sum=$(sha256sum <"$a/large")
for from in a b c; do
	rampfs-migrate --mode demand "$a/large" b
	same pulling "$(xattr "$mnt/b/b/large" state)" "a segment that no caller waits for"
	exits 0 rampfs-migrate --wait "$mnt/$from/b/large" b
	same stable "$(xattr "$mnt/b/b/large" state)" "one that was waited for on $from"
	rampfs-migrate --wait "$mnt/b/b/large" a
done
same "$sum" "$(sha256sum <"$a/large")" "the segment that came on demand"
rampfs-migrate --mode demand "$a/large" b
hang a
for from in b c; do
	: >"$scratch/err"
	rampfs-migrate --progress --wait "$mnt/$from/b/large" b 2>"$scratch/err" &
	mover=$!
	within 10 says "$scratch/err" ': pulling'
	kill -INT $mover
	ends 0
	says "$scratch/err" 'on node b, and its pages follow by themselves' || fail "$(cat "$scratch/err")"
done
: >"$scratch/err"
rampfs-migrate --progress --wait "$mnt/c/b/large" b 2>"$scratch/err" &
waiter=$!
within 10 says "$scratch/err" ': pulling'
rampfs-migrate --wait "$mnt/b/b/large" c & # it moves on, and is not moved back for the caller that waits
mover=$!
wake
ends 0
wait $waiter || says "$scratch/err" 'another move has taken it away' || fail "$(cat "$scratch/err")"
same stable "$(xattr "$mnt/c/c/large" state)" "the segment that has moved on"
rm "$mnt/c/c/large"

echo "Ctrl-C once: the segment stays, the rest is not tried; twice, if the daemon does not answer: at once"
migrate_to_a_silent_node() {
	hang b
	: >"$scratch/err"
	rampfs-migrate --progress --trace "$a/one" "$a/two" b 2>"$scratch/err" & # one after the other
	mover=$!
	within 10 says "$scratch/err" ': connecting'
}
migrate_to_a_silent_node
kill -INT $mover $mover # a signal that is sent twice counts once
ends 130
says "$scratch/err" 'one: cancelled: it stays where it is' && says "$scratch/err" 'two: not tried' || fail "$(cat "$scratch/err")"
same one "$(cat "$a/one")" "the segment whose move was cancelled"
wake
b_is_up() { grep -q '^b .* up' "$mnt/a/.ramp/nodes"; }
within 20 b_is_up
migrate_to_a_silent_node
hang a
kill -INT $mover
sleep 0.5
kill -0 $mover || fail "it did not wait for the answer: $(cat "$scratch/err")"
kill -INT $mover
begin=$SECONDS
ends 3
[ $((SECONDS - begin)) -le 2 ] || fail "the second Ctrl-C took $((SECONDS - begin)) s"
says "$scratch/err" 'one: the daemon does not answer.*rampfs-status shows it' || fail "$(cat "$scratch/err")"
wake
one_is_somewhere() { [ "$(cat "$a/one" "$mnt/b/b/one" 2>/dev/null)" = one ]; }
within 20 one_is_somewhere
cluster_stop
