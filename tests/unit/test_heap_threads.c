/*
 * Threads in one heap: each takes, checks and gives blocks, and gives blocks that another has taken; they end and begin
 * all the time, so that their caches go from one to the next. For ThreadSanitizer, too.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "heap_fixture.h"
#include "lib/run_suite.h"

#define MIB	(UINT64_C(1) << 20)
#define THREADS 4
#define LIVES	3
#define CALLS	6000
#define SLOTS	128

static struct ramp_heap *heap;
static int file;
static _Atomic(unsigned char *) slots[SLOTS]; /* blocks on their way from thread to thread */
static atomic_int wrong;

static size_t bytes_for(unsigned int *seed)
{
	unsigned int r = (unsigned int)rand_r(seed);

	return 8 + (r % 32 ? r / 64 % 2000 : r / 64 % 200000);
}

static void *trade(void *number)
{
	unsigned int seed = *(unsigned int *)number;

	for (int i = 0; i < CALLS; i++) {
		size_t size = bytes_for(&seed);
		unsigned char *block = ramp_heap_malloc(heap, size);

		if (!block) {
			atomic_fetch_add(&wrong, 1);
			break;
		}
		memset(block, block[0] = (unsigned char)i, 8);
		if (rand_r(&seed) % 8 == 0)
			block = ramp_heap_realloc(heap, block, bytes_for(&seed));
		block = atomic_exchange(&slots[(unsigned int)rand_r(&seed) % SLOTS], block);
		if (block && memcmp(block, block + 1, 7) != 0)
			atomic_fetch_add(&wrong, 1);
		ramp_heap_free(heap, block);
		if (rand_r(&seed) % 1024 == 0)
			ramp_heap_trim(heap);
	}
	return NULL;
}

static void run(unsigned int flags)
{
	struct ramp_heap_options options = {
		.max_bytes = 256 * MIB, .flags = flags, .grow = heap_grow_file, .arg = &file};
	struct ramp_heap_stats stats;
	struct ramp_heap_err err;
	pthread_t thread[THREADS];
	unsigned int seed[THREADS];

	file = heap_map(4 * MIB, 256 * MIB);
	heap = ramp_heap_format(HEAP_BASE, 4 * MIB, &options, &err);
	ck_assert_msg(heap != NULL, "%s", err.text);
	for (unsigned int life = 0; life < LIVES; life++) {
		for (unsigned int i = 0; i < THREADS; i++) {
			seed[i] = life * THREADS + i + 1;
			pthread_create(&thread[i], NULL, trade, &seed[i]);
		}
		for (unsigned int i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
		ck_assert_msg(ramp_heap_check(heap, &err) == 0, "%s", err.text);
	}
	ck_assert_int_eq(atomic_load(&wrong), 0);
	for (unsigned int i = 0; i < SLOTS; i++)
		ramp_heap_free(heap, atomic_load(&slots[i]));
	ramp_heap_trim(heap);
	ck_assert_msg(ramp_heap_check(heap, &err) == 0, "%s", err.text);
	ramp_heap_stats(heap, &stats);
	ck_assert_uint_le(stats.caches, THREADS + 1);
	ck_assert_uint_eq(stats.unpunched, 0);
	ck_assert_int_eq(ramp_heap_close(heap), 0);
	close(file);
}

START_TEST(threads_trade_blocks)
{
	run(0);
}
END_TEST

START_TEST(threads_trade_blocks_of_a_debug_heap)
{
	run(RAMP_HEAP_DEBUG);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("heap_threads");
	Suite *suite = suite_create("heap_threads");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, threads_trade_blocks);
	tcase_add_test(tcase, threads_trade_blocks_of_a_debug_heap);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
