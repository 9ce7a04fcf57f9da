/*
 * kill -9 at any point of a heap call. One test steps a child through a call, an instruction at a time, and opens a
 * copy of the heap as it was after each store: it is sound, and has the blocks from before the call or those from after it,
 * and nothing between. The other kills a child with two busy threads at random moments, hundreds of times over the same
 * heap, in the middle of ramp_heap_open, too.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/layout.h"
#include "heap_fixture.h"
#include "lib/run_suite.h"

#define MIB   (UINT64_C(1) << 20)
#define SIZE  (4 * MIB)
#define KILLS 150

static struct ramp_heap_err err;
static struct ramp_heap *heap;

/* ---- by instructions ------------------------------------------------------------------------ */

/* The calls work with this. It lies in the heap, so that the copy has it, too. */
struct table {
	void *slot[64];
};

static struct table *prepare(void)
{
	struct table *table = ramp_heap_calloc(heap, 1, sizeof(*table));

	ramp_heap_set_root(heap, table);
	return table;
}

static int grow(void *arg, uint64_t size)
{
	(void)arg;
	return size <= SIZE ? 0 : -ENOSPC;
}

static const struct ramp_heap_options options = {.max_bytes = SIZE, .grow = grow};

/* A story: prepare the heap, then make one call. */
struct story {
	const char *name;
	unsigned int flags;
	void (*before)(struct table *t);
	void (*call)(struct table *t);
};

static void nothing(struct table *t)
{
	(void)t;
}
static void take_100(struct table *t)
{
	(void)t;
	(void)ramp_heap_malloc(heap, 100);
}
static void warm(struct table *t)
{
	for (int i = 0; i < 64; i++)
		t->slot[i] = ramp_heap_malloc(heap, 700);
	for (int i = 0; i < 64; i += 2)
		ramp_heap_free(heap, t->slot[i]);
	ramp_heap_trim(heap);
}
static void take_700(struct table *t)
{
	(void)t;
	(void)ramp_heap_malloc(heap, 700);
}
/* One stack is full, and the slabs of its blocks are full, too. */
static void fill_stack(struct table *t)
{
	for (int i = 0; i < 64; i++)
		t->slot[i] = ramp_heap_malloc(heap, 4096);
	for (int i = 0; i < 8; i++)
		ramp_heap_free(heap, t->slot[i]);
}
static void free_to_full(struct table *t)
{
	ramp_heap_free(heap, t->slot[9]);
}
/* All blocks of one slab but one are given back, and the last one is in a full stack. */
static void nearly_empty(struct table *t)
{
	for (int i = 0; i < 40; i++)
		t->slot[i] = ramp_heap_malloc(heap, 30000);
	ramp_heap_trim(heap);
	for (int i = 2; i < 17; i++)
		ramp_heap_free(heap, t->slot[i]);
}
static void trim(struct table *t)
{
	(void)t;
	ramp_heap_trim(heap);
}
static void larges(struct table *t)
{
	for (int i = 0; i < 8; i++)
		t->slot[i] = ramp_heap_malloc(heap, 50000 + 16384 * (size_t)i);
	ramp_heap_free(heap, t->slot[1]);
	ramp_heap_free(heap, t->slot[3]);
	ramp_heap_free(heap, t->slot[5]);
}
static void take_large(struct table *t)
{
	(void)t;
	(void)ramp_heap_calloc(heap, 1, 33000);
}
static void take_growing(struct table *t)
{
	(void)t;
	(void)ramp_heap_malloc(heap, 2 * MIB);
}
static void take_refused(struct table *t)
{
	(void)t;
	(void)ramp_heap_malloc(heap, SIZE - MIB / 2);
}
static void take_aligned(struct table *t)
{
	(void)t;
	(void)ramp_heap_aligned_alloc(heap, 65536, 40000);
}
static void free_between(struct table *t)
{
	ramp_heap_free(heap, t->slot[2]);
}
static void free_last(struct table *t)
{
	ramp_heap_free(heap, t->slot[7]);
}
static void grow_in_place(struct table *t)
{
	(void)ramp_heap_realloc(heap, t->slot[0], 80000);
}
static void shrink(struct table *t)
{
	(void)ramp_heap_realloc(heap, t->slot[6], 40000);
}
static void shrink_to_small(struct table *t)
{
	(void)ramp_heap_realloc(heap, t->slot[0], 300);
}
static void move_small(struct table *t)
{
	(void)ramp_heap_realloc(heap, t->slot[1], 900);
}
static void grow_to_large(struct table *t)
{
	(void)ramp_heap_realloc(heap, t->slot[1], 40000);
}
static void take_to(struct table *t)
{
	(void)ramp_heap_alloc_to(heap, &t->slot[20], 5000);
}
static void take_large_to(struct table *t)
{
	(void)ramp_heap_alloc_to(heap, &t->slot[20], 100000);
}
static void free_from(struct table *t)
{
	ramp_heap_free_from(heap, &t->slot[9]);
}
static void free_large_from(struct table *t)
{
	ramp_heap_free_from(heap, &t->slot[2]);
}
static void close_it(struct table *t)
{
	(void)t;
	ramp_heap_close(heap);
}

/* A call that was cut off, with a step of one word and a block that is held. */
static void leave_cut(struct table *t)
{
	struct heap_cache *cache = (struct heap_cache *)(uintptr_t)heap->caches;

	warm(t);
	cache->held = (uintptr_t)ramp_heap_malloc(heap, 50000);
	cache->log.entry[0].address = (uintptr_t)&t->slot[20];
	cache->log.entry[0].value = (uintptr_t)t->slot[20];
	cache->log.n = 1;
	t->slot[20] = NULL;
	ramp_heap_forget(heap);
}
static void open_it(struct table *t)
{
	(void)t;
	if (!ramp_heap_open(HEAP_BASE, SIZE, &options, &err))
		_exit(4);
}

static const struct story stories[] = {
	{"malloc with an empty cache", 0, nothing, take_100},
	{"malloc from slabs that are in use", 0, warm, take_700},
	{"free into a full cache", 0, fill_stack, free_to_full},
	{"free of the last block of a slab", 0, nearly_empty, trim},
	{"calloc of a large block", 0, larges, take_large},
	{"malloc that grows the file", 0, larges, take_growing},
	{"malloc that is refused", 0, larges, take_refused},
	{"aligned_alloc", 0, larges, take_aligned},
	{"free between free runs", 0, larges, free_between},
	{"free at the end", 0, larges, free_last},
	{"realloc in place", 0, larges, grow_in_place},
	{"realloc to less", 0, larges, shrink},
	{"realloc of a large block to a small one", 0, larges, shrink_to_small},
	{"realloc of a small block", 0, warm, move_small},
	{"realloc of a small block to a large one", 0, warm, grow_to_large},
	{"alloc_to", 0, fill_stack, take_to},
	{"alloc_to, large", 0, larges, take_large_to},
	{"free_from", 0, fill_stack, free_from},
	{"free_from, large", 0, larges, free_large_from},
	{"close", 0, fill_stack, close_it},
	{"open after a kill", 0, leave_cut, open_it},
	{"debug: malloc", RAMP_HEAP_DEBUG, warm, take_700},
	{"debug: realloc", RAMP_HEAP_DEBUG, warm, move_small},
	{"debug: free_from", RAMP_HEAP_DEBUG, fill_stack, free_from},
};

/* The child: stops itself before the call and behind it. */
static void act(int fd, const struct story *story)
{
	struct ramp_heap_options own = options;
	struct table *table;

	own.flags = story->flags;
	heap_map_file(fd, SIZE);
	heap = ramp_heap_format(HEAP_BASE, MIB * 3 / 2, &own, &err);
	if (!heap || ptrace(PTRACE_TRACEME, 0, 0, 0))
		_exit(2);
	table = prepare();
	story->before(table);
	raise(SIGSTOP);
	story->call(table);
	raise(SIGSTOP);
	_exit(0);
}

static int hash_block(void *hash, void *address, size_t usable)
{
	uint64_t *to = hash;

	*to = (*to ^ (uintptr_t)address ^ usable) * UINT64_C(0x100000001b3);
	return 0;
}

/* Opens the heap at HEAP_BASE as if its process had been killed. Returns a hash of its blocks and its table. */
static uint64_t open_cut(const char *name, long step)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	const struct table *table;

	((struct ramp_heap *)HEAP_BASE)
		->owner.started++; /* its process stands still and is not dead */
	heap = ramp_heap_open(HEAP_BASE, SIZE, &options, &err);
	ck_assert_msg(heap != NULL, "%s, step %ld: %s", name, step, err.text);
	ck_assert_msg(ramp_heap_check(heap, &err) == 0, "%s, step %ld: %s", name, step, err.text);
	ramp_heap_each(heap, hash_block, &hash);
	table = ramp_heap_root(heap);
	for (int i = 0; i < 64; i++)
		hash_block(&hash, table->slot[i], 0);
	ramp_heap_close(heap);
	return hash;
}

/* Copies what lies below `len` bytes. Returns whether there was anything new in it. */
static bool copy_if_new(char *to, const char *from, uint64_t len)
{
	if (memcmp(to, from, len) == 0)
		return false;
	memcpy(to, from, len);
	return true;
}

static void play(const struct story *story)
{
	int fd = memfd_create("heap", MFD_CLOEXEC), copy = memfd_create("copy", MFD_CLOEXEC),
	    status;
	char *real, *seen = calloc(1, SIZE);
	long steps = 0, states = 0;
	uint64_t before = 0, after = 0;
	pid_t pid;

	ck_assert(fd >= 0 && copy >= 0 && ftruncate(fd, SIZE) == 0 && ftruncate(copy, SIZE) == 0);
	real = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	heap_map_file(copy, SIZE);
	pid = fork();
	if (!pid)
		act(fd, story);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	while (WIFSTOPPED(status) && (WSTOPSIG(status) == SIGTRAP || !steps)) {
		/* Records and the first caches; the blocks' bytes come with them. */
		if (copy_if_new(seen, real, 128 * 1024)) {
			uint64_t hash;

			memcpy(HEAP_BASE, real, ((const struct ramp_heap *)real)->size);
			hash = open_cut(story->name, steps);
			if (!states++)
				before = hash;
			if (hash != before && !after)
				after = hash;
			ck_assert_msg(hash == (after ? after : before),
				      "%s, step %ld: neither before nor after", story->name, steps);
		}
		steps++;
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, 0, 0), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	ck_assert_msg(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "%s: status %#x",
		      story->name, (unsigned int)status);
	ck_assert_int_gt(steps, 20);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	munmap(real, SIZE);
	free(seen);
	close(fd);
	close(copy);
}

START_TEST(a_call_that_is_cut_off_after_any_instruction_has_happened_or_not)
{
	play(&stories[_i]);
}
END_TEST

/* ---- at random ------------------------------------------------------------------------------ */

#define SLOTS 48

/* Two threads' blocks. */
struct tables {
	void *slot[2][SLOTS];
};

/* The first words of a block say what is in it. */
struct content {
	uint64_t bytes, mark;
};

static void fill(struct content *at, uint64_t bytes)
{
	at->bytes = 0;
	atomic_signal_fence(memory_order_seq_cst);
	memset(at + 1, (int)(bytes & 0xff), bytes - sizeof(*at));
	at->mark = bytes ^ (uintptr_t)at;
	atomic_signal_fence(memory_order_seq_cst);
	at->bytes = bytes;
}

static bool right(const struct content *at)
{
	const unsigned char *byte = (const unsigned char *)(at + 1);
	uint64_t bytes = at->bytes;

	if (bytes < sizeof(*at) || at->mark != (bytes ^ (uintptr_t)at))
		return true; /* not filled yet */
	for (uint64_t i = 0; i < bytes - sizeof(*at); i++) {
		if (byte[i] != (bytes & 0xff))
			return false;
	}
	return true;
}

static void *busy(void *which)
{
	struct tables *tables = ramp_heap_root(heap);
	void **slot = tables->slot[*(int *)which];
	unsigned int seed = (unsigned int)(getpid() * 2 + *(int *)which);
	void *own = NULL; /* lost with this process */

	for (;;) {
		void **at = &slot[(unsigned int)rand_r(&seed) % SLOTS];
		uint64_t bytes = 16 + (uint64_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 1500 : 90000);

		if (*at && !right(*at))
			_exit(3);
		if (*at)
			ramp_heap_free_from(heap, at);
		else if (ramp_heap_alloc_to(heap, at, bytes))
			fill(*at, bytes);
		if (rand_r(&seed) % 4 == 0) {
			void *next = ramp_heap_realloc(heap, own, bytes);

			own = next ? next : own;
		}
		if (rand_r(&seed) % 64 == 0)
			ramp_heap_trim(heap);
	}
	return NULL;
}

static void live(void)
{
	static int which[2] = {0, 1};
	pthread_t thread;

	heap = ramp_heap_open(HEAP_BASE, 32 * MIB, NULL, &err);
	if (!heap)
		_exit(2);
	pthread_create(&thread, NULL, busy, &which[1]);
	busy(&which[0]);
}

static int lost; /* blocks that no slot names */
static void *leaked[16];

static int find_owner(void *arg, void *address, size_t usable)
{
	const struct tables *tables = arg;

	if (address == arg)
		return 0;
	for (int i = 0; i < 2 * SLOTS; i++) {
		if (tables->slot[i / SLOTS][i % SLOTS] == address)
			return !right(address);
	}
	(void)usable;
	if (lost == 16)
		return 2;
	leaked[lost++] = address;
	return 0;
}

static void look(int round)
{
	const struct tables *tables;
	size_t n = 0;
	struct ramp_heap_stats stats;

	heap = ramp_heap_open(HEAP_BASE, 32 * MIB, NULL, &err);
	ck_assert_msg(heap != NULL, "after kill %d: %s", round, err.text);
	ck_assert_msg(ramp_heap_check(heap, &err) == 0, "after kill %d: %s", round, err.text);
	tables = ramp_heap_root(heap);
	lost = 0;
	ck_assert_int_eq(ramp_heap_each(heap, find_owner, (void *)(uintptr_t)tables), 0);
	/* In each of three lives, each thread's own block, and nothing else. */
	ck_assert_msg(lost <= 6, "after kill %d: %d blocks that no slot names", round, lost);
	for (int i = 0; i < 2 * SLOTS; i++) {
		void *block = tables->slot[i / SLOTS][i % SLOTS];

		ck_assert(!block || ramp_heap_usable_size(heap, block) >= 16);
	}
	for (int i = 0; i < lost; i++)
		ramp_heap_free(heap, leaked[i]);
	ramp_heap_stats(heap, &stats);
	ck_assert_uint_le(stats.caches, 3); /* taken by the next threads, and not made again */
	ck_assert_int_eq(ramp_heap_each(heap, hash_block, &n), 0);
	ramp_heap_close(heap);
}

START_TEST(killed_at_random_moments)
{
	int fd = heap_map(32 * MIB, 32 * MIB), status;
	unsigned int seed = 1;

	heap = ramp_heap_format(HEAP_BASE, 32 * MIB, NULL, &err);
	ck_assert_int_eq(ramp_heap_set_root(heap, ramp_heap_calloc(heap, 1, sizeof(struct tables))),
			 0);
	ramp_heap_close(heap);
	for (int round = 0; round < KILLS; round++) {
		pid_t pid = fork();

		if (!pid)
			live();
		usleep((unsigned int)rand_r(&seed) % 6000);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFSIGNALED(status), "the child ended by itself: status %#x",
			      (unsigned int)status);
		if (round % 3 == 0) /* else the next child opens it as it is */
			look(round);
	}
	look(KILLS);
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("heap_kill");
	Suite *suite = suite_create("heap_kill");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_call_that_is_cut_off_after_any_instruction_has_happened_or_not,
			    0, (int)(sizeof(stories) / sizeof(*stories)));
	tcase_add_test(tcase, killed_at_random_moments);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
