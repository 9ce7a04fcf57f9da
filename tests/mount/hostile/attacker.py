#!/usr/bin/env python3
"""A hostile neighbour of a rampfs node, for tests/mount/hostile/attack.sh and bench/run attack.

Usage: attacker.py list | ATTACK SECONDS MOUNT KEY

Runs as root: it makes preparations that only root can make (a hostile filesystem, a recorded hello, another user's token)
and continues as the user `nobody`, without the key. Prints "ready" when the attack is under way, continues for SECONDS or
until SIGTERM, and prints its deeds, and how often it did each. Exit status 3: it got something that is not its own; the
lines before name it. 4: in SECONDS it has not done all deeds of this attack (ATTACKS). Of the secret each 16 bytes begin
with MARK.
"""
import collections
import ctypes
import errno
import fcntl
import glob
import hashlib
import hmac
import mmap
import os
import random
import resource
import select
import signal
import socket
import stat
import struct
import sys
import tempfile
import time

MARK = b"secret!!"
NOBODY = 65534
SECRET = "secret"
HELLO, ATTACH, FORK, ADOPT, DETACH, PUNCH, RESULT = 1, 13, 14, 15, 16, 17, 18
MIGRATE, CANCEL, ANSWER, MEMBER = 19, 20, 22, 23
OPEN, PROVE, REJECT = 1, 3, 5
JOIN, DEMAND = 3, 1
IOC_ATTACH, IOC_INFO = (2 << 30 | 136 << 16 | ord("R") << 8 | number for number in (0x61, 0x62))
LIBC = ctypes.CDLL(None, use_errno=True)


def kernel_refuses():
    """Returns whether the kernel can keep descriptors from a socket (SO_PASSRIGHTS, Linux 6.16)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            return sock.getsockopt(socket.SOL_SOCKET, 83) == 1
        except OSError:
            return False


REFUSES = kernel_refuses()


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)


def text(value):
    return struct.pack("<I", len(value)) + value


def message(kind, body=b""):
    return struct.pack("<HH", 1, kind) + body


def hello_message():
    return message(HELLO, struct.pack("<III", 1, 0, os.getpid()))


def attach_message(token, offset=0, length=4096, prot=mmap.PROT_READ):
    return message(ATTACH, struct.pack("<IQQIQQ", 0, length, offset, prot, *token))


def migrate_message(segment, node=b"a", flags=1 << 4):
    return message(MIGRATE, struct.pack("<IQB", flags, segment, 0) + text(node) + text(b""))


class Target:
    """The attacked node, and a list of all that the attacker has got from it."""

    def __init__(self, mount):
        self.got, self.steps, self.mount = [], 0, mount
        self.did = collections.Counter()
        with open(os.path.join(mount, ".ramp/nodes"), encoding="ascii") as f:
            rows = [line.split() for line in f]
        self.node = next(row[0] for row in rows if row[-1] == "here")
        self.ports = [(row[3].rsplit(":", 1)[0], int(row[3].rsplit(":", 1)[1])) for row in rows]
        self.directory = os.path.join(mount, self.node)
        self.secret = os.path.join(self.directory, SECRET)
        at = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
        self.socket = fcntl.ioctl(at, IOC_INFO, bytes(136))[24:].split(b"\0")[0]
        os.close(at)
        self.segment = int(os.getxattr(self.secret, "user.ramp.id"))

    def take(self, what):
        self.got.append(what)

    def heard(self, data):
        if MARK in data:
            self.take("bytes of a segment: %r" % data[:64])

    def dial(self):
        """Returns a connection to the session socket, or None if there is no room just now."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(0.5)
        try:
            sock.connect(self.socket)
        except (BlockingIOError, TimeoutError, ConnectionError):
            sock.close()
            return None
        return sock

    def call(self, port=None):
        """Returns a connection to a node's port, or None."""
        sock = socket.socket()
        # With a reset at the end, so that no port of this machine stays taken for a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.settimeout(0.5)
        try:
            sock.connect(port or random.choice(self.ports))
        except (BlockingIOError, TimeoutError, ConnectionError):
            sock.close()
            return None
        sock.settimeout(5)
        return sock

    def hear(self, sock, wait):
        """Returns the next packet of a session (b"": its end, or none in time), and its descriptors, which it checks."""
        sock.settimeout(wait)
        try:
            data, fds, _, _ = socket.recv_fds(sock, 4096, 8)
        except ConnectionError:
            self.did["hung up"] += 1
            return b"", []
        except (BlockingIOError, TimeoutError):
            return b"", []
        self.did["answered" if data else "hung up"] += 1
        self.heard(data)
        for fd in fds:  # only the two that every HELLO is answered with
            name, what = os.readlink("/proc/self/fd/%d" % fd), os.fstat(fd)
            # By type and device: from another mount namespace, in a chroot, the path is another.
            if not stat.S_ISSOCK(what.st_mode) and not (stat.S_ISCHR(what.st_mode) and
                                                        what.st_rdev == os.stat("/dev/userfaultfd").st_rdev):
                self.take("a descriptor of " + name)
        return data, fds

    def ask(self, packet, fds=()):
        """Returns whether a throw-away request is answered; success is more than an attacker may get."""
        sock = self.dial()
        if not sock:
            return False
        with sock:
            try:
                socket.send_fds(sock, [packet], fds)
            except PermissionError:  # the kernel refuses descriptors
                self.did["refused at the session socket"] += 1
                return False
            except ConnectionError:
                return False
            if fds and REFUSES:
                self.take("a place for descriptors in the daemon")
            data, more = self.hear(sock, 10)
        for fd in more:
            os.close(fd)
        if len(data) >= 8 and struct.unpack_from("<HHI", data)[1:] in ((RESULT, 0), (ANSWER, 0)):
            self.take("success for %r" % packet)
        return bool(data)


def send(sock, data):
    """Sends data; returns False if the other end does not take it."""
    try:
        sock.sendall(data)
        return True
    except (ConnectionError, TimeoutError, BlockingIOError):
        return False


def receive(sock, length):
    """Returns `length` bytes, or fewer at the end of the stream or after the socket's time-out."""
    data = b""
    try:
        while len(data) < length:
            more = sock.recv(length - len(data))
            if not more:
                break
            data += more
    except (ConnectionError, TimeoutError):
        pass
    return data


# ---- preparations that need root or the key ----


def frame(kind, payload, version=5, length=None):
    return struct.pack("<4sHBB", b"RAMP", version, kind, len(payload) if length is None else length) + payload


class Key:
    def __init__(self, content):
        cluster = hmac.digest(b"rampfs cluster key\0", content, hashlib.sha256)
        self.key = hmac.digest(cluster, b"rampfs hello\0", hashlib.sha256)

    def prove(self, sock, kind, node=0, want=0, cluster=bytes(32)):
        """Does a whole hello as the dialing end; returns the frames that were sent, and WELCOME."""
        opening = frame(OPEN, os.urandom(32))
        send(sock, opening)
        offer = receive(sock, 72)
        body = cluster + struct.pack("<IIQQB", node, want, 7, 7, kind)
        begun = frame(PROVE, body, length=len(body) + 32)
        proof = hmac.digest(self.key, b"dialer's proof\0" + opening + offer + begun, hashlib.sha256)
        send(sock, begun + proof)
        return [opening, begun + proof], receive(sock, 8 + 32 + 4 + 8 + 8 + 32)

    def data_connection(self, t, port):
        """Returns a data connection as a node has for its pulls, with the frames that made it."""
        with t.call(port) as sock:
            welcome = self.prove(sock, JOIN)[1]
        node, = struct.unpack_from("<I", welcome, 40)
        sock = t.call(port)
        frames, welcome = self.prove(sock, DEMAND, 2 if node == 1 else 1, node, welcome[8:40])
        if len(welcome) < 92:
            sys.exit("attacker: the right key is not welcome: %r" % welcome)
        return sock, frames


def request(t, length, offset=0, magic=b"RMRQ"):
    """Returns a request to read the secret under a guessed key."""
    return struct.pack("<4sIQQ16sQ", magic, length, 1, t.segment, os.urandom(16), offset)


def somebodys_token(t):
    """Returns a valid token of a living process that may read the secret."""
    ends = os.pipe()
    if os.fork() == 0:
        die_with_parent()
        fd = os.open(t.secret, os.O_RDWR)
        os.write(ends[1], fcntl.ioctl(fd, IOC_ATTACH, bytes(136))[:16])
        signal.pause()
    return struct.unpack("<QQ", os.read(ends[0], 16))


def fuse_reply(dev, unique, body):
    os.write(dev, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


def status_of(path):
    try:
        with open(path, encoding="ascii") as f:
            return dict(line.rstrip("\n").split(":\t", 1) for line in f)
    except OSError:
        return {}  # the process has ended


def parent_ends():
    """Returns whether the parent is killed, or about to close its files: either may wait for us."""
    parent = "/proc/%d" % os.getppid()
    kill = 1 << (signal.SIGKILL - 1)
    return "VmSize" not in status_of(parent + "/status") or any(
        int(status_of(path).get("SigPnd", "0"), 16) & kill for path in glob.glob(parent + "/task/*/status"))


def serve_one_file(dev):
    """Serves a filesystem with one file of a page that can be opened; no later request is ever answered."""
    attr = struct.pack("<QQQQQQIIIIIIIIII", 2, 4096, 8, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, 0, 0)
    root = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40777, 2, 0, 0, 0, 0, 0)
    while True:
        while not select.select([dev], [], [], 0.5)[0]:
            if parent_ends():
                os._exit(0)
        data = os.read(dev, 1 << 18)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", data)
        if opcode == 26:  # INIT
            fuse_reply(dev, unique, struct.pack("<IIIIHHI", 7, 31, 0, 0, 12, 9, 65536).ljust(64, b"\0"))
        elif opcode == 1:  # LOOKUP
            fuse_reply(dev, unique, struct.pack("<QQQQII", 2, 0, 1000, 1000, 0, 0) + attr)
        elif opcode == 3 and node == 1:  # GETATTR
            fuse_reply(dev, unique, struct.pack("<QII", 1000, 0, 0) + root)
        elif opcode == 14:  # OPEN
            fuse_reply(dev, unique, struct.pack("<QII", 1, 0, 0))


def hanging_file():
    """Returns a descriptor whose close(2) never returns. Its mount goes with this process, its server when that ends."""
    at, dev = tempfile.mkdtemp(prefix="rampfs-attack."), os.open("/dev/fuse", os.O_RDWR)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % dev
    # In a chroot whose root is no mount there is nothing to make private: EINVAL.
    if LIBC.unshare(0x20000) or (LIBC.mount(b"none", b"/", None, 0x44000, None) and
                                 ctypes.get_errno() != errno.EINVAL) or LIBC.mount(
                                     b"hostile", at.encode(), b"fuse.hostile", 6, options.encode()):
        sys.exit("attacker: no hostile filesystem: " + os.strerror(ctypes.get_errno()))
    server = os.fork()
    if server == 0:
        die_with_parent()
        serve_one_file(dev)
    os.close(dev)
    fd = os.open(os.path.join(at, "file"), os.O_RDWR)
    LIBC.umount2(at.encode(), 2)
    os.rmdir(at)
    return fd, server


# ---- attacks: generators; after the first step the attack is under way ----


def attack_garbage(t, _):
    """Packets of random bytes; right messages that are cut, lengthened, altered and in a wrong order."""
    right = [hello_message(), attach_message((1, 2)), message(FORK), message(ADOPT, bytes(16)), message(CANCEL),
             message(DETACH, struct.pack("<QQQ", t.segment, 0x200000000000, 4096)), migrate_message(t.segment),
             message(MEMBER, struct.pack("<IQQB", 0, 0, 0, 1) + text(b"a") + text(b""))]
    said = []
    while True:
        sock = t.dial()
        for _ in range(random.randrange(1, 5) if sock else 0):
            packet = bytearray(random.choice(right))
            how = random.choice(("random", "cut", "lengthened", "altered"))
            if how == "random":
                packet = os.urandom(random.randrange(1, 2048))
            elif how == "cut":
                packet = packet[:random.randrange(len(packet))]
            elif how == "lengthened":
                packet += os.urandom(random.randrange(1, 3000))
            else:
                packet[random.randrange(4)] ^= 1 << random.randrange(8)
            if not send(sock, packet):
                break
            t.did[how] += 1
        # Beside a flood the daemon takes its time to answer: the attacker listens on some connections.
        if sock and len(said) < 32:
            said.append((time.monotonic() + 0.5, sock))
        elif sock:
            sock.close()
        while said and time.monotonic() > said[0][0]:
            sock = said.pop(0)[1]
            for fd in t.hear(sock, 0)[1]:
                os.close(fd)
            sock.close()
        yield


def attack_crowd(t, _):
    """Thousands of connections that are held: half of them silent, half of them with a HELLO and nothing more."""
    crowd = []

    def come(count):
        for i in range(count):
            sock = t.dial()
            if sock:
                said = i % 2 and send(sock, hello_message())
                t.did["said HELLO" if said else "silent"] += 1
                crowd.append(sock)

    come(3000)
    while True:
        yield
        come(50)
        while len(crowd) > 3000:
            crowd.pop(0).close()


def attack_deaf(t, _):
    """Processes that ask for much, are stopped and never read."""
    stopped = []
    asked, asks = os.pipe2(os.O_NONBLOCK)
    while True:
        while len(stopped) < 8:
            pid = os.fork()
            if pid == 0:
                die_with_parent()
                socks = [sock for sock in (t.dial() for _ in range(32)) if sock]
                for i, sock in enumerate(socks):
                    for packet in (hello_message(), message(FORK), migrate_message(t.segment))[i % 3:i % 3 + 1] * 64:
                        if not send(sock, packet):
                            break
                        os.write(asks, b"A")
                os.kill(os.getpid(), signal.SIGSTOP)
                os._exit(0)
            stopped.append(pid)
        time.sleep(0.1)
        try:
            t.did["asked"] += len(os.read(asked, 1 << 16))
        except BlockingIOError:
            pass
        t.did["stopped"] += sum(os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None for pid in stopped)
        yield
        pid = stopped.pop(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def come_to_the_door(t, wait):
    """Returns a session that may send its userfaultfd now, and the socket for it; None: it must wait for a place."""
    sock = t.dial()
    if not sock or not send(sock, hello_message()):
        return None
    fds = t.hear(sock, wait)[1]
    if not fds:
        sock.close()
        return None
    for fd in fds[1:]:
        os.close(fd)
    return sock, socket.socket(fileno=fds[0])


def attack_descriptors(t, _):
    """Descriptors that are no userfaultfd, none and too many, at the broker and at the session socket."""
    pair = socket.socketpair()
    wrong = [[os.open("/dev/null", os.O_RDWR)], list(os.pipe()), [pair[0].fileno()], [], [0, 1, 2] * 60,
             [os.memfd_create("wrong")]]
    while True:
        at = come_to_the_door(t, 1)
        if at:
            with at[0], at[1]:
                try:
                    number = random.randrange(len(wrong))
                    socket.send_fds(at[1], [b"\1"], wrong[number])
                    t.did["wrong %d" % number] += 1
                except OSError:
                    pass
                ready = t.hear(at[0], 1)[0]
            if ready and struct.unpack_from("<HHII", ready)[3] == 0:
                t.take("a session with a wrong descriptor")
        sent = random.choice([fds for fds in wrong if fds])
        t.did["at the session socket"] += t.ask(attach_message((random.getrandbits(64), 1)), sent)
        yield


def attack_hanging(t, prepared):
    """A hostile filesystem's file, which hangs every thread that closes it, in every place at the broker that one user has."""
    held = []
    while True:
        for _ in range(4):
            at = come_to_the_door(t, 0.2)
            if at:
                socket.send_fds(at[1], [b"\1"], [prepared[0]])
                t.did["hung"] += 1
                t.hear(at[0], 1)
                held.append(at)
        yield


def attack_tokens(t, prepared):
    """Tokens that are made up, another user's or spent; ranges out of bounds; requests without a token for a segment that is
    not the user's."""
    own = os.path.join(t.directory, "own-%d" % os.getpid())
    with open(own, "wb") as f:
        f.write(bytes(4096))
    try:
        while True:
            made_up = [random.getrandbits(64) for _ in range(2)]
            fd = os.open(own, os.O_RDONLY)
            token = struct.unpack_from("<QQ", fcntl.ioctl(fd, IOC_ATTACH, bytes(136)))
            os.close(fd)
            packets = [attach_message(taken, length=1 << 20, prot=3) for taken in (made_up, prepared, (0, 0))]
            packets += [message(ADOPT, struct.pack("<QQ", *taken)) for taken in (made_up, prepared)]
            packets += [migrate_message(t.segment), message(PUNCH, struct.pack("<QQQ", t.segment, 1 << 20, 0)),
                        message(MEMBER, struct.pack("<IQQB", 0, 0, 0, 2) + text(b"a") + text(b"")),
                        attach_message(token, 1 << 40, 1 << 62, 7), attach_message(token, 0, 1 << 20)]
            for number, packet in enumerate(packets):
                t.did["request %d" % number] += t.ask(packet)
                yield
            try:
                t.take("an open of the secret: %d" % os.open(t.secret, os.O_RDONLY))
            except PermissionError:
                t.did["not opened"] += 1
    finally:
        os.unlink(own)


def attack_fill(t, _):
    """Fills the store, looks for foreign bytes in the room that it got, and begins again."""
    path = os.path.join(t.directory, "filler-%d" % os.getpid())
    data, size, full = b"filler.." * (1 << 17), 0, False
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                os.posix_fallocate(fd, size, 1 << 20)
                t.heard(os.pread(fd, 1 << 20, size))
                size += os.pwrite(fd, data, size)
                t.did["MiB"] += 1
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise
                full = True
                t.did["full"] += 1
                yield
                os.ftruncate(fd, 0)
                size = 0
            if full:
                yield
    finally:
        os.close(fd)
        os.unlink(path)


def is_before_others(pid):
    """Returns whether that thread has real-time priority, or the nice value that stands in for it."""
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR or os.getpriority(os.PRIO_PROCESS, pid) < 0


def compute_as_agent(t, says, begin):
    """A program of one thread, which is its agent and computes until its parent ends, for 20 s at most."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    sock = t.dial()
    send(sock, hello_message())
    door, device = t.hear(sock, 10)[1]
    uffd = fcntl.ioctl(device, 0xaa00, os.O_CLOEXEC | os.O_NONBLOCK)
    socket.send_fds(socket.socket(fileno=door), [b"\1"], [uffd])
    ready = t.hear(sock, 10)[0]
    os.write(says, bytes([not ready or struct.unpack_from("<HHII", ready)[3] != 0]))
    os.close(says)
    os.read(begin, 1)
    while True:
        pass


def attack_greedy(t, _):
    """As many programs as there are processors, each with an agent that computes: no agent keeps its priority for long."""
    heard, says = os.pipe()
    begin, go = os.pipe()
    agents = []
    for _ in range(os.cpu_count()):
        agents.append(os.fork())
        if agents[-1] == 0:
            try:
                os.close(go)
                compute_as_agent(t, says, begin)
            finally:
                os._exit(1)
    os.close(says)
    try:
        if any(os.read(heard, 1) != b"\0" for _ in agents):
            raise RuntimeError("no session")
        end = time.monotonic() + 2
        while not all(map(is_before_others, agents)) and time.monotonic() < end:
            time.sleep(0.01)
        t.did["before others"] += sum(map(is_before_others, agents))
        os.close(go)
        yield
        end = time.monotonic() + 10
        while any(map(is_before_others, agents)) and time.monotonic() < end:
            time.sleep(0.05)
        if any(map(is_before_others, agents)):
            t.take("priority for as long as it computes")
        t.did["after it computed"] += 1
        while True:
            yield
            time.sleep(0.05)
    finally:
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def attack_silent(t, _):
    """Connections to the port that say nothing, or half a frame."""
    crowd = []
    half = frame(OPEN, os.urandom(32))[:20]
    while True:
        for i in range(256 if not crowd else 16):
            sock = t.call()
            if sock:
                said = i % 2 and send(sock, half)
                t.did["half a frame" if said else "silent"] += 1
                crowd.append(sock)
        yield
        while len(crowd) > 512:
            crowd.pop(0).close()
        time.sleep(0.01)


def attack_noise(t, _):
    """Wrong hellos: other protocols, versions, steps and lengths."""
    noises = (
        lambda: os.urandom(random.randrange(1, 4096)), lambda: b"GET / HTTP/1.0\r\n\r\n",
        lambda: frame(OPEN, os.urandom(32), version=9), lambda: frame(OPEN, os.urandom(255)),
        lambda: frame(OPEN, bytes(4096), length=255), lambda: frame(OPEN, b""), lambda: frame(REJECT, b"\1"),
        lambda: frame(PROVE, os.urandom(89)), lambda: frame(OPEN, os.urandom(32)) + frame(PROVE, os.urandom(89)))
    while True:
        sock = t.call()
        if sock:
            with sock:
                number = random.randrange(len(noises))
                t.did["noise %d" % number] += send(sock, noises[number]())
                sock.settimeout(0.05)
                answer = receive(sock, 4096)
                t.heard(answer)
                t.did["answered"] += answer != b""
        yield


def attack_flood(t, _):
    """Connections that are made and closed at once."""
    while True:
        for _ in range(64):
            sock = t.call()
            if sock:
                sock.close()
                t.did["hung up on"] += 1
        yield


def attack_wrong_key(t, _):
    """A correct hello under another key."""
    key = Key(os.urandom(32))
    while True:
        sock = t.call()
        if sock:
            with sock:
                answer = key.prove(sock, JOIN)[1]
            t.did["rejected"] += answer[6:7] == bytes([REJECT])
            if answer[6:7] not in (b"", bytes([REJECT])):
                t.take("a welcome under a wrong key")
            t.heard(answer)
        yield


def attack_replay(t, prepared):
    """Frames that a node once sent to make a data connection, sent again."""
    while True:
        for port, (_, frames) in zip(t.ports, prepared):
            sock = t.call(port)
            if not sock:
                continue
            with sock:
                send(sock, frames[0])
                receive(sock, 72)
                send(sock, frames[1] + request(t, 1 << 16))
                answer = receive(sock, 92)
            t.did["rejected"] += answer[6:7] == bytes([REJECT])
            if answer[6:7] not in (b"", bytes([REJECT])):
                t.take("a welcome for a recorded hello")
            t.heard(answer)
        yield


def attack_halfway(t, prepared):
    """Peers that have proved themselves, and go silent in the middle of a request."""
    for sock, _ in prepared:
        t.did["half a request"] += send(sock, b"RMRQ\0\0\1")
    while True:
        yield
        time.sleep(0.05)


def attack_oversized(t, prepared):
    """Peers that have proved themselves, and send requests that make no sense, or under a guessed key."""
    for sock, _ in prepared[len(t.ports):]:
        t.did["4 GiB"] += send(sock, request(t, 0xfffff000))
        if receive(sock, 1):
            t.take("an answer to 4 GiB at once")
    while True:
        for sock, _ in prepared[:len(t.ports)]:
            send(sock, b"".join(request(t, 1 << 16, at << 16) for at in range(4)))
            answer = receive(sock, 4 * 40)
            t.heard(answer)
            for at in range(0, len(answer) - 39, 40):
                if struct.unpack_from("<4sI", answer, at)[1] == 0:
                    t.take("an answer to a guessed attempt")
                t.did["refused"] += 1
        yield


# First the attacks on the machine, as a user; then those at the port. With each: its deeds, and their least number.
ATTACKS = {
    "garbage": (attack_garbage, dict.fromkeys(("random", "cut", "lengthened", "altered", "hung up"), 10)),
    "crowd": (attack_crowd, {"silent": 300, "said HELLO": 300}),
    "deaf": (attack_deaf, {"asked": 1000, "stopped": 8}),
    "descriptors": (attack_descriptors, {"refused at the session socket" if REFUSES else "at the session socket": 10,
                                         **{"wrong %d" % number: 1 for number in range(6)}}),
    "hanging": (attack_hanging, {"hung": 16}),
    "tokens": (attack_tokens, {"not opened": 1, **{"request %d" % number: 1 for number in range(10)}}),
    "fill": (attack_fill, {"MiB": 1, "full": 1}),
    "greedy": (attack_greedy, {"before others": os.cpu_count(), "after it computed": 1}),
    "silent": (attack_silent, {"silent": 128, "half a frame": 128}),
    "noise": (attack_noise, {"answered": 10, **{"noise %d" % number: 1 for number in range(9)}}),
    "flood": (attack_flood, {"hung up on": 1000}),
    "wrong_key": (attack_wrong_key, {"rejected": 10}),
    "replay": (attack_replay, {"rejected": 10}),
    "halfway": (attack_halfway, {"half a request": 4}),
    "oversized": (attack_oversized, {"4 GiB": 2, "refused": 10}),
}


def prepare(name, t, key):
    if name == "hanging":
        return hanging_file()
    if name == "tokens":
        return somebodys_token(t)
    if name in ("replay", "halfway", "oversized"):
        return [key.data_connection(t, port) for port in t.ports * 2]
    return None


def attack(name, seconds, t, prepared):
    """Runs the attack in a child with the uid of `nobody`, until the time is over or SIGTERM. Returns the exit status."""
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16384)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    die_with_parent()
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    steps = ATTACKS[name][0](t, prepared)
    next(steps)
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while not stop and not t.got and time.monotonic() < end:
        next(steps)
        t.steps += 1
    steps.close()
    for line in t.got:
        print("%s got %s" % (name, line))
    did = ", ".join("%s: %d" % item for item in sorted(t.did.items()))
    print("%s: %d times (%s)" % (name, t.steps, did), flush=True)
    lacks = [what for what, least in ATTACKS[name][1].items() if t.did[what] < least and not stop]
    if lacks and not t.got:
        print("%s is no attack, too few: %s" % (name, ", ".join(lacks)))
    return 3 if t.got else 4 if lacks else 0


def main(args):
    if args == ["list"]:
        print("\n".join(ATTACKS))
        return 0
    if len(args) != 4 or args[0] not in ATTACKS:
        print(__doc__, file=sys.stderr)
        return 2
    name, seconds, mount, key = args
    with open(key, "rb") as f:
        key = Key(f.read())
    t = Target(mount)
    prepared = prepare(name, t, key)
    del key
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = attack(name, float(seconds), t, prepared)
        except BaseException:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())
        os.write(ends[1], bytes([status]))
        os._exit(status)
    os.close(ends[1])
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    status = os.read(ends[0], 1)
    if name == "hanging":
        os.kill(prepared[1], signal.SIGKILL)  # otherwise no process that has its file could end
    os.waitpid(child, 0)
    return status[0] if status else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
