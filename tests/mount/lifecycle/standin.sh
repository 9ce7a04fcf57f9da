#!/usr/bin/env bash
# A daemon that takes over starts whatever has become of its files; where none can start, no call hangs.
. tests/lib/cluster.sh
export LC_ALL=C
daemon() { pgrep -f -- "rampfs --daemon .*$mnt/$1\$"; }
stand_in() { pgrep -f -- "rampfs --stand-in .*$mnt/$1\$"; }
another_daemon() { local now && now=$(daemon "$1") && [ "$now" != "$2" ]; }
says() { grep -qE "$2" "$1" 2>/dev/null; }
serves() { says "$mnt/$1/.ramp/status" '^requests waiting'; }
up() { grep -q "^$2 .* up" "$mnt/$1/.ramp/nodes" 2>/dev/null; }
# Kills a daemon and waits for the next.
replace() {
	local old
	old=$(daemon "$1")
	kill -9 "$old"
	within 10 another_daemon "$1" "$old"
}
reads() { [ "$(timeout 10 cat "$1")" = "$2" ]; }
cluster_start -n 3 -c 64M
log=$scratch/cluster/c.log
conf=$state/c/cluster.conf
echo bytes >"$mnt/c/c/owned"

echo "a key that others may read, a key that is gone, a configuration that makes no sense: a living mount goes on"
chmod 644 "$state/c/key"
replace c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
within 10 says "$log" "others may read it .*going on"
mv "$state/c/key" "$state/c/node" "$scratch/"
mv "$conf" "$scratch/conf" && echo nonsense >"$conf"
replace c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
within 20 up a c
touch "$mnt/c/c/made"
echo "so does one whose keeper has died"
keeper=$(pgrep -f -- "^rampfs -o .*$mnt/c\$")
kill -9 "$keeper"
within 10 says "$log" "adopted the daemon"
replace c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
mv "$scratch/key" "$scratch/node" "$state/c/" && mv "$scratch/conf" "$conf"

echo "a mount after an umount needs them"
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
refused "others may read it" rampfs -o "log=$log" "$state/c" "$mnt/c"
chmod 600 "$state/c/key"
mkdir "$scratch/own" # a program of its own, for later
cp "$(type -P rampfs)" "$scratch/own/"
"$scratch/own/rampfs" -o "log=$log" "$state/c" "$mnt/c"
within 20 up a c

echo "an address that does not resolve, or is taken: a living mount goes on, and listens when it can"
address=$(sed -nE 's/^c [^ ]+ [^ ]+ ([^ ]+) .*/\1/p' "$mnt/a/.ramp/nodes")
# between FUNCTION ARG: no daemon of c lives while it runs.
between() {
	local old keeper
	old=$(daemon c)
	keeper=$(cat "$state/c/lock")
	kill -STOP "$keeper"
	kill -9 "$old"
	"$@" || { kill -CONT "$keeper" && fail "$*"; }
	kill -CONT "$keeper"
	within 10 another_daemon c "$old"
}
readdress() {
	python3 - "$state/c/journal.db" "$1" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
db.execute("UPDATE node SET address = ? WHERE name = 'c'", (sys.argv[2],))
db.commit()
P
}
between readdress "nowhere.invalid:${address##*:}"
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
within 10 says "$log" "until this works: listening address nowhere.invalid"
take() {
	readdress "$address"
	python3 -c 'import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open(sys.argv[2], "w")
time.sleep(600)' "${address##*:}" "$scratch/taken" &
	taker=$!
	at_most 10 [ -e "$scratch/taken" ]
}
between take
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
within 10 says "$log" "until this works: listening at .*in use"
kill "$taker"
within 20 says "$log" "listening at $address"
within 20 up a c

echo "the program's file is gone: the keeper executes what it is itself"
mv "$scratch/own/rampfs" "$scratch/own/gone"
replace c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
within 10 says "$log" "executing the program as it was before"
mv "$scratch/own/gone" "$scratch/own/rampfs"

echo "no daemon can start: every call ends with an error in time, and the status says why"
# ends STATUS COMMAND...: it ends, by itself, with this status, within 5 s (and some, on a busy machine).
ends() {
	local want=$1 got=0
	shift
	timeout -k 1 9 "$@" >"$scratch/out" 2>&1 || got=$?
	same "$want" "$got" "the status of $* ($(cat "$scratch/out"))"
}
exec 3<"$mnt/c/c/owned"
no_start() { rm "$state/c/store/start" && chmod 644 "$state/c/key"; }
keeper=$(cat "$state/c/lock")
kill -STOP "$keeper"
kill -9 "$(daemon c)"
no_start
timeout 9 cat "$mnt/c/c/owned" >"$scratch/early" 2>&1 & # it waits before a stand-in is there
early=$!
kill -CONT "$keeper"
within 10 stand_in c >/dev/null
got=0 && wait $early || got=$?
same 1 "$got" "the status of a read that waited ($(cat "$scratch/early"))"
for _ in 1 2; do
	ends 1 cat "$mnt/c/c/owned"
	ends 1 df "$mnt/c"
	ends 2 ls "$mnt/c/c"
	ends 1 touch "$mnt/c/c/new"
	ends 1 cat <&3
	ends 0 rampfs-status "$mnt/c"
	says "$scratch/out" "^why: .*others may read it" || fail "rampfs-status does not say why: $(cat "$scratch/out")"
	ends 0 rampfs-status --json "$mnt/c"
	says "$scratch/out" '"why":.*others may read it' || fail "the JSON does not say why: $(cat "$scratch/out")"
done
chmod 600 "$state/c/key"
within 20 serves c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
same bytes "$(cat <&3)" "what is read by the file that was open all the time"
exec 3<&-
within 20 up a c

echo "it can be unmounted meanwhile"
kill -STOP "$keeper"
kill -9 "$(daemon c)"
no_start
kill -CONT "$keeper"
within 10 stand_in c >/dev/null
umount "$mnt/c"
within 15 flock -n "$state/c/lock" true
chmod 600 "$state/c/key"
rampfs -o "log=$log" "$state/c" "$mnt/c"
within 20 serves c
reads "$mnt/c/c/owned" bytes || fail "c does not serve what it owns"
cluster_stop
echo "standin: all well"
