/*
 * A program of many threads that do to a segment all that a program may do, at the same time, while the
 * segment leaves and comes back.
 *
 *	rampfs-run crew [--seconds N] [--seed S] FILE
 *
 * FILE is the segment's name where it is at home, in the directory of the node whose mount it is.
 * The program makes it: in its first part every page has its own number, and all threads look at it;
 * behind that each changer has an area of its own, where only it stores.
 *
 * Happy path: it says "begun" once all of FILE is mapped, and from then on crew.sh moves it.
 * Threads map and unmap windows of it that overlap; fork children that look at all of it
 * and map, too; make children by posix_spawn, clone and _Fork; read and write it by system calls,
 * also from the mapping itself; and the changers protect, lock, drop, unmap, shrink and grow their mappings.
 * In the end FILE holds the last stores, and is not mapped in more parts than necessary.
 *
 * A touch may find the page as it was stored, or SIGBUS while the segment is away, and SIGSEGV only
 * where it was protected or unmapped. A call may say that the segment is not here.
 *
 * How it fails: the first other result is printed on stdout; exit status 1. Also if a kind of event
 * never happened, since such a run has shown nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	      4096ul
#define COMMON	      4096ul /* pages that all look at: 16 MiB */
#define AREA	      64ul   /* pages of a changer */
#define SHRUNK	      16ul   /* ... after it has shrunk */
#define CHANGERS      4ul
#define ALL	      (COMMON + CHANGERS * AREA)
#define WINDOW	      300   /* pages at most */
#define STRIDE	      501   /* pages between those that a child looks at */
#define PATIENCE      10000 /* looks at a page that was just allowed: about a ms */
#define CHILD_SLOW_S  20
#define CHILD_STUCK_S 60
#define END_S	      60 /* for all threads to end */
#define PARTS_MAX     3
#define PARTS_S	      10 /* for moves under way to end */
#define AWAY	      7	 /* a child's exit status: it found the segment gone */
#define CLONE_STACK   65536
#define COLLAPSE      25 /* MADV_COLLAPSE, which older headers lack */
#define FIRST(page)   (UINT64_C(0x5eed000000000000) + (page)*0x10001)

static const char *path;
static unsigned seconds = 10;
static uint64_t seed = 1;
static char *base; /* where all of FILE is mapped */
static atomic_bool stop;
static atomic_ulong looks, gone, windows, refused, forks, forks_away, spawns, calls, protects,
	holes, grows;
/* The words of each changer's pages. A word belongs to its changer until that has ended. */
static uint64_t stored[CHANGERS * AREA];

static __thread uint64_t random_state;
static __thread sigjmp_buf on_signal;
static __thread volatile sig_atomic_t touching;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dprintf(STDOUT_FILENO, "crew FAILED (seed %lu): %s\n", seed, text);
	_exit(1);
}

static uint64_t draw(uint64_t below)
{
	uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

static void nap(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* ---- touching the mapping ---- */

static void take_signal(int number)
{
	if (touching)
		siglongjmp(on_signal, number);
	signal(number, SIG_DFL); /* no thread meant to touch it: the next one ends us */
}

static volatile uint64_t *word(uint64_t page)
{
	return (volatile uint64_t *)(base + page * PAGE);
}

/* Returns 0, or the signal of the load. */
static int load(uint64_t page, uint64_t *value)
{
	int number = sigsetjmp(on_signal, 0);

	if (number == 0) {
		touching = 1;
		*value = *word(page);
	}
	touching = 0;
	return number;
}

static int store(uint64_t page, uint64_t value)
{
	int number = sigsetjmp(on_signal, 0);

	if (number == 0) {
		touching = 1;
		*word(page) = value;
	}
	touching = 0;
	return number;
}

static uint64_t expected(uint64_t page)
{
	return page < COMMON ? FIRST(page) : stored[page - COMMON];
}

static void same_value(uint64_t page, uint64_t value, const char *who)
{
	if (value != expected(page))
		fail("%s found %lx in page %lu, which holds %lx", who, value, page, expected(page));
}

/* Looks at a page that is mapped, and may be written if `writes`. Returns false if the segment is away. */
static bool look(uint64_t page, bool writes, const char *who)
{
	uint64_t value = 0;
	int number = load(page, &value);

	if (number == 0) {
		same_value(page, value, who);
		number = writes ? store(page, value) : 0;
	}
	if (number == SIGSEGV)
		fail("%s got SIGSEGV at page %lu, which it has mapped", who, page);
	atomic_fetch_add(number ? &gone : &looks, 1);
	return number == 0;
}

/* Returns NULL if the segment is away. */
static char *map(uint64_t first, uint64_t pages, int prot, const char *who)
{
	int fd = open(path, (prot & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC), code;
	char *at;

	if (fd < 0 && errno != ENOENT)
		fail("%s: open: %s", who, strerror(errno));
	if (fd < 0)
		return NULL;
	at = mmap(NULL, pages * PAGE, prot, MAP_SHARED, fd, (off_t)(first * PAGE));
	code = errno;
	close(fd);
	if (at == MAP_FAILED) {
		if (code != EREMOTE && code != EBUSY)
			fail("%s: mmap of %lu pages from %lu on: %s", who, pages, first,
			     strerror(code));
		atomic_fetch_add(&refused, 1);
		return NULL;
	}
	if (base && at != base + first * PAGE)
		fail("%s: mmap of page %lu gave %p, but page 0 is at %p", who, first, (void *)at,
		     (void *)base);
	return at;
}

/* ---- the threads ---- */

/* A window that several threads have mapped stays until the last of them unmaps it, and all of it is
   there. */
static void be_mapper(uint64_t unused)
{
	(void)unused;
	while (!stop) {
		uint64_t pages = 1 + draw(WINDOW), first = draw(COMMON - pages);
		bool writes = draw(2);
		char *at = map(first, pages, PROT_READ | (writes ? PROT_WRITE : 0), "a mapper");

		if (!at) {
			nap(300);
			continue;
		}
		for (int i = 0; i < 20; i++)
			if (!look(first + draw(pages), writes, "a mapper"))
				break;
		if (munmap(at, pages * PAGE))
			fail("a mapper: munmap: %s", strerror(errno));
		atomic_fetch_add(&windows, 1);
	}
}

/* A fork's child has the mappings of its parent. */
static int be_child(void)
{
	uint64_t first = draw(COMMON - 10);

	alarm(CHILD_STUCK_S);
	for (uint64_t page = draw(STRIDE); page < COMMON; page += STRIDE)
		if (!look(page, true, "a fork's child"))
			return AWAY;
	if (map(first, 10, PROT_READ, "a fork's child"))
		look(first, true, "a fork's child");
	return 0;
}

static int end_of(pid_t pid, const char *what)
{
	int status;

	if (pid < 0)
		fail("%s: %s", what, strerror(errno));
	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid for the child of %s: %s", what, strerror(errno));
	if (WIFSIGNALED(status))
		fail("the child of %s was ended by %s", what, strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}

static void be_forker(uint64_t unused)
{
	(void)unused;
	while (!stop) {
		uint64_t childs = draw(UINT64_MAX);
		time_t begun = now_s();
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			random_state = childs;
			_exit(be_child());
		}
		status = end_of(pid, "fork");
		if (status != 0 && status != AWAY)
			fail("the child of fork ended with status %d", status);
		if (now_s() - begun > CHILD_SLOW_S)
			fail("fork and what its child did took %ld s", now_s() - begun);
		atomic_fetch_add(status ? &forks_away : &forks, 1);
		nap(500);
	}
}

/* Returns 0: a child that is made behind the shim's back has no mapping, rather than a stale one. */
static int has_some(void *unused)
{
	uint64_t value;

	(void)unused;
	return load(draw(ALL), &value) != SIGSEGV;
}

static void be_spawner(uint64_t unused)
{
	char *stack = malloc(CLONE_STACK), *argv[] = {"true", NULL};
	pid_t pid;

	(void)unused;
	if (!stack)
		fail("out of memory");
	while (!stop) {
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ))
			fail("posix_spawn: %s", strerror(errno));
		if (end_of(pid, "posix_spawn"))
			fail("a child of posix_spawn did not run as it should");
		pid = clone(has_some, stack + CLONE_STACK, SIGCHLD, NULL);
		if (end_of(pid, "clone"))
			fail("a child of clone has the segment mapped");
		pid = _Fork();
		if (pid == 0)
			_exit(has_some(NULL));
		if (end_of(pid, "_Fork"))
			fail("a child of _Fork has the segment mapped");
		atomic_fetch_add(&spawns, 1);
		nap(2000);
	}
	free(stack);
}

/* Returns whether a call handled a word: all of it, or none because the segment was not here. */
static bool called(ssize_t rc, bool from_mapping, const char *what)
{
	if (rc == sizeof(uint64_t)) {
		atomic_fetch_add(&calls, 1);
		return true;
	}
	if (rc >= 0 || (errno != EREMOTE && errno != EBUSY && !(from_mapping && errno == EFAULT)))
		fail("%s: %zd, %s", what, rc, rc < 0 ? strerror(errno) : "short");
	return false;
}

static void be_caller(uint64_t unused)
{
	(void)unused;
	while (!stop) {
		uint64_t page = draw(COMMON), value;
		off_t at = (off_t)(page * PAGE);
		int fd = open(path, O_RDWR | O_CLOEXEC);

		if (fd < 0 && errno != ENOENT)
			fail("the caller: open: %s", strerror(errno));
		if (fd < 0) {
			nap(500);
			continue;
		}
		if (called(pread(fd, &value, sizeof(value), at), false, "pread"))
			same_value(page, value, "pread");
		value = FIRST(page);
		called(pwrite(fd, &value, sizeof(value), at), false, "pwrite");
		called(pwrite(fd, (void *)word(page), sizeof(value), at), true,
		       "pwrite out of the mapping");
		close(fd);
	}
}

/* ---- a thread that changes its mappings ---- */

static char *map_until(uint64_t first, uint64_t pages)
{
	char *at = NULL;

	while (!stop && !(at = map(first, pages, PROT_READ | PROT_WRITE, "a changer")))
		nap(500);
	return at;
}

static void protect(char *at, uint64_t pages, int prot)
{
	if (mprotect(at, pages * PAGE, prot))
		fail("a changer: mprotect: %s", strerror(errno));
}

static void unmap(char *at, uint64_t pages)
{
	if (munmap(at, pages * PAGE))
		fail("a changer: munmap: %s", strerror(errno));
}

/* Stores a word that was never there before, for the loads and reads to come. */
static void store_next(uint64_t page)
{
	uint64_t next = expected(page) + (UINT64_C(1) << 32);
	int number;

	if (!look(page, false, "a changer"))
		return;
	number = store(page, next);
	if (number == SIGSEGV)
		fail("a changer got SIGSEGV where it stored to page %lu, which it may write", page);
	if (number == 0)
		stored[page - COMMON] = next;
}

static void change_protection(uint64_t page)
{
	static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
	int prot = prots[draw(3)], number;
	uint64_t value;

	protect(base + page * PAGE, 1, prot);
	switch (prot) {
	case PROT_NONE:
		if (load(page, &value) != SIGSEGV)
			fail("page %lu may not be read, and a load found something", page);
		break;
	case PROT_READ:
		look(page, false, "a changer");
		number = store(page, expected(page));
		if (number == 0)
			fail("page %lu may not be written, and a store went through", page);
		break;
	default:
		store_next(page);
		for (int i = 0; i < PATIENCE; i++)
			look(page, true, "a changer");
	}
	atomic_fetch_add(&protects, 1);
}

/* A store can be read: a mapping that came back as a private one would keep it to itself. */
static void read_back(uint64_t page)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t value;

	if (fd < 0 && errno != ENOENT)
		fail("a changer: open: %s", strerror(errno));
	if (fd < 0)
		return;
	if (called(pread(fd, &value, sizeof(value), (off_t)(page * PAGE)), false, "pread"))
		same_value(page, value, "pread of a changer's page");
	close(fd);
}

static void make_hole(uint64_t first, uint64_t pages)
{
	uint64_t value;

	unmap(base + first * PAGE, pages);
	if (load(first, &value) != SIGSEGV)
		fail("page %lu is unmapped, and a load found something", first);
	if (!map_until(first, pages))
		return;
	store_next(first);
	store_next(first + pages - 1);
	atomic_fetch_add(&holes, 1);
}

/* Returns false if it could not grow again, since the segment has left meanwhile: all is unmapped. */
static bool resize(uint64_t first)
{
	char *at = base + first * PAGE;
	uint64_t value, beyond = first + SHRUNK + draw(AREA - SHRUNK);

	protect(at, AREA, PROT_READ | PROT_WRITE);
	if (mremap(at, AREA * PAGE, SHRUNK * PAGE, 0) != at)
		fail("a changer: mremap to fewer pages: %s", strerror(errno));
	if (load(beyond, &value) != SIGSEGV)
		fail("page %lu was cut off by mremap, and a load found something", beyond);
	if (mremap(at, SHRUNK * PAGE, AREA * PAGE, 0) != at) {
		if (errno != EFAULT && errno != ENOMEM)
			fail("a changer: mremap to more pages: %s", strerror(errno));
		unmap(at, SHRUNK);
		return false;
	}
	store_next(beyond);
	atomic_fetch_add(&grows, 1);
	return true;
}

static void be_changer(uint64_t which)
{
	uint64_t first = COMMON + which * AREA;
	char *at = NULL;

	while (!stop) {
		uint64_t page = first + draw(AREA);

		if (!at)
			at = map_until(first, AREA);
		if (!at)
			break;
		change_protection(page);
		if (draw(4) == 0)
			read_back(page);
		if (draw(8) == 0)
			protect(at, AREA, PROT_READ | PROT_WRITE);
		if (draw(16) == 0)
			make_hole(first + draw(AREA - 4), 1 + draw(4));
		if (draw(32) == 0)
			madvise(at, AREA * PAGE, draw(2) ? MADV_DONTNEED : MADV_NOHUGEPAGE);
		if (draw(64) == 0)
			madvise(base, COMMON * PAGE, COLLAPSE);
		if (draw(64) == 0 && !mlock(at, AREA * PAGE))
			munlock(at, AREA * PAGE);
		if (!stop && draw(32) == 0 && !resize(first)) {
			at = NULL;
		} else if (draw(64) == 0) {
			unmap(at, AREA);
			at = NULL;
		}
	}
	if (at)
		unmap(at, AREA);
}

/* ---- all of them ---- */

static const struct job {
	const char *name;
	void (*run)(uint64_t arg);
	uint64_t count;
} jobs[] = {
	{"mapper", be_mapper, 3}, {"forker", be_forker, 2},	     {"spawner", be_spawner, 1},
	{"caller", be_caller, 1}, {"changer", be_changer, CHANGERS},
};

#define JOBS (sizeof(jobs) / sizeof(jobs[0]))
#define MOST 4

static struct hand {
	const struct job *job;
	uint64_t arg, seed;
	pthread_t thread;
} hands[JOBS * MOST];

static void *begin(void *arg)
{
	const struct hand *hand = arg;

	random_state = hand->seed;
	hand->job->run(hand->arg);
	return NULL;
}

static void prepare(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static uint64_t bytes[PAGE / sizeof(uint64_t)];

	if (fd < 0)
		fail("%s: %s", path, strerror(errno));
	for (uint64_t page = 0; page < ALL; page++) {
		bytes[0] = FIRST(page);
		if (page >= COMMON)
			stored[page - COMMON] = bytes[0];
		if (write(fd, bytes, PAGE) != (ssize_t)PAGE)
			fail("%s: write: %s", path, strerror(errno));
	}
	close(fd);
	base = map(0, COMMON, PROT_READ | PROT_WRITE, "the first mmap");
	if (!base)
		fail("%s cannot be mapped: %s", path, strerror(errno));
}

static void work(void)
{
	struct timespec end;
	size_t n = 0;

	for (size_t i = 0; i < JOBS; i++)
		for (uint64_t arg = 0; arg < jobs[i].count; arg++, n++) {
			hands[n] = (struct hand){
				.job = &jobs[i], .arg = arg, .seed = draw(UINT64_MAX)};
			if (pthread_create(&hands[n].thread, NULL, begin, &hands[n]))
				fail("pthread_create: %s", strerror(errno));
		}
	sleep(seconds);
	stop = true;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += END_S;
	while (n--)
		if (pthread_timedjoin_np(hands[n].thread, NULL, &end))
			fail("a %s does not end: the event that it waits for never came",
			     hands[n].job->name);
}

/* ---- the end ---- */

/* The file is at home for short times; an open descriptor works again when it comes back. */
static void check_bytes(void)
{
	time_t until = now_s() + END_S;
	uint64_t value;
	int fd;

	while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 && now_s() < until)
		nap(500);
	for (uint64_t page = 0; page < ALL;) {
		if (fd < 0 || now_s() >= until)
			fail("the segment does not come home any more");
		if (called(pread(fd, &value, sizeof(value), (off_t)(page * PAGE)), false, "pread"))
			same_value(page++, value, "the last pread");
		else
			nap(500);
	}
	close(fd);
}

/* Returns into how many parts the mapping of all of it has fallen. */
static unsigned count_parts(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, lowest = (unsigned long)base, end = lowest + ALL * PAGE;
	unsigned parts = 0;
	char line[512];

	if (!maps)
		fail("/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		start = strtoul(line, NULL, 16);
		parts += start >= lowest && start < end;
	}
	fclose(maps);
	return parts;
}

static void check_parts(void)
{
	time_t until = now_s() + PARTS_S;
	unsigned parts;

	while ((parts = count_parts()) > PARTS_MAX) {
		if (now_s() >= until)
			fail("a mapping that was one is in %u parts", parts);
		nap(1000);
	}
	until = now_s() + END_S;
	while (!look(draw(COMMON), true, "the last look"))
		if (now_s() >= until)
			fail("the segment is not in its place any more");
	printf("mapped in %u parts at the end\n", parts);
}

static void check_busy(void)
{
	const struct {
		unsigned long count;
		const char *what;
	} all[] = {
		{looks, "no touch found a page"},
		{gone, "no touch found the segment gone"},
		{windows, "nothing was mapped"},
		{refused, "no mmap was told that the segment is elsewhere"},
		{forks, "no child saw the whole segment"},
		{spawns, "no child was made by posix_spawn, clone and _Fork"},
		{calls, "nothing was read or written by a call"},
		{protects, "no protection was changed"},
		{holes, "no hole was filled again"},
		{grows, "nothing grew by mremap"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!all[i].count)
			fail("this has shown nothing: %s", all[i].what);
}

static int parse(int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, NULL, 'n'},
						{"seed", required_argument, NULL, 's'},
						{0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		if (opt == 'n')
			seconds = (unsigned)strtoul(optarg, NULL, 0);
		else if (opt == 's')
			seed = strtoul(optarg, NULL, 0);
		else
			return -1;
	path = argv[optind];
	return argc - optind == 1 ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_NODEFER};

	if (parse(argc, argv)) {
		fputs("usage: crew [--seconds N] [--seed S] FILE\n", stderr);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	random_state = seed;
	if (sigaction(SIGBUS, &action, NULL) || sigaction(SIGSEGV, &action, NULL))
		fail("sigaction: %s", strerror(errno));
	prepare();
	puts("begun");
	work();
	check_bytes();
	check_parts();
	check_busy();
	printf("%lu looks, %lu times gone; %lu windows, %lu refused; %lu forks (%lu found it "
	       "gone), "
	       "%lu spawns; %lu calls; %lu protected, %lu holes, %lu grown\n",
	       looks, gone, windows, refused, forks + forks_away, forks_away, spawns, calls,
	       protects, holes, grows);
	return 0;
}
