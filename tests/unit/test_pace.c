/*
 * When work for strangers is enough, on a clock of the test's own.
 */
#include <check.h>
#include <stdlib.h>

#include "pace.h"

static struct pace pace;
static uint64_t now_us;

static void reset(void)
{
	pace = (struct pace){.processors = 2};
	now_us = 1000000;
}

/* One piece of work after another for so long, with rests where they are due; what was done. */
static uint64_t work_for(uint64_t us, uint64_t piece_us)
{
	uint64_t end = now_us + us, done = 0;

	while (now_us < end) {
		now_us += piece_us;
		pace_spend(&pace, now_us, piece_us);
		done += piece_us;
		now_us += pace_rest_ms(&pace) * 1000;
	}
	return done;
}

START_TEST(a_burst_goes_through)
{
	for (int i = 0; i < PACE_BURST_US / 100; i++) {
		now_us += 100;
		pace_spend(&pace, now_us, 100);
		ck_assert_uint_eq(pace_rest_ms(&pace), 0);
	}
}
END_TEST

START_TEST(what_never_ends_gets_its_part)
{
	uint64_t done;

	work_for(1000000, 100);
	done = work_for(10000000, 100);
	ck_assert_uint_ge(done, 10000000 * 2 / PACE_PARTS * 95 / 100);
	ck_assert_uint_le(done, 10000000 * 2 / PACE_PARTS * 105 / 100);
}
END_TEST

START_TEST(pieces_are_small_before_rests_begin)
{
	ck_assert(!pace_is_long(&pace));
	pace_spend(&pace, now_us, PACE_BURST_US * 3 / 4);
	ck_assert(pace_is_long(&pace));
	ck_assert_uint_eq(pace_rest_ms(&pace), 0);
	now_us += 1000000;
	pace_spend(&pace, now_us, 0);
	ck_assert(!pace_is_long(&pace));
}
END_TEST

START_TEST(no_rest_is_long)
{
	pace_spend(&pace, now_us, 10000000);
	ck_assert_uint_eq(pace_rest_ms(&pace), PACE_REST_MS);
	now_us += PACE_REST_MS * 1000;
	pace_spend(&pace, now_us, 0);
	ck_assert_uint_eq(pace_rest_ms(&pace), 0);
}
END_TEST

START_TEST(after_a_rest_it_goes_on_and_after_a_long_one_in_a_burst)
{
	work_for(1000000, 100);
	pace_spend(&pace, now_us, 1000);
	ck_assert_uint_gt(pace_rest_ms(&pace), 0);
	now_us += pace_rest_ms(&pace) * 1000;
	pace_spend(&pace, now_us, 0);
	ck_assert_uint_eq(pace_rest_ms(&pace), 0);
	now_us += 1000000;
	pace_spend(&pace, now_us, PACE_BURST_US);
	ck_assert_uint_eq(pace_rest_ms(&pace), 0);
}
END_TEST

START_TEST(one_thread_of_eight_processors_never_rests)
{
	pace.processors = 8;
	ck_assert_uint_ge(work_for(1000000, 100), 1000000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("pace");
	Suite *s = suite_create("pace");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, reset, NULL);
	tcase_add_test(tc, a_burst_goes_through);
	tcase_add_test(tc, what_never_ends_gets_its_part);
	tcase_add_test(tc, pieces_are_small_before_rests_begin);
	tcase_add_test(tc, no_rest_is_long);
	tcase_add_test(tc, after_a_rest_it_goes_on_and_after_a_long_one_in_a_burst);
	tcase_add_test(tc, one_thread_of_eight_processors_never_rests);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
