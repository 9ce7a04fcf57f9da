/*
 * Random operations on one segment that moves between three nodes, held against a plain tmpfs file.
 *
 *	rampfs-run fsx [--ops N] [--seed S] [--lie N] MOUNT_A MOUNT_B MOUNT_C
 *
 * Happy path: a worker on each node has the segment open, and mapped once it was the owner there.
 * The driver draws an operation, has the owner's worker carry it out, does the same to the model (a
 * memfd) and compares the results; the others must say EREMOTE, and their old mappings SIGBUS.
 * It continues at a new owner as soon as the move returns, while pages are still coming. All draws
 * follow from the seed alone, so a failure can be tried again.
 *
 * How it fails: the first difference ends it with the seed, the operation's number and the last 50
 * operations; so does an answer that does not come within a minute. --lie N changes a byte of the
 * model before operation N: a run that does not notice is worthless (fsx.sh tries it).
 *
 * Offsets are drawn from three zones, at 0, around 4 GiB and around 9 GiB; the ranges between them
 * are holes.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/falloc.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "fsx.h"

static unsigned long all_ops = 5000, lie_at, moves, refused;
static long base; /* where offset 0 is mapped, on every node; 0: not known yet */

/* ---- the operations ---- */

static void op_read(void)
{
	struct call c = {.verb = READ};
	long want;

	draw_range(&c.off, &c.len);
	note("read %ld %ld", c.off, c.len);
	want = pread(model, expected, (size_t)c.len, c.off);
	must(&c, want);
	same_bytes(nodes[owner].wire->data, want, c.off);
}

static void write_both(struct call *c)
{
	uint8_t *data = nodes[owner].wire->data;

	fill(data, c->len);
	model_did(pwrite(model, data, (size_t)c->len, c->off), "write");
	must(c, c->len);
}

static void op_write(void)
{
	struct call c = {.verb = WRITE};

	draw_range(&c.off, &c.len);
	note("write %ld %ld", c.off, c.len);
	write_both(&c);
}

static void op_append(void)
{
	struct call c = {.verb = APPEND, .off = model_size(), .len = draw_length()};

	if (!in_zone(c.off, c.len))
		return;
	note("append at %ld %ld", c.off, c.len);
	write_both(&c);
}

static void op_truncate(void)
{
	struct call c = {.verb = TRUNCATE};
	long size = model_size(), len;

	draw_range(&c.off, &len);
	/* Draws a lower zone seldom: that takes much away. */
	for (int i = 0; i < 3 && c.off < size - ZONE; i++)
		draw_range(&c.off, &len);
	note("truncate from %ld to %ld", size, c.off);
	model_did(ftruncate(model, c.off), "truncate");
	must(&c, 0);
}

static void op_allocate(void)
{
	struct call c = {.verb = ALLOCATE};
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};

	draw_range(&c.off, &c.len);
	c.how = modes[draw(4)];
	note("fallocate mode %d %ld %ld", c.how, c.off, c.len);
	model_did(fallocate(model, c.how, c.off, c.len), "fallocate");
	must(&c, 0);
}

/* Says whether the byte is lost or only not reported, by a read and another seek of its page. */
static void say_page(long at)
{
	struct call c = {.verb = SEEK, .how = SEEK_DATA, .off = at / PAGE * PAGE, .len = PAGE};

	printf("  asked again, data is at %ld\n", ask(owner, &c)->rc);
	c.verb = READ;
	printf("  a read gets %ld bytes, ", ask(owner, &c)->rc);
	printf("of which that one is %02x\n", nodes[owner].wire->data[at % PAGE]);
}

/* Fails unless the model's [from, to) is all zeros. */
static void must_be_zero(long from, long to)
{
	while (from < to) {
		long at = lseek(model, from, SEEK_DATA), n;

		if (at < 0 || at >= to)
			return;
		n = pread(model, expected, (size_t)(to - at < IO_MAX ? to - at : IO_MAX), at);
		for (long i = 0; i < n; i++)
			if (expected[i]) {
				say_page(at + i);
				fail("byte %ld is %02x, and said to be in a hole", at + i,
				     expected[i]);
			}
		from = at + n;
	}
}

/* Returns the part of the gap behind a zone that is a hole on every node: without the pages that a
   huge page may take beside a zone. */
static void sure_gap(int zone, long *from, long *to)
{
	*from = zones[zone] + ZONE + HUGE_PAGE;
	*to = zones[zone + 1] - HUGE_PAGE;
}

/* Returns whether every page is at the owner. Until then it may not know the holes, and say data. */
static bool is_whole(void)
{
	char path[PATH_MAX], state[16];
	ssize_t n;

	path_of(path, sizeof(path), owner, owner);
	n = getxattr(path, "user.ramp.state", state, sizeof(state));
	return n == 6 && memcmp(state, "stable", 6) == 0;
}

static void must_not_reach_a_gap(long from, long to)
{
	long begin, end;

	for (int z = 0; z < 2; z++) {
		sure_gap(z, &begin, &end);
		if (from < end && begin < to)
			fail("%ld to %ld is said to be data, but %ld to %ld was never written",
			     from, to, begin, end);
	}
}

/* Draws an offset in a zone, and now and then one between two zones. */
static long draw_place(void)
{
	long off, len, end;

	if (draw(4)) {
		draw_range(&off, &len);
	} else {
		sure_gap((int)draw(2), &off, &end);
		off += draw(end - off);
	}
	return off;
}

/* Checks a seek's answer that is no error against the model and the gaps. */
static void check_seek(const struct call *c, long got, long size, bool whole)
{
	if (c->how == SEEK_DATA)
		must_be_zero(c->off, got);
	else
		must_be_zero(got, round_up(got + 1) < size ? round_up(got + 1) : size);
	if (whole && c->how == SEEK_DATA)
		must_not_reach_a_gap(got, got + 1);
	else if (whole)
		must_not_reach_a_gap(c->off, got);
}

/* Seeks from data to hole to data, `max_steps` times or until the end. */
static void seek_on(long off, long max_steps)
{
	struct call c = {.verb = SEEK, .off = off};
	long size = model_size();
	bool whole = is_whole();

	for (long steps = 0; steps < max_steps; steps++) {
		const struct answer *a;

		c.how = steps % 2 ? SEEK_HOLE : SEEK_DATA;
		note("seek %s %ld%s", steps % 2 ? "hole" : "data", c.off, whole ? "" : ", pulling");
		if (c.off >= size) {
			must_refuse(owner, &c, ENXIO);
			return;
		}
		a = ask(owner, &c);
		if (a->rc < 0 && c.how == SEEK_DATA && a->code == ENXIO) {
			must_be_zero(c.off, size);
			return;
		}
		if (a->rc < c.off || a->rc > size || (a->rc == size && c.how == SEEK_DATA))
			fail("got %ld (errno %d), the size is %ld", a->rc, a->code, size);
		check_seek(&c, a->rc, size, whole);
		c.off = a->rc;
	}
}

static void op_seek(void)
{
	seek_on(draw_place(), 8);
}

static void op_sync(void)
{
	struct call c = {.verb = SYNC, .how = (int)draw(4)};

	note("sync %d", c.how);
	must(&c, 0);
}

static void op_stat(void)
{
	struct call c = {.verb = STAT};
	long blocks;

	note("stat");
	must(&c, model_size());
	blocks = nodes[owner].wire->answer.blocks;
	if (blocks > BLOCKS_OK)
		fail("a sparse file takes %ld blocks", blocks);
}

static void op_load(void)
{
	struct call c = {.verb = LOAD};
	long kind = draw(40);

	if (!draw_mapped(&c.off, &c.len, round_up(model_size())))
		return;
	c.verb = kind == 0 ? LOAD_BY_CHILD : kind < 8 ? LOAD_BY_CALL : LOAD;
	note("load %ld %ld%s", c.off, c.len,
	     c.verb == LOAD ? ""
	     : kind	    ? " by a system call"
			    : " by a child");
	must(&c, c.len);
	same_bytes(nodes[owner].wire->data, c.len, c.off);
}

static void op_store(void)
{
	struct call c = {.verb = draw(5) ? STORE : STORE_BY_CALL};

	if (!draw_mapped(&c.off, &c.len, model_size()))
		return;
	note("store %ld %ld%s", c.off, c.len, c.verb == STORE ? "" : " by a system call");
	if (nodes[owner].prot & PROT_WRITE)
		write_both(&c);
	else if (c.verb == STORE)
		must_die(owner, &c, SIGSEGV);
	else
		must_refuse(owner, &c, EFAULT);
}

static void op_copy_inside(void)
{
	struct call c = {.verb = COPY_INSIDE};
	long size = model_size(), len;

	if (!draw_mapped(&c.off, &c.len, size) || !(nodes[owner].prot & PROT_WRITE))
		return;
	draw_range(&c.from, &len);
	if (c.from + c.len > size || (c.from < c.off + c.len && c.off < c.from + c.len))
		return;
	note("read %ld %ld into the mapping at %ld", c.from, c.len, c.off);
	model_did(pread(model, expected, (size_t)c.len, c.from), "read");
	model_did(pwrite(model, expected, (size_t)c.len, c.off), "write");
	must(&c, c.len);
}

/*
 * Expects SIGBUS. But a huge page to which the kernel holds a reference just when the file is cut within
 * it (as DAMON or compaction does) stays whole on any tmpfs, and its rest is zeros then.
 */
static void op_past_the_end(void)
{
	struct call c = {.verb = LOAD, .len = 1};
	const struct node *n = &nodes[owner];
	long size = model_size();

	c.off = round_up(size) + draw(ZONE);
	if (!n->mapped || c.off < n->map_off || c.off >= n->map_off + n->map_len)
		return;
	note("load %ld, behind the end", c.off);
	if (c.off / HUGE_PAGE == size / HUGE_PAGE && ask(owner, &c)->signal == 0 &&
	    n->wire->data[0] == 0)
		return;
	must_die(owner, &c, SIGBUS);
}

static void op_advise(void)
{
	struct call c = {.verb = ADVISE};
	static const int advices[] = {MADV_DONTNEED,   MADV_DONTNEED,	   MADV_REMOVE,
				      MADV_REMOVE,     MADV_POPULATE_READ, MADV_POPULATE_WRITE,
				      MADV_NOHUGEPAGE, MADV_HUGEPAGE,	   MADV_WILLNEED,
				      MADV_RANDOM};
	const struct node *n = &nodes[owner];

	c.how = advices[draw(10)];
	if (!draw_mapped_pages(&c.off, &c.len, model_size()) || !(n->prot & PROT_WRITE) ||
	    (c.how == MADV_DONTNEED && n->ever_locked))
		return;
	note("madvise %d %ld %ld", c.how, c.off, c.len);
	if (c.how == MADV_REMOVE)
		model_did(
			fallocate(model, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, c.off, c.len),
			"punch");
	must(&c, 0);
}

static void protect(int n, int prot)
{
	struct call c = {.verb = PROTECT, .how = prot};
	const struct answer *a;

	c.off = nodes[n].map_off;
	c.len = nodes[n].map_len;
	nodes[n].prot = prot;
	note("mprotect %d on %c", prot, 'a' + n);
	a = ask(n, &c);
	if (a->rc)
		fail("mprotect: %s", strerror(a->code));
}

static void op_protect(void)
{
	if (nodes[owner].mapped)
		protect(owner, nodes[owner].prot & PROT_WRITE ? PROT_READ : PROT_READ | PROT_WRITE);
}

static void op_lock(void)
{
	struct call c = {.verb = draw(2) ? LOCK : CORE, .how = (int)draw(2)};

	if (!draw_mapped_pages(&c.off, &c.len, model_size()))
		return;
	note(c.verb == CORE ? "mincore %ld %ld"
	     : c.how	    ? "mlock %ld %ld"
			    : "munlock %ld %ld",
	     c.off, c.len);
	if (c.verb == LOCK)
		nodes[owner].ever_locked = true;
	must(&c, 0);
}

static void unmap(int n)
{
	struct call c = {.verb = UNMAP};
	const struct answer *a;

	note("munmap on %c", 'a' + n);
	nodes[n].mapped = nodes[n].ever_locked = false;
	a = ask(n, &c);
	if (a->rc)
		fail("munmap: %s", strerror(a->code));
}

static void draw_window(struct call *c)
{
	long kind = draw(3);

	c->off = 0;
	c->len = MAP_END;
	if (kind == 0) /* one zone and its surroundings */
		c->off = zones[draw(3)];
	if (kind == 0)
		c->len = 2 * ZONE;
	if (kind == 1) /* from the middle of one to the end */
		c->off = zones[draw(3)] + draw(ZONE / PAGE) * PAGE;
	if (kind == 1)
		c->len = MAP_END - c->off;
}

static void map(void)
{
	struct call c = {.verb = MAP, .how = PROT_READ | PROT_WRITE};
	struct node *n = &nodes[owner];
	const struct answer *a;

	draw_window(&c);
	note("mmap %ld %ld", c.off, c.len);
	a = ask(owner, &c);
	if (a->rc == -1)
		fail("mmap: %s", strerror(a->code));
	if (base && a->rc != base)
		fail("offset 0 is at %lx here, at %lx it was elsewhere", a->rc, base);
	base = a->rc;
	n->mapped = true;
	n->map_off = c.off;
	n->map_len = c.len;
	n->prot = c.how;
}

static void op_map(void)
{
	if (nodes[owner].mapped && draw(2))
		unmap(owner);
	if (!nodes[owner].mapped)
		map();
}

/* A locked mapping that grows is filled, with as many pages as the store has room for. */
static void unlock(struct node *n)
{
	struct call c = {.verb = LOCK, .off = n->map_off, .len = n->map_len};

	if (!n->ever_locked)
		return;
	note("munlock %ld %ld", c.off, c.len);
	n->ever_locked = false;
	must(&c, 0);
}

static void op_remap(void)
{
	struct node *n = &nodes[owner];
	struct call c = {.verb = REMAP, .len = PAGE * (1 + draw(2 * ZONE / PAGE))};

	if (!n->mapped)
		return;
	if (draw(2))
		c.len = MAP_END - n->map_off;
	if (c.len > n->map_len)
		unlock(n);
	note("mremap %ld from %ld to %ld", n->map_off, n->map_len, c.len);
	n->map_len = c.len;
	must(&c, base);
}

static void op_reopen(void)
{
	static const int flags[] = {0, 0, O_DIRECT, O_TRUNC};
	struct call c = {.verb = OPEN, .owner = owner};

	c.how = flags[draw(4)];
	if (c.how == O_TRUNC && draw(20))
		c.how = 0;
	note("close, open with %o", (unsigned)c.how);
	if (c.how == O_TRUNC)
		model_did(ftruncate(model, 0), "truncate");
	must(&c, 0);
}

static bool is_listed(int on, int under)
{
	char path[4096];

	path_of(path, sizeof(path), on, under);
	return access(path, F_OK) == 0;
}

/* Waits until a mount has heard of the last move: before that it says ENOENT to every call. */
static void hear(int on)
{
	time_t start = time(NULL);

	while (!is_listed(on, owner)) {
		if (time(NULL) - start > PATIENCE)
			fail("%c does not hear of the last move", 'a' + on);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

/* Checks the answer of a node that does not own the segment. */
static void op_elsewhere(void)
{
	static const enum verb calls[] = {READ, WRITE, APPEND, TRUNCATE, ALLOCATE, SEEK};
	static const enum verb touches[] = {LOAD, STORE, LOAD_BY_CALL, STORE_BY_CALL};
	int n = (owner + 1 + (int)draw(2)) % NODES;
	struct call c = {.verb = calls[draw(6)], .owner = owner};
	long kind = draw(40);

	hear(n);
	draw_range(&c.off, &c.len);
	if (c.verb == SEEK)
		c.how = SEEK_DATA;
	if (kind == 0 && nodes[n].mapped) {
		unmap(n);
	} else if (kind == 1 && nodes[n].mapped) {
		protect(n, PROT_READ | PROT_WRITE);
	} else if (kind == 2) {
		c.verb = OPEN;
		c.how = 0;
		note("close, open on %c", 'a' + n);
		if (ask(n, &c)->rc)
			fail("open on %c: %s", 'a' + n, strerror(nodes[n].wire->answer.code));
	} else if (kind < 16 && nodes[n].mapped) {
		c.verb = touches[draw(4)];
		c.off = nodes[n].map_off + draw(nodes[n].map_len);
		c.len = 1;
		note("touch %ld on %c", c.off, 'a' + n);
		if (c.verb == LOAD || (c.verb == STORE && nodes[n].prot & PROT_WRITE))
			must_die(n, &c, SIGBUS);
		else if (c.verb == STORE)
			must_die(n, &c, SIGSEGV);
		else
			must_refuse(n, &c, EFAULT);
	} else {
		if (kind < 20 && !nodes[n].mapped)
			c = (struct call){.verb = MAP, .how = PROT_READ, .len = ZONE};
		note("verb %d on %c", (int)c.verb, 'a' + n);
		must_refuse(n, &c, EREMOTE);
	}
}

/* ---- moves ---- */

extern char **environ;

/* `mode` NULL: waits for a segment that is there already. Returns 0, or -1 if the move was refused (1)
   or is not known yet to be done (3): the reason is on stderr. */
static int run_migrate(int on, int to, const char *mode)
{
	char path[4096], dst[2] = {(char)('a' + to), 0};
	char *argv[] = {"rampfs-migrate", "--wait", path, dst, NULL, NULL, NULL};
	int status;
	pid_t pid;

	if (mode) {
		argv[1] = "--mode";
		argv[2] = (char *)mode;
		argv[3] = path;
		argv[4] = dst;
	}
	path_of(path, sizeof(path), on, owner);
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ))
		fail("rampfs-migrate does not start");
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    (WEXITSTATUS(status) > 1 && WEXITSTATUS(status) != 3))
		fail("rampfs-migrate ended with status %x", (unsigned)status);
	return status ? -1 : 0;
}

/*
 * Tries once to move. A mount that has not heard of the last move yet says ENOENT; answers that a loaded
 * machine may give are tried again, any other error is wrong.
 */
static bool try_move(int on, int to, const char *mode)
{
	struct call c = {.verb = RENAME, .owner = owner, .dst = to};
	const struct answer *a;

	if (mode && run_migrate(on, to, mode) == 0)
		return true;
	if (!mode) {
		a = ask(on, &c);
		if (a->rc == 0)
			return true;
		if (a->code != ENOENT && a->code != EBUSY && a->code != EROFS &&
		    a->code != EHOSTUNREACH && a->code != ETIMEDOUT && a->code != EINPROGRESS)
			fail("rename on %c: %s", 'a' + on, strerror(a->code));
		if (a->code != ENOENT)
			fprintf(stderr, "operation %lu: rename: %s\n", op, strerror(a->code));
		refused += a->code != ENOENT;
	} else {
		refused += is_listed(on, owner);
	}
	nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	return is_listed(to, to);
}

static void move(int to)
{
	static const char *const modes[] = {NULL,   NULL,     NULL,	NULL,
					    "lazy", "demand", "demand", "copy"};
	int on = (int)draw(NODES);
	const char *mode = modes[draw(8)];
	time_t start = time(NULL);

	note("move to %c, %s on %c", 'a' + to, mode ? mode : "rename", 'a' + on);
	while (!try_move(on, to, mode))
		if (time(NULL) - start > PATIENCE)
			fail("it could not be moved");
	owner = to;
	moves++;
}

static void op_move(void)
{
	int to = (owner + 1 + (int)draw(2)) % NODES;
	int third = NODES - owner - to;

	move(to);
	if (draw(4) == 0)
		move(third);
}

/* ---- */

static const struct {
	void (*run)(void);
	long weight;
} drawn[] = {
	{op_read, 160},	   {op_write, 180},    {op_append, 40},	     {op_truncate, 30},
	{op_allocate, 60}, {op_seek, 40},      {op_load, 170},	     {op_store, 170},
	{op_advise, 40},   {op_sync, 10},      {op_stat, 20},	     {op_past_the_end, 10},
	{op_map, 15},	   {op_remap, 5},      {op_protect, 4},	     {op_lock, 6},
	{op_reopen, 8},	   {op_elsewhere, 25}, {op_copy_inside, 10}, {op_move, 12},
};

static void run_one(void)
{
	long all = 0, which;
	size_t i = 0;

	for (size_t k = 0; k < sizeof(drawn) / sizeof(drawn[0]); k++)
		all += drawn[k].weight;
	for (which = draw(all); which >= drawn[i].weight; i++)
		which -= drawn[i].weight;
	drawn[i].run();
}

static void lie(void)
{
	long at = lseek(model, 0, SEEK_DATA);
	uint8_t byte = 0;

	if (at < 0)
		fail("there is nothing to lie about");
	model_did(pread(model, &byte, 1, at), "read");
	byte ^= 0x40;
	model_did(pwrite(model, &byte, 1, at), "write");
	printf("the model lies about byte %ld from operation %lu on\n", at, op);
}

/* Compares every byte of the zones. */
static void check_bytes(void)
{
	struct call c = {.verb = READ, .len = IO_MAX};

	note("all of it");
	for (int z = 0; z < 3; z++)
		for (c.off = zones[z]; c.off < zones[z] + ZONE; c.off += IO_MAX) {
			long want = pread(model, expected, IO_MAX, c.off);

			must(&c, want);
			same_bytes(nodes[owner].wire->data, want, c.off);
		}
}

/* Checks that the ranges between them are holes, once the owner can know. */
static void check_all(void)
{
	time_t start = time(NULL);

	check_bytes();
	while (run_migrate(owner, owner, NULL) || !is_whole()) {
		if (time(NULL) - start > PATIENCE)
			fail("not every page comes to %c", 'a' + owner);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	seek_on(0, LONG_MAX);
}

static void start_worker(int n)
{
	int socks[2];
	struct wire *wire = mmap(NULL, sizeof(*wire), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (wire == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		fail("no worker: %s", strerror(errno));
	nodes[n].wire = wire;
	nodes[n].sock = socks[0];
	nodes[n].pid = fork();
	if (nodes[n].pid == 0) {
		close(socks[0]);
		worker(n, socks[1], wire);
	}
	close(socks[1]);
}

static void start(void)
{
	struct call c = {.verb = OPEN, .how = O_CREAT | O_EXCL};
	char path[PATH_MAX];

	model = memfd_create("model", MFD_CLOEXEC);
	draw_from(seed);
	for (int n = 0; n < NODES; n++)
		start_worker(n);
	must(&c, 0);
	/* Sets the extent, so that the whole fits later, whichever part is mapped first. */
	snprintf(path, sizeof(path), "%s/a/fsx", mounts[0]);
	if (setxattr(path, "user.ramp.extent", "16G", 3, 0))
		fail("%s: %s", path, strerror(errno));
	c.how = 0;
	for (int n = 1; n < NODES; n++)
		if (ask(n, &c)->rc)
			fail("%c: %s", 'a' + n, strerror(nodes[n].wire->answer.code));
	map();
}

static int parse(int argc, char **argv)
{
	static const struct option options[] = {{"ops", required_argument, NULL, 'o'},
						{"seed", required_argument, NULL, 's'},
						{"lie", required_argument, NULL, 'l'},
						{0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		if (opt == 'o')
			all_ops = strtoul(optarg, NULL, 0);
		else if (opt == 's')
			seed = strtoul(optarg, NULL, 0);
		else if (opt == 'l')
			lie_at = strtoul(optarg, NULL, 0);
		else
			return -1;
	return argc - optind == NODES ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (parse(argc, argv)) {
		fputs("usage: fsx [--ops N] [--seed S] [--lie N] MOUNT_A MOUNT_B MOUNT_C\n",
		      stderr);
		return 2;
	}
	for (int n = 0; n < NODES; n++)
		mounts[n] = argv[optind + n];
	/* This program has the shim; rampfs-migrate needs none, and may be sanitized. */
	unsetenv("LD_PRELOAD");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("fsx: seed %lu, %lu operations\n", seed, all_ops);
	start();
	for (op = 1; op <= all_ops; op++) {
		if (op == lie_at)
			lie();
		run_one();
		if (op % 100000 == 0)
			printf("%lu operations, %lu moves, %lu refused\n", op, moves, refused);
	}
	for (int i = 0; i < NODES; i++) {
		check_all();
		move((owner + 1) % NODES);
	}
	check_all();
	printf("%lu operations, %lu moves (%lu refused and tried again): every byte as in tmpfs\n",
	       all_ops, moves, refused);
	return 0;
}
