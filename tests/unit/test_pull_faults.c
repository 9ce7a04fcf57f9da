/*
 * Pulling when things go wrong: connections cut, sources that are silent, restart or do not know
 * the key, a target that restarts, a store without room, a source's file that is cut.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "pull_world.h"

static struct world w;

START_TEST(connections_that_are_cut_again_and_again)
{
	struct pull_status status;

	world_open(&w, 24 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	/* in the middle of a page, of a header, behind a whole one */
	atomic_store(&w.cut_after, (uint64_t)_i);
	world_begin(&w, true);
	for (uint64_t page = 0; page < 6144; page += 97)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	wait_until(atomic_load(&w.cuts) >= 2 || atomic_load(&w.finished));
	atomic_store(&w.cut_after, 0);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_ge(atomic_load(&w.cuts), 2);
	ck_assert_uint_ge(status.reconnects, 1);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_close(&w);
}
END_TEST

START_TEST(a_page_fault_waits_for_a_source_that_is_down)
{
	struct pull_progress progress;
	pthread_t thread;

	world_open_with(&w, 8 * MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	world_source_stop(&w);
	thread = world_touch(&w, 1000);
	world_wait_for_fault(&w, 2);
	do
		ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	while (!progress.source_silent);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 500, 1), -EAGAIN);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);

	world_source_start(&w, WORLD_INCARNATION);
	ck_assert_uint_eq(world_touched(thread), world_byte(1000, 0));
	ck_assert(world_page_is(w.t_programs.map + 1000 * PAGE, 1000));
	wait_until(pull_want(w.t_pull, w.t_seg, 500, 1) == 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

/* Threads that wait for events alone: no timer of theirs makes up for one that is lost. */
static _Atomic bool no_timers;
int __real_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms);

int __wrap_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms)
{
	return __real_epoll_wait(epfd, events, max,
				 atomic_load(&no_timers) && timeout_ms > 0 ? -1 : timeout_ms);
}

/* The call that asks for the state takes the bytes of which an event would have told. */
START_TEST(a_connection_that_is_ready_without_an_event)
{
	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.borders.ready_at_third, true);
	atomic_store(&no_timers, true);
	world_begin(&w, true);
	world_wait_finished(&w);
	atomic_store(&no_timers, false);
	ck_assert_uint_ge(atomic_load(&w.borders.thirds), 1);
	world_check(&w);
	world_close(&w);
}
END_TEST

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Returns the result that a parked read of a page gets in the end, and how long that takes. */
static int want_pages_until(uint64_t first, uint64_t count)
{
	int rc, looks = 0;

	while ((rc = pull_want(w.t_pull, w.t_seg, first, count)) == -EAGAIN && looks++ < WAIT_MS)
		usleep(1000);
	return rc;
}

static int want_until(uint64_t page, double *took)
{
	double from = seconds();
	int rc = want_pages_until(page, 1);

	*took = seconds() - from;
	return rc;
}

static bool source_is_silent(void)
{
	struct pull_progress progress;

	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	return progress.source_silent;
}

/* Nothing asks the pull for a page meanwhile. */
static void leave_alone(double for_s)
{
	double from = seconds();

	while (seconds() - from < for_s) {
		ck_assert(!source_is_silent());
		usleep(1000);
	}
}

START_TEST(a_read_gives_up_on_a_silent_source)
{
	double took;

	world_open_with(&w, MIB, false, false);
	world_source_stop(&w);
	leave_alone(1); /* which does not count */
	ck_assert_int_eq(want_until(5, &took), -EHOSTDOWN);
	ck_assert_double_ge(took, 4.5);
	ck_assert_double_le(took, 20);
	ck_assert_int_eq(pages_get(w.t_seg, 5), PAGE_REMOTE);

	/* the next one is told at once, as long as it lasts */
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 6, 1), -EHOSTDOWN);
	world_source_start(&w, WORLD_INCARNATION);
	wait_until(pull_want(w.t_pull, w.t_seg, 6, 1) == 0);
	wait_until(!source_is_silent());
	ck_assert_int_eq(want_until(7, &took), 0);
	world_close(&w);
}
END_TEST

/*
 * Stands in for pull_now_ms (pull.cmake: --wrap): between a thread's look at the clock and what it
 * does next, another one may have asked and the pager found out that the source does not answer.
 */
uint64_t __real_pull_now_ms(void);
uint64_t __wrap_pull_now_ms(void);

static _Thread_local bool looked_long_ago;

uint64_t __wrap_pull_now_ms(void)
{
	uint64_t now = __real_pull_now_ms();

	if (looked_long_ago) {
		looked_long_ago = false;
		usleep(2000);
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 6, 1), -EAGAIN);
		wait_until(source_is_silent());
	}
	return now;
}

START_TEST(a_source_that_is_silent_from_now_on_is_waited_for)
{
	world_open_with(&w, MIB, false, false);
	world_source_stop(&w);
	looked_long_ago = true;
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 5, 1), -EAGAIN);
	ck_assert(!looked_long_ago);
	world_close(&w);
}
END_TEST

START_TEST(a_pull_that_nobody_asks_anything_of_is_not_silent)
{
	struct pull_status status;
	double took;

	/* while its first connection is made, and behind that */
	world_open_with(&w, MIB, false, false);
	leave_alone(0.2);
	ck_assert_int_eq(want_until(5, &took), 0);
	wait_until(!source_is_silent());

	/* the same for the next one */
	world_source_stop(&w);
	world_source_start(&w, WORLD_INCARNATION);
	do {
		leave_alone(0.01);
		pull_status(w.t_pull, &status);
	} while (status.reconnects == 0);
	leave_alone(0.2);
	ck_assert_int_eq(want_until(6, &took), 0);
	world_close(&w);
}
END_TEST

/* A source that is stopped: its kernel takes connections and bytes, and no daemon answers. */
START_TEST(a_source_that_hangs_is_silent_and_comes_back)
{
	pthread_t thread;
	double took;

	world_open_with(&w, 64 * MIB, true, true);
	wait_until(pages_missing(w.t_seg) < 64 * MIB / PAGE);
	atomic_store(&w.held, true);
	if (pages_missing(w.t_seg) < 2000) { /* it was faster than we */
		atomic_store(&w.held, false);
		world_wait_finished(&w);
		world_close(&w);
		return;
	}
	/* its last page: not claimed yet, or claimed by a prefetch that hangs */
	ck_assert_int_eq(want_until(64 * MIB / PAGE - 1, &took), -EHOSTDOWN);
	ck_assert_double_le(took, 20);
	thread = world_touch(&w, 64 * MIB / PAGE - 1);
	/* the pull notices that and connects again, though nothing else asks */
	atomic_store(&w.held, false);
	ck_assert_uint_eq(world_touched(thread), world_byte(64 * MIB / PAGE - 1, 0));
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_close(&w);
}
END_TEST

/* It brings less in five seconds than the transport would like to see at once. */
START_TEST(a_slow_network_is_not_silent)
{
	double took, now, looked, stood_still = 0;
	struct pull_status status;
	bool silent;

	world_open_with(&w, 4 * MIB, false, false);
	/* both connections are there before the middle, one thread, takes its time */
	ck_assert_int_eq(want_until(0, &took), 0);
	atomic_store(&w.slow_after, 5 * MIB / 4);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	wait_until(atomic_load(&w.slowed) > 0);
	looked = seconds();
	for (double from = looked; seconds() - from < 2.5; usleep(10000)) {
		silent = source_is_silent();
		now = seconds();
		/* A machine that stood still tells nothing. Nor does the middle: bytes that it has let
		   pass take a short time to arrive. */
		if (now - looked > 0.3 || world_slowed_ago_ms(&w) > 600)
			stood_still = now;
		ck_assert(!silent || now - stood_still < 0.6);
		looked = now;
	}
	atomic_store(&w.slow_after, 0);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.reconnects, 0);
	world_close(&w);
}
END_TEST

START_TEST(a_page_fault_finds_out_that_its_source_hangs)
{
	struct pull_progress progress;
	pthread_t thread;

	world_open_with(&w, MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	atomic_store(&w.held, true);
	thread = world_touch(&w, 9);
	/* by its own clock: nothing else happens here */
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == 0 && progress.source_silent);
	atomic_store(&w.held, false);
	ck_assert_uint_eq(world_touched(thread), world_byte(9, 0));
	world_close(&w);
}
END_TEST

/* More reads are parked than the pull remembers: those ask again, a page fault can't. */
START_TEST(a_page_fault_is_not_forgotten_among_many_reads)
{
	pthread_t thread;

	world_open_with(&w, 8 * MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	atomic_store(&w.held, true);
	thread = world_touch(&w, 9);
	world_wait_for_fault(&w, 2);
	for (uint64_t page = 20; page < 2020; page++)
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, page, 1), -EAGAIN);
	atomic_store(&w.cut_after, 1);
	atomic_store(&w.held, false);
	wait_until(atomic_load(&w.cuts));
	atomic_store(&w.cut_after, 0);
	ck_assert_uint_eq(world_touched(thread), world_byte(9, 0));
	wait_until(pull_want(w.t_pull, w.t_seg, 2019, 1) == 0);
	world_close(&w);
}
END_TEST

START_TEST(a_key_that_is_not_granted_is_asked_for_again)
{
	struct ramp_err err = {0};
	pthread_t thread;

	world_open_with(&w, MIB, true, true);
	world_wait_finished(&w);
	world_close(&w);

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	serve_revoke(w.s_serve, &w.key);
	world_begin(&w, true);
	thread = world_touch(&w, 30);
	world_wait_for_fault(&w, 1);
	wait_until(pull_want(w.t_pull, w.t_seg, 3, 1) == -EAGAIN);
	ck_assert_uint_eq(pages_missing(w.t_seg), 256);
	ck_assert_int_eq(serve_grant(w.s_serve, w.s_seg, &w.key, w.t.id, &err), 0);
	ck_assert_int_eq(serve_grant(w.s_serve, w.s_seg, &w.key, w.t.id, &err), 0);
	ck_assert_uint_eq(world_touched(thread), world_byte(30, 0));
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(an_ended_pull_lets_go_of_the_segment)
{
	struct ramp_err err = {0};

	world_open_with(&w, 200 * MIB, false, true);
	wait_until(pages_missing(w.t_seg) < 200 * MIB / PAGE);
	pull_end(w.t_pull, MEMORY_ID);
	pull_end(w.t_pull, MEMORY_ID);
	ck_assert_int_eq(store_remove(w.t_seg, true, &err), 0);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	serve_revoke(w.s_serve, &w.key);
	ck_assert_int_eq(store_remove(w.s_seg, true, &err), 0);
	world_close(&w);
}
END_TEST

START_TEST(a_target_that_restarts_goes_on_where_it_was)
{
	pthread_t thread;
	uint64_t missing;

	world_open_with(&w, 100 * MIB, true, true);
	wait_until(pages_missing(w.t_seg) < 20000);
	world_source_stop(&w);
	missing = pages_missing(w.t_seg);
	if (missing == 0) { /* it was faster than we */
		world_close(&w);
		return;
	}
	thread = world_touch(&w, pages_next_missing(w.t_seg, 0));
	world_target_restart(&w);
	ck_assert_uint_le(pages_missing(w.t_seg), missing);
	atomic_store(&w.finished, 0);
	world_source_start(&w, WORLD_INCARNATION);
	world_begin(&w, true);
	world_touched(thread);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

static void fill_store(struct seg **filler)
{
	struct ramp_err err = {0};
	uint8_t page[PAGE] = {1};
	uint64_t at = 0;

	ck_assert_int_eq(store_create(w.t_store, 9999, RECORD_OWNED, 1, filler, &err), 0);
	while (pwrite(seg_fd(*filler), page, PAGE, (off_t)at) == PAGE)
		at += PAGE;
}

START_TEST(a_full_store_is_said_and_gets_over_it)
{
	struct seg *filler;
	int rc, looks = 0;

	/* nothing reserved: all REMOTE, holes not known */
	world_open(&w, 4 * MIB);
	world_write_all(&w);
	world_take(&w, false);
	world_attach(&w);
	fill_store(&filler);
	world_begin(&w, false);
	ck_assert_int_eq(world_load(w.t_programs.map + 20 * PAGE), -1);
	ck_assert_uint_ge(atomic_load(&w.t_programs.poisoned), 1);
	while ((rc = pull_want(w.t_pull, w.t_seg, 40, 1)) == -EAGAIN && looks++ < WAIT_MS)
		usleep(1000);
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_eq(pages_get(w.t_seg, 20), PAGE_REMOTE);

	ck_assert_int_eq(ftruncate(seg_fd(filler), 0), 0);
	wait_until(pull_want(w.t_pull, w.t_seg, 40, 1) == 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	seg_put(filler);
	world_close(&w);
}
END_TEST

/* Of a hole that is LOCAL nothing comes any more; of one that is REMOTE nothing that is mapped. */
START_TEST(who_was_denied_a_hole_gets_it_once_there_is_room)
{
	const uint64_t hole = 700; /* in no huge page with data */
	bool listed = _i;
	struct seg *filler;

	world_open(&w, 4 * MIB);
	world_write(&w, 40);
	world_take(&w, listed);
	world_attach(&w);
	fill_store(&filler);
	world_begin(&w, false);
	for (int looks = 0; looks < 3; looks++)
		ck_assert_int_eq(world_load(w.t_programs.map + hole * PAGE), -1);
	ck_assert_int_eq(ftruncate(seg_fd(filler), 0), 0);
	wait_until(world_load(w.t_programs.map + hole * PAGE) == 0);
	ck_assert_uint_eq(pages_get(w.t_seg, 40), PAGE_REMOTE);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	seg_put(filler);
	world_close(&w);
}
END_TEST

/* Without a list: all that comes has the slack alone. Where nothing is prefetched, every `step` pages
   from `first` on one is touched. */
static void pull_into_full_store(bool prefetch, uint64_t mib, uint64_t first, uint64_t step)
{
	struct seg *filler;

	world_take(&w, false);
	w.slack = 0;
	world_attach(&w);
	fill_store(&filler);
	world_begin(&w, prefetch);
	if (!prefetch) {
		for (uint64_t page = first; page < mib * MIB / PAGE; page += step)
			ck_assert_int_ge(world_load(w.t_programs.map + page * PAGE), 0);
		pull_prefetch_all(w.t_pull, MEMORY_ID);
	}
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_eq(atomic_load(&w.t_programs.poisoned), 0);
	seg_put(filler);
	world_close(&w);
}

/* Some of the ranges that the list named are cut out since, and some are zeros: those keep their room. */
START_TEST(what_was_cut_since_the_list_takes_no_room)
{
	const struct record given = {.kind = RECORD_GIVEN, .epoch = 2, .k = {1, 1}, .peer = 2};
	const uint8_t zeros[PAGE] = {0};
	struct ramp_err err = {0};

	/* khugepaged may take blocks for memory that it finds mapped, if only for a short time. */
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	world_open(&w, 8 * MIB);
	for (uint64_t page = 0; page < 2048; page += 2)
		world_write(&w, page);
	for (uint64_t page = 2; page < 2048; page += 8)
		ck_assert_int_eq(pwrite(seg_fd(w.s_seg), zeros, PAGE, (off_t)(page * PAGE)), PAGE);
	world_take(&w, true);
	ck_assert_int_eq(pages_mark_all_remote(w.t_seg, &err), 0);
	for (uint64_t page = 0; page < 2048; page += 4)
		ck_assert_int_eq(fallocate(seg_fd(w.s_seg),
					   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)(page * PAGE), PAGE),
				 0);
	ck_assert_msg(record_change(w.s_seg, &given, &err) == 0, "%s", err.text);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(memory_blocks_bytes(w.t_seg), memory_blocks_bytes(w.s_seg));
	for (uint64_t page = 0; page < 2048; page++) {
		uint8_t got[PAGE];

		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		if (page % 4 == 2 && page % 8 != 2)
			ck_assert(world_page_is(got, page));
		else
			ck_assert_mem_eq(got, zeros, PAGE);
	}
	world_close(&w);
}
END_TEST

/* The same where a program takes room for all of it meanwhile: it stays. */
START_TEST(what_a_program_takes_room_for_keeps_it)
{
	const struct record given = {.kind = RECORD_GIVEN, .epoch = 2, .k = {1, 1}, .peer = 2};
	struct ramp_err err = {0};

	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pages_mark_all_remote(w.t_seg, &err), 0);
	for (uint64_t page = 0; page < 2048; page += 2)
		ck_assert_int_eq(fallocate(seg_fd(w.s_seg),
					   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)(page * PAGE), PAGE),
				 0);
	ck_assert_msg(record_change(w.s_seg, &given, &err) == 0, "%s", err.text);
	reserve_keep(w.t_seg);
	ck_assert_int_eq(fallocate(seg_fd(w.t_seg), 0, 0, 8 * MIB), 0);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(memory_blocks_bytes(w.t_seg), 8 * MIB);
	world_close(&w);
}
END_TEST

/* The slack was taken for pages that are populated at the source after the list was made. */
START_TEST(pages_that_no_list_names_have_their_room_in_a_full_store)
{
	world_open(&w, 6 * MIB);
	w.slack = 7 * MIB; /* of two pieces and a half, three are used */
	world_write_all(&w);
	pull_into_full_store(_i, 6, 0, 3);
}
END_TEST

/* Pages that lie far apart take their own size, and not the huge page around each. */
START_TEST(scattered_pages_share_the_slack_in_a_full_store)
{
	world_open(&w, 64 * MIB);
	w.slack = 4 * MIB;
	for (uint64_t page = 7; page < 64 * MIB / PAGE; page += 512)
		world_write(&w, page);
	pull_into_full_store(_i, 64, 7, 512);
}
END_TEST

/* Many reads are under way when one of them finds no room: that takes a piece of the slack, and not
   one for each. */
START_TEST(no_room_for_one_read_does_not_take_the_slack_of_all)
{
	struct store_space space;
	struct seg *filler;

	world_open(&w, 128 * MIB);
	w.slack = 64 * MIB;
	world_write_all(&w);
	world_take(&w, false);
	w.slack = 0;
	world_begin(&w, false);
	ck_assert_int_eq(want_pages_until(0, 1), 0); /* it is connected */
	fill_store(&filler);
	atomic_store(&w.held, true);
	for (uint64_t page = 512; page < 572; page++) /* of one huge page */
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, page, 1), -EAGAIN);
	wait_until(pages_get(w.t_seg, 571) == PAGE_IN_FLIGHT);
	atomic_store(&w.held, false);
	ck_assert_int_eq(want_pages_until(512, 60), 0);
	store_space(w.t_store, &space);
	ck_assert_uint_le(space.free_bytes, 8 * MIB);
	seg_put(filler);
	world_close(&w);
}
END_TEST

/* ---- a source's file that a program cuts ---- */

/*
 * Stands in for seg_size (pull.cmake: --wrap), to cut the source's file at the worst moment: right
 * after serve.c has looked at its size.
 */
uint64_t __real_seg_size(struct seg *seg);
uint64_t __wrap_seg_size(struct seg *seg);

static _Atomic uint64_t cut_when_looked; /* bytes; 0: not */

uint64_t __wrap_seg_size(struct seg *seg)
{
	uint64_t size = __real_seg_size(seg), cut;

	if (seg == w.s_seg && (cut = atomic_exchange(&cut_when_looked, 0)))
		ck_assert_int_eq(ftruncate(seg_fd(seg), (off_t)cut), 0);
	return size;
}

/* A single page of a range that is known as data goes out without a look at the file. */
START_TEST(a_file_cut_since_it_was_known_as_data_is_looked_at_again)
{
	uint8_t got[PAGE], zeros[PAGE] = {0};
	double took;

	world_open_with(&w, 8 * MIB, false, false);
	ck_assert_int_eq(want_until(1024, &took), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), 4 * MIB), 0);
	ck_assert_int_eq(want_until(1536, &took), 0);
	ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, 1536 * PAGE), PAGE);
	ck_assert_mem_eq(got, zeros, PAGE);
	ck_assert_int_eq(want_until(1023, &took), 0);
	ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, 1023 * PAGE), PAGE);
	ck_assert(world_page_is(got, 1023));
	world_close(&w);
}
END_TEST

/* The pages before the cut are there, also where they are looked through together with pages that are
   not. */
START_TEST(no_page_before_a_cut_is_lost)
{
	const uint64_t left = 128 - 3;
	uint8_t got[PAGE];
	double took;

	world_open_with(&w, MIB, false, false);
	ck_assert_int_eq(want_until(0, &took), 0); /* the source knows all of it as data */
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), (off_t)(left * PAGE)), 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	for (uint64_t page = 0; page < left; page++) {
		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert(world_page_is(got, page));
	}
	world_close(&w);
}
END_TEST

START_TEST(a_file_cut_between_the_look_and_the_load_is_an_error_of_that_page)
{
	double took;

	world_open_with(&w, 8 * MIB, false, false);
	ck_assert_int_eq(want_until(1024, &took), 0); /* the source knows all of it as data */
	atomic_store(&cut_when_looked, 4 * MIB);
	ck_assert_int_eq(want_pages_until(1536, 2), -EIO);
	ck_assert_int_eq(pages_get(w.t_seg, 1536), PAGE_LOST);
	ck_assert_uint_eq(pages_lost(w.t_seg), 1);

	/* the same daemon serves the pages that are still there, and zeros for the rest */
	ck_assert_int_eq(want_until(1023, &took), 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 1);
	for (uint64_t page = 0; page < 1024; page++) {
		uint8_t got[PAGE];

		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert(world_page_is(got, page));
	}
	world_close(&w);
}
END_TEST

/* False: the connection is full. For half a second: a busy machine keeps a thread off for less. */
static bool source_sends(void)
{
	struct pull_status before, after;

	pull_status(w.s_pull, &before);
	usleep(500000);
	pull_status(w.s_pull, &after);
	return after.served_bytes < MIB || after.served_bytes != before.served_bytes;
}

/* A range that is cut then is a hole in the next answer, and no error. */
static bool between_answers(void)
{
	struct pull_status status;

	pull_status(w.s_pull, &status);
	return status.served_bytes % TP_READ_MAX_BYTES == 0;
}

/* A connection of a target that asks for everything and takes nothing. */
static struct tp_conn *ask_for_everything(const struct tp_ops *ops, uint8_t *dst)
{
	struct ramp_err err = {0};
	struct tp_conn *conn;

	ck_assert_int_eq(ops->connect(w.t.tp, w.s.id, WORLD_INCARNATION, TP_DEMAND, &conn, &err),
			 0);
	while (ops->state(conn, &err) == TP_CONNECTING)
		usleep(1000);
	for (uint64_t at = 0; at < w.size; at += TP_READ_MAX_BYTES) {
		const struct tp_read read = {
			.key = w.key, .offset = at, .len = TP_READ_MAX_BYTES, .dst = dst + at};

		ck_assert_int_eq(ops->read(conn, &read), 0);
	}
	return conn;
}

START_TEST(a_file_cut_in_the_middle_of_an_answer_ends_that_connection_only)
{
	const struct tp_ops *ops;
	struct tp_done done[16];
	struct tp_conn *conn;
	uint8_t *dst;
	int n;

	world_open(&w, 64 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	ops = w.t.tp->ops;
	dst = malloc(w.size);
	ck_assert_ptr_nonnull(dst);
	conn = ask_for_everything(ops, dst);
	while (source_sends() || between_answers())
		if (between_answers())
			ck_assert_int_ge(ops->reap(conn, done, 16, 64u << 10), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), 16 * PAGE), 0);
	while ((n = ops->reap(conn, done, 16, 0)) >= 0)
		for (int i = 0; i < n; i++)
			ck_assert_int_eq(done[i].result, 0);
	ck_assert_int_eq(n, -ENOTCONN);
	ops->close(conn);
	free(dst);

	/* the source serves the next one: the pages that are there, and zeros behind them */
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	for (uint64_t page = 0; page < 16; page++) {
		uint8_t got[PAGE];

		ck_assert_int_eq(pread(seg_fd(w.t_seg), got, PAGE, (off_t)(page * PAGE)), PAGE);
		ck_assert(world_page_is(got, page));
	}
	world_close(&w);
}
END_TEST

/* ---- a program that spoils its userfaultfd ---- */

/* Returns the processor time of this process's threads of that name, in ticks. */
static unsigned long ticks_of(const char *name)
{
	unsigned long user, system, sum = 0;
	char path[300], line[512];
	struct dirent *task;
	DIR *tasks = opendir("/proc/self/task");

	ck_assert_ptr_nonnull(tasks);
	while ((task = readdir(tasks))) {
		const char *after;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		after = fgets(line, sizeof(line), file) ? strstr(line, name) : NULL;
		if (after && sscanf(after + strlen(name),
				    " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
				    &system) == 2)
			sum += user + system;
		fclose(file);
	}
	closedir(tasks);
	return sum;
}

/* A blocking userfaultfd is always ready, with an error. */
START_TEST(a_program_that_makes_its_userfaultfd_block_keeps_nobody_busy)
{
	unsigned long before, ticks;
	double from;
	int flags;

	world_open_with(&w, 8 * MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	flags = fcntl(w.t_programs.uffd, F_GETFL);
	ck_assert_int_eq(fcntl(w.t_programs.uffd, F_SETFL, flags & ~O_NONBLOCK), 0);
	ck_assert(world_page_is(w.t_programs.map + 500 * PAGE, 500));
	before = ticks_of("(pager)");
	from = seconds();
	usleep(500000);
	ticks = ticks_of("(pager)") - before;
	/* a fifth of the time, which on a busy machine is more than half a second */
	ck_assert_double_le((double)ticks, (seconds() - from) * (double)sysconf(_SC_CLK_TCK) / 5);
	/* It is served all the same, and when it is as it was, too. */
	ck_assert(world_page_is(w.t_programs.map + 1000 * PAGE, 1000));
	ck_assert_int_eq(fcntl(w.t_programs.uffd, F_SETFL, flags), 0);
	ck_assert(world_page_is(w.t_programs.map + 1500 * PAGE, 1500));
	world_close(&w);
}
END_TEST

/* More page faults at a time than are read at once. */
START_TEST(page_faults_that_come_together_are_all_served)
{
	pthread_t threads[40];

	world_open_with(&w, 8 * MIB, true, false);
	atomic_store(&w.t_programs.unread, true);
	for (uint64_t i = 0; i < 40; i++)
		threads[i] = world_touch(&w, 7 + i * 40);
	usleep(100000);
	atomic_store(&w.t_programs.unread, false);
	for (uint64_t i = 0; i < 40; i++)
		ck_assert_uint_eq(world_touched(threads[i]), world_byte(7 + i * 40, 0));
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	/* bytes to the target before the cut: a hello and a page or two at least */
	static const int cuts[] = {9000, 70001, 300333, 1000000};
	Suite *s = suite_create("pull_faults");
	TCase *c = tcase_create("faults");

	tcase_set_timeout(c, 60);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		tcase_add_loop_test(c, connections_that_are_cut_again_and_again, cuts[i],
				    cuts[i] + 1);
	tcase_add_test(c, a_page_fault_waits_for_a_source_that_is_down);
	tcase_add_test(c, a_connection_that_is_ready_without_an_event);
	tcase_add_test(c, a_read_gives_up_on_a_silent_source);
	tcase_add_test(c, a_source_that_is_silent_from_now_on_is_waited_for);
	tcase_add_test(c, a_pull_that_nobody_asks_anything_of_is_not_silent);
	tcase_add_test(c, a_source_that_hangs_is_silent_and_comes_back);
	tcase_add_test(c, a_slow_network_is_not_silent);
	tcase_add_test(c, a_page_fault_finds_out_that_its_source_hangs);
	tcase_add_test(c, a_key_that_is_not_granted_is_asked_for_again);
	tcase_add_test(c, an_ended_pull_lets_go_of_the_segment);
	tcase_add_test(c, a_target_that_restarts_goes_on_where_it_was);
	tcase_add_test(c, a_full_store_is_said_and_gets_over_it);
	tcase_add_loop_test(c, who_was_denied_a_hole_gets_it_once_there_is_room, 0, 2);
	tcase_add_test(c, what_was_cut_since_the_list_takes_no_room);
	tcase_add_test(c, what_a_program_takes_room_for_keeps_it);
	tcase_add_loop_test(c, pages_that_no_list_names_have_their_room_in_a_full_store, 0, 2);
	tcase_add_loop_test(c, scattered_pages_share_the_slack_in_a_full_store, 0, 2);
	tcase_add_test(c, no_room_for_one_read_does_not_take_the_slack_of_all);
	tcase_add_test(c, a_file_cut_since_it_was_known_as_data_is_looked_at_again);
	tcase_add_test(c, no_page_before_a_cut_is_lost);
	tcase_add_test(c, a_file_cut_between_the_look_and_the_load_is_an_error_of_that_page);
	tcase_add_test(c, a_file_cut_in_the_middle_of_an_answer_ends_that_connection_only);
	tcase_add_test(c, a_program_that_makes_its_userfaultfd_block_keeps_nobody_busy);
	tcase_add_test(c, page_faults_that_come_together_are_all_served);
	suite_add_tcase(s, c);
	c = tcase_create("crowd");
	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_page_fault_is_not_forgotten_among_many_reads);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
