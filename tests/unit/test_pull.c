/*
 * Pulling, as it should go: prefetch, page faults, holes, parked requests, cuts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pull_world.h"

static struct world w;

/* Until it is 0 or an error that is not -EAGAIN, as a parked request does. */
static int want_wait(uint64_t first, uint64_t count)
{
	int rc, waited_ms = 0;

	while ((rc = pull_want(w.t_pull, w.t_seg, first, count)) == -EAGAIN &&
	       waited_ms++ < WAIT_MS)
		usleep(1000);
	return rc;
}

START_TEST(prefetch_brings_everything)
{
	struct pull_progress progress;
	struct pull_status status;

	world_open(&w, 40 * MIB + 1000);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), -ENOENT);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), 0);
	ck_assert_uint_eq(atomic_load(&w.t_programs.pulled), 1);
	ck_assert_uint_ge(atomic_load(&w.borders.foretold), 1);
	world_check(&w);
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == -ENOENT);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.prefetch_pages, 40 * MIB / PAGE + 1);
	ck_assert_uint_eq(status.faults, 0);
	ck_assert_uint_eq(w.figures.all, 40 * MIB / PAGE + 1);
	ck_assert_uint_eq(w.figures.prefetch, 40 * MIB / PAGE + 1);
	ck_assert_uint_eq(w.figures.demand + w.figures.holes + w.figures.lost, 0);
	ck_assert(w.figures.us && !w.figures.rdma);
	pull_status(w.s_pull, &status);
	ck_assert_uint_ge(status.served_bytes, 40 * MIB);
	world_close(&w);
}
END_TEST

START_TEST(nothing_missing_finishes_at_once)
{
	world_open(&w, MIB);
	world_take(&w, true);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_close(&w);
}
END_TEST

START_TEST(a_page_fault_brings_its_page_and_no_other)
{
	struct pull_progress progress;

	world_open(&w, 4 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, false);
	for (uint64_t i = 0; i < 40; i++) {
		uint64_t page = i * 389 % 1024; /* never near one of the last four */

		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	}
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	ck_assert_uint_eq(progress.demand_pages, 40);
	ck_assert_uint_eq(progress.pages_missing, 1024 - 40);
	ck_assert_uint_eq(progress.pages_all, 1024);
	ck_assert(!progress.source_silent);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	world_close(&w);
}
END_TEST

/* As after a pre-copy, where nearly all pages are there and none is mapped. */
START_TEST(a_page_fault_of_what_is_there_maps_what_is_behind_it)
{
	struct pull_status before, after;

	world_open_with(&w, 4 * MIB, true, false);
	ck_assert_int_eq(want_wait(0, 64), 0);
	ck_assert_int_eq(madvise(w.t_programs.map, 64 * PAGE, MADV_DONTNEED), 0);
	pull_status(w.t_pull, &before);
	for (uint64_t page = 0; page < 64; page++)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	pull_status(w.t_pull, &after);
	ck_assert_uint_le(after.faults - before.faults, 8);
	ck_assert_uint_eq(after.demand_pages, before.demand_pages);
	world_close(&w);
}
END_TEST

/* An eighth of what was missing, and not for less. */
START_TEST(what_has_come_is_unregistered_now_and_then)
{
	world_open_with(&w, 4 * MIB, true, false);
	ck_assert_int_eq(want_wait(0, 64), 0);
	usleep(250000); /* longer than between two looks */
	ck_assert_uint_eq(atomic_load(&w.t_programs.trims), 0);
	ck_assert_int_eq(want_wait(64, 128), 0);
	for (int ms = 0; ms < WAIT_MS && !atomic_load(&w.t_programs.trims); ms++)
		usleep(1000);
	usleep(250000);
	ck_assert_uint_eq(atomic_load(&w.t_programs.trims), 1);
	world_close(&w);
}
END_TEST

/* How many of the file's huge pages have a first page that is cleared, or more. */
static uint64_t cleared(const uint8_t *map, uint64_t size)
{
	uint64_t n = 0;
	uint8_t there;

	for (uint64_t at = 0; at < size; at += RAMP_HUGE_BYTES) {
		ck_assert_int_eq(mincore((void *)(uintptr_t)(map + at), PAGE, &there), 0);
		n += there & 1;
	}
	return n;
}

/* Nothing is asked for meanwhile, and nothing that was a hole is filled. */
START_TEST(room_is_cleared_ahead_of_page_faults)
{
	const uint64_t size = 32 * MIB, hole = 5 * RAMP_HUGE_BYTES;
	struct pull_status status;
	uint8_t *map;

	world_open(&w, size);
	for (uint64_t page = 0; page < size / PAGE; page++)
		if (page * PAGE < hole || page * PAGE >= hole + RAMP_HUGE_BYTES)
			world_write(&w, page);
	world_take(&w, true);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, seg_fd(w.t_seg), 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_uint_eq(cleared(map, size), 0);
	world_begin(&w, false);
	wait_until(cleared(map, size) == size / RAMP_HUGE_BYTES - 1);
	usleep(20000);
	ck_assert_uint_eq(cleared(map, size), size / RAMP_HUGE_BYTES - 1);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.demand_pages + status.prefetch_pages, 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), (size - RAMP_HUGE_BYTES) / PAGE);
	munmap(map, size);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(sequential_faults_grow_and_end_the_pull)
{
	struct pull_status status;
	uint64_t counted = 0;

	world_open(&w, 4 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, false);
	for (uint64_t page = 0; page < 1024; page++)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	world_wait_finished(&w);
	pull_status(w.t_pull, &status);
	/* 1, 2, 4, 8, then 16 pages a fault */
	ck_assert_uint_le(status.faults, 1024 / 16 + 8);
	ck_assert_uint_eq(status.demand_pages, 1024);
	for (int i = 0; i < PULL_HISTOGRAM; i++)
		counted += status.fault_us[i];
	ck_assert_uint_eq(counted, status.faults);
	ck_assert(!atomic_load(&w.t_programs.registered));
	world_close(&w);
}
END_TEST

START_TEST(a_sparse_tebibyte_costs_what_it_holds)
{
	world_pull_sparse_tebibyte(&w, true, false);
}
END_TEST

START_TEST(holes_that_nobody_listed_are_found)
{
	struct pull_progress progress;

	world_open(&w, 64 * MIB);
	for (uint64_t page = 5000; page < 5010; page++)
		world_write(&w, page);
	world_take(&w, false);
	world_attach(&w);
	world_begin(&w, false);
	/* a hole that is touched reads as zeros, and tells of all of it */
	ck_assert_uint_eq(w.t_programs.map[100 * PAGE], 0);
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == 0 &&
		   progress.hole_pages > 4000);
	ck_assert_uint_eq(w.t_programs.map[200 * PAGE], 0);
	ck_assert(world_page_is(w.t_programs.map + 5003 * PAGE, 5003));
	ck_assert_uint_le(memory_blocks_bytes(w.t_seg), 16 * MIB);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(pages_of_zeros_travel_as_holes)
{
	struct pull_status status;
	uint8_t zeros[PAGE] = {0};

	world_open(&w, 8 * MIB);
	for (uint64_t page = 0; page < 2048; page++)
		if (page % 64 < 8)
			world_write(&w, page);
		else
			ck_assert_int_eq(pwrite(seg_fd(w.s_seg), zeros, PAGE, (off_t)(page * PAGE)),
					 PAGE);
	world_take(&w, true);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_le(status.bytes, 2048 / 8 * PAGE);
	ck_assert_uint_ge(status.hole_pages, 2048 / 8 * 7);
	world_close(&w);
}
END_TEST

/* ---- parked requests ---- */

static _Atomic unsigned changes;

static void note_change(void *arg, ramp_segment_t id)
{
	(void)arg;
	if (id == MEMORY_ID)
		changes++;
}

START_TEST(a_parked_read_gets_its_pages)
{
	struct pull_progress progress;
	uint8_t got[PAGE];

	world_open(&w, 16 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 0, 1), -EAGAIN); /* not begun yet */
	store_on_change(w.t_store, note_change, NULL);
	world_begin(&w, false);
	ck_assert_uint_gt(changes, 0); /* it asks again now, and not at the park's next tick */
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 700, 900), -EAGAIN);
	ck_assert_int_eq(want_wait(700, 900), 0);
	ck_assert(pages_local(w.t_seg, 700, 900));
	for (uint64_t page = 700; page < 1600; page++) {
		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert(world_page_is(got, page));
	}
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	ck_assert_uint_eq(progress.pages_missing, 4096 - 900);
	world_close(&w);
}
END_TEST

/* ---- cuts ---- */

static int cut_wait(uint64_t offset, uint64_t len)
{
	int rc, waited_ms = 0;

	while ((rc = pull_cut_begin(w.t_pull, w.t_seg, offset, len)) == -EAGAIN &&
	       waited_ms++ < WAIT_MS)
		usleep(1000);
	return rc;
}

static void *touch(void *arg)
{
	uint8_t *at = arg;

	return (void *)(uintptr_t) * (volatile uint8_t *)at;
}

START_TEST(a_write_over_remote_pages_pulls_its_edges_only)
{
	uint64_t offset = 10 * PAGE + 100, len = 20 * PAGE;
	uint8_t *bytes = malloc(len), got[PAGE];
	struct pull_progress progress;

	world_open(&w, 4 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_begin(&w, false);
	memset(bytes, 0xee, len);
	ck_assert_int_eq(cut_wait(offset, len), 0);
	ck_assert_int_eq(pages_get(w.t_seg, 15), PAGE_IN_FLIGHT);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, len, (off_t)offset), (ssize_t)len);
	pull_cut_end(w.t_pull, w.t_seg, offset, len, len);
	ck_assert(pages_local(w.t_seg, 10, 21));
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	ck_assert_uint_eq(progress.demand_pages, 2);
	ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, 10 * PAGE), PAGE);
	ck_assert_uint_eq(got[99], world_byte(10, 99));
	ck_assert_uint_eq(got[100], 0xee);
	ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, 30 * PAGE), PAGE);
	ck_assert_uint_eq(got[99], 0xee);
	ck_assert_uint_eq(got[100], world_byte(30, 100));

	/* a write that fell short: pages that it did not reach are REMOTE again */
	ck_assert_int_eq(cut_wait(100 * PAGE, 10 * PAGE), 0);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, 3 * PAGE, 100 * PAGE), 3 * PAGE);
	pull_cut_end(w.t_pull, w.t_seg, 100 * PAGE, 10 * PAGE, 3 * PAGE);
	ck_assert(pages_local(w.t_seg, 100, 3));
	ck_assert_int_eq(pages_get(w.t_seg, 103), PAGE_REMOTE);
	ck_assert_int_eq(want_wait(103, 7), 0);
	ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, 103 * PAGE), PAGE);
	ck_assert(world_page_is(got, 103));
	free(bytes);
	world_close(&w);
}
END_TEST

START_TEST(a_page_fault_waits_for_the_bytes_of_a_cut)
{
	uint8_t bytes[PAGE];
	pthread_t thread;
	struct pull_status status;
	void *seen;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, false);
	ck_assert_int_eq(cut_wait(50 * PAGE, PAGE), 0);
	pthread_create(&thread, NULL, touch, w.t_programs.map + 50 * PAGE);
	do
		pull_status(w.t_pull, &status);
	while (status.faults == 0);
	memset(bytes, 0xdd, PAGE);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, PAGE, 50 * PAGE), PAGE);
	pull_cut_end(w.t_pull, w.t_seg, 50 * PAGE, PAGE, PAGE);
	pthread_join(thread, &seen);
	ck_assert_uint_eq((uintptr_t)seen, 0xdd);

	/* and the hole of a truncate is zeros, to the end of the file */
	ck_assert_int_eq(cut_wait(100 * PAGE + 5, MIB - 100 * PAGE - 5), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w.t_seg), 100 * PAGE + 5), 0);
	pull_cut_end(w.t_pull, w.t_seg, 100 * PAGE + 5, MIB - 100 * PAGE - 5, MIB - 100 * PAGE - 5);
	ck_assert_int_eq(ftruncate(seg_fd(w.t_seg), MIB), 0);
	ck_assert_uint_eq(w.t_programs.map[200 * PAGE], 0);
	ck_assert_uint_eq(w.t_programs.map[100 * PAGE + 4], world_byte(100, 4));
	ck_assert_uint_eq(w.t_programs.map[100 * PAGE + 5], 0);
	world_close(&w);
}
END_TEST

/* ---- everything at once ---- */

#define BUSY_PAGES 8192u /* 32 MiB */
#define TOUCHERS   3

static void *touch_all(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 6000; i++) {
		uint64_t page = (uint64_t)rand_r(&seed) % BUSY_PAGES;
		const uint8_t *at = w.t_programs.map + page * PAGE;

		for (uint64_t k = (uint64_t)rand_r(&seed) % 64; k < PAGE; k += 64)
			ck_assert_uint_eq(at[k], world_byte(page, k));
	}
	return NULL;
}

static void *want_all(void *arg)
{
	unsigned seed = 99;
	uint8_t got[PAGE];

	(void)arg;
	for (int i = 0; i < 500; i++) {
		uint64_t page = (uint64_t)rand_r(&seed) % (BUSY_PAGES - 64);

		ck_assert_int_eq(want_wait(page, 1 + (uint64_t)rand_r(&seed) % 63), 0);
		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert(world_page_is(got, page));
	}
	return NULL;
}

START_TEST(a_truncate_that_a_kill_breaks_off_leaves_nothing_to_pull_behind_the_end)
{
	uint64_t kept = 5 * PAGE;
	uint8_t zeros[PAGE] = {0}, got[PAGE];

	world_open(&w, 64 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_begin(&w, false);
	ck_assert_int_eq(cut_wait(kept, w.size - kept), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w.t_seg), (off_t)kept), 0);
	world_target_restart(&w);
	ck_assert_uint_eq(pages_missing(w.t_seg), kept / PAGE);
	world_begin(&w, true);
	world_wait_finished(&w);
	/* pages that it gets behind its end later are its own */
	ck_assert_int_eq(ftruncate(seg_fd(w.t_seg), (off_t)w.size), 0);
	for (uint64_t page = 0; page < w.size / PAGE; page++) {
		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		if (page * PAGE < kept)
			ck_assert(world_page_is(got, page));
		else
			ck_assert(!memcmp(got, zeros, PAGE));
	}
	world_close(&w);
}
END_TEST

static void *end_pull(void *ended)
{
	pull_end(w.t_pull, MEMORY_ID);
	atomic_store((atomic_bool *)ended, true);
	return NULL;
}

/* It waits for the thread that is saying that all is here. */
START_TEST(a_pull_that_is_ended_while_it_finishes_has_ended)
{
	atomic_bool ended = false;
	struct ramp_err err = {0};
	pthread_t thread;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.busy, true);
	world_begin(&w, true);
	wait_until(atomic_load(&w.finished));
	pthread_create(&thread, NULL, end_pull, &ended);
	usleep(100000);
	ck_assert(!atomic_load(&ended));
	atomic_store(&w.busy, false);
	wait_until(atomic_load(&ended));
	pthread_join(thread, NULL);
	ck_assert_uint_eq(atomic_load(&w.finished), 1);
	ck_assert_int_eq(store_remove(w.t_seg, true, &err), 0);
	world_close(&w);
}
END_TEST

START_TEST(a_pull_that_cannot_finish_yet_can_be_ended)
{
	struct ramp_err err = {0};

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.t_programs.busy, MEMORY_ID);
	world_begin(&w, true);
	wait_until(atomic_load(&w.t_programs.pulled) > 1);
	pull_end(w.t_pull, MEMORY_ID);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	ck_assert_int_eq(store_remove(w.t_seg, true, &err), 0);
	world_close(&w);
}
END_TEST

static uint64_t last_in_flight(void)
{
	uint64_t page = w.size / PAGE;

	while (page-- > 0)
		if (pages_get(w.t_seg, page) == PAGE_IN_FLIGHT)
			return page;
	ck_abort_msg("no page is under way");
}

static void begin_another(struct seg **other)
{
	struct ramp_err err = {0};

	ck_assert_int_eq(store_create(w.t_store, OTHER_ID, RECORD_NONE, 0, other, &err), 0);
	ck_assert_int_eq(ftruncate(seg_fd(*other), MIB), 0);
	ck_assert_int_eq(pages_prepare(*other, MIB, &err), 0);
	world_begin_other(&w, *other);
}

static _Atomic bool touched;

static void *touch_one(void *at)
{
	(void)*(volatile uint8_t *)at;
	atomic_store(&touched, true);
	return NULL;
}

/* All of it is here, and one of its programs is being waited for. */
START_TEST(a_segment_that_cannot_finish_yet_delays_no_other)
{
	struct seg *other;
	pthread_t thread;

	world_open(&w, 16 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	atomic_store(&w.slow_after, 4 * MIB);
	world_begin(&w, true);
	wait_until(atomic_load(&w.slowed));
	atomic_store(&w.t_programs.busy, OTHER_ID);
	begin_another(&other);
	wait_until(atomic_load(&w.t_programs.pulled));
	atomic_store(&touched, false);
	pthread_create(&thread, NULL, touch_one, w.t_programs.map + last_in_flight() * PAGE);
	atomic_store(&w.slow_after, 0);
	wait_until(atomic_load(&touched));
	pthread_join(thread, NULL);
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_eq(atomic_load(&w.finished_other), 0);
	atomic_store(&w.t_programs.busy, 0);
	wait_until(atomic_load(&w.finished_other));
	seg_put(other);
	world_close(&w);
}
END_TEST

START_TEST(faults_reads_and_prefetch_together)
{
	pthread_t threads[TOUCHERS + 1];
	struct pull_status status;

	world_open(&w, BUSY_PAGES * PAGE);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, true);
	for (uintptr_t i = 0; i < TOUCHERS; i++)
		pthread_create(&threads[i], NULL, touch_all, (void *)(i + 1));
	pthread_create(&threads[TOUCHERS], NULL, want_all, NULL);
	for (int i = 0; i <= TOUCHERS; i++)
		pthread_join(threads[i], NULL);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.demand_pages + status.prefetch_pages, BUSY_PAGES);
	world_close(&w);
}
END_TEST

/* Checks the reads since it was called last. */
static void check_borders(bool met)
{
	ck_assert_uint_gt(atomic_exchange(&w.borders.asked, 0), 0);
	ck_assert_uint_eq(atomic_exchange(&w.borders.at_border, 0) > 0, met);
	ck_assert_uint_eq(atomic_load(&w.borders.broken), 0);
}

/* Reads by page faults with pages around them, by a request of many pages, and by the prefetch, in place
   and by bounce buffers. */
START_TEST(no_read_crosses_a_change_of_transport)
{
	static const uint64_t every[] = {1, 2, 3, 7, 64, 100, 512, 700};
	const uint64_t size = 12 * MIB + 1000;

	world_open(&w, size);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.borders.every, every[_i] * PAGE);
	world_attach(&w);
	world_begin(&w, false);
	for (uint64_t page = 0; page < 300; page++) /* sequential: fault-around grows */
		ck_assert_uint_eq(world_touched(world_touch(&w, page)), world_byte(page, 0));
	check_borders(every[_i] <= 300);
	ck_assert_uint_eq(atomic_load(&w.borders.foretold),
			  0); /* on demand: it may never be read */
	ck_assert_int_eq(want_wait(301, 1500), 0);
	check_borders(true);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	check_borders(true);
	world_check(&w);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull");
	TCase *c = tcase_create("pull");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, prefetch_brings_everything);
	tcase_add_test(c, nothing_missing_finishes_at_once);
	tcase_add_test(c, a_page_fault_brings_its_page_and_no_other);
	tcase_add_test(c, a_page_fault_of_what_is_there_maps_what_is_behind_it);
	tcase_add_test(c, what_has_come_is_unregistered_now_and_then);
	tcase_add_test(c, room_is_cleared_ahead_of_page_faults);
	tcase_add_test(c, sequential_faults_grow_and_end_the_pull);
	tcase_add_loop_test(c, no_read_crosses_a_change_of_transport, 0, 8);
	tcase_add_test(c, a_sparse_tebibyte_costs_what_it_holds);
	tcase_add_test(c, holes_that_nobody_listed_are_found);
	tcase_add_test(c, pages_of_zeros_travel_as_holes);
	tcase_add_test(c, a_parked_read_gets_its_pages);
	tcase_add_test(c, a_write_over_remote_pages_pulls_its_edges_only);
	tcase_add_test(c, a_page_fault_waits_for_the_bytes_of_a_cut);
	tcase_add_test(c, a_truncate_that_a_kill_breaks_off_leaves_nothing_to_pull_behind_the_end);
	tcase_add_test(c, a_pull_that_is_ended_while_it_finishes_has_ended);
	tcase_add_test(c, a_pull_that_cannot_finish_yet_can_be_ended);
	tcase_add_test(c, a_segment_that_cannot_finish_yet_delays_no_other);
	tcase_add_test(c, faults_reads_and_prefetch_together);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
