/*
 * Limits, on a clock of the test's own: of work for unauthenticated clients, and of bytes a second.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "base/rate.h"
#include "base/throttle.h"
#include "lib/run_suite.h"

static struct throttle throttle;
static uint64_t now_us;

static void reset(void)
{
	throttle = (struct throttle){.processors = 2};
	now_us = 1000000;
}

/* Spends `piece_us`; returns the rest that is due. */
static uint64_t work(uint64_t piece_us)
{
	now_us += piece_us;
	throttle_spend(&throttle, now_us, piece_us);
	return throttle_rest_us(&throttle, piece_us);
}

/* Does one piece of work after another for that time, with rests where they are due; returns the time
   spent. */
static uint64_t work_for(uint64_t us, uint64_t piece_us)
{
	uint64_t end = now_us + us, done = 0;

	while (now_us < end) {
		now_us += work(piece_us);
		done += piece_us;
	}
	return done;
}

START_TEST(a_little_goes_through)
{
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(work(30), 0);
}
END_TEST

START_TEST(of_a_burst_each_piece_has_a_rest_as_long)
{
	uint64_t done = 0;

	while (done + THROTTLE_PIECE_US < THROTTLE_BURST_US) {
		ck_assert_uint_eq(work(THROTTLE_PIECE_US - 50), 0);
		ck_assert_uint_eq(work(50), THROTTLE_PIECE_US);
		done += THROTTLE_PIECE_US;
	}
}
END_TEST

/* With two processors the share is less than the rests leave. */
START_TEST(what_never_ends_rests_after_each_piece)
{
	uint64_t done;

	work_for(1000000, 100);
	done = work_for(10000000, 100);
	ck_assert_uint_ge(done, 10000000 / (1 + THROTTLE_RESTS) * 99 / 100);
	ck_assert_uint_le(done, 10000000 / (1 + THROTTLE_RESTS) * 101 / 100);
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(work(30), 30 * THROTTLE_RESTS);
		ck_assert(throttle_is_long(&throttle));
		now_us += 30 * THROTTLE_RESTS;
	}
}
END_TEST

START_TEST(a_rest_is_as_long_as_all_that_was_done_since_the_last_asks_for)
{
	ck_assert_uint_eq(work(90), 0);
	throttle_spend(&throttle, now_us, THROTTLE_BURST_US); /* by other threads */
	ck_assert_uint_eq(throttle_rest_us(&throttle, 10), 100 * THROTTLE_RESTS);
	ck_assert_uint_eq(throttle_rest_us(&throttle, 0), 0);
}
END_TEST

START_TEST(what_was_of_use_is_given_back_and_no_more)
{
	throttle_spend(&throttle, now_us, THROTTLE_BURST_US + 1000);
	ck_assert(throttle_is_long(&throttle));
	throttle_refund(&throttle, 1001);
	ck_assert(!throttle_is_long(&throttle));
	throttle_refund(&throttle, UINT64_MAX);
	throttle_spend(&throttle, now_us, THROTTLE_BURST_US + 1);
	ck_assert(throttle_is_long(&throttle));
}
END_TEST

/* Fractions of a microsecond add up. */
START_TEST(small_pieces_get_their_share)
{
	for (int i = 0; i < 1000; i++) {
		now_us += 50;
		throttle_spend(&throttle, now_us, 1);
	}
	ck_assert_uint_le(throttle.spent_us, 10);
}
END_TEST

START_TEST(no_rest_is_long)
{
	ck_assert_uint_eq(work(10000000), THROTTLE_REST_US);
	now_us += 2000000; /* nor is the time spent remembered for longer */
	throttle_spend(&throttle, now_us, 0);
	ck_assert(!throttle_is_long(&throttle));
}
END_TEST

START_TEST(after_a_while_there_is_another_burst)
{
	work_for(1000000, 100);
	now_us += 8000000;
	throttle_spend(&throttle, now_us, THROTTLE_BURST_US);
	ck_assert(!throttle_is_long(&throttle));
}
END_TEST

START_TEST(one_thread_of_many_processors_gets_the_half_of_one)
{
	throttle.processors = THROTTLE_PARTS;
	ck_assert_uint_ge(work_for(1000000, 100), 490000);
}
END_TEST

/* ---- bytes a second ---- */

#define MIB (UINT64_C(1) << 20)

/* Takes all that is there, as pages; the time goes from one moment to the next at which there is some. */
static uint64_t take_for(struct rate *rate, uint64_t us)
{
	uint64_t end = now_us + us, took = 0, one, due;

	while (now_us < end) {
		one = rate_take(rate, 2 * MIB, now_us);
		ck_assert_uint_eq(one % 4096, 0);
		took += one;
		due = rate_due_us(rate, now_us);
		ck_assert(one || due > now_us);
		now_us = due;
	}
	return took;
}

START_TEST(a_limit_gives_as_many_bytes_as_it_says)
{
	static const uint64_t limits[] = {RATE_MIN, 3 * MIB + 12345, 200 * MIB, 10000 * MIB};
	uint64_t limit = limits[_i], took;
	struct rate rate;

	rate_init(&rate, limit);
	took = take_for(&rate, 10000000);
	ck_assert_uint_le(took, 10 * limit + limit / 50 + 2 * 2 * MIB);
	ck_assert_uint_ge(took, 10 * limit - limit / 50);
	rate_destroy(&rate);
}
END_TEST

/* A silent hour is no credit; a piece is small, so that others wait for little of it. */
START_TEST(a_limit_saves_little_up)
{
	uint64_t took = 0, one;
	struct rate rate;

	rate_init(&rate, 100 * MIB);
	now_us += UINT64_C(3600000000);
	while ((one = rate_take(&rate, 2 * MIB, now_us))) {
		ck_assert_uint_le(one, MIB);
		took += one;
	}
	ck_assert_uint_le(took, 2 * MIB);
	rate_destroy(&rate);
}
END_TEST

START_TEST(what_is_put_back_can_be_taken_again)
{
	struct rate rate;
	uint64_t one;

	rate_init(&rate, 100 * MIB);
	while (rate_take(&rate, 2 * MIB, now_us))
		;
	rate_put_back(&rate, 64 << 10);
	ck_assert_uint_eq(rate_take(&rate, 64 << 10, now_us), 64 << 10);
	ck_assert_uint_eq(rate_take(&rate, 4096, now_us), 0);
	rate_put_back(&rate, 1000 * MIB); /* no more than is ever saved up */
	for (one = 0; rate_take(&rate, MIB, now_us) && one < 100; one++)
		;
	ck_assert_uint_le(one, 3);
	rate_set(&rate, 0);
	ck_assert_uint_eq(rate_take(&rate, 1000 * MIB, now_us), 1000 * MIB);
	ck_assert_uint_eq(rate_due_us(&rate, now_us), now_us);
	rate_destroy(&rate);
}
END_TEST

START_TEST(a_limit_of_nothing_or_nonsense_is_none)
{
	uint64_t v;

	ck_assert(rate_parse("200M", &v) == 0 && v == 200 * MIB);
	ck_assert(rate_parse("1M", &v) == 0 && v == RATE_MIN);
	ck_assert_int_eq(rate_parse("0", &v), -ERANGE);
	ck_assert_int_eq(rate_parse("1023K", &v), -ERANGE);
	ck_assert_int_eq(rate_parse("", &v), -EINVAL);
	ck_assert_int_eq(rate_parse("-1M", &v), -EINVAL);
	ck_assert_int_eq(rate_parse("fast", &v), -EINVAL);
	ck_assert_int_eq(rate_parse("1.5G", &v), -EINVAL);
	ck_assert_int_eq(rate_parse("200MB/s", &v), -EINVAL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("pace");
	Suite *s = suite_create("pace");

	tcase_add_checked_fixture(tc, reset, NULL);
	tcase_add_test(tc, a_little_goes_through);
	tcase_add_test(tc, of_a_burst_each_piece_has_a_rest_as_long);
	tcase_add_test(tc, what_never_ends_rests_after_each_piece);
	tcase_add_test(tc, a_rest_is_as_long_as_all_that_was_done_since_the_last_asks_for);
	tcase_add_test(tc, what_was_of_use_is_given_back_and_no_more);
	tcase_add_test(tc, small_pieces_get_their_share);
	tcase_add_test(tc, no_rest_is_long);
	tcase_add_test(tc, after_a_while_there_is_another_burst);
	tcase_add_test(tc, one_thread_of_many_processors_gets_the_half_of_one);
	tcase_add_loop_test(tc, a_limit_gives_as_many_bytes_as_it_says, 0, 4);
	tcase_add_test(tc, a_limit_saves_little_up);
	tcase_add_test(tc, what_is_put_back_can_be_taken_again);
	tcase_add_test(tc, a_limit_of_nothing_or_nonsense_is_none);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
