/*
 * The heap in a segment, by one thread: blocks, growth, opening again, misuse. Kills: test_heap_kill.c;
 * threads: test_heap_threads.c; any order of calls: fuzz_heap.c.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/layout.h"
#include "heap_fixture.h"
#include "lib/run_suite.h"

#define MIB (UINT64_C(1) << 20)

static struct ramp_heap_err err;
static struct ramp_heap *heap;
static int file;

static void begin_with(uint64_t size, uint64_t max, unsigned int flags)
{
	struct ramp_heap_options options = {.max_bytes = max,
					    .flags = flags,
					    .grow = heap_grow_file,
					    .misuse = heap_hear,
					    .arg = &file};

	file = heap_map(size, max);
	heap = ramp_heap_format(HEAP_BASE, size, &options, &err);
	ck_assert_msg(heap != NULL, "%s", err.text);
}

static void begin(void)
{
	begin_with(2 * MIB, 64 * MIB, 0);
}

static void check(void)
{
	ck_assert_msg(ramp_heap_check(heap, &err) == 0, "%s", err.text);
	ck_assert_ptr_eq(heap_heard(), NULL);
}

static void end(void)
{
	check();
	ck_assert_int_eq(ramp_heap_close(heap), 0);
	close(file);
}

static void reopen(void)
{
	struct ramp_heap_options options = {
		.grow = heap_grow_file, .misuse = heap_hear, .arg = &file};
	struct stat st;

	fstat(file, &st);
	heap = ramp_heap_open(HEAP_BASE, (uint64_t)st.st_size, &options, &err);
	ck_assert_msg(heap != NULL, "%s", err.text);
}

static uint64_t file_bytes(void)
{
	struct stat st;

	fstat(file, &st);
	return (uint64_t)st.st_blocks * 512;
}

static int count_block(void *arg, void *address, size_t usable)
{
	(void)address;
	*(size_t *)arg += 1;
	return usable == 0;
}

static size_t blocks(void)
{
	size_t n = 0;

	ck_assert_int_eq(ramp_heap_each(heap, count_block, &n), 0);
	return n;
}

static bool filled(const unsigned char *at, size_t len, unsigned char byte)
{
	return !len || (at[0] == byte && memcmp(at, at + 1, len - 1) == 0);
}

START_TEST(each_size_has_a_class_that_fits)
{
	for (size_t size = 1; size <= HEAP_SMALL_MAX; size += size < 300 ? 1 : 13) {
		unsigned int class = heap_class(size);

		ck_assert_uint_lt(class, HEAP_CLASSES);
		ck_assert_uint_ge(heap_class_bytes(class), size);
		ck_assert(class == 0 || heap_class_bytes(class - 1) < size);
		ck_assert_uint_le(heap_class_blocks(class), HEAP_BLOCKS_MAX);
	}
}
END_TEST

START_TEST(blocks_of_all_sizes_are_apart_and_aligned)
{
	enum { N = 600 };
	unsigned char *at[N];
	size_t size[N];

	begin();
	for (size_t i = 0; i < N; i++) {
		size[i] = i < 200 ? i : i < 500 ? i * i / 3 : i * 700;
		at[i] = ramp_heap_malloc(heap, size[i]);
		ck_assert_ptr_nonnull(at[i]);
		ck_assert_uint_eq((uintptr_t)at[i] % 16, 0);
		ck_assert_uint_ge(ramp_heap_usable_size(heap, at[i]), size[i]);
		memset(at[i], (int)i, size[i]);
	}
	ck_assert_uint_eq(blocks(), N);
	for (size_t i = 0; i < N; i++) {
		ck_assert(filled(at[i], size[i], (unsigned char)i));
		if (i % 2)
			ramp_heap_free(heap, at[i]);
		else
			ramp_heap_free_sized(heap, at[i], size[i]);
	}
	ck_assert_uint_eq(blocks(), 0);
	end();
}
END_TEST

START_TEST(any_alignment)
{
	begin();
	for (size_t align = 1; align <= 8 * MIB; align *= 2) {
		for (size_t size = 1; size < 70000; size = size * 3 + 1) {
			void *block = ramp_heap_aligned_alloc(heap, align, size);

			ck_assert_ptr_nonnull(block);
			ck_assert_uint_eq((uintptr_t)block % align, 0);
			memset(block, 1, size);
			ramp_heap_free_aligned_sized(heap, block, align, size);
		}
	}
	ck_assert_ptr_null(ramp_heap_aligned_alloc(heap, 48, 10));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ramp_heap_aligned_alloc(heap, 128 * MIB, 10));
	ck_assert_int_eq(errno, ENOMEM);
	end();
}
END_TEST

START_TEST(calloc_gives_zeros)
{
	static const size_t sizes[] = {1, 100, 5000, 40000, 3 * MIB};

	begin();
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			unsigned char *at = ramp_heap_calloc(heap, 1, sizes[i]);

			ck_assert_ptr_nonnull(at);
			ck_assert(filled(at, sizes[i], 0));
			memset(at, 0xff, sizes[i]);
			ramp_heap_free(heap, at);
		}
		if (round == 1)
			ramp_heap_trim(heap);
	}
	ck_assert_ptr_null(ramp_heap_calloc(heap, SIZE_MAX / 2, 3));
	ck_assert_int_eq(errno, ENOMEM);
	end();
}
END_TEST

START_TEST(realloc_keeps_the_bytes)
{
	static const size_t sizes[] = {10,  16,	     17,    3000,  30000, 33000, 50000,
				       MIB, 5 * MIB, 70000, 40000, 20,	  0,	 100};
	unsigned char *at = NULL, *between[16];
	size_t before = 0;

	begin();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t kept = before < sizes[i] ? before : sizes[i], same = 0;

		at = ramp_heap_realloc(heap, at, sizes[i]);
		ck_assert_ptr_nonnull(at);
		while (same < kept && at[same] == same % 251)
			same++;
		ck_assert_uint_eq(same, kept);
		for (size_t k = 0; k < sizes[i]; k++)
			at[k] = (unsigned char)(k % 251);
		before = sizes[i];
		between[i] =
			i % 3 ? NULL : ramp_heap_malloc(heap, 50000); /* in the way of growth */
	}
	ck_assert_ptr_null(ramp_heap_realloc(heap, at, 80 * MIB));
	ck_assert_uint_eq(at[99], 99);
	ramp_heap_free_sized(heap, at, 100);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		ramp_heap_free(heap, between[i]);
	ck_assert_uint_eq(blocks(), 0);
	end();
}
END_TEST

START_TEST(grows_the_file_as_needed_and_no_further_than_max)
{
	struct ramp_heap_stats stats;
	struct stat st;
	void *last = NULL, *next;
	size_t n = 0;

	begin();
	while ((next = ramp_heap_malloc(heap, MIB))) {
		*(void **)next = last;
		last = next;
		n++;
	}
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_ge(n, 61);
	fstat(file, &st);
	ck_assert_uint_eq((uint64_t)st.st_size, 64 * MIB);
	ramp_heap_stats(heap, &stats);
	ck_assert_uint_eq(stats.size, 64 * MIB);
	ck_assert_uint_eq(stats.used + stats.free, stats.size);
	for (; last; last = next) {
		next = *(void **)last;
		ramp_heap_free(heap, last);
	}
	end();
}
END_TEST

static uint64_t asked[2];
static int refuse_growth(void *arg, uint64_t size)
{
	(void)arg;
	asked[0] = asked[1];
	asked[1] = size;
	return -ENOSPC;
}

START_TEST(a_refused_growth_is_the_error_and_nothing_else)
{
	struct ramp_heap_options options = {
		.max_bytes = 64 * MIB, .grow = refuse_growth, .misuse = heap_hear};
	uint64_t free_before;
	struct ramp_heap_stats stats;

	file = heap_map(2 * MIB, 64 * MIB);
	heap = ramp_heap_format(HEAP_BASE, 2 * MIB, &options, &err);
	ck_assert_ptr_nonnull(ramp_heap_malloc(heap, 1));
	ramp_heap_stats(heap, &stats);
	free_before = stats.free;
	ck_assert_ptr_null(ramp_heap_malloc(heap, MIB + MIB / 2));
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_uint_gt(asked[0], asked[1]); /* more than is needed, then what is needed */
	ramp_heap_stats(heap, &stats);
	ck_assert_uint_eq(stats.free, free_before);
	ck_assert_ptr_nonnull(ramp_heap_malloc(heap, 40000));
	end();
}
END_TEST

START_TEST(the_root_is_found_by_the_next_process)
{
	char *root;

	begin();
	ck_assert_ptr_null(ramp_heap_root(heap));
	root = ramp_heap_malloc(heap, 100);
	strcpy(root, "found");
	ck_assert_int_eq(ramp_heap_set_root(heap, root), 0);
	ck_assert_int_eq(ramp_heap_set_root(heap, &file), -EINVAL);
	ck_assert_int_eq(ramp_heap_close(heap), 0);
	reopen();
	ck_assert_str_eq(ramp_heap_root(heap), "found");
	end();
}
END_TEST

START_TEST(a_block_is_taken_and_stored_in_one_call)
{
	void **slot, *outside;

	begin();
	slot = ramp_heap_calloc(heap, 2, sizeof(void *));
	for (size_t size = 1; size < 4 * MIB; size *= 4) {
		void *block = ramp_heap_alloc_to(heap, slot, size);

		ck_assert_ptr_nonnull(block);
		ck_assert_ptr_eq(*slot, block);
		ck_assert_uint_eq(blocks(), 2);
		ramp_heap_free_from(heap, slot);
		ck_assert_ptr_null(*slot);
		ck_assert_uint_eq(blocks(), 1);
	}
	ramp_heap_free_from(heap, slot); /* of NULL */
	ck_assert_ptr_null(ramp_heap_alloc_to(heap, &outside, 10));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ramp_heap_alloc_to(heap, slot, 100 * MIB));
	ck_assert_ptr_null(*slot);
	end();
}
END_TEST

START_TEST(pages_without_blocks_are_punched_out)
{
	uint64_t before, punched;
	void *at[24], *small[2000];

	begin();
	(void)ramp_heap_malloc(heap, 1);
	before = file_bytes();
	for (int i = 0; i < 24; i++)
		at[i] = memset(ramp_heap_malloc(heap, MIB), 1, MIB);
	for (int i = 0; i < 2000; i++)
		small[i] = memset(ramp_heap_malloc(heap, 1000), 1, 1000);
	ck_assert_uint_gt(file_bytes(), before + 25 * MIB);
	for (int i = 0; i < 24; i++)
		ramp_heap_free(heap, at[i]);
	for (int i = 0; i < 2000; i++)
		ramp_heap_free(heap, small[i]);
	punched = ramp_heap_trim(heap);
	ck_assert_uint_ge(punched, 25 * MIB);
	ck_assert_uint_le(file_bytes(), before + 256 * 1024);
	ck_assert_uint_eq(ramp_heap_trim(heap), 0);
	end();
}
END_TEST

START_TEST(many_free_pages_are_punched_out_without_being_asked)
{
	void *at[60], *last;

	begin_with(80 * MIB, 80 * MIB, 0);
	for (int i = 0; i < 60; i++)
		at[i] = memset(ramp_heap_malloc(heap, MIB), 1, MIB);
	last = ramp_heap_malloc(heap, 40000); /* the free run is not at the end */
	for (int i = 0; i < 60; i++)
		ramp_heap_free(heap, at[i]);
	ck_assert_uint_lt(file_bytes(), 36 * MIB);
	ramp_heap_free(heap, last);
	end();
}
END_TEST

START_TEST(opening_says_why_it_cannot)
{
	struct ramp_heap_options options = {.flags = 8};
	struct ramp_heap_err why;

	file = heap_map(2 * MIB, 4 * MIB);
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &why));
	ck_assert_int_eq(why.code, EINVAL);
	ck_assert_ptr_null(ramp_heap_format(HEAP_BASE, 2 * MIB, &options, &why));
	ck_assert_int_eq(why.code, EINVAL);
	ck_assert_ptr_null(ramp_heap_format(HEAP_BASE + 4096, MIB, NULL, &why));
	ck_assert_ptr_nonnull(strstr(why.text, "aligned"));
	ck_assert_ptr_null(ramp_heap_format(HEAP_BASE, 16384, NULL, &why));
	ck_assert_ptr_nonnull(strstr(why.text, "too small"));
	begin();
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &why));
	ck_assert_int_eq(why.code, EEXIST);
	ck_assert_ptr_null(ramp_heap_format(HEAP_BASE + 16384, MIB, NULL, &why));
	ck_assert_int_eq(why.code, EBUSY);
	ck_assert_int_eq(ramp_heap_close(heap), 0);
	ck_assert_int_eq(ramp_heap_close(heap), -ENODEV);
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, MIB, NULL, &why));
	ck_assert_int_eq(why.code, ENODATA);
	heap->version = 77;
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &why));
	ck_assert_ptr_nonnull(strstr(why.text, "version 77"));
	heap->version = HEAP_VERSION;
	heap->base += MIB;
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &why));
	ck_assert_int_eq(why.code, EFAULT);
	heap->base -= MIB;
	heap->log.n = 1;
	heap->log.entry[0].address = 16;
	ck_assert_ptr_null(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &why));
	ck_assert_int_eq(why.code, EUCLEAN);
	heap->log.n = 0;
	reopen();
	end();
}
END_TEST

START_TEST(a_closed_heap_is_not_touched)
{
	void *block;

	begin();
	block = ramp_heap_malloc(heap, 10);
	ck_assert_int_eq(ramp_heap_forget(heap), 0);
	munmap(HEAP_BASE, 64 * MIB);
	ck_assert_ptr_null(ramp_heap_malloc(heap, 10));
	ck_assert_int_eq(errno, ENODEV);
	ramp_heap_free(heap, block);
	ramp_heap_free_sized(heap, block, 10);
	ck_assert_ptr_null(ramp_heap_root(heap));
	ck_assert_ptr_null(ramp_heap_of(block));
	ck_assert_uint_eq(ramp_heap_trim(heap), 0);
	ck_assert_int_eq(ramp_heap_check(heap, &err), -ENODEV);
	heap_map_file(file, 64 * MIB);
	reopen();
	ck_assert_ptr_eq(ramp_heap_of(block), heap);
	ck_assert(ramp_heap_contains(heap, block));
	ck_assert_uint_eq(blocks(), 1);
	end();
}
END_TEST

/* Runs in a child process, which ends with 0 if `holds`. */
#define in_child(holds)                                                                            \
	do {                                                                                       \
		int status;                                                                        \
		pid_t pid = fork();                                                                \
		if (!pid)                                                                          \
			_exit(!(holds));                                                           \
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);                                   \
		ck_assert_int_eq(status, 0);                                                       \
	} while (0)

START_TEST(one_process_at_a_time)
{
	begin();
	in_child(!ramp_heap_malloc(heap, 10) && errno == ENODEV);
	in_child(!ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &err) && err.code == EBUSY);
	in_child(!ramp_heap_format(HEAP_BASE, 2 * MIB, NULL, &err) && err.code == EBUSY);
	ck_assert_int_eq(ramp_heap_close(heap), 0);
	in_child(ramp_heap_open(HEAP_BASE, 2 * MIB, NULL, &err) && ramp_heap_malloc(heap, 10));
	reopen(); /* the child has ended, without a close */
	ck_assert_uint_eq(blocks(), 1);
	end();
}
END_TEST

/* Expects that the last call named that misuse, and that the heap is as it was. */
static void expect_misuse(const char *words)
{
	const char *text = heap_heard();

	ck_assert_msg(text && strstr(text, words), "\"%s\" instead of \"%s\"", text ? text : "",
		      words);
}

START_TEST(misuse_is_named)
{
	char *block, *large;

	begin();
	block = ramp_heap_malloc(heap, 100);
	large = ramp_heap_malloc(heap, 100000);
	ramp_heap_free(heap, &file);
	expect_misuse("not in the heap");
	ramp_heap_free(heap, large + 16384);
	expect_misuse("no block begins at");
	ramp_heap_free_sized(heap, large, 70000 > HEAP_SMALL_MAX ? 33000 : 0);
	ck_assert_ptr_null(heap_heard());
	ramp_heap_free(heap, large);
	expect_misuse("no block begins at");
	ramp_heap_free(heap, block);
	ramp_heap_free(heap, block);
	expect_misuse("double free of");
	end();
}
END_TEST

START_TEST(a_double_free_is_found_when_the_cache_is_given_back)
{
	void *block, *other;

	begin();
	block = ramp_heap_malloc(heap, 100);
	other = ramp_heap_malloc(heap, 100);
	ramp_heap_free(heap, block);
	ramp_heap_free(heap, other);
	ramp_heap_free(heap, block);
	ramp_heap_trim(heap);
	expect_misuse("double free of");
	end();
}
END_TEST

START_TEST(a_debug_heap_names_each_mistake)
{
	char *block, *other;

	begin_with(2 * MIB, 64 * MIB, RAMP_HEAP_DEBUG);
	block = ramp_heap_malloc(heap, 100);
	other = ramp_heap_malloc(heap, 100);
	ck_assert_uint_eq(ramp_heap_usable_size(heap, block), 100);
	ramp_heap_free_sized(heap, block, 99);
	expect_misuse("has 100 bytes, and was freed as one of 99");
	ramp_heap_free(heap, block + 16);
	expect_misuse("no block begins at");
	block[100] = 1;
	ck_assert_int_eq(ramp_heap_check(heap, &err), -EUCLEAN);
	ck_assert_ptr_nonnull(strstr(err.text, "guard"));
	ramp_heap_free(heap, block);
	expect_misuse("was overwritten");
	block[100] = (char)0xfd;
	ramp_heap_free(heap, other);
	ramp_heap_free(heap, block);
	ramp_heap_free(heap, other);
	expect_misuse("double free of");
	other[3] = 1;
	ck_assert_int_eq(ramp_heap_check(heap, &err), -EUCLEAN);
	ck_assert_ptr_nonnull(strstr(err.text, "after it was freed"));
	for (int i = 0; i < 200; i++)
		(void)ramp_heap_malloc(heap, 100);
	expect_misuse("was written to after it was freed");
	end();
}
END_TEST

START_TEST(a_debug_heap_works_as_any_other)
{
	char *at[300];

	begin_with(2 * MIB, 64 * MIB, RAMP_HEAP_DEBUG);
	for (size_t i = 0; i < 300; i++)
		at[i] = memset(ramp_heap_calloc(heap, i, 300), 1, i * 300);
	check();
	for (size_t i = 0; i < 300; i++)
		at[i] = ramp_heap_realloc(heap, at[i], (300 - i) * 200);
	check();
	ramp_heap_forget(heap);
	reopen();
	for (size_t i = 0; i < 300; i++)
		ramp_heap_free_sized(heap, at[i], (300 - i) * 200);
	ck_assert_uint_eq(blocks(), 0);
	end();
}
END_TEST

/* Alters a word of the records; ramp_heap_check finds that, and nothing else. */
static void expect_damage(uint64_t *word, uint64_t value)
{
	uint64_t was = *word;

	*word = value;
	ck_assert_int_eq(ramp_heap_check(heap, &err), -EUCLEAN);
	*word = was;
	check();
}

START_TEST(damage_to_any_record_is_found)
{
	void *block, *large[3];
	struct heap_desc *d;

	begin();
	block = ramp_heap_malloc(heap, 500);
	for (int i = 0; i < 3; i++)
		large[i] = ramp_heap_malloc(heap, 100000);
	ramp_heap_free(heap, large[1]);
	check();
	d = heap_desc(heap, heap_granule(heap, block));
	expect_damage(&d->word, heap_word(HEAP_LARGE, 0, 0, 2));
	expect_damage(&d->used, d->used + 1);
	expect_damage(&d->map[15], 1);
	expect_damage(&d->next, 7);
	d = heap_desc(heap, heap_granule(heap, large[1]));
	expect_damage(&d->word, heap_word(HEAP_FREE, 0, 0, 7));
	expect_damage(&d->word, heap_word(HEAP_FREE, 0, 1, 6));
	expect_damage(&d->next, 1);
	d = heap_desc(heap, heap_granule(heap, large[0]));
	expect_damage(&d->word, 0);
	expect_damage(&d[1].word, d->word);
	expect_damage(&heap->used, heap->used + 1);
	expect_damage(&heap->bins_used[0], 0);
	expect_damage(&heap->bin[7], 0);
	expect_damage(&heap->root, 10);
	expect_damage(&heap->caches, 0);
	expect_damage(&heap->partial[heap_class(500)], 0);
	expect_damage((uint64_t *)(uintptr_t)heap->caches + 1, 1);
	end();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("heap");
	Suite *suite = suite_create("heap");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, each_size_has_a_class_that_fits);
	tcase_add_test(tcase, blocks_of_all_sizes_are_apart_and_aligned);
	tcase_add_test(tcase, any_alignment);
	tcase_add_test(tcase, calloc_gives_zeros);
	tcase_add_test(tcase, realloc_keeps_the_bytes);
	tcase_add_test(tcase, grows_the_file_as_needed_and_no_further_than_max);
	tcase_add_test(tcase, a_refused_growth_is_the_error_and_nothing_else);
	tcase_add_test(tcase, the_root_is_found_by_the_next_process);
	tcase_add_test(tcase, a_block_is_taken_and_stored_in_one_call);
	tcase_add_test(tcase, pages_without_blocks_are_punched_out);
	tcase_add_test(tcase, many_free_pages_are_punched_out_without_being_asked);
	tcase_add_test(tcase, opening_says_why_it_cannot);
	tcase_add_test(tcase, a_closed_heap_is_not_touched);
	tcase_add_test(tcase, one_process_at_a_time);
	tcase_add_test(tcase, misuse_is_named);
	tcase_add_test(tcase, a_double_free_is_found_when_the_cache_is_given_back);
	tcase_add_test(tcase, a_debug_heap_names_each_mistake);
	tcase_add_test(tcase, a_debug_heap_works_as_any_other);
	tcase_add_test(tcase, damage_to_any_record_is_found);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
