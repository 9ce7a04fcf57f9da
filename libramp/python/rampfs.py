"""Segments of memory that move between machines (rampfs), for Python.

    import rampfs
    with rampfs.open() as ramp:                     # the only mount here, or rampfs.open("/mnt/ramp")
        index = ramp.alloc("index", size=1 << 30)
        vectors = index.array("float32", (1000, 128))   # numpy; or index.view(), a memoryview
        vectors[:] = ...
        index.migrate("b")                          # node b owns it from now on
        # or: index.connect("b"), index.prepare() and, when it suits, index.transfer()

    for segment in ramp.receive("index*"):          # on node b: each that arrives, mapped
        print(segment.name, segment.array("float32", (1000, 128))[0])

    async for event in ramp.events():               # asyncio
        print(event.kind, event.name)

A failed call raises rampfs.Error, an OSError with the library's words. Calls that wait let other
threads run. A load of an element whose page has not come yet waits for it, and all of Python's threads
with it; pull() waits for a range and lets them run. A touch of a segment that is on another node is SIGBUS, which ends Python: let go of its arrays
first. A segment is unmapped when it is closed (or gone) and so are all its views and arrays.

It calls libramp.so.1 (libramp(3)), which the environment variable RAMPFS_LIBRAMP may name.
"""

import asyncio
import ctypes as _c
import errno as _errno
import os as _os
import sysconfig as _sysconfig
import time as _time
from typing import NamedTuple

__all__ = ["Error", "Event", "Info", "Move", "Ramp", "Segment", "Watch", "open",
           "AS_SET", "LAZY", "DEMAND", "COPY", "PRECOPY", "AUTO", "ARRIVED", "WHOLE", "LEFT", "MISSED", "ASKED", "CONNECTING", "READY",
           "GIVEN", "SETTLED", "FAILED", "COMING", "CLOSED", "ROUND", "LastMove"]

AS_SET, LAZY, DEMAND, COPY, PRECOPY, AUTO = range(6)
ARRIVED, WHOLE, LEFT, MISSED = "arrived", "whole", "left", "missed"
ASKED, CONNECTING, READY, GIVEN, SETTLED, FAILED = "asked", "connecting", "ready", "given", "settled", "failed"
COMING, CLOSED, ROUND = "coming", "closed", "round"
_KINDS = (None, ARRIVED, WHOLE, LEFT, MISSED, ASKED, CONNECTING, READY, GIVEN, SETTLED, FAILED, COMING, CLOSED,
          ROUND)

_NODE, _NAME = 64, 256


class _Alloc(_c.Structure):
    _fields_ = [("name", _c.c_char_p), ("size", _c.c_uint64), ("extent", _c.c_uint64), ("mode", _c.c_uint),
                ("no_huge", _c.c_int)]


class _Info(_c.Structure):
    _fields_ = [("id", _c.c_uint64), ("size", _c.c_uint64), ("extent", _c.c_uint64), ("addr", _c.c_uint64),
                ("resident", _c.c_uint64), ("node", _c.c_char * _NODE), ("source", _c.c_char * _NODE),
                ("target", _c.c_char * _NODE), ("name", _c.c_char * _NAME), ("state", _c.c_char * 32)]


class _MoveOptions(_c.Structure):
    _fields_ = [("mode", _c.c_int), ("new_name", _c.c_char_p), ("wait_whole", _c.c_int), ("progress", _c.c_int),
                ("max_rounds", _c.c_int)]


class _MoveEvent(_c.Structure):
    _fields_ = [("ended", _c.c_int), ("result", _c.c_int), ("pages", _c.c_uint64), ("all", _c.c_uint64),
                ("text", _c.c_char * 400)]


class _Event(_c.Structure):
    _fields_ = [("kind", _c.c_int), ("id", _c.c_uint64), ("size", _c.c_uint64), ("lost", _c.c_uint64),
                ("node", _c.c_char * _NODE), ("name", _c.c_char * _NAME), ("within_ms", _c.c_uint64),
                ("result", _c.c_int), ("why", _c.c_char * 400)]


class _WatchOptions(_c.Structure):
    _fields_ = [("pattern", _c.c_char_p), ("id", _c.c_uint64), ("receive", _c.c_int), ("phases", _c.c_int),
                ("asked", _c.c_int), ("demand", _c.c_int)]


class _LastMove(_c.Structure):
    _fields_ = [("from_node", _c.c_char * _NODE), ("to_node", _c.c_char * _NODE), ("at_ms", _c.c_uint64),
                ("measured", _c.c_int), ("connect_us", _c.c_uint64), ("rounds_us", _c.c_uint64),
                ("prepare_us", _c.c_uint64), ("asked_us", _c.c_uint64), ("window_us", _c.c_uint64),
                ("whole", _c.c_int), ("pull_us", _c.c_uint64), ("round_pages", _c.c_uint64),
                ("window_pages", _c.c_uint64), ("demand_pages", _c.c_uint64), ("prefetch_pages", _c.c_uint64), ("hole_pages", _c.c_uint64),
                ("local_pages", _c.c_uint64), ("lost_pages", _c.c_uint64), ("transport", _c.c_char * 16)]


_EACH = _c.CFUNCTYPE(_c.c_int, _c.c_void_p, _c.POINTER(_Info))
_P = _c.c_void_p
_OUT = _c.POINTER(_P)
_CALLS = {
    "ramp_error": (_c.c_char_p,),
    "ramp_api_version": (_c.c_int,),
    "ramp_open": (_c.c_int, _c.c_char_p, _OUT),
    "ramp_close": (None, _P),
    "ramp_mount": (_c.c_char_p, _P),
    "ramp_node": (_c.c_char_p, _P),
    "ramp_alloc": (_c.c_int, _P, _c.POINTER(_Alloc), _OUT),
    "ramp_get": (_c.c_int, _P, _c.c_char_p, _c.c_int, _OUT),
    "ramp_get_id": (_c.c_int, _P, _c.c_uint64, _c.c_int, _OUT),
    "ramp_put": (None, _P),
    "ramp_free": (_c.c_int, _P, _c.c_char_p, _c.c_char_p),
    "ramp_data": (_P, _P),
    "ramp_extent": (_c.c_uint64, _P),
    "ramp_id": (_c.c_uint64, _P),
    "ramp_size": (_c.c_int64, _P),
    "ramp_resize": (_c.c_int, _P, _c.c_uint64),
    "ramp_stat": (_c.c_int, _P, _c.POINTER(_Info)),
    "ramp_list": (_c.c_int, _P, _c.c_char_p, _EACH, _P),
    "ramp_move_begin": (_c.c_int, _P, _c.c_uint64, _c.c_char_p, _c.POINTER(_MoveOptions), _OUT),
    "ramp_move_fd": (_c.c_int, _P),
    "ramp_move_next": (_c.c_int, _P, _c.c_int, _c.POINTER(_MoveEvent)),
    "ramp_move_cancel": (_c.c_int, _P),
    "ramp_move_end": (_c.c_int, _P),
    "ramp_connect": (_c.c_int, _P, _c.c_char_p, _c.POINTER(_MoveOptions)),
    "ramp_extend": (_c.c_int, _P, _c.c_uint),
    "ramp_prepare": (_c.c_int, _P),
    "ramp_transfer": (_c.c_int, _P),
    "ramp_finish_write": (_c.c_int, _P), "ramp_try_finish_write": (_c.c_int, _P),
    "ramp_finish_read": (_c.c_int, _P), "ramp_try_finish_read": (_c.c_int, _P),
    "ramp_abort": (_c.c_int, _P),
    "ramp_watch_begin": (_c.c_int, _P, _c.POINTER(_WatchOptions), _OUT),
    "ramp_watch_fd": (_c.c_int, _P),
    "ramp_watch_next": (_c.c_int, _P, _c.c_int, _c.POINTER(_Event)),
    "ramp_watch_end": (None, _P),
    "ramp_quiesced": (_c.c_int, _P, _c.c_uint64),
    "ramp_last_move": (_c.c_int, _P, _c.c_uint64, _c.POINTER(_LastMove)),
    "ramp_receive": (_c.c_int, _P, _c.c_int, _c.c_int, _OUT),
    "ramp_pull": (_c.c_int, _P, _c.c_uint64, _c.c_uint64, _c.c_int),
    "ramp_hint": (_c.c_int, _P, _c.c_uint64, _c.c_uint64),
    "ramp_give_up_rest": (_c.c_int, _P, _c.c_int),
}


def _load():
    """The library: the one that is named, of this installation, or of the system."""
    named = _os.environ.get("RAMPFS_LIBRAMP")
    prefix = _os.path.abspath(_os.path.join(_os.path.dirname(__file__), *[_os.pardir] * 3))
    multiarch = _sysconfig.get_config_var("MULTIARCH") or ""
    places = [_os.path.join(prefix, "lib", multiarch, "libramp.so.1"), _os.path.join(prefix, "lib", "libramp.so.1")]
    path = named or next((p for p in places if _os.path.exists(p)), "libramp.so.1")
    library = _c.CDLL(path)
    for name, (result, *arguments) in _CALLS.items():
        call = getattr(library, name)
        call.restype, call.argtypes = result, arguments
    return library


_lib = _load()


class Error(OSError):
    """What a call failed with: errno, and the library's words."""


class _Timeout(Error, TimeoutError):
    pass


def _check(result):
    if result < 0:
        words = _lib.ramp_error().decode(errors="surrogateescape")
        raise (_Timeout if result == -_errno.ETIMEDOUT else Error)(-result, words or _os.strerror(-result))
    return result


def _tried(result):
    if result == -_errno.EAGAIN:
        return False
    _check(result)
    return True


def _encode(text):
    return None if text is None else _os.fsencode(text)


class Info(NamedTuple):
    """A segment, as the node knows it; sizes in bytes."""
    id: int
    name: str
    node: str    # its owner
    size: int
    extent: int
    addr: int    # 0: it was never mapped
    resident: int
    source: str  # where pages of it still are, or ""
    target: str  # where it is moving to, or ""
    state: str

    @classmethod
    def _of(cls, info):
        return cls(*(_os.fsdecode(value) if isinstance(value, bytes) else value
                     for value in (getattr(info, field) for field in cls._fields)))


def _kind(number):
    """Its name; of a later version of the library: its number, in words."""
    return _KINDS[number] if 0 < number < len(_KINDS) else f"event {number}"


class Event(NamedTuple):
    """What happened: kind is ARRIVED, WHOLE, LEFT, MISSED or, of a receiver with phases, COMING (ramp_receive(3)), or a
    phase of a departure (ramp_departure(3))."""
    kind: str
    id: int
    name: str
    node: str
    size: int
    lost: int
    why: str        # FAILED
    within_ms: int  # ASKED: how long after READY quiesced() may come
    result: int     # FAILED: a negative errno
    left: int       # ROUND: pages that the node has to read again

    @classmethod
    def _of(cls, event):
        kind = _kind(event.kind)
        lost, left = (0, event.lost) if kind == ROUND else (event.lost, 0)
        return cls(kind, event.id, _os.fsdecode(event.name), _os.fsdecode(event.node), event.size,
                   lost, event.why.decode(errors="replace"), event.within_ms, event.result, left)


class LastMove(NamedTuple):
    """What was measured of a segment's last hand-over (ramp_departure(3)); pages of 4096 bytes."""
    from_node: str
    to_node: str
    at_ms: int
    measured: bool  # the next five are known
    connect_us: int
    rounds_us: int
    prepare_us: int
    asked_us: int
    window_us: int
    whole: bool     # the rest is known
    pull_us: int
    round_pages: int
    window_pages: int
    demand_pages: int
    prefetch_pages: int
    hole_pages: int
    local_pages: int
    lost_pages: int
    transport: str


class _Mapping:
    """The mapping, for as long as a view of it is there."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self, put=_lib.ramp_put):
        put(self.handle)


class Segment:
    """A segment that is mapped in this process."""

    def __init__(self, ramp, handle, read_only=False):
        self._ramp, self._mapping, self._read_only = ramp, _Mapping(handle), read_only
        self.id, self.extent, self.addr = _lib.ramp_id(handle), _lib.ramp_extent(handle), _lib.ramp_data(handle)

    @property
    def _handle(self):
        if self._mapping is None:
            raise ValueError("the segment is closed")
        return self._mapping.handle

    def close(self):
        """Lets go of it. It is unmapped when no view or array of it is left."""
        self._mapping = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def size(self):
        return _check(_lib.ramp_size(self._handle))

    def resize(self, size):
        """Makes it that large. Views keep their size."""
        _check(_lib.ramp_resize(self._handle, size))

    def stat(self):
        info = _Info()
        _check(_lib.ramp_stat(self._handle, info))
        return Info._of(info)

    @property
    def name(self):
        return self.stat().name

    def view(self):
        """Its bytes, to read and write; of a segment that is mapped read-only, to read."""
        memory = (_c.c_char * self.size).from_address(self.addr)
        memory.mapping = self._mapping  # a memoryview keeps its object
        view = memoryview(memory).cast("B")
        return view.toreadonly() if self._read_only else view

    def array(self, dtype="uint8", shape=None, offset=0):
        """A numpy array over its bytes from `offset` on; shape None: as many as there are."""
        import numpy
        if shape is None:
            shape = (self.size - offset) // numpy.dtype(dtype).itemsize
        return numpy.ndarray(shape, dtype, self.view(), offset)

    def last_move(self):
        """What its last hand-over has cost; Error with ENODATA: nothing is known of it here."""
        move = _LastMove()
        _check(_lib.ramp_last_move(self._ramp._open(), self.id, move))
        values = (getattr(move, field) for field in LastMove._fields)
        return LastMove(*(_os.fsdecode(value) if isinstance(value, bytes) else value for value in values))

    def pull(self, offset=0, length=0, timeout=None):
        """Fetches a range of bytes (length 0: to the end) before the rest, and waits until it is here; TimeoutError."""
        until = None if timeout is None else _time.monotonic() + timeout
        while True:
            left = -1 if until is None else max(0, int((until - _time.monotonic()) * 1000))
            result = _lib.ramp_pull(self._handle, offset, length, left)
            if result != -_errno.EINTR:  # a signal's handler runs before the next call
                _check(result)
                return

    def hint(self, offset, length=0):
        """Says which range is needed next."""
        _check(_lib.ramp_hint(self._handle, offset, length))

    def give_up_rest(self, zeros=False):
        """Gives up all pages that have not come: they are lost (a touch ends Python), or zeros. Frees the source."""
        _check(_lib.ramp_give_up_rest(self._handle, int(zeros)))

    def migrate(self, node, mode=AS_SET, new_name=None, wait_whole=False, max_rounds=0):
        """Moves it; returns when the node owns it (wait_whole: has every page)."""
        self._ramp.move(self, node, mode, new_name, wait_whole, max_rounds=max_rounds).wait()

    def connect(self, node, mode=LAZY, new_name=None, wait_whole=False, max_rounds=0):
        """Has the node take room and get ready while the segment is in use here; for 30 s (ramp_connect(3))."""
        _check(_lib.ramp_connect(self._handle, _encode(node), _MoveOptions(mode, _encode(new_name), int(wait_whole), 0,
                                                                                       max_rounds)))

    def extend(self, seconds):
        """Keeps it connected for that long from now on; returns for how many seconds that is."""
        return _check(_lib.ramp_extend(self._handle, int(seconds * 1000))) / 1000

    def prepare(self):
        """The cluster's commit, ahead: 5 s before transfer() at most, which does it otherwise."""
        _check(_lib.ramp_prepare(self._handle))

    def transfer(self):
        """Hands it over; returns as soon as the node has it."""
        _check(_lib.ramp_transfer(self._handle))

    def finish_write(self):
        """After connect(mode=PRECOPY): stores into it wait from now on, and no byte changes; loads go on."""
        _check(_lib.ramp_finish_write(self._handle))

    def finish_read(self):
        """After finish_write(): hands it over once the node has every page."""
        _check(_lib.ramp_finish_read(self._handle))

    def try_finish_write(self):
        """The same, without waiting for the node to read ahead: False: not yet, call again."""
        return _tried(_lib.ramp_try_finish_write(self._handle))

    def try_finish_read(self):
        """The same, without waiting for the node to have every page: False: not yet, call again."""
        return _tried(_lib.ramp_try_finish_read(self._handle))

    def abort(self):
        """Gives up what connect() began; any thread."""
        _check(_lib.ramp_abort(self._handle))


class Move:
    """A move under way: wait() for its end, `await` it, or take its progress by next(). One that nothing refers to any
    more is waited for: keep it, or cancel() it, where that must not block."""

    def __init__(self, ramp, handle):
        self._ramp, self._handle, self._ended, self._error = ramp, handle, False, None

    def next(self, timeout=None):
        """(pages that have come, of how many, the state's name); None: it has ended; TimeoutError."""
        if self._ended:
            return None
        event = _MoveEvent()
        _check(_lib.ramp_move_next(self._handle, -1 if timeout is None else int(timeout * 1000), event))
        self._ended = bool(event.ended)
        return None if event.ended else (event.pages, event.all, event.text.decode(errors="replace"))

    def cancel(self):
        if self._handle is not None:
            _check(_lib.ramp_move_cancel(self._handle))

    def wait(self):
        """Waits for its end; raises Error where it failed."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._ended = True
            try:
                _check(_lib.ramp_move_end(handle))
            except Error as error:
                self._error = error
        if self._error:
            raise self._error

    def __await__(self):
        while not self._ended:
            yield from _readable(_lib.ramp_move_fd(self._handle)).__await__()
            try:
                self.next(0)
            except TimeoutError:
                pass
        self.wait()

    def __del__(self, end=_lib.ramp_move_end):
        if self._handle is not None:
            end(self._handle)


_waiting = {}  # (an event loop, a descriptor): the futures of those that wait for it


async def _readable(fd):
    """Waits until it is readable. Several may wait: a loop has one callback for a descriptor, which wakes all."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    waiting = _waiting.setdefault((loop, fd), [])
    if not waiting:
        loop.add_reader(fd, _wake, waiting)
    waiting.append(ready)
    try:
        await ready
    finally:
        waiting.remove(ready)
        if not waiting:
            loop.remove_reader(fd)
            del _waiting[loop, fd]


def _wake(waiting):
    for ready in waiting:
        if not ready.done():
            ready.set_result(None)


class Watch:
    """Events of a node: an iterator, and an asynchronous one."""

    def __init__(self, ramp, handle):
        self._ramp, self._handle = ramp, handle

    def _open(self):
        if self._handle is None:
            raise ValueError("the watch is closed")
        return self._handle

    def fileno(self):
        """Readable while there may be an event."""
        return _lib.ramp_watch_fd(self._open())

    def next(self, timeout=None):
        """The next event; TimeoutError where there is none in `timeout` seconds."""
        event = _Event()
        _check(_lib.ramp_watch_next(self._open(), -1 if timeout is None else int(timeout * 1000), event))
        return Event._of(event)

    def receive(self, timeout=None, read_only=False):
        """The next segment that arrives, mapped; TimeoutError where there is none in `timeout` seconds."""
        out = _P()
        _check(_lib.ramp_receive(self._open(), -1 if timeout is None else int(timeout * 1000), int(read_only), out))
        return Segment(self._ramp, out.value, read_only)

    def quiesced(self, id):
        """Answers ASKED for the segment of that number: it may leave. Error with EAGAIN: a call of its heap has
        not returned yet."""
        _check(_lib.ramp_quiesced(self._open(), id))

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            try:
                return self.next(0)
            except TimeoutError:
                await _readable(self.fileno())

    def close(self):
        handle, self._handle = self._handle, None
        _lib.ramp_watch_end(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self, end=_lib.ramp_watch_end):
        end(self._handle)


class Ramp:
    """A node's mount."""

    def __init__(self, mount=None):
        self._handle = None
        out = _P()
        _check(_lib.ramp_open(_encode(mount), out))
        self._handle = out.value
        self.mount, self.node = _os.fsdecode(_lib.ramp_mount(out)), _os.fsdecode(_lib.ramp_node(out))

    def close(self):
        """Lets go of it; its segments stay."""
        handle, self._handle = self._handle, None
        _lib.ramp_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self, close=_lib.ramp_close):
        close(self._handle)

    def _open(self):
        if self._handle is None:
            raise ValueError("the mount is closed")
        return self._handle

    def alloc(self, name, size, extent=0, mode=0, no_huge=False):
        """Makes a segment of zeros here and maps it; extent: how far it may grow."""
        out = _P()
        _check(_lib.ramp_alloc(self._open(), _Alloc(_encode(name), size, extent, mode, int(no_huge)), out))
        return Segment(self, out.value)

    def get(self, name, read_only=False):
        """Maps a segment of this node, by its name or its number."""
        out = _P()
        if isinstance(name, int):
            _check(_lib.ramp_get_id(self._open(), name, int(read_only), out))
        else:
            _check(_lib.ramp_get(self._open(), _encode(name), int(read_only), out))
        return Segment(self, out.value, read_only)

    def free(self, name, node=None):
        """Removes a segment of this node, or of another one."""
        _check(_lib.ramp_free(self._open(), _encode(node), _encode(name)))

    def segments(self, node=None):
        """All segments that a node owns, or that are moving to it."""
        found = []

        @_EACH
        def each(_, info):
            found.append(Info._of(info.contents))
            return 0
        _check(_lib.ramp_list(self._open(), _encode(node), each, None))
        return found

    def move(self, segment, node, mode=AS_SET, new_name=None, wait_whole=False, progress=False, max_rounds=0):
        """Begins to move a segment (of any node: its number or a Segment)."""
        out = _P()
        options = _MoveOptions(mode, _encode(new_name), int(wait_whole), int(progress), max_rounds)
        number = segment.id if isinstance(segment, Segment) else segment
        _check(_lib.ramp_move_begin(self._open(), number, _encode(node), options, out))
        return Move(self, out.value)

    def events(self, pattern=None, id=0, receive=False, phases=False, asked=False, demand=False):
        """A watch of what happens here to segments of that name or number. phases: with the phases of departures;
        asked: and a segment that is mapped here leaves only after quiesced(); demand: of a receiver, pages come as they are
        touched or pulled, not in the background."""
        out = _P()
        options = _WatchOptions(_encode(pattern), id, int(receive), int(phases), int(asked), int(demand))
        _check(_lib.ramp_watch_begin(self._open(), options, out))
        return Watch(self, out.value)

    def receive(self, pattern=None, timeout=None, read_only=False, demand=False):
        """Yields each segment that arrives, mapped; ends after `timeout` seconds without one."""
        with self.events(pattern, receive=True, demand=demand) as watch:
            while True:
                try:
                    yield watch.receive(timeout, read_only)
                except TimeoutError:
                    return
                except Error as error:  # the daemon was followed by another one
                    if error.errno != _errno.ESTALE:
                        raise


def open(mount=None):
    """Opens a node's mount; None: the one of RAMPFS_MOUNT, or the only one of this machine."""
    return Ramp(mount)
