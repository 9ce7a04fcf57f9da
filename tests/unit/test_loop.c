/*
 * The control loop: the threads that slow work leaves to other work, its real-time boost, and its
 * end, before which all work that was given to it is done, also by a worker.
 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/loop.h"
#include "lib/run_suite.h"

static bool worked, came_back;

static void work(void *arg)
{
	(void)arg;
	usleep(50000);
	worked = true;
}

static void come_back(void *arg)
{
	(void)arg;
	came_back = worked;
}

START_TEST(a_worker_comes_back_before_the_loop_is_closed)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(loop_open(&loop, &err), 0);
	loop_work(loop, work, come_back, NULL); /* of a loop that does not run any more */
	loop_close(loop);
	ck_assert(came_back);
}
END_TEST

/* ---- slow work ------------------------------------------------------------------------------- */

#define MANY_SLOW 40

static sem_t let_go;
static atomic_int slow_running, slow_most, slow_done;

static void slow_work(void *arg)
{
	int now = atomic_fetch_add(&slow_running, 1) + 1, most = atomic_load(&slow_most);

	(void)arg;
	while (now > most && !atomic_compare_exchange_weak(&slow_most, &most, now))
		;
	sem_wait(&let_go);
	atomic_fetch_sub(&slow_running, 1);
}

static void slow_is_done(void *loop)
{
	if (atomic_fetch_add(&slow_done, 1) + 1 == MANY_SLOW)
		loop_stop(loop);
}

static void nothing(void *arg)
{
	(void)arg;
}

/* All slow works are running or queued: they end because this work was done beside them. */
static void free_the_slow(void *arg)
{
	(void)arg;
	for (int i = 0; i < MANY_SLOW; i++)
		sem_post(&let_go);
}

START_TEST(slow_work_leaves_half_of_the_threads_to_others)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(sem_init(&let_go, 0, 0), 0);
	ck_assert_int_eq(loop_open(&loop, &err), 0);
	for (int i = 0; i < MANY_SLOW; i++)
		loop_work_slow(loop, slow_work, slow_is_done, loop);
	loop_work(loop, nothing, free_the_slow, NULL);
	loop_run(loop);
	loop_close(loop);
	ck_assert_int_eq(atomic_load(&slow_done), MANY_SLOW);
	ck_assert_int_ge(atomic_load(&slow_most), 1);
	ck_assert_int_le(atomic_load(&slow_most), 8);
}
END_TEST

/* ---- the loop within the loop ---------------------------------------------------------------- */

#define NESTED 200

static atomic_int nested_over;

static void pause_a_little(void *arg)
{
	(void)arg;
	usleep(100);
}

static void nested_is_over(void *arg)
{
	(void)arg;
	atomic_fetch_add(&nested_over, 1);
}

/* Waits, as a daemon that ends does, for what was posted beside it, and for works that come back one after the
   other. */
static void run_again(void *loop)
{
	for (int i = 1; i <= NESTED; i++) {
		loop_work(loop, pause_a_little, nested_is_over, NULL);
		while (atomic_load(&nested_over) <= i)
			uv_run(loop_uv(loop), UV_RUN_ONCE);
	}
	loop_stop(loop);
}

START_TEST(a_posted_function_may_run_the_loop)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(loop_open(&loop, &err), 0);
	loop_post(loop, run_again, loop);
	loop_post(loop, nested_is_over, NULL);
	loop_run(loop);
	loop_close(loop);
	ck_assert_int_eq(atomic_load(&nested_over), NESTED + 1);
}
END_TEST

/* ---- shares ---------------------------------------------------------------------------------- */

#define GREEDY	 100
#define GREEDIES 3 /* users that block their threads: of 32 they leave 4 */

static sem_t keep;
static atomic_int kept_over;

static void keep_thread(void *loop)
{
	(void)loop;
	sem_wait(&keep);
}

static void others_are_done(void *arg)
{
	(void)arg;
	for (int i = 0; i < GREEDY * GREEDIES; i++)
		sem_post(&keep);
}

static void kept_is_over(void *loop)
{
	if (atomic_fetch_add(&kept_over, 1) + 1 == GREEDY * GREEDIES)
		loop_stop(loop);
}

/* Ends because the last user's work and root's are done beside the works that block. */
START_TEST(a_user_keeps_no_more_workers_than_he_leaves)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(sem_init(&keep, 0, 0), 0);
	ck_assert_int_eq(loop_open(&loop, &err), 0);
	for (unsigned int user = 0; user < GREEDIES; user++)
		for (int i = 0; i < GREEDY; i++)
			loop_work_of(loop, 1000 + user, keep_thread, kept_is_over, loop);
	loop_work(loop, nothing, NULL, NULL);
	loop_work_of(loop, 2000, nothing, others_are_done, NULL);
	loop_run(loop);
	loop_close(loop);
	ck_assert_int_eq(atomic_load(&kept_over), GREEDY * GREEDIES);
}
END_TEST

/* Two users at their limit, beside a third one: if a work of the first ends, one of the second may
   begin, and then another of the first, too. */
#define HAVE 10

struct stage {
	struct loop *loop;
	sem_t runs, first, rest;
};

static void hold_first(void *arg)
{
	struct stage *stage = arg;

	sem_post(&stage->runs);
	sem_wait(&stage->first);
}

static void hold_rest(void *arg)
{
	struct stage *stage = arg;

	sem_post(&stage->runs);
	sem_wait(&stage->rest);
}

static bool one_runs(struct stage *stage)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	return sem_timedwait(&stage->runs, &until) == 0;
}

static void *give_in_order(void *arg)
{
	struct stage *stage = arg;
	bool all = true;

	for (int i = 0; i < 2 + 2 * HAVE; i++) {
		uid_t uid = i < 2 ? 3000 : i % 2 ? 1000 : 2000;

		loop_work_of(stage->loop, uid, i == 3 ? hold_first : hold_rest, NULL, stage);
		all &= one_runs(stage);
	}
	loop_work_of(stage->loop, 1000, hold_rest, NULL, stage);
	loop_work_of(stage->loop, 2000, hold_rest, NULL, stage);
	usleep(50000);
	all &= sem_trywait(&stage->runs) != 0;
	sem_post(&stage->first);
	all = all && one_runs(stage) && one_runs(stage);
	for (int i = 0; i < 2 + 2 * HAVE + 2; i++)
		sem_post(&stage->rest);
	loop_stop(stage->loop);
	return all ? stage : NULL;
}

START_TEST(one_end_may_let_two_begin)
{
	struct stage stage;
	struct ramp_err err;
	pthread_t giver;
	void *all;

	ck_assert_int_eq(sem_init(&stage.runs, 0, 0), 0);
	ck_assert_int_eq(sem_init(&stage.first, 0, 0), 0);
	ck_assert_int_eq(sem_init(&stage.rest, 0, 0), 0);
	ck_assert_int_eq(loop_open(&stage.loop, &err), 0);
	ck_assert_int_eq(pthread_create(&giver, NULL, give_in_order, &stage), 0);
	loop_run(stage.loop);
	pthread_join(giver, &all);
	loop_close(stage.loop);
	ck_assert_ptr_nonnull(all);
}
END_TEST

/* ---- two at once ----------------------------------------------------------------------------- */

static sem_t second_runs;

static void wait_for_second(void *arg)
{
	(void)arg;
	sem_wait(&second_runs);
}

static void second(void *arg)
{
	(void)arg;
	sem_post(&second_runs);
}

static void end_loop(void *loop)
{
	loop_stop(loop);
}

static void give_two(void *loop)
{
	usleep(20000); /* the worker of the first work sleeps again */
	loop_work(loop, wait_for_second, end_loop, loop);
	loop_work(loop, second, NULL, NULL);
}

START_TEST(work_does_not_wait_behind_other_work_while_a_thread_can_be_had)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(sem_init(&second_runs, 0, 0), 0);
	ck_assert_int_eq(loop_open(&loop, &err), 0);
	loop_work(loop, nothing, give_two, loop);
	loop_run(loop);
	loop_close(loop);
}
END_TEST

/* ---- real-time boost ------------------------------------------------------------------------- */

static struct loop *hurrying;
static int hurried_policy, calm_policy, tired_policy, long_policy;

static void compute_ms(uint64_t ms)
{
	uint64_t end = uv_hrtime() + ms * 1000000;

	while (uv_hrtime() < end)
		;
}

static void look_after_long(uv_timer_t *timer)
{
	(void)timer;
	long_policy = sched_getscheduler(0);
	loop_stop(hurrying);
}

static void hurry_for_long(uv_timer_t *timer)
{
	loop_rt_boost(hurrying, 400);
	loop_rt_boost(hurrying, 10000);
	uv_timer_start(timer, look_after_long, 520, 0);
}

static void look_when_tired(uv_timer_t *timer)
{
	loop_rt_boost(hurrying, 20);
	tired_policy = sched_getscheduler(0);
	uv_timer_start(timer, hurry_for_long, 600, 0);
}

static void look_when_calm(uv_timer_t *timer)
{
	calm_policy = sched_getscheduler(0);
	loop_rt_boost(hurrying, 20);
	compute_ms(30); /* it ends late, and the thread has not rested */
	uv_timer_start(timer, look_when_tired, 20, 0);
}

static void begin_to_hurry(void *arg)
{
	loop_rt_boost(hurrying, 20);
	hurried_policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
	uv_timer_start(arg, look_when_calm, 60, 0);
}

START_TEST(a_hurry_ends_by_itself_and_is_not_for_who_computes)
{
	uv_timer_t timer;
	struct ramp_err err;

	if (kernel_rt_boost(1)) {
		printf("skipped: no real-time priority for this user\n");
		return;
	}
	kernel_rt_boost(0);
	ck_assert_int_eq(loop_open(&hurrying, &err), 0);
	uv_timer_init(loop_uv(hurrying), &timer);
	loop_post(hurrying, begin_to_hurry, &timer);
	loop_run(hurrying);
	loop_close(hurrying);
	ck_assert_int_eq(hurried_policy, SCHED_RR);
	ck_assert_int_eq(calm_policy, SCHED_OTHER);
	ck_assert_int_eq(tired_policy, SCHED_OTHER);
	ck_assert_int_eq(long_policy, SCHED_OTHER);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("loop");
	TCase *tc = tcase_create("loop");

	tcase_add_test(tc, a_worker_comes_back_before_the_loop_is_closed);
	tcase_add_test(tc, slow_work_leaves_half_of_the_threads_to_others);
	tcase_add_test(tc, a_user_keeps_no_more_workers_than_he_leaves);
	tcase_add_test(tc, a_posted_function_may_run_the_loop);
	tcase_add_test(tc, one_end_may_let_two_begin);
	tcase_add_test(tc, work_does_not_wait_behind_other_work_while_a_thread_can_be_had);
	tcase_add_test(tc, a_hurry_ends_by_itself_and_is_not_for_who_computes);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
