/*
 * What serve/ exports, as a transport sees it that reads memory by itself: to which node, which file, and
 * which runs of it may be read without asking. The transport is a double that keeps the export.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lock_keeper.h"
#include "memory_fixture.h"
#include "serve/serve.h"

#define PAGE  UINT64_C(4096)
#define PAGES 600u

/* ---- the transport ---- */

static struct tp_export exported;
static unsigned exports;

static int keep_export(struct tp *tp, const struct tp_export *export, struct ramp_err *err)
{
	(void)tp;
	(void)err;
	exported = *export;
	exports++;
	return 0;
}

static void forget_export(struct tp *tp, const struct tp_key *key)
{
	(void)tp;
	ck_assert(tp_key_equal(key, &exported.key));
	exports--;
}

static const struct tp_ops ops = {
	.name = "double", .export = keep_export, .unexport = forget_export};
static struct tp tp = {&ops};

/* ---- a segment ---- */

static struct store *store;
static struct serve *serve;
static struct seg *seg;
static struct tp_key key;
static struct ramp_err err;

/* A segment of `size` bytes, all holes, whose pages may be marked. */
static void fresh(uint64_t size)
{
	/* A huge page would be data around the pages that are stored. */
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
	ck_assert_int_eq(store_create(store, MEMORY_ID, RECORD_NONE, 0, &seg, &err), 0);
	ck_assert_int_eq(ftruncate(seg_fd(seg), (off_t)size), 0);
	ck_assert_int_eq(pages_prepare(seg, size, &err), 0);
	ck_assert_int_eq(serve_open(&tp, &serve, &err), 0);
	key = tp_key_of_attempt(MEMORY_ID, (struct ramp_attempt){3, 4});
}

static void grant(void)
{
	ck_assert_msg(serve_grant(serve, seg, &key, 7, &err) == 0, "%s", err.text);
}

static void done(void)
{
	serve_close(serve);
	ck_assert_uint_eq(exports, 0);
	seg_put(seg);
	store_close(store);
}

/* Checks that the first run at or behind `from` is that one. */
static void check_run(uint64_t from, uint64_t first, uint64_t count)
{
	uint64_t offset = 0, len = 0;

	ck_assert_int_eq(exported.ops->next_run(exported.arg, from, &offset, &len), 1);
	ck_assert_uint_eq(offset, first * PAGE);
	ck_assert_uint_eq(len, count * PAGE);
}

static void check_no_run(uint64_t from)
{
	uint64_t offset, len;

	ck_assert_int_eq(exported.ops->next_run(exported.arg, from, &offset, &len), 0);
}

static void lose(uint64_t first, uint64_t count)
{
	ck_assert_int_eq(pages_mark_remote(seg, first, count, &err), 0);
	ck_assert_uint_eq(pages_lose(seg, first, count), count);
}

/* ---- */

START_TEST(a_grant_is_exported_to_one_node_with_its_file)
{
	struct stat own, mapped;

	fresh(5 * PAGE + 7);
	grant();
	ck_assert_uint_eq(exports, 1);
	ck_assert(tp_key_equal(&exported.key, &key));
	ck_assert_uint_eq(exported.reader, 7);
	ck_assert_uint_eq(exported.size, 5 * PAGE + 7);
	ck_assert_int_eq(fstat(seg_fd(seg), &own), 0);
	ck_assert_int_eq(fstat(exported.map_fd, &mapped), 0);
	ck_assert_uint_eq(own.st_ino, mapped.st_ino);
	check_no_run(0);
	serve_revoke(serve, &key);
	ck_assert_uint_eq(exports, 0);
	done();
}
END_TEST

START_TEST(runs_end_at_holes_and_at_pages_that_are_not_local)
{
	fresh(100 * PAGE + 10);
	for (uint64_t page = 10; page < 60; page++)
		memory_small_page(seg, (uint8_t)page, page);
	memory_small_page(seg, 0, 60); /* zeros in a page of their own are no hole */
	ck_assert_int_eq(fallocate(seg_fd(seg), FALLOC_FL_KEEP_SIZE, 61 * PAGE, 4 * PAGE), 0);
	ck_assert_int_eq(pwrite(seg_fd(seg), "x", 1, 100 * PAGE + 9),
			 1); /* in the part of a page */
	lose(20, 1);
	ck_assert_int_eq(pages_mark_remote(seg, 30, 2, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, 40, 1, &err), 0);
	ck_assert_uint_eq(pages_claim(seg, 40, 1), 1);
	grant();
	check_run(0, 10, 10);
	check_run(9 * PAGE + 1, 10, 10);
	check_run(10 * PAGE, 10, 10);
	check_run(10 * PAGE + 1, 11, 9); /* not the page that is behind only in part */
	check_run(19 * PAGE, 19, 1);
	check_run(20 * PAGE, 21, 9);
	check_run(30 * PAGE, 32, 8);
	check_run(40 * PAGE, 41, 20);
	check_run(61 * PAGE, 100, 1);
	check_run(100 * PAGE, 100, 1);
	check_no_run(101 * PAGE);
	check_no_run(UINT64_MAX);
	pages_arrive(seg, 40, 1);
	check_run(32 * PAGE, 32, 29);
	done();
}
END_TEST

/* Makes pages by chance. */
static void scatter(unsigned seed)
{
	for (uint64_t page = 0; page < PAGES; page++) {
		int kind = page % 50 < 20 ? 0 : rand_r(&seed) % 8;

		if (kind < 6)
			memory_small_page(seg, (uint8_t)kind, page);
		else if (kind == 6)
			ck_assert_int_eq(fallocate(seg_fd(seg), FALLOC_FL_KEEP_SIZE,
						   (off_t)(page * PAGE), PAGE),
					 0);
		if (kind != 5)
			continue;
		if (rand_r(&seed) % 2)
			lose(page, 1);
		else
			ck_assert_int_eq(pages_mark_remote(seg, page, 1, &err), 0);
	}
}

/* Returns whether a page may be read. (A page that is only reserved is data where the kernel reserved
   more around it, and a store came there.) */
static bool may_read(uint64_t page)
{
	return lseek(seg_fd(seg), (off_t)(page * PAGE), SEEK_DATA) == (off_t)(page * PAGE) &&
	       pages_get(seg, page) == PAGE_LOCAL;
}

/* With the lock of the file kept by a program, too: then no call waits for it. */
START_TEST(runs_are_exact)
{
	const bool kept = _i % 2;
	struct lock_keeper keeper;
	bool may[PAGES];
	uint64_t offset, len, from;

	fresh(PAGES * PAGE);
	scatter((unsigned)_i / 2);
	for (uint64_t page = 0; page < PAGES; page++)
		may[page] = may_read(page);
	if (kept)
		lock_keep(&keeper, seg, 0); /* page 0 is data */
	grant();
	for (from = 0; exported.ops->next_run(exported.arg, from, &offset, &len) == 1;
	     from = offset + len) {
		ck_assert_uint_ge(offset, from);
		ck_assert_uint_gt(len, 0);
		for (uint64_t page = from / PAGE; page < offset / PAGE; page++)
			ck_assert(!may[page]);
		for (uint64_t page = offset / PAGE; page < (offset + len) / PAGE; page++)
			ck_assert(may[page]);
		ck_assert(offset + len == PAGES * PAGE || !may[(offset + len) / PAGE]);
	}
	for (uint64_t page = from / PAGE; page < PAGES; page++)
		ck_assert(!may[page]);
	if (kept)
		lock_let_go(&keeper);
	done();
}
END_TEST

static _Atomic bool stop;

/* A program that has a writable descriptor cuts the file, and fills it again. */
static void *cut_again_and_again(void *arg)
{
	int fd = *(int *)arg;

	while (!atomic_load(&stop)) {
		ck_assert_int_eq(ftruncate(fd, 30 * PAGE), 0);
		ck_assert_int_eq(ftruncate(fd, PAGES * PAGE), 0);
		for (uint64_t page = 40; page < 80; page += 2)
			ck_assert_int_eq(pwrite(fd, "y", 1, (off_t)(page * PAGE)), 1);
	}
	return NULL;
}

/* The descriptor is handed out, or the daemon's own is used, which no program has. */
START_TEST(a_segment_that_is_cut_meanwhile_has_no_run_there)
{
	uint64_t offset, len, from;
	pthread_t thread;
	int fd, rc, rounds = 0;

	fresh(PAGES * PAGE);
	for (uint64_t page = 0; page < 30; page++)
		memory_small_page(seg, 1, page);
	grant();
	fd = _i ? seg_hand_out(seg, O_RDWR) : dup(seg_fd(seg));
	ck_assert_int_ge(fd, 0);
	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, cut_again_and_again, &fd), 0);
	for (; rounds < 2000; rounds++) {
		check_run(3 * PAGE, 3, 27);
		for (from = 0;
		     (rc = exported.ops->next_run(exported.arg, from, &offset, &len)) == 1;
		     from = offset + len) {
			ck_assert_uint_ge(offset, from);
			ck_assert_uint_gt(len, 0);
			ck_assert_uint_le(offset + len, PAGES * PAGE);
		}
		ck_assert_int_eq(rc, 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ck_assert_int_eq(ftruncate(fd, 12 * PAGE), 0);
	check_run(0, 0, 12);
	check_no_run(12 * PAGE);
	close(fd);
	done();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("serve");
	TCase *c = tcase_create("runs");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_grant_is_exported_to_one_node_with_its_file);
	tcase_add_test(c, runs_end_at_holes_and_at_pages_that_are_not_local);
	tcase_add_loop_test(c, runs_are_exact, 0, 12);
	tcase_add_loop_test(c, a_segment_that_is_cut_meanwhile_has_no_run_there, 0, 2);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
