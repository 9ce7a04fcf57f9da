/*
 * Pulling and serving a segment of which a program has a writable descriptor, by which it keeps the
 * file's lock: it comes all the same, and the others' do.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lock_keeper.h"
#include "pull_world.h"

static struct world w;

/* ---- at the source ---- */

/* Stored, written, reserved, zeros, and nothing. Page 0 is data. */
static void scatter(unsigned seed)
{
	uint64_t pages = w.size / PAGE, first, count;
	int fd = seg_fd(w.s_seg);

	for (int i = 0; i < 60; i++) {
		first = (uint64_t)rand_r(&seed) % (pages - 300);
		count = 1 + (uint64_t)rand_r(&seed) % (i % 4 ? 9 : 299);
		if (rand_r(&seed) % 4 == 0) {
			ck_assert_int_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)(first * PAGE),
						   (off_t)(count * PAGE)),
					 0);
			continue;
		}
		for (uint64_t page = first; page < first + count; page++)
			if (rand_r(&seed) % 8 == 0)
				memory_small_page(w.s_seg, 0, page);
			else if (rand_r(&seed) % 2)
				memory_small_page(w.s_seg, (uint8_t)(page | 1), page);
			else
				world_write(&w, page);
	}
	memory_small_page(w.s_seg, 1, 0);
}

/* Without a list of the populated ranges, the target has no page that the source has not. */
START_TEST(a_source_whose_lock_is_kept_tells_its_data_and_holes)
{
	const bool listed = _i % 2;
	struct lock_keeper keeper;

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	world_open(&w, 24 * MIB + 1000);
	scatter((unsigned)_i / 2);
	lock_keep(&keeper, w.s_seg, 0);
	world_take(&w, listed);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_check(&w);
	if (!listed)
		ck_assert_uint_le(memory_blocks_bytes(w.t_seg), memory_blocks_bytes(w.s_seg));
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

START_TEST(a_sparse_tebibyte_whose_lock_is_kept_costs_what_it_holds)
{
	world_pull_sparse_tebibyte(&w, _i, true);
}
END_TEST

START_TEST(page_faults_of_a_source_whose_lock_is_kept_are_served)
{
	struct lock_keeper keeper;
	unsigned seed = 5;

	world_open(&w, 8 * MIB);
	for (uint64_t page = 0; page < 8 * MIB / PAGE; page += 2)
		world_write(&w, page);
	lock_keep(&keeper, w.s_seg, 0);
	world_take(&w, false);
	world_attach(&w);
	world_begin(&w, false);
	for (int i = 0; i < 500; i++) {
		uint64_t page = (uint64_t)rand_r(&seed) % (8 * MIB / PAGE);
		uint8_t got = world_touched(world_touch(&w, page));

		ck_assert_uint_eq(got, page % 2 ? 0 : world_byte(page, 0));
	}
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

/* A program that has such a descriptor cuts the file between two answers. */
START_TEST(what_is_cut_by_a_program_is_a_hole_and_what_is_left_comes)
{
	uint8_t got[PAGE], zeros[PAGE] = {0};
	int fd, rc;

	world_open_with(&w, 8 * MIB, false, false);
	fd = seg_hand_out(w.s_seg, O_RDWR);
	ck_assert_int_ge(fd, 0);
	wait_until((rc = pull_want(w.t_pull, w.t_seg, 1024, 1)) != -EAGAIN);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(ftruncate(fd, 4 * MIB), 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	for (uint64_t page = 0; page < 2048; page++) {
		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		if (page <= 1024)
			ck_assert(world_page_is(got, page));
		else
			ck_assert_mem_eq(got, zeros, PAGE);
	}
	close(fd);
	world_close(&w);
}
END_TEST

/* ---- at the target ---- */

/* Begins a pull beside the one whose lock is kept; both come from the same source by the same threads. */
static struct seg *begin_other(void)
{
	const struct data_range range = {0, 4 * MIB};
	struct ramp_err err = {0};
	const struct tp_key key = world_other_key();
	struct seg *given, *other;

	ck_assert_int_eq(store_create(w.s_store, OTHER_ID, RECORD_OWNED, 1, &given, &err), 0);
	memory_fill(given, 9, 0, 4 * MIB);
	ck_assert_int_eq(serve_grant(w.s_serve, given, &key, w.t.id, &err), 0);
	seg_put(given);
	ck_assert_int_eq(store_create(w.t_store, OTHER_ID, RECORD_NONE, 0, &other, &err), 0);
	ck_assert_int_eq(reserve_memory(other, 4 * MIB, &range, 1, 0, &err), 0);
	ck_assert_int_eq(pages_prepare(other, 4 * MIB, &err), 0);
	ck_assert_int_eq(pages_mark_remote(other, 0, 4 * MIB / PAGE, &err), 0);
	world_begin_other(&w, other);
	return other;
}

static void other_came(struct seg *other)
{
	uint8_t got[PAGE], want[PAGE];

	wait_until(atomic_load(&w.finished_other));
	memset(want, 9, PAGE);
	for (uint64_t page = 0; page < 4 * MIB / PAGE; page++) {
		ck_assert_int_eq(pread(seg_fd(other), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert_mem_eq(got, want, PAGE);
	}
	seg_put(other);
}

/* Huge pages of it are on their way into buffers when the descriptor is handed out, or none is yet. */
START_TEST(a_target_whose_lock_is_kept_gets_its_pages)
{
	struct lock_keeper keeper;

	world_open(&w, 32 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.slow_after, _i ? 5 * MIB : 0);
	if (_i == 0)
		lock_keep(&keeper, w.t_seg, 0);
	world_begin(&w, true);
	if (_i) {
		wait_until(atomic_load(&w.slowed));
		lock_keep(&keeper, w.t_seg, 0);
		atomic_store(&w.slow_after, 0);
	}
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_check(&w);
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

/* A range that the list named is a hole at the source by now: its room is not given back. */
START_TEST(holes_in_a_target_whose_lock_is_kept_keep_nobody_waiting)
{
	const struct record given = {.kind = RECORD_GIVEN, .epoch = 2, .k = {1, 1}, .peer = 2};
	struct lock_keeper keeper;
	struct ramp_err err = {0};

	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pages_mark_all_remote(w.t_seg, &err), 0);
	ck_assert_int_eq(fallocate(seg_fd(w.s_seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB,
				   4 * MIB),
			 0);
	ck_assert_msg(record_change(w.s_seg, &given, &err) == 0, "%s", err.text);
	lock_keep(&keeper, w.t_seg, 0);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

/* Neither a lock that is kept at the source nor one at the target. */
START_TEST(a_lock_that_is_kept_delays_no_other)
{
	struct lock_keeper keeper;
	struct seg *other;

	world_open(&w, 64 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.slow_after, 5 * MIB);
	world_begin(&w, true);
	wait_until(atomic_load(&w.slowed));
	lock_keep(&keeper, _i ? w.s_seg : w.t_seg, 0);
	if (_i) /* so that it is looked for again */
		serve_revoke(w.s_serve, &w.key);
	atomic_store(&w.slow_after, 0);
	if (_i)
		ck_assert_int_eq(serve_grant(w.s_serve, w.s_seg, &w.key, w.t.id, NULL), 0);
	other = begin_other();
	other_came(other);
	world_wait_finished(&w);
	world_check(&w);
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

/* Its write by the mount has claimed them, and waits for the lock: the rest comes. */
START_TEST(a_write_that_waits_for_the_lock_keeps_its_own_pages_only)
{
	struct lock_keeper keeper;
	struct seg *other;
	pthread_t thread;

	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 16 * PAGE, 4 * PAGE), 0);
	lock_keep(&keeper, w.t_seg, 0);
	world_begin(&w, true);
	thread = world_touch(
		&w, 17); /* a thread that touches one of those waits, and is not in the way */
	other = begin_other();
	ck_assert_uint_eq(world_touched(world_touch(&w, 100)), world_byte(100, 0));
	wait_until(pages_missing(w.t_seg) == 4);
	other_came(other);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	pull_cut_end(w.t_pull, w.t_seg, 16 * PAGE, 4 * PAGE, 0); /* it has failed */
	ck_assert_uint_eq(world_touched(thread), world_byte(17, 0));
	world_wait_finished(&w);
	world_check(&w);
	lock_let_go(&keeper);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull_handed");
	TCase *c = tcase_create("handed");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, a_source_whose_lock_is_kept_tells_its_data_and_holes, 0, 16);
	tcase_add_loop_test(c, a_sparse_tebibyte_whose_lock_is_kept_costs_what_it_holds, 0, 2);
	tcase_add_test(c, page_faults_of_a_source_whose_lock_is_kept_are_served);
	tcase_add_test(c, what_is_cut_by_a_program_is_a_hole_and_what_is_left_comes);
	tcase_add_loop_test(c, a_target_whose_lock_is_kept_gets_its_pages, 0, 2);
	tcase_add_test(c, holes_in_a_target_whose_lock_is_kept_keep_nobody_waiting);
	tcase_add_loop_test(c, a_lock_that_is_kept_delays_no_other, 0, 2);
	tcase_add_test(c, a_write_that_waits_for_the_lock_keeps_its_own_pages_only);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
