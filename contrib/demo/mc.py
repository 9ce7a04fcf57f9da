#!/usr/bin/env python3
"""Fills a memcached with items whose values follow from their keys, and checks every one.

    mc.py fill PORT ITEMS BYTES     sets ITEMS items with values of BYTES bytes
    mc.py check PORT ITEMS BYTES    gets them all; exit status 1 if one is missing or wrong
    mc.py stat PORT NAME            prints one figure of memcached's own statistics
    mc.py wait PORT                 waits until it answers (10 s)
"""
import random
import socket
import sys
import time


def value(number, size):
    piece = b"%011d " % (number * 2654435761 % 99999999977)
    return (piece * (size // len(piece) + 1))[:size]


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    return s, s.makefile("rb", 1 << 20)


def command(stream, out, line):
    stream.sendall(line)
    return out.readline()


def fill(port, items, size):
    s, out = connect(port)
    batch = []
    for k in range(items):
        batch.append(b"set key%d 0 0 %d noreply\r\n%s\r\n" % (k, size, value(k, size)))
        if len(batch) == 1000:
            s.sendall(b"".join(batch))
            batch.clear()
    s.sendall(b"".join(batch))
    if command(s, out, b"version\r\n")[:7] != b"VERSION":
        sys.exit("memcached did not answer after the fill")


def check(port, items, size):
    s, out = connect(port)
    order = list(range(items))
    random.Random(1).shuffle(order)
    right = 0
    for at in range(0, items, 100):
        keys = order[at : at + 100]
        s.sendall(b"get " + b" ".join(b"key%d" % k for k in keys) + b"\r\n")
        got = {}
        while True:
            head = out.readline().split()
            if not head:
                sys.exit("memcached closed the connection")
            if head[0] == b"END":
                break
            got[head[1]] = out.read(int(head[3]) + 2)[:-2]
        right += sum(got.get(b"key%d" % k) == value(k, size) for k in keys)
    print(right)
    sys.exit(0 if right == items else 1)


def stat(port, name):
    s, out = connect(port)
    for kind in (b"stats\r\n", b"stats settings\r\n"):
        s.sendall(kind)
        for line in iter(out.readline, b"END\r\n"):
            words = line.split()
            if words[1] == name.encode():
                print(words[2].decode())
                return
    sys.exit("memcached has no " + name)


def wait(port):
    end = time.monotonic() + 10
    while True:
        try:
            s, out = connect(port)
            if command(s, out, b"version\r\n")[:7] == b"VERSION":
                return
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit("memcached does not answer on port %d" % port)
        time.sleep(0.005)


def main(args):
    if args[:1] == ["fill"] and len(args) == 4:
        fill(int(args[1]), int(args[2]), int(args[3]))
    elif args[:1] == ["check"] and len(args) == 4:
        check(int(args[1]), int(args[2]), int(args[3]))
    elif args[:1] == ["stat"] and len(args) == 3:
        stat(int(args[1]), args[2])
    elif args[:1] == ["wait"] and len(args) == 2:
        wait(int(args[1]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
