"""The Python module on a cluster's mounts: python.py MOUNT-A MOUNT-B (of nodes a and b)."""
import asyncio
import errno
import gc
import os
import sys
import threading
import time

import numpy
import rampfs


def refused(code, call, *args, **named):
    try:
        call(*args, **named)
    except rampfs.Error as error:
        assert error.errno == code and error.strerror, error
    else:
        raise AssertionError(f"not refused: {call}")


def is_mapped(addr):
    with open("/proc/self/maps", encoding="ascii") as maps:
        return any(line.startswith(f"{addr:x}-") for line in maps)


def life(a):
    segment = a.alloc("s", 3 << 20, mode=0o640)
    assert os.stat(f"{a.mount}/a/s").st_mode & 0o777 == 0o640
    view, array = segment.view(), segment.array("int64", offset=8)
    assert len(view) == 3 << 20 and view[0] == 0 and array.shape == ((3 << 20) // 8 - 1,)
    view[8:16] = (4711).to_bytes(8, "little")
    assert array[0] == 4711
    array[1] = 5
    assert int.from_bytes(view[16:24], "little") == 5
    segment.resize(4 << 20)
    assert segment.size == 4 << 20 and len(segment.view()) == 4 << 20 and len(view) == 3 << 20
    assert a.get("s").addr == segment.addr == a.get(segment.id, read_only=True).addr
    reader = a.get("s", read_only=True)
    assert reader.view().readonly and not reader.array().flags.writeable and not view.readonly
    assert reader.view()[8:10] == view[8:10]
    reader.close()
    info = segment.stat()
    assert info.name == segment.name == "s" and info.node == "a" and info.state == "stable" and info.target == ""
    assert [s.name for s in a.segments("a")] == ["s"] and not a.segments("b")
    # The mapping stays as long as a view of it is there, and no longer.
    addr = segment.addr
    segment.close()
    del view
    gc.collect()
    assert array[0] == 4711 and is_mapped(addr)
    del array
    gc.collect()
    assert not is_mapped(addr)
    try:
        segment.view()
        raise AssertionError("a view of a closed segment")
    except ValueError:
        pass
    refused(errno.EEXIST, a.alloc, "s", 1)
    refused(errno.ENOENT, a.get, "none")
    refused(errno.EINVAL, a.alloc, "a/b", 1)
    refused(errno.ENOTTY, rampfs.open, "/proc")
    name = os.fsdecode(b"\xff\\x")
    a.alloc(name, 1)
    assert name in [s.name for s in a.segments()]
    a.free(name)
    a.free("s")


def moves(a, b):
    segment = a.alloc("moved", 64 << 20)
    segment.array()[:] = 7
    refused(errno.ENOENT, segment.migrate, "nowhere")
    seen = []
    move = a.move(segment, "b", mode=rampfs.COPY, progress=True)
    while (news := move.next()) is not None:
        seen.append(news)
    move.wait()
    refused(errno.EREMOTE, a.get, "moved")
    back = b.move(segment.id, "a", new_name="again", wait_whole=True)
    back.wait()
    assert segment.name == "again" and int(segment.array().sum()) == 7 * (64 << 20)
    del segment, move, back
    a.free("again")


def in_steps(a, b):
    """Each arrival, by an iterator that waits for it in a thread of its own."""
    got = []

    def receiver():
        for segment in b.receive("step*", timeout=20):
            with segment:
                got.append((segment.name, int(segment.array("uint64")[0])))
            if len(got) == 2:
                return
    thread = threading.Thread(target=receiver)
    thread.start()
    for name in "step1", "step2":
        with a.alloc(name, 8192) as segment:
            refused(errno.ENOTCONN, segment.transfer)
            refused(errno.ENOENT, segment.connect, "nowhere")
            segment.connect("b")
            assert 30 < segment.extend(60) <= 60
            segment.abort()
            if name == "step1":
                segment.connect("b", mode=rampfs.DEMAND, new_name=name + "b")
                segment.prepare()
                segment.array("uint64")[0] = 4711
                segment.transfer()
                continue
            watch = a.events(id=segment.id, phases=True)
            refused(errno.EINVAL, segment.connect, "b", max_rounds=101)
            segment.connect("b", mode=rampfs.PRECOPY, new_name=name + "b", max_rounds=1)
            refused(errno.EINVAL, segment.finish_read)
            segment.try_finish_write()  # asks for the rounds
            segment.array("uint64")[0] = 4711
            segment.finish_write()
            assert segment.array("uint64")[0] == 4711
            while not segment.try_finish_read():
                pass
            kinds = [watch.next(20).kind]
            while kinds[-1] != rampfs.LEFT:
                kinds.append(watch.next(20).kind)
            assert kinds.count(rampfs.CLOSED) == 1 and kinds.index(rampfs.CLOSED) < kinds.index(rampfs.GIVEN), kinds
    thread.join()
    assert got == [("step1b", 4711), ("step2b", 4711)], got
    for name, _ in got:
        b.free(name)


def pulls(a, b):
    with a.alloc("pulled", 8 << 20) as segment:
        segment.array()[:] = 7
        number = segment.id
    a.move(number, "b", mode=rampfs.DEMAND).wait()  # one process has one node's mapping of it at a time
    segment = b.get("pulled")
    segment.hint(1 << 20, 4096)
    segment.pull(4096, 1 << 20, timeout=60)
    segment.pull(1 << 20, 8192)
    refused(errno.EINVAL, segment.pull, 1, (1 << 64) - 1)
    refused(errno.EACCES, b.get("pulled", read_only=True).give_up_rest)
    segment.give_up_rest(zeros=True)
    segment.pull()
    assert int(segment.array().sum()) == 7 * ((1 << 20) + 8192 - 4096), int(segment.array().sum())
    b.move(number, "a").wait()
    refused(errno.EREMOTE, segment.pull)
    refused(errno.EREMOTE, segment.hint, 0)
    segment.close()
    a.free("pulled")


def received(a, b):
    got = []
    ready = threading.Event()

    def receiver():
        with b.events("in*", receive=True) as watch:
            ready.set()
            for _ in range(2):
                with watch.receive(60) as segment:
                    got.append((segment.name, bytes(segment.view()[:3])))
            try:
                watch.receive(0)
            except TimeoutError:
                got.append("none")
    thread = threading.Thread(target=receiver)
    thread.start()
    ready.wait()
    refused(errno.EBUSY, b.events, "in*", receive=True)
    for name in "in1", "out", "in2":
        with a.alloc(name, 4096) as segment:
            segment.view()[:3] = name.encode()
            number = segment.id
        if name == "out":
            by_id = b.events(id=number, receive=True)
        a.move(number, "b").wait()  # one process has one node's mapping of it at a time
    with by_id, by_id.receive(20) as segment:
        assert segment.name == "out", segment.name
    thread.join()
    assert got == [("in1", b"in1"), ("in2", b"in2"), "none"], got
    for name in "in1", "in2", "out":
        a.free(name, node="b")
    assert not list(b.receive("none", timeout=0.05))


def on_demand(a, b):
    """A receiver may do without prefetch; not where the move waits for every page."""
    for whole in False, True:
        with a.alloc("wanted", 8 << 20) as segment:
            segment.array()[:] = 7
            number = segment.id
        with b.events("want*", receive=True, demand=True) as watch:
            a.move(number, "b", mode=rampfs.LAZY, wait_whole=whole).wait()
            segment = watch.receive(20)
        time.sleep(0.3)
        assert segment.stat().resident == (8 << 20 if whole else 0), (whole, segment.stat())
        segment.hint(0)
        segment.pull(1 << 20, 8192, timeout=20)
        deadline = time.monotonic() + 20
        while segment.stat().state != "stable" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert segment.stat().resident == 8 << 20 and int(segment.array().sum()) == 7 * (8 << 20)
        segment.close()
        a.free("wanted", node="b")


async def events(a, b):
    async def hear(watch, count):
        seen = []
        async for event in watch:
            seen.append((event.kind, event.name, event.node))
            if len(seen) == count:
                return seen

    with a.alloc("told", 4096), a.events() as at_a, b.events("to*", receive=True, phases=True) as at_b:
        hearers = asyncio.gather(hear(at_a, 1), hear(at_b, 3))
        await asyncio.sleep(0)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        ticking = asyncio.create_task(tick())
        await a.move(a.get("told"), "b", wait_whole=True)
        at_a_seen, at_b_seen = await asyncio.wait_for(hearers, 60)
        ticking.cancel()
    assert at_a_seen == [("left", "told", "b")], at_a_seen
    assert at_b_seen == [("coming", "told", "a"), ("arrived", "told", "a"), ("whole", "told", "a")], at_b_seen
    assert ticks > 1
    assert rampfs._kind(2) == rampfs.WHOLE and rampfs._kind(99) == "event 99"
    for call in at_b.next, at_b.receive, at_b.fileno, lambda: at_b.quiesced(1):
        try:
            call()
            raise AssertionError("a closed watch was used")
        except ValueError:
            pass
    a.free("told", node="b")


async def many_wait(a, b):
    """Each of several that wait for one watch, or for one move, is woken."""
    with a.events("twice*", asked=True) as watch:
        async def one():
            async for event in watch:
                return event
        waiting = [asyncio.create_task(one()) for _ in range(2)]
        await asyncio.sleep(0.05)
        segment = a.alloc("twice", 4096)
        move = a.move(segment, "b")
        seen = await asyncio.wait_for(asyncio.gather(*waiting), 20)
        asked = [event for event in seen if event.kind == rampfs.ASKED]
        assert len(seen) == 2 and len(asked) == 1 and asked[0].within_ms == 1000 and asked[0].result == 0, seen
        watch.quiesced(segment.id)
        await asyncio.wait_for(asyncio.gather(move_ends(move), move_ends(move)), 20)
        del segment
    a.free("twice", node="b")


async def move_ends(move):
    await move


def main():
    with rampfs.open(sys.argv[1]) as a, rampfs.open(sys.argv[2]) as b:
        assert (a.node, b.node) == ("a", "b")
        life(a)
        moves(a, b)
        pulls(a, b)
        received(a, b)
        in_steps(a, b)
        on_demand(a, b)
        asyncio.run(events(a, b))
        asyncio.run(many_wait(a, b))
        deadline = time.monotonic() + 20
        while a.segments() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not a.segments(), a.segments()
    try:
        a.segments()
        raise AssertionError("a closed mount was used")
    except ValueError:
        pass


main()
