"""middle.py DIR NET SEED ROUNDS|told: a proxy (the man in the middle) of all connections between nodes.

NET: the prefix of the namespaces that net.sh has made. Each node gets the other nodes' addresses as its
own, too, so that it finds this program where it looks for them; on the bridge it answers for its own
address alone. The proxy forwards every byte unchanged, until a deed is to be done: to one message of one
kind, on a living control connection whose ends have proved themselves. The proxy knows no key; it finds
the beginning of a message by the lengths.
"""
import collections
import ctypes
import itertools
import os
import random
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time

import chaos

cluster = chaos.Cluster(sys.argv[1])
net = sys.argv[2]
seed, rounds = int(sys.argv[3]), sys.argv[4]

PORT = 7000  # net.sh
OPEN, OFFER, PROVE, WELCOME = 1, 2, 3, 4  # frames of a hello
HEADER, HMAC = 13, 32
KINDS = {"RAFT": 1, "CONNECT": 0x10, "ACCEPT": 0x11, "TRANSFER": 0x13, "TAKEN": 0x14}
MIGRATE = 0x20
AT_ONCE_S = 1.5  # with the next message, which comes after 200 ms at most, on a busy machine
LACKING_S = 4  # if the receiver waits for bytes that do not come
ALTERED, TURN, CUT = "right HMAC (altered)", "out of turn", "(truncated)"


def address(node):
    return f"10.111.0.{ord(node) - ord('a') + 1}"


def run(where, *words):
    subprocess.run(["nsenter", f"--net=/run/netns/{net}-{where}", *words], check=True)


def enter(where):
    with open(f"/run/netns/{net}-{where}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")


class End(Exception):
    """The end of a connection."""


def exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise End
        data += more
    return data


class Connection:
    """A connection from `dialer` to `acceptor`; a way is named by the node that sends."""

    def __init__(self, middle, near, dialer, acceptor):
        self.middle, self.dialer, self.acceptor = middle, dialer, acceptor
        self.socks = {dialer: near, acceptor: socket.create_connection((address(acceptor), PORT), 5)}
        self.said = {dialer: [], acceptor: []}  # messages, of a control connection
        self.control = False
        self.ended = None
        for sock in self.socks.values():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for node in self.socks:
            threading.Thread(target=self.carry, args=(node,), daemon=True).start()

    def other(self, node):
        return self.acceptor if node == self.dialer else self.dialer

    def carry(self, way):
        source, to = self.socks[way], self.socks[self.other(way)]
        try:
            self.carry_hello(source, to, PROVE if way == self.dialer else WELCOME)
            while not self.control:
                data = source.recv(1 << 20)
                if not data:
                    raise End
                to.sendall(data)
            while True:
                header = exactly(source, HEADER + HMAC)
                body = exactly(source, struct.unpack_from("<I", header)[0] + HMAC)
                for chunk in self.middle.meddle(self, way, header + body):
                    to.sendall(chunk)
        except (End, OSError):
            pass
        self.hang_up()

    def carry_hello(self, source, to, last):
        kind = None
        while kind != last:
            header = exactly(source, 8)
            rest, kind = exactly(source, header[7]), header[6]
            if kind not in (OPEN, OFFER, PROVE, WELCOME):
                last = kind  # a rejection
            if kind == PROVE:
                self.control = rest[32 + 4 + 4 + 8 + 8] == 0
            to.sendall(header + rest)

    def hang_up(self):
        if not self.ended:
            self.ended = time.monotonic()
        for sock in self.socks.values():
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def kind_of(message):
    return message[12]


def count_of(message):
    return struct.unpack_from("<Q", message, 4)[0]


class Deed:
    """A manipulation of the first message of its kind (None: any) that comes and allows it."""

    def __init__(self, how, kind, rand):
        self.how, self.kind, self.rand = how, kind, rand
        self.name, (self.act, self.reasons, self.within) = how, HOWS[how]
        self.connection = self.way = self.held = self.since = None
        self.again = False
        self.done = threading.Event()

    def begin(self, connection, way, message):
        """Returns the chunks to forward in place of the message; None: this message does not allow it."""
        if self.kind not in (kind_of(message), None):
            return None
        chunks = self.act(self, connection, way, message)
        if chunks is None:
            return None
        self.connection, self.way = connection, way
        if not self.again:
            self.over()
        return chunks

    def over(self):
        """Notes the time from which the receiver can notice."""
        self.since = time.monotonic()
        self.done.set()

    def next(self, message):
        """Returns the chunks to forward in place of the message after it."""
        if not self.again:
            return [message]
        self.again = False
        self.over()
        return [message] if self.held is None else [message, self.held]


def replayed(deed, connection, way, message):
    return [message, deed.rand.choice(connection.said[way] + [message])]


def brought(deed, connection, way, message):
    """Adds a message of an earlier connection of the same two nodes, with the counter that is due."""
    old = connection.middle.past.get((way, connection.other(way), count_of(message) + 1))
    return [message, old] if old else None


def turned_back(deed, connection, way, message):
    """Adds a message that the receiver has sent itself, with the counter that is due."""
    own = [m for m in connection.said[connection.other(way)] if count_of(m) == count_of(message) + 1]
    return [message, own[0]] if own else None


def flip(message, bit):
    altered = bytearray(message)
    altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def altered_in(first, last):
    """Flips a bit of the bytes from `first` to `last` of the message; negative: from its end."""
    def alter(deed, connection, way, message):
        begin, end = (at % (len(message) + 1) if at < 0 else at for at in (first, last))
        return [flip(message, deed.rand.randrange(begin * 8, end * 8))] if begin < end else None
    return alter


def lengthened(deed, connection, way, message):
    return [flip(message, 8 + 6)]  # by, or to, 16 KiB


def left_out(deed, connection, way, message):
    deed.again = True
    return []


def cut(deed, connection, way, message):
    deed.again = True
    return [message[:deed.rand.randrange(1, len(message))]]


def broken_off(deed, connection, way, message):
    connection.socks[connection.other(way)].sendall(message[:deed.rand.randrange(1, len(message))])
    deed.connection, deed.way = connection, way
    deed.over()
    raise End


def exchanged(deed, connection, way, message):
    deed.again, deed.held = True, message
    return []


HOWS = {
    "replayed": (replayed, [TURN], AT_ONCE_S),
    "of another connection": (brought, [ALTERED], AT_ONCE_S),
    "turned back": (turned_back, [ALTERED], AT_ONCE_S),
    "altered in its header": (altered_in(0, HEADER), [ALTERED], AT_ONCE_S),
    "altered in its body": (altered_in(HEADER + HMAC, -HMAC - 1), [ALTERED], AT_ONCE_S),
    "altered in its HMACs": (altered_in(-HMAC - 1, -1), [ALTERED], AT_ONCE_S),
    "made longer": (lengthened, [ALTERED], AT_ONCE_S),
    "left out": (left_out, [TURN], AT_ONCE_S),
    "cut": (cut, [ALTERED, CUT], LACKING_S),
    # A receiver that is busy may see that the sender has connected again before it sees the end.
    "broken off": (broken_off, [CUT, "it connects again"], AT_ONCE_S),
    "exchanged": (exchanged, [TURN], AT_ONCE_S),
}


class Middle:
    def __init__(self):
        self.lock = threading.Lock()
        self.deed = None
        self.connections = []
        self.past = collections.OrderedDict()  # (way, receiver, count): a message of a connection that ended
        listeners = [(self.listen(node, other), node, other)
                     for node in cluster.nodes for other in cluster.nodes if node != other]
        run("hub", "ip", "address", "add", "10.111.0.254/24", "dev", "hub")
        enter("hub")
        for listener in listeners:
            threading.Thread(target=self.accept, args=listener, daemon=True).start()

    @staticmethod
    def listen(node, other):
        run(node, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")
        run(node, "ip", "address", "add", address(other) + "/32", "dev", "lo")
        enter(node)
        return socket.create_server((address(other), PORT))

    def accept(self, listener, node, other):
        while True:
            near = listener.accept()[0]
            try:
                connection = Connection(self, near, node, other)
            except OSError:
                near.close()
                continue
            with self.lock:
                for old in [c for c in self.connections if c.ended]:
                    self.connections.remove(old)
                    for way in old.said:
                        for m in old.said[way]:
                            self.past[way, old.other(way), count_of(m)] = m
                self.connections.append(connection)

    def meddle(self, connection, way, message):
        with self.lock:
            deed, chunks = self.deed, None
            if deed and deed.connection is None:
                chunks = deed.begin(connection, way, message)
            elif deed and (deed.connection, deed.way) == (connection, way):
                chunks = deed.next(message)
            connection.said[way].append(message)
            return [message] if chunks is None else chunks

    def between(self, x, y):
        """Returns the control connection of two nodes on which both have sent messages, or None."""
        with self.lock:
            for c in self.connections:
                if c.control and not c.ended and {c.dialer, c.acceptor} == {x, y} and all(c.said.values()):
                    return c
        return None

    def await_pair(self, x, y):
        deadline = time.monotonic() + 10
        while not self.between(x, y):
            if time.monotonic() > deadline:
                raise chaos.Wrong(f"{x} and {y} do not come together again")
            time.sleep(0.01)

    def do(self, deed, what, check):
        """Does one deed and checks its consequences; returns after how many seconds the receiver hung up."""
        logs = {n: os.path.getsize(log_of(n)) for n in cluster.nodes}
        self.deed = deed
        deadline = time.monotonic() + 30
        while not deed.done.wait(0.05):
            check()
            if time.monotonic() > deadline:
                raise chaos.Wrong(f"no {what} came that could be {deed.name}")
        way, connection = deed.way, deed.connection
        receiver, where = connection.other(way), f"{what} from {way} to {connection.other(way)} {deed.name}"
        while not connection.ended:
            if time.monotonic() - deed.since > deed.within:
                raise chaos.Wrong(f"{where}: {receiver} did not hang up")
            time.sleep(0.001)
        took = connection.ended - deed.since
        self.deed = None
        self.await_pair(way, receiver)
        why = ends_in_log(receiver, way, logs[receiver])
        while not why and time.monotonic() - deed.since < deed.within:
            time.sleep(0.01)  # the daemon writes the line after it has hung up
            why = ends_in_log(receiver, way, logs[receiver])
        if len(why) != 1 or not any(reason in why[0] for reason in deed.reasons):
            raise chaos.Wrong(f"{where}: the log of {receiver} says {why}, not one line of {deed.reasons}")
        return max(took, 0)


def log_of(node):
    return f"{cluster.top}/{node}.log"


def ends_in_log(node, other, since):
    """Returns the reasons for which `node` has hung up on `other`."""
    with open(log_of(node), errors="replace") as f:
        f.seek(since)
        return re.findall(rf"node \d+ \({other}\) at \S+ is down: (.*)", f.read())


def replayed_migrate(middle):
    """Repeats a request to move a segment on the same connection when the segment is back."""
    path = f"{cluster.mnt('a')}/a/wanted"
    data = random.Random(seed).randbytes(1 << 20)
    with open(path, "xb") as f:
        f.write(data)

    def moved(via, at, to):
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{cluster.mnt(via)}/{at}/wanted") and time.monotonic() < deadline:
            time.sleep(0.01)
        subprocess.run(["rampfs-migrate", "--wait", f"{cluster.mnt(via)}/{at}/wanted", to], check=True)

    moved("c", "a", "b")
    connection = middle.between("c", "a")
    asked = [m for m in connection.said["c"] if kind_of(m) == MIGRATE] if connection else []
    if not asked:
        raise chaos.Wrong("the proxy saw no request for a move")
    moved("b", "b", "a")
    epoch = cluster.xattr("a", "a", "wanted", "epoch")
    deed = Deed("replayed", None, random.Random(seed))
    deed.act = lambda deed, c, way, message: [message, asked[-1]] if c is connection and way == "c" else None
    middle.do(deed, "MIGRATE", lambda: None)
    time.sleep(2)
    if cluster.place("wanted", "a") != "a" or cluster.xattr("a", "a", "wanted", "epoch") != epoch:
        raise chaos.Wrong("the replayed MIGRATE was obeyed")
    with open(path, "rb") as f:
        if f.read() != data:
            raise chaos.Wrong("bytes of the segment that was to be moved")
    os.unlink(path)


def step_in():
    """Returns the proxy when all nodes have found each other again through it."""
    middle = Middle()
    for pair in ("ab", "ac", "bc"):
        middle.await_pair(*pair)
    time.sleep(1)  # until all nodes are up again
    return middle


def told(_):
    """Prints the cluster's folder. Then, from one line of standard input to the next, does deeds of all sorts by turns
    to any message that comes, and prints how many they were; repeats this until the input ends."""
    rand, hows = random.Random(seed), itertools.cycle(HOWS)
    middle = step_in()
    print(cluster.top, flush=True)
    while sys.stdin.readline():
        deeds = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            middle.do(Deed(next(hows), None, rand), "message", lambda: None)
            deeds += 1
        sys.stdin.readline()
        print(deeds, flush=True)


def test(make_load):
    rand = random.Random(seed)
    was = {n: sorted(cluster.pids(n, keeper=True)) for n in cluster.nodes}
    middle = step_in()
    replayed_migrate(middle)
    chaos.say("a repeated MIGRATE: no segment moved")
    load = make_load(cluster, seed, files=4)
    for r in range(int(rounds)):
        longest = collections.Counter()
        deeds = [(how, what) for how in HOWS for what in KINDS]
        rand.shuffle(deeds)
        for how, what in deeds:
            took = middle.do(Deed(how, KINDS[what], rand), what, load.check)
            longest[how] = max(longest[how], took)
            load.counts[f"messages {how}"] += 1
        load.settle(f"round {r + 1}, {len(deeds)} deeds")
        for how, took in longest.items():
            chaos.say(f"  {how}: hung up on after {took * 1000:.0f} ms at most")
    load.end()
    for n, pids in was.items():
        if sorted(cluster.pids(n, keeper=True)) != pids:
            raise chaos.Wrong(f"{n} was {pids}, is {sorted(cluster.pids(n, keeper=True))}")


chaos.run(told if rounds == "told" else test)
