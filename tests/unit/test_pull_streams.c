/*
 * Prefetch over several connections: when there are how many, and what happens to their pages where
 * some of them fail.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kernel.h"
#include "pull/streams.h"
#include "pull_world.h"

#define STREAMS 4

static struct world w;

/* ---- the machine: pull.cmake has --wrap for these ---- */

static _Atomic unsigned processors = 4;
static _Atomic uint64_t idle_us; /* rises by ten seconds at each look: all idle */

unsigned int __wrap_kernel_processors(void);
uint64_t __wrap_kernel_idle_us(void);

unsigned int __wrap_kernel_processors(void)
{
	return atomic_load(&processors);
}

uint64_t __wrap_kernel_idle_us(void)
{
	return atomic_fetch_add(&idle_us, 10000000);
}

static unsigned connections(void)
{
	struct pull_peer peer = {0};

	return pull_peers(w.t_pull, &peer, 1) ? peer.streams : 0;
}

/* ---- how many ---- */

/* A network and the processors of one machine, of which the pull is a part. */
struct machine {
	uint64_t each, all;	     /* bytes a second, of one connection and of the network */
	uint64_t processors, others; /* percent of one: there are, and programs use */
	uint64_t one_costs;	     /* percent of one, of each connection */
};

/* Lets time pass. Returns how many connections there are at its end; *most: at most. */
static unsigned pass(struct streams *s, struct streams_sample *now, const struct machine *m,
		     uint64_t ms, unsigned *most)
{
	uint64_t rate, idle, used;

	for (uint64_t i = 0; i < ms; i += 10) {
		rate = s->open * m->each < m->all ? s->open * m->each : m->all;
		used = m->others + s->open * m->one_costs;
		idle = used < m->processors ? m->processors - used : 0;
		now->us += 10000;
		now->bytes += rate / 100;
		now->idle_us += 10000 * idle / 100;
		streams_look(s, now);
		*most = s->open > *most ? s->open : *most;
	}
	return s->open;
}

static unsigned after(const struct machine *m, uint64_t ms, unsigned *most)
{
	struct streams_sample now = {.us = 1, .moves = true};
	struct streams s;

	*most = 1;
	streams_init(&s, 0);
	return pass(&s, &now, m, ms, most);
}

START_TEST(as_many_are_opened_as_help)
{
	const struct machine paths = {250000000, 1000000000, 800, 0, 15};
	const struct machine fast = {4000000000, 12000000000, 1600, 0, 100};
	unsigned most;

	atomic_store(&processors, 8);
	ck_assert_uint_eq(after(&paths, 2500, &most), 4);
	ck_assert_uint_eq(most, 5); /* the fifth was tried */
	atomic_store(&processors, 16);
	ck_assert_uint_eq(after(&fast, 2500, &most), 3);
	atomic_store(&processors, 2);
	ck_assert_uint_eq(after(&paths, 2500, &most), 2);
}
END_TEST

START_TEST(one_that_does_not_help_is_closed_and_seldom_tried)
{
	const struct machine full = {1250000000, 1250000000, 800, 0, 30};
	struct streams_sample now = {.us = 1, .moves = true};
	unsigned most = 1, again = 1;
	struct streams s;

	atomic_store(&processors, 8);
	streams_init(&s, 0);
	ck_assert_uint_eq(pass(&s, &now, &full, 1000, &most), 1);
	ck_assert_uint_eq(most, 2);
	pass(&s, &now, &full, 3000, &again);
	ck_assert_uint_eq(again, 1);
	pass(&s, &now, &full, 3000, &again);
	ck_assert_uint_eq(again, 2);
	now.moves = false;
	ck_assert_uint_eq(streams_look(&s, &now), 1);
}
END_TEST

/* Two processors, with both ends of the pull on them, or with busy programs. */
START_TEST(where_no_processor_idles_there_is_one)
{
	const struct machine both = {4000000000, 12000000000, 200, 100, 100};
	const struct machine busy = {250000000, 1000000000, 800, 750, 15};
	struct machine now_busy = {250000000, 1000000000, 800, 0, 15};
	struct streams_sample now = {.us = 1, .moves = true};
	struct streams s;
	unsigned most;

	atomic_store(&processors, 2);
	ck_assert_uint_eq(after(&both, 20000, &most), 1);
	ck_assert_uint_eq(most, 1);
	atomic_store(&processors, 8);
	ck_assert_uint_eq(after(&busy, 20000, &most), 1);
	ck_assert_uint_eq(most, 1);
	streams_init(&s, 0);
	ck_assert_uint_eq(pass(&s, &now, &now_busy, 2500, &most), 4);
	now_busy.others = 800;
	ck_assert_uint_eq(pass(&s, &now, &now_busy, 2500, &most), 1);
	atomic_store(&processors, 1);
	ck_assert_uint_eq(streams_most(0), 1);
}
END_TEST

START_TEST(a_number_is_a_number)
{
	struct streams_sample now = {.us = 1, .moves = true};
	struct streams s;

	atomic_store(&processors, 1);
	for (unsigned i = 1; i <= PULL_STREAMS_MAX; i++) {
		streams_init(&s, i);
		now.us += 10000000;
		ck_assert_uint_eq(streams_look(&s, &now), i);
	}
	ck_assert_uint_eq(streams_most(PULL_STREAMS_MAX + 1), PULL_STREAMS_MAX);
}
END_TEST

/* ---- in a pull ---- */

/* Opens the world; each connection asks once, and then all have asked. */
static void open_together(uint64_t size, bool attach)
{
	world_streams = STREAMS;
	world_open(&w, size);
	world_write_all(&w);
	world_take(&w, true);
	if (attach)
		world_attach(&w);
	atomic_store(&w.borders.together, STREAMS);
	world_begin(&w, false); /* as a move does, which wants the rest soon after */
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	wait_until(atomic_load(&w.borders.gathered) >= STREAMS);
}

START_TEST(connections_share_a_pull_and_close_behind_it)
{
	struct pull_status status;

	open_together(96 * MIB + 1000, false);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.prefetch_pages, 96 * MIB / PAGE + 1);
	ck_assert_uint_eq(status.bytes, (96 * MIB / PAGE + 1) * PAGE);
	ck_assert_uint_eq(status.reconnects, 0);
	wait_until(connections() == 0);
	world_close(&w);
}
END_TEST

/* There is not enough left for more than two. */
START_TEST(a_small_segment_takes_few_connections)
{
	world_streams = PULL_STREAMS_MAX;
	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.borders.together, 2);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_le(w.borders.n_prefetch, 2);
	world_close(&w);
}
END_TEST

START_TEST(what_helps_is_found_out)
{
	world_streams = 0;
	atomic_store(&processors, 4);
	world_open(&w, 160 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.borders.pace_us, 5000);
	atomic_store(&w.borders.together, 2);
	world_begin(&w, true);
	wait_until(atomic_load(&w.borders.gathered) >= 2);
	atomic_store(&w.borders.pace_us, 0);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

/* While page faults wait for their pages, those that help ask for nothing; all is served all the same. */
START_TEST(page_faults_come_in_between)
{
	struct pull_status status;

	open_together(64 * MIB, true);
	for (uint64_t page = 0; page < 64 * MIB / PAGE; page += 61)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.demand_pages + status.prefetch_pages, 64 * MIB / PAGE);
	world_close(&w);
}
END_TEST

/* ---- what fails ---- */

START_TEST(connections_that_are_cut_lose_nothing)
{
	struct pull_status status;

	open_together(64 * MIB, true);
	atomic_store(&w.cut_after, (uint64_t)_i);
	for (uint64_t page = 0; page < 64 * MIB / PAGE; page += 997)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	wait_until(atomic_load(&w.cuts) >= STREAMS || atomic_load(&w.finished));
	atomic_store(&w.cut_after, 0);
	world_wait_finished(&w);
	world_check(&w);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_close(&w);
}
END_TEST

/* Some paths of the network let nothing pass any more: the others bring their pages, also those that
   a page fault waits for. */
START_TEST(a_path_that_fails_takes_no_page_with_it)
{
	open_together(128 * MIB, true);
	atomic_store(&w.to_die, (unsigned)_i);
	atomic_store(&w.die_after, 4 * MIB);
	wait_until(atomic_load(&w.dead) == (unsigned)_i);
	for (uint64_t page = 0; page < 128 * MIB / PAGE; page += 1009)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_close(&w);
}
END_TEST

/* The last pages are those of one that helps, whose connection hangs: it does not come again for so few, and the
   first one, which had nothing to ask for any more, brings them. */
START_TEST(the_last_pages_come_another_way)
{
	world_streams = 2;
	world_open(&w, 8 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.borders.mute, true);
	atomic_store(&w.borders.together, 2);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_ge(atomic_load(&w.borders.gathered), 2);
	world_close(&w);
}
END_TEST

START_TEST(a_source_that_ends_gives_no_page_twice)
{
	open_together(128 * MIB, false);
	world_source_stop(&w);
	wait_until(connections() == 0);
	world_source_start(&w, WORLD_INCARNATION);
	world_wait_finished(&w);
	world_check(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_close(&w);
}
END_TEST

START_TEST(a_source_that_is_over_takes_what_was_left)
{
	open_together(128 * MIB, false);
	world_source_stop(&w);
	world_source_start(&w, WORLD_INCARNATION + 1);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), pages_missing(w.t_seg));
	world_close(&w);
}
END_TEST

START_TEST(a_target_that_restarts_goes_on)
{
	open_together(128 * MIB, false);
	world_target_restart(&w);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

/* Every thread lets go of it. */
START_TEST(an_ended_pull_is_ended_for_all)
{
	open_together(128 * MIB, false);
	pull_end(w.t_pull, MEMORY_ID);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	wait_until(connections() == 0);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	static const int cuts[] = {100000, 3000000};
	Suite *s = suite_create("pull_streams");
	TCase *c = tcase_create("streams");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, as_many_are_opened_as_help);
	tcase_add_test(c, one_that_does_not_help_is_closed_and_seldom_tried);
	tcase_add_test(c, where_no_processor_idles_there_is_one);
	tcase_add_test(c, a_number_is_a_number);
	tcase_add_test(c, connections_share_a_pull_and_close_behind_it);
	tcase_add_test(c, a_small_segment_takes_few_connections);
	tcase_add_test(c, what_helps_is_found_out);
	tcase_add_test(c, page_faults_come_in_between);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
		tcase_add_loop_test(c, connections_that_are_cut_lose_nothing, cuts[i], cuts[i] + 1);
	tcase_add_loop_test(c, a_path_that_fails_takes_no_page_with_it, 2, STREAMS);
	tcase_add_test(c, the_last_pages_come_another_way);
	tcase_add_test(c, a_source_that_ends_gives_no_page_twice);
	tcase_add_test(c, a_source_that_is_over_takes_what_was_left);
	tcase_add_test(c, a_target_that_restarts_goes_on);
	tcase_add_test(c, an_ended_pull_is_ended_for_all);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
