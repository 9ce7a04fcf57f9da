/*
 * A program that hands a segment over in two steps, and programs that use it meanwhile.
 *
 *	two_user work MOUNT NAME SLOT MIRROR
 *		maps the segment. One thread stores ever larger numbers into word SLOT of random pages,
 *		and keeps what it has stored in the file MIRROR (a u64 for each page); another one loads
 *		all the time. Says "LOADS STORES" for each line of its input, and "gone" when a touch is
 *		SIGBUS, after which it ends
 *	two_user hold MOUNT NAME NODE
 *		carries out the lines of its input: connect (lazy: in that mode), write, read, try_write,
 *		try_read (again and again while that is EAGAIN: the result is how often), prepare,
 *		transfer, extend (for 0.5 s), abort; says "LINE RESULT" of each, and why it failed on stderr
 *
 * Exit status 0: all was as it must be.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ramp.h"

#define PAGE_WORDS 512u
#define PAGE_BYTES 4096u

static void fail(int line, const char *what)
{
	fprintf(stderr, "two_user.c:%d: %s: %s\n", line, what, ramp_error());
	exit(1);
}
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail(__LINE__, #what);                                                     \
	} while (0)

static struct ramp_segment *find(const char *mount, const char *name)
{
	struct ramp_cluster *ramp;
	struct ramp_segment *segment;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_get(ramp, name, 0, &segment) == 0);
	return segment;
}

/* ---- work ------------------------------------------------------------------------------------ */

static volatile uint64_t *words, *mirror;
static uint64_t pages, slot;
static _Atomic uint64_t loads, stores;
static _Thread_local sigjmp_buf out_of_touch;

static void on_bus(int signo)
{
	(void)signo;
	siglongjmp(out_of_touch, 1);
}

static uint64_t next(volatile uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A store is noted after it was made: so the note is right, whichever store is the last one. */
static void *stores_on(void *arg)
{
	volatile uint64_t seed = 88172645463325252u + slot, n = 0;

	if (sigsetjmp(out_of_touch, 1))
		return arg;
	for (;;) {
		uint64_t page = next(&seed) % pages;

		n++;
		words[page * PAGE_WORDS + slot] = n;
		mirror[page] = n;
		atomic_fetch_add(&stores, 1);
		if (n % 64 == 0)
			usleep(500);
	}
}

static void *loads_on(void *arg)
{
	volatile uint64_t seed = 1234567 + slot;

	if (sigsetjmp(out_of_touch, 1))
		return arg;
	for (;;) {
		(void)words[next(&seed) % pages * PAGE_WORDS + slot];
		if (atomic_fetch_add(&loads, 1) % 64 == 0)
			usleep(500);
	}
}

static void *says(void *arg)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin))
		printf("%llu %llu\n", (unsigned long long)loads, (unsigned long long)stores);
	return arg;
}

static void work(const char *mount, const char *name, const char *path)
{
	struct ramp_segment *segment = find(mount, name);
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct sigaction bus = {.sa_handler = on_bus};
	pthread_t storing, loading, saying;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(sigaction(SIGBUS, &bus, NULL) == 0);
	pages = (uint64_t)ramp_size(segment) / PAGE_BYTES;
	words = ramp_data(segment);
	CHECK(words && ftruncate(file, (off_t)(pages * sizeof(*mirror))) == 0);
	mirror = mmap(NULL, pages * sizeof(*mirror), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(mirror != MAP_FAILED);
	CHECK(pthread_create(&storing, NULL, stores_on, NULL) == 0);
	CHECK(pthread_create(&loading, NULL, loads_on, NULL) == 0);
	CHECK(pthread_create(&saying, NULL, says, NULL) == 0);
	puts("works");
	pthread_join(storing, NULL);
	pthread_join(loading, NULL);
	puts("gone");
}

/* ---- hold ------------------------------------------------------------------------------------ */

static int again(int (*call)(struct ramp_segment *), struct ramp_segment *segment)
{
	int rc, times = 0;

	while ((rc = call(segment)) == -EAGAIN) {
		times++;
		usleep(1000);
	}
	return rc ? rc : times;
}

static int carry_out(struct ramp_segment *segment, const char *node, const char *what)
{
	struct ramp_move_options precopy = {.mode = RAMP_PRECOPY};

	if (strcmp(what, "connect") == 0)
		return ramp_connect(segment, node, &precopy);
	if (strcmp(what, "lazy") == 0)
		return ramp_connect(segment, node, NULL);
	if (strcmp(what, "write") == 0)
		return ramp_finish_write(segment);
	if (strcmp(what, "read") == 0)
		return ramp_finish_read(segment);
	if (strcmp(what, "try_write") == 0)
		return again(ramp_try_finish_write, segment);
	if (strcmp(what, "try_read") == 0)
		return again(ramp_try_finish_read, segment);
	if (strcmp(what, "prepare") == 0)
		return ramp_prepare(segment);
	if (strcmp(what, "transfer") == 0)
		return ramp_transfer(segment);
	if (strcmp(what, "extend") == 0)
		return ramp_extend(segment, 500);
	CHECK(strcmp(what, "abort") == 0);
	return ramp_abort(segment);
}

static void hold(const char *mount, const char *name, const char *node)
{
	struct ramp_segment *segment = find(mount, name);
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("holds");
	while (fgets(line, sizeof(line), stdin)) {
		int rc;

		line[strcspn(line, "\n")] = 0;
		rc = carry_out(segment, node, line);
		if (rc < 0)
			fprintf(stderr, "%s: %s\n", line, ramp_error());
		printf("%s %d\n", line, rc);
	}
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "work") == 0) {
		slot = strtoull(argv[4], NULL, 0);
		work(argv[2], argv[3], argv[5]);
	} else {
		CHECK(argc == 5 && strcmp(argv[1], "hold") == 0);
		hold(argv[2], argv[3], argv[4]);
	}
	return 0;
}
