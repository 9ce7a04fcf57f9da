/*
 * Requests that wait: nothing is lost, nothing runs twice, order within a segment.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/run_suite.h"
#include "mount/park.h"

struct waiter {
	struct parked parked; /* first */
	struct park *park;
	int wanted; /* the value of `gate` that it waits for */
	atomic_int runs;
	atomic_int finished; /* in which place; 0: not */
	int dropped;
};

static struct park *park;
static atomic_int gate, order;

static void setup(void)
{
	struct ramp_err err;

	gate = order = 0;
	ck_assert_int_eq(park_open(&park, &err), 0);
}

static void teardown(void)
{
	park_close(park);
	park_free(park);
}

static enum park_verdict step(struct parked *parked)
{
	struct waiter *w = (struct waiter *)parked;

	atomic_fetch_add(&w->runs, 1);
	if (atomic_load(&gate) < w->wanted && !atomic_load(&parked->interrupted))
		return PARK_WAIT;
	atomic_store_explicit(&w->finished, atomic_fetch_add(&order, 1) + 1, memory_order_seq_cst);
	return PARK_DONE;
}

static void drop(struct parked *parked)
{
	((struct waiter *)parked)->dropped++;
}

static void init_waiter(struct waiter *w, int wanted)
{
	*w = (struct waiter){.parked = {.step = step, .drop = drop}, .wanted = wanted};
}

static int finished(struct waiter *w)
{
	return atomic_load(&w->finished);
}

static void wait_until(bool (*is)(void *), void *arg)
{
	struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; i < 5000 && !is(arg); i++)
		nanosleep(&ms, NULL);
	ck_assert(is(arg));
}

static bool is_finished(void *arg)
{
	return finished(arg) != 0;
}

static bool has_run(void *arg)
{
	return atomic_load_explicit(&((struct waiter *)arg)->runs, memory_order_seq_cst) > 0;
}

START_TEST(what_has_happened_already_is_seen)
{
	struct waiter w;

	init_waiter(&w, 1);
	gate = 1;
	park_wait(park, &w.parked, 5000);
	wait_until(is_finished, &w);
	ck_assert_int_eq(w.runs, 1);
}
END_TEST

START_TEST(a_change_wakes_its_segment_in_order)
{
	struct waiter w[8], other;

	for (int i = 0; i < 8; i++) {
		init_waiter(&w[i], 1);
		park_wait(park, &w[i].parked, 5000);
		wait_until(has_run, &w[i]);
	}
	init_waiter(&other, 2);
	park_wait(park, &other.parked, 5000 + 256); /* the same bucket, another segment */
	wait_until(has_run, &other);

	atomic_store(&gate, 1);
	park_changed(park, 5000);
	for (int i = 0; i < 8; i++)
		wait_until(is_finished, &w[i]);

	for (int i = 1; i < 8; i++)
		ck_assert_int_lt(w[i - 1].finished, w[i].finished);
	ck_assert_int_eq(finished(&other), 0);
	atomic_store(&gate, 2);
	park_changed(park, 5000 + 256);
	wait_until(is_finished, &other);
}
END_TEST

/* A request whose step another thread ran waits: it does not run again at once, except where
   something has changed. */
START_TEST(what_another_thread_ran_waits_for_a_change)
{
	struct waiter w;
	uint64_t changes = park_changes(park, 5000);

	init_waiter(&w, 1);
	w.parked.id = 5000;
	park_again(park, &w.parked, changes);
	usleep(PARK_TICK_MS * 1000 * 5);
	ck_assert_int_le(atomic_load(&w.runs), 5); /* its ticks */
	ck_assert_int_gt(atomic_load(&w.runs), 0);
	atomic_store(&gate, 1);
	park_changed(park, 5000);
	wait_until(is_finished, &w);

	init_waiter(&w, 1);
	w.parked.id = 5000;
	park_again(park, &w.parked, changes); /* it has changed since */
	wait_until(is_finished, &w);
}
END_TEST

START_TEST(a_turn_is_for_those_that_wait_for_it)
{
	struct waiter turn, other;
	int runs;

	init_waiter(&turn, 1);
	init_waiter(&other, 1);
	turn.parked.awaits_worker = true;
	park_wait(park, &turn.parked, 5000);
	park_wait(park, &other.parked, 5000);
	wait_until(has_run, &turn);
	wait_until(has_run, &other);
	for (int i = 0; i < 100; i++) {
		runs = atomic_load(&turn.runs);
		park_worker_free(park, 5000);
		for (int j = 0; j < 1000 && atomic_load(&turn.runs) == runs; j++)
			usleep(100);
	}
	ck_assert_int_ge(atomic_load(&turn.runs), 100);
	ck_assert_int_lt(atomic_load(&other.runs), 50);
	atomic_store(&gate, 1);
	park_worker_free(park, 5000);
	wait_until(is_finished, &turn);
	park_changed(park, 5000);
	wait_until(is_finished, &other);
}
END_TEST

START_TEST(a_lost_signal_costs_one_tick)
{
	struct waiter w;
	uint64_t since;

	init_waiter(&w, 1);
	park_wait(park, &w.parked, 5000);
	wait_until(has_run, &w);
	atomic_store(&gate, 1); /* and no thread signals it */
	since = park_now_ms();
	wait_until(is_finished, &w);
	ck_assert_uint_lt(park_now_ms() - since, 20 * PARK_TICK_MS);
}
END_TEST

START_TEST(an_interrupt_ends_the_wait)
{
	struct waiter w;

	init_waiter(&w, 1);
	park_wait(park, &w.parked, 5000);
	wait_until(has_run, &w);
	park_interrupt(park, &w.parked);
	wait_until(is_finished, &w);
	ck_assert_uint_eq(park_count(park), 0);
}
END_TEST

/* A program has handled its signal: the request keeps waiting. */
static enum park_verdict wait_on(struct parked *parked)
{
	struct waiter *w = (struct waiter *)parked;

	atomic_fetch_add(&w->runs, 1);
	if (atomic_load(&gate) < w->wanted)
		return PARK_WAIT;
	atomic_store(&w->finished, 1);
	return PARK_DONE;
}

/* The segment changes each time that the step runs. */
static enum park_verdict change_and_wait(struct parked *parked)
{
	park_changed(((struct waiter *)parked)->park, parked->id);
	return wait_on(parked);
}

/* No thread signals the other request: a tick finds it. */
static void wait_for_a_tick(void)
{
	struct waiter other;

	init_waiter(&other, 1);
	park_wait(park, &other.parked, 5001);
	wait_until(has_run, &other);
	atomic_store(&gate, 1);
	wait_until(is_finished, &other);
}

static void end(struct waiter *w)
{
	atomic_store(&gate, w->wanted);
	park_changed(park, w->parked.id);
	wait_until(is_finished, w);
}

START_TEST(an_interrupt_that_ends_nothing_makes_it_look_once)
{
	struct waiter w;

	init_waiter(&w, 2);
	w.parked.step = wait_on;
	park_wait(park, &w.parked, 5000);
	wait_until(has_run, &w);
	park_interrupt(park, &w.parked);
	wait_for_a_tick();
	ck_assert_int_lt(atomic_load(&w.runs), 100);
	end(&w);
}
END_TEST

START_TEST(a_tick_comes_while_there_is_always_something_to_do)
{
	struct waiter w;

	init_waiter(&w, 2);
	w.park = park;
	w.parked.step = change_and_wait;
	park_wait(park, &w.parked, 5000);
	wait_for_a_tick();
	end(&w);
}
END_TEST

/* A change between a step's look and its return to the bucket makes the step run again at once. */
static enum park_verdict change_while_running(struct parked *parked)
{
	struct waiter *w = (struct waiter *)parked;

	if (atomic_fetch_add(&w->runs, 1) == 0) {
		atomic_store(&gate, 1);
		park_changed(w->park, parked->id);
		return PARK_WAIT; /* as if it had looked before the change */
	}
	atomic_store(&w->finished, 1);
	return PARK_DONE;
}

START_TEST(a_change_during_a_step_is_not_lost)
{
	struct waiter w;
	uint64_t since;

	/* Many times, so that a wait for ticks would show. */
	since = park_now_ms();
	for (int i = 0; i < 100; i++) {
		init_waiter(&w, 1);
		w.park = park;
		w.parked.step = change_while_running;
		park_wait(park, &w.parked, 5000);
		wait_until(is_finished, &w);
		ck_assert_int_eq(w.runs, 2);
	}
	ck_assert_uint_lt(park_now_ms() - since, 100 * PARK_TICK_MS / 2);
}
END_TEST

START_TEST(closing_drops_what_waits_and_what_comes)
{
	struct waiter w, late;

	init_waiter(&w, 1);
	init_waiter(&late, 0);
	park_wait(park, &w.parked, 5000);
	wait_until(has_run, &w);
	park_close(park);
	ck_assert_int_eq(w.dropped, 1);
	park_wait(park, &late.parked, 5000);
	ck_assert_int_eq(late.dropped, 1);
	ck_assert_int_eq(late.runs, 0);
	park_free(park);
	setup(); /* for teardown */
}
END_TEST

#define STORM_WAITERS 64
#define STORM_ROUNDS  200

static void *change_often(void *arg)
{
	for (int i = 0; i < 20000; i++)
		park_changed(park, 5000 + (ramp_segment_t)(i % 8));
	(void)arg;
	return NULL;
}

START_TEST(a_storm_of_changes_runs_each_to_its_end_once)
{
	static struct waiter w[STORM_WAITERS];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, change_often, NULL), 0);
	for (int round = 0; round < STORM_ROUNDS; round++) {
		order = 0;
		for (int i = 0; i < STORM_WAITERS; i++) {
			init_waiter(&w[i], round + 1);
			park_wait(park, &w[i].parked, 5000 + (ramp_segment_t)(i % 8));
		}
		atomic_store(&gate, round + 1);
		for (int i = 0; i < 8; i++)
			park_changed(park, 5000 + (ramp_segment_t)i);
		for (int i = 0; i < STORM_WAITERS; i++)
			wait_until(is_finished, &w[i]);
		ck_assert_int_eq(order, STORM_WAITERS);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(park_count(park), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("park");
	TCase *tc = tcase_create("park");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_has_happened_already_is_seen);
	tcase_add_test(tc, a_change_wakes_its_segment_in_order);
	tcase_add_test(tc, what_another_thread_ran_waits_for_a_change);
	tcase_add_test(tc, a_turn_is_for_those_that_wait_for_it);
	tcase_add_test(tc, a_lost_signal_costs_one_tick);
	tcase_add_test(tc, an_interrupt_ends_the_wait);
	tcase_add_test(tc, an_interrupt_that_ends_nothing_makes_it_look_once);
	tcase_add_test(tc, a_tick_comes_while_there_is_always_something_to_do);
	tcase_add_test(tc, a_change_during_a_step_is_not_lost);
	tcase_add_test(tc, closing_drops_what_waits_and_what_comes);
	tcase_add_test(tc, a_storm_of_changes_runs_each_to_its_end_once);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
