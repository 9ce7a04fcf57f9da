"""Two users on several nodes at once: a change that the kernel of one node allowed may be forbidden when it
is committed, since another node has changed the file before.   owners.py MNT [STORY...]"""
import ctypes, errno, os, random, subprocess, sys, time

mnt = sys.argv[1]
A, B, C = (f"{mnt}/{n}" for n in "abc")
ONE, OTHER = 65534, 1000
libc = ctypes.CDLL(None, use_errno=True)


def fail(text):
    sys.exit(f"FAILED: {text}")


def as_user(uid, fn, *args):
    """Runs fn in a process of that user; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    status = 1
    try:
        status = fn(*args) or 0
    except BaseException as e:
        print(f"uid {uid}: {e!r}", file=sys.stderr)
    os._exit(status)


def done(*pids):
    for pid in pids:
        if os.waitpid(pid, 0)[1]:
            fail("a user's process failed")


def error(fn, *args):
    try:
        fn(*args)
        return 0
    except OSError as e:
        return e.errno


def make(path, uid, mode=0o644, data=b""):
    with open(path, "wb") as f:
        f.write(data)
    os.chown(path, uid, uid)
    os.chmod(path, mode)


def at_once(n, *sides):
    """For each side (uid, fn) calls fn(i) for i in range(n), all at about the same times."""
    begin = time.time() + 0.3

    def side(seed, fn):
        rng = random.Random(seed)
        for i in range(n):
            at = begin + i * 0.02 + rng.random() * 0.003
            while time.time() < at:
                pass
            fn(i)

    done(*(as_user(uid, side, k, fn) for k, (uid, fn) in enumerate(sides)))


def a_rename_replaces_nobody_elses():
    n = 60
    for i in range(n):
        make(f"{A}/a/m{i}", ONE)

    made = os.pipe()

    def create_and_say(i):
        os.close(os.open(f"{A}/a/g{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.write(made[1], b"%d\n" % i)

    def create_quietly(i):
        error(create_and_say, i)

    at_once(n, (ONE, lambda i: error(os.rename, f"{C}/a/m{i}", f"{C}/a/g{i}")), (OTHER, create_quietly))
    os.close(made[1])
    with os.fdopen(made[0]) as f:
        created = [int(line) for line in f]
    lost = [i for i in created if os.stat(f"{A}/a/g{i}").st_uid != OTHER]
    if lost:
        fail(f"of {len(created)} new files the other user's rename replaced {len(lost)}")
    for name in os.listdir(f"{A}/a"):
        os.unlink(f"{A}/a/{name}")
    return f"{len(created)} of {n} created first"


def a_former_owner_sets_no_mode():
    n = 30
    for i in range(n):
        make(f"{A}/a/o{i}", ONE, 0o777)

    def chmod_while_it_is_mine(i):
        end = time.time() + 0.015
        while time.time() < end:
            error(os.chmod, f"{B}/a/o{i}", 0o4777)

    at_once(n, (ONE, chmod_while_it_is_mine), (0, lambda i: os.chown(f"{A}/a/o{i}", 0, 0)))
    bad = [i for i in range(n) if os.stat(f"{A}/a/o{i}").st_mode & 0o4000]
    if bad:
        fail(f"the old owner made {len(bad)} of {n} of root's files set-user-ID")
    for i in range(n):
        os.unlink(f"{A}/a/o{i}")


def nor_through_a_file_that_was_open():
    for where in A, B:
        make(f"{A}/a/open", ONE, 0o666)
        while os.stat(f"{where}/a/open").st_mode & 0o7777 != 0o666:
            time.sleep(0.01)
        r, w = os.pipe()

        def former_owner():
            fd = os.open(f"{where}/a/open", os.O_RDWR)
            os.close(w)
            os.read(r, 1)
            said = [error(os.fchmod, fd, 0o4777), error(os.fchown, fd, ONE, ONE),
                    error(lambda: os.utime(fd, (1, 1)))]
            if said != [errno.EPERM] * 3:
                fail(f"fchmod, fchown and futimens of an old owner: {said}")

        pid = as_user(ONE, former_owner)
        os.close(r)
        time.sleep(0.2)
        os.chown(f"{C}/a/open", 0, 0)
        make(f"{C}/c/after", 0)
        while not os.path.exists(f"{where}/c/after"):  # no stat of the file: the kernel knows its old owner
            time.sleep(0.01)
        os.close(w)
        done(pid)
        st = os.stat(f"{A}/a/open")
        if st.st_uid or st.st_mode & 0o7777 != 0o666 or st.st_mtime == 1:
            fail(f"an old owner's open file changed {st}")
        os.unlink(f"{A}/a/open")
        os.unlink(f"{C}/c/after")


def hunt(i, act):
    """Acts on a third node as soon as the move of x is seen there, until the move is decided."""
    x = f"{A}/a/x{i}"
    mover = subprocess.Popen(["rampfs-migrate", x, "b"], stderr=subprocess.DEVNULL)
    here = f"{C}/a/x{i}"
    code = errno.EBUSY
    while code == errno.EBUSY:
        try:
            if os.getxattr(here, "user.ramp.state") == b"moving":
                code = error(act)
        except OSError as e:
            code = e.errno
    return mover.wait(), code


def a_name_that_has_left_is_not_changed_where_it_is():
    n = 8
    data = os.urandom(1 << 20) * 8
    for i in range(n):
        make(f"{A}/a/x{i}", ONE, data=data)
        make(f"{B}/b/y{i}", (ONE, OTHER)[i % 2], 0o600)
    there = [os.stat(f"{B}/b/y{i}").st_ino for i in range(n)]

    def rename(i):
        hunt(i, lambda: os.rename(f"{C}/a/x{i}", f"{C}/a/y{i}"))

    def unlink(i):
        moved, code = hunt(i, lambda: os.unlink(f"{C}/a/x{i}"))
        return moved == 0 and code == 0

    for i in range(n):
        done(as_user(ONE, rename, i))
    lost = [i for i in range(n) if os.stat(f"{B}/b/y{i}").st_ino != there[i]]
    if lost:
        fail(f"{len(lost)} of {n} files in another directory were replaced")
    for d in "ab":
        for name in os.listdir(f"{B}/{d}"):
            os.unlink(f"{B}/{d}/{name}")
    both = 0
    for i in range(n):
        make(f"{A}/a/x{i}", ONE, data=data)
        pid = as_user(ONE, unlink, i)
        both += os.waitpid(pid, 0)[1] != 0
    if both:
        fail(f"{both} of {n} files were moved and removed, both without an error")
    for d in "ab":
        for name in os.listdir(f"{B}/{d}"):
            os.unlink(f"{B}/{d}/{name}")


def in_namespace(fn, first, count):
    """Runs fn as root of a user namespace of the users first...; returns its pid."""
    ready, mapped = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if libc.unshare(0x10000000):
                raise OSError(ctypes.get_errno(), "unshare")
            os.write(ready[1], b"1")
            os.read(mapped[0], 1)
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            status = fn() or 0
        except BaseException as e:
            print(f"in a namespace: {e!r}", file=sys.stderr)
        os._exit(status)
    os.read(ready[0], 1)
    for which in "uid", "gid":
        with open(f"/proc/{pid}/{which}_map", "w") as f:
            f.write(f"0 {first} {count}")
    os.write(mapped[1], b"1")
    return pid


def who_may_is_not_refused():
    make(f"{A}/a/contained", 100005)
    make(f"{A}/a/contained2", 100006)
    make(f"{A}/a/foreign", OTHER)

    def contained_root():
        os.chmod(f"{B}/a/contained", 0o600)
        os.utime(f"{B}/a/contained", (1, 1))
        os.chown(f"{B}/a/contained", 3, 3)
        os.rename(f"{B}/a/contained", f"{B}/a/contained2")
        said = [error(os.chmod, f"{B}/a/foreign", 0o600), error(os.unlink, f"{B}/a/foreign")]
        if said != [errno.EPERM] * 2:
            fail(f"root of a namespace, on a file that is none of it: {said}")
        os.unlink(f"{B}/a/contained2")

    done(in_namespace(contained_root, 100000, 1000))
    until = time.monotonic() + 5
    while os.listdir(f"{A}/a") != ["foreign"]:  # it was unlinked on another node
        if time.monotonic() > until:
            fail(f"left: {os.listdir(f'{A}/a')}")
        time.sleep(0.01)
    # A writer may touch and cut the file, which takes the bits away.
    os.chmod(f"{A}/a/foreign", 0o4666)

    def writer():
        os.utime(f"{B}/a/foreign")
        os.truncate(f"{A}/a/foreign", 10)
        return error(os.utime, f"{B}/a/foreign", (1, 1)) != errno.EPERM

    done(as_user(ONE, writer))
    if os.stat(f"{A}/a/foreign").st_mode & 0o7777 != 0o666:
        fail(f"after a truncate the mode is {os.stat(f'{A}/a/foreign').st_mode:o}")
    caps = ["setpriv", f"--reuid={ONE}", f"--regid={ONE}", "--clear-groups", "--inh-caps=+fowner,+chown",
            "--ambient-caps=+fowner,+chown"]
    for args in ["chmod", "600", f"{B}/a/foreign"], ["chown", "7", f"{A}/a/foreign"], \
            ["touch", "-d", "@1", f"{A}/a/foreign"], ["mv", f"{B}/a/foreign", f"{B}/a/f"], ["rm", "-f", f"{B}/a/f"]:
        if subprocess.call(caps + args):
            fail(f"{args} with the capabilities")


for story in (who_may_is_not_refused, a_former_owner_sets_no_mode, nor_through_a_file_that_was_open,
              a_rename_replaces_nobody_elses, a_name_that_has_left_is_not_changed_where_it_is):
    if sys.argv[2:] and story.__name__ not in sys.argv[2:]:
        continue
    begin = time.time()
    print(f"{story.__name__}: {story() or ''} ({time.time() - begin:.1f} s)", flush=True)
