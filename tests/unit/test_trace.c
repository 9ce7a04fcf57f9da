/* base/trace: which steps a trace keeps, which not, and that any thread may add to it. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/trace.h"
#include "lib/run_suite.h"

#define ADDERS 4u
#define ROUNDS 200 /* traces that threads fill together */

static struct trace *trace;
static struct trace_step steps[TRACE_STEPS + 1];

static void setup(void)
{
	trace = trace_new();
	ck_assert_ptr_nonnull(trace);
}

static void teardown(void)
{
	trace_put(trace);
}

static size_t read_all(void)
{
	return trace_read(trace, steps, TRACE_STEPS + 1);
}

START_TEST(steps_come_back_in_their_order_with_their_moments)
{
	uint64_t before = clock_ns();

	ck_assert_uint_eq(read_all(), 0);
	trace_step(trace, "first");
	trace_step(trace, "second");
	trace_step(trace, "first"); /* a name may come again */
	ck_assert_uint_eq(read_all(), 3);
	ck_assert_str_eq(steps[0].name, "first");
	ck_assert_str_eq(steps[1].name, "second");
	ck_assert_str_eq(steps[2].name, "first");
	ck_assert_uint_ge(steps[0].at_ns, before);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(steps[i].page, TRACE_NO_PAGE);
	ck_assert_uint_le(steps[0].at_ns, steps[1].at_ns);
	ck_assert_uint_le(steps[1].at_ns, steps[2].at_ns);
	ck_assert_uint_le(steps[2].at_ns, clock_ns());
}
END_TEST

START_TEST(reading_gives_no_more_than_is_asked_for_and_takes_nothing_away)
{
	for (int i = 0; i < 5; i++)
		trace_step(trace, "step");
	memset(steps, 0, sizeof(steps));
	ck_assert_uint_eq(trace_read(trace, steps, 2), 2);
	ck_assert_ptr_null(steps[2].name);
	ck_assert_uint_eq(trace_read(trace, NULL, 0), 0);
	ck_assert_uint_eq(read_all(), 5);
}
END_TEST

START_TEST(who_does_not_trace_has_null_and_nothing_happens)
{
	trace_step(NULL, "step");
	trace_page(NULL, 1, "step");
	trace_fault(NULL, 1, "step");
	trace_served(NULL, 1, "step");
	ck_assert_ptr_null(trace_get(NULL));
	trace_put(NULL);
}
END_TEST

START_TEST(a_full_trace_keeps_its_first_steps)
{
	for (unsigned i = 0; i < TRACE_STEPS; i++)
		trace_step(trace, i == 0 ? "first" : "step");
	for (int i = 0; i < 1000; i++)
		trace_step(trace, "too late");
	ck_assert_uint_eq(read_all(), TRACE_STEPS);
	ck_assert_str_eq(steps[0].name, "first");
	for (unsigned i = 1; i < TRACE_STEPS; i++)
		ck_assert_str_eq(steps[i].name, "step");
}
END_TEST

START_TEST(the_steps_of_a_page_fault_are_kept_from_its_beginning)
{
	trace_page(trace, 7, "before it began");
	trace_fault(trace, 7, "read");
	trace_page(trace, 7, "asked for");
	trace_page(trace, 8, "of another page");
	ck_assert_uint_eq(trace_faults(trace), 0);
	trace_page_over(trace, 8, "of another page");
	trace_page_over(trace, 7, "done");
	ck_assert_uint_eq(trace_faults(trace), 1);
	ck_assert_uint_eq(read_all(), 3);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(steps[i].page, 7);
	ck_assert_str_eq(steps[0].name, "read");
	ck_assert_str_eq(steps[1].name, "asked for");
	ck_assert_str_eq(steps[2].name, "done");
}
END_TEST

START_TEST(page_0_is_a_page)
{
	trace_page(trace, 0, "before it began");
	trace_fault(trace, 0, "read");
	trace_page(trace, 0, "done");
	ck_assert_uint_eq(read_all(), 2);
	ck_assert_uint_eq(steps[1].page, 0);
}
END_TEST

START_TEST(a_page_that_faults_again_takes_no_second_share)
{
	for (int i = 0; i < 20; i++)
		trace_fault(trace, 7, "read");
	ck_assert_uint_eq(read_all(), 1);
	trace_fault(trace, 9, "read");
	ck_assert_uint_eq(read_all(), 2);
	for (int i = 0; i < 20; i++)
		trace_page_over(trace, 7, "done");
	ck_assert_uint_eq(trace_faults(trace), 1);
}
END_TEST

START_TEST(the_first_page_faults_alone_are_followed)
{
	for (uint64_t page = 0; page < 100; page++) {
		trace_fault(trace, page, "read");
		trace_page_over(trace, page, "done");
	}
	ck_assert_uint_eq(trace_faults(trace), TRACE_FAULTS);
	ck_assert_uint_eq(read_all(), 2 * TRACE_FAULTS);
	for (unsigned i = 0; i < 2 * TRACE_FAULTS; i++)
		ck_assert_uint_eq(steps[i].page, i / 2);
	trace_step(trace, "of the transfer"); /* which has its room still */
	ck_assert_uint_eq(read_all(), 2 * TRACE_FAULTS + 1);
}
END_TEST

START_TEST(the_first_pages_served_alone_are_kept)
{
	for (uint64_t page = 0; page < 100; page++)
		trace_served(trace, page, "goes out");
	ck_assert_uint_eq(read_all(), TRACE_SERVED);
	for (unsigned i = 0; i < TRACE_SERVED; i++)
		ck_assert_uint_eq(steps[i].page, i);
	trace_step(trace, "of the transfer");
	ck_assert_uint_eq(read_all(), TRACE_SERVED + 1);
}
END_TEST

START_TEST(it_lives_as_long_as_somebody_has_it)
{
	struct trace *other = trace_get(trace);

	ck_assert_ptr_eq(other, trace);
	trace_put(trace);
	trace_step(other, "still here"); /* AddressSanitizer would report if it were freed */
	trace = other;
	ck_assert_uint_eq(read_all(), 1);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------- */

static const char *const names[ADDERS] = {"0", "1", "2", "3"};
static atomic_bool go;

/* Each adds its own name with its own pages, counted up. */
static void *add_all(void *arg)
{
	size_t me = (size_t)arg;

	while (!atomic_load(&go))
		sched_yield();
	for (uint64_t i = 0; i < TRACE_STEPS; i++)
		trace_add(trace, me * TRACE_STEPS + i, names[me]);
	trace_put(trace);
	return NULL;
}

/* No step is torn, and each thread's own are in their order. */
static void check_steps(size_t n)
{
	uint64_t next[ADDERS] = {0};

	for (size_t i = 0; i < n; i++) {
		size_t thread = (size_t)(steps[i].name[0] - '0');

		ck_assert_uint_eq(steps[i].page / TRACE_STEPS, thread);
		ck_assert_uint_ge(steps[i].page % TRACE_STEPS, next[thread]);
		next[thread] = steps[i].page % TRACE_STEPS + 1;
		ck_assert_uint_ne(steps[i].at_ns, 0);
	}
}

START_TEST(threads_fill_it_together_while_another_reads)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t adders[ADDERS];
		size_t n, seen = 0;

		atomic_store(&go, false);
		for (size_t i = 0; i < ADDERS; i++) {
			trace_get(trace);
			ck_assert_int_eq(pthread_create(&adders[i], NULL, add_all, (void *)i), 0);
		}
		atomic_store(&go, true);
		while ((n = read_all()) < TRACE_STEPS) {
			ck_assert_uint_ge(n, seen); /* steps that were there stay */
			check_steps(n);
			seen = n;
		}
		ck_assert_uint_eq(n, TRACE_STEPS);
		check_steps(n);
		for (size_t i = 0; i < ADDERS; i++)
			pthread_join(adders[i], NULL);
		ck_assert_uint_eq(read_all(), TRACE_STEPS);
		teardown();
		setup();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trace");
	TCase *tc = tcase_create("trace");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, steps_come_back_in_their_order_with_their_moments);
	tcase_add_test(tc, reading_gives_no_more_than_is_asked_for_and_takes_nothing_away);
	tcase_add_test(tc, who_does_not_trace_has_null_and_nothing_happens);
	tcase_add_test(tc, a_full_trace_keeps_its_first_steps);
	tcase_add_test(tc, the_steps_of_a_page_fault_are_kept_from_its_beginning);
	tcase_add_test(tc, page_0_is_a_page);
	tcase_add_test(tc, a_page_that_faults_again_takes_no_second_share);
	tcase_add_test(tc, the_first_page_faults_alone_are_followed);
	tcase_add_test(tc, the_first_pages_served_alone_are_kept);
	tcase_add_test(tc, it_lives_as_long_as_somebody_has_it);
	tcase_add_test(tc, threads_fill_it_together_while_another_reads);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
