/*
 * Programs that work while their segment is copied ahead and handed over: bench/run precopy.
 *
 *	ahead paced FILE PERCENT [await]	ACCESSES a millisecond at random, of which stores into
 *						PERCENT of the pages a second; late ones are left out
 *	ahead flat FILE [await]			stores at random, as fast as it can
 *	ahead bloom FILE [OTHER] [await]	two Bloom filters, a thread that puts and one that gets,
 *						each time in one of the filters that are here
 *
 * Each says "ready", and ends when its stdin does. Then it says, a line for each thread and file:
 * name, file, the seconds (CLOCK_MONOTONIC) of the first and the last access, the millisecond of the first
 * number, and the accesses of each millisecond from there. With "await" FILE has to go away first,
 * and work begins when it is here again; without it, work in FILE is over when it goes away.
 */
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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define PAGE	 4096u
#define ACCESSES 1000u	 /* of a paced program, in a millisecond */
#define TICK_NS	 100000u /* in which it makes a tenth of them */
#define CHECK	 16u	 /* accesses between two looks at the clock */
#define LONGEST	 120000u /* milliseconds */
#define FILES	 2

/* One file as one thread uses it. */
struct use {
	const char *path;
	uint64_t first_ns, last_ns;
	volatile int here;
	uint32_t *counts; /* of each millisecond since the program began */
};

struct thread {
	const char *name;
	struct use uses[FILES];
	uint64_t random;
	void (*work)(struct thread *t, struct use *use, uint8_t *memory);
	pthread_t id;
};

static struct {
	uint8_t *memory;
	size_t bytes;
} maps[FILES];
static unsigned files;
static int awaits;
static double stores_each_tick;
static uint64_t began_ns;
static atomic_int over;
static __thread sigjmp_buf gone;

static void nap(uint64_t ns)
{
	const struct timespec rest = {.tv_sec = (time_t)(ns / 1000000000u),
				      .tv_nsec = (long)(ns % 1000000000u)};

	nanosleep(&rest, NULL);
}

static void on_bus(int number)
{
	(void)number;
	siglongjmp(gone, 1);
}

static void map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		exit(1);
	}
	maps[files].bytes = (size_t)st.st_size;
	maps[files].memory =
		mmap(NULL, maps[files].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (maps[files].memory == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
	files++;
}

/* ---- what they do --------------------------------------------------------------------------- */

/* Notes accesses that were begun at that time: one that is preempted behind them would call them later. */
static void note(struct use *use, uint64_t at_ns, uint32_t count)
{
	uint64_t ms = (at_ns - began_ns) / 1000000;

	if (!use->first_ns)
		use->first_ns = now_ns();
	use->last_ns = at_ns;
	if (ms < LONGEST)
		use->counts[ms] += count;
}

static volatile uint64_t *word(struct thread *t, uint8_t *memory, size_t bytes)
{
	return (volatile uint64_t *)(void *)(memory + next_random(&t->random) % (bytes / 8) * 8);
}

static void work_flat(struct thread *t, struct use *use, uint8_t *memory)
{
	while (!over) {
		uint64_t at = now_ns();

		for (unsigned i = 0; i < CHECK; i++)
			*word(t, memory, maps[0].bytes) = i;
		note(use, at, CHECK);
	}
}

static void work_paced(struct thread *t, struct use *use, uint8_t *memory)
{
	uint64_t next = now_ns(), now;
	double due = 0;

	while (!over) {
		now = now_ns();
		if (now < next) {
			nap(next - now);
			now = now_ns();
		}
		next = now > next + TICK_NS ? now + TICK_NS : next + TICK_NS;
		for (unsigned i = 0; i < ACCESSES / 10; i++)
			(void)*word(t, memory, maps[0].bytes);
		for (due += stores_each_tick; due >= 1; due--)
			*word(t, memory, maps[0].bytes) = now;
		note(use, now, ACCESSES / 10);
	}
}

/* A key of one to ten letters; returns its hash. */
static uint64_t key(struct thread *t)
{
	uint64_t random = next_random(&t->random), hash = 14695981039346656037u;

	for (uint64_t left = random % 10 + 1; left; left--) {
		random = random * UINT64_C(6364136223846793005) + 1;
		hash = (hash ^ (random >> 40) % 26) * 1099511628211u;
	}
	return hash ^ hash >> 31;
}

static void bloom(struct thread *t, struct use *use, uint8_t *memory, size_t bytes, int put)
{
	uint64_t at = now_ns();

	for (unsigned i = 0; i < CHECK; i++) {
		uint64_t hash = key(t);

		for (unsigned k = 0; k < 2; k++, hash = hash * UINT64_C(0x9e3779b97f4a7c15) + 1) {
			_Atomic uint8_t *byte = (_Atomic uint8_t *)memory + (hash >> 8) % bytes;

			if (put)
				atomic_fetch_or(byte, (uint8_t)(1u << (hash & 7)));
			else
				(void)atomic_load(byte);
		}
	}
	note(use, at, CHECK);
}

static void work_bloom(struct thread *t, struct use *use, uint8_t *memory)
{
	(void)use;
	(void)memory;
	while (!over) {
		unsigned which = (unsigned)(next_random(&t->random) >> 20) % files;

		if (!t->uses[which].here)
			which = 1 - which;
		t->uses[which].here = 2; /* this one, should it go away now */
		bloom(t, &t->uses[which], maps[which].memory, maps[which].bytes, t->name[0] == 'p');
		t->uses[which].here = 1;
	}
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Waits until the first file has gone away and is here again. */
static void await(void)
{
	volatile int away = 0;

	for (; !over; nap(5000)) {
		if (sigsetjmp(gone, 1)) {
			away = 1;
			continue;
		}
		(void)*(volatile uint64_t *)maps[0].memory;
		if (away)
			return;
	}
}

/* Returns whether the thread has a file left. A file in which it was at work has gone. */
static int any_left(struct thread *t)
{
	int left = 0;

	for (unsigned i = 0; i < files; i++) {
		if (files == 1 || t->uses[i].here == 2)
			t->uses[i].here = 0;
		left |= t->uses[i].here;
	}
	return left;
}

static void *run(void *arg)
{
	struct thread *t = arg;

	prctl(PR_SET_TIMERSLACK, 1UL);
	if (awaits)
		await();
	if (sigsetjmp(gone, 1) && !any_left(t))
		return NULL;
	if (!over)
		t->work(t, &t->uses[0], maps[0].memory);
	return NULL;
}

static void say(const struct thread *t)
{
	for (unsigned i = 0; i < files; i++) {
		const struct use *use = &t->uses[i];
		uint64_t first = use->first_ns ? (use->first_ns - began_ns) / 1000000 : 0;
		uint64_t last = use->first_ns ? (use->last_ns - began_ns) / 1000000 : 0;

		printf("%s %u %.6f %.6f %.3f", t->name, i, (double)use->first_ns / 1e9,
		       (double)use->last_ns / 1e9, (double)began_ns / 1e6 + (double)first);
		for (uint64_t ms = first; ms <= last && ms < LONGEST; ms++)
			printf(" %u", use->counts[ms]);
		puts("");
	}
}

static int run_all(struct thread *threads, unsigned count)
{
	char byte;

	signal(SIGBUS, on_bus);
	began_ns = now_ns();
	for (unsigned i = 0; i < count; i++) {
		threads[i].random = 88172645463325252u + i * 7919 + (uint64_t)awaits;
		for (unsigned f = 0; f < files; f++) {
			threads[i].uses[f].here = 1;
			threads[i].uses[f].counts = calloc(LONGEST, sizeof(uint32_t));
			if (!threads[i].uses[f].counts)
				return 1;
		}
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	over = 1;
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i].id, NULL);
		say(&threads[i]);
		for (unsigned f = 0; f < files; f++)
			free(threads[i].uses[f].counts);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct thread one = {.name = "store"}, two[] = {{.name = "put", .work = work_bloom},
							{.name = "get", .work = work_bloom}};

	awaits = argc > 3 && strcmp(argv[argc - 1], "await") == 0;
	argc -= awaits;
	if (argc >= 3)
		map(argv[2]);
	if (argc == 4 && strcmp(argv[1], "paced") == 0) {
		stores_each_tick = (double)(maps[0].bytes / PAGE) * strtod(argv[3], NULL) / 100 *
				   TICK_NS / 1e9;
		one.work = work_paced;
		return run_all(&one, 1);
	}
	if (argc == 3 && strcmp(argv[1], "flat") == 0) {
		one.work = work_flat;
		return run_all(&one, 1);
	}
	if ((argc == 3 || argc == 4) && strcmp(argv[1], "bloom") == 0) {
		if (argc == 4)
			map(argv[3]);
		return run_all(two, 2);
	}
	fprintf(stderr, "Usage: ahead paced FILE PERCENT [await] | flat FILE [await] | "
			"bloom FILE [OTHER] [await]\n");
	return 2;
}
