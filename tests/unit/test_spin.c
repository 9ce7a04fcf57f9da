/*
 * When it pays to poll, on a clock of the test's own.
 */
#include <check.h>
#include <stdlib.h>

#include "base/adaptive_poll.h"
#include "lib/run_suite.h"

static struct adaptive_poll adaptive;
static uint64_t now_us;

static void reset(void)
{
	adaptive = (struct adaptive_poll){0};
	now_us = 1000000;
}

/* Makes a round that ends with something to do after that time; true: it was found by polling. */
static bool round_of(uint64_t after_us)
{
	uint64_t until = now_us + after_us;

	while (adaptive_poll_wait_ms(&adaptive, now_us, 7) == 0) {
		if (now_us >= until) {
			adaptive_poll_happened(&adaptive, now_us);
			return true;
		}
		ck_assert(adaptive_poll_again(&adaptive));
		now_us++;
	}
	if (now_us < until)
		now_us = until;
	adaptive_poll_happened(&adaptive, now_us);
	return false;
}

START_TEST(what_comes_soon_is_polled_for)
{
	ck_assert(!round_of(10)); /* nothing had happened yet */
	for (int i = 0; i < 1000; i++)
		ck_assert(round_of(ADAPTIVE_POLL_US - 5));
}
END_TEST

START_TEST(what_comes_late_is_slept_for_after_some_tries)
{
	int polled = 0;

	round_of(0);
	for (int i = 0; i < ADAPTIVE_POLL_MISSES; i++) {
		uint64_t began = now_us;

		while (adaptive_poll_wait_ms(&adaptive, now_us, 7) == 0)
			now_us++;
		ck_assert_uint_ge(now_us - began, ADAPTIVE_POLL_US);
		now_us += 1000;
		adaptive_poll_happened(&adaptive, now_us);
	}
	for (int i = 1; i < ADAPTIVE_POLL_REST; i++)
		polled += round_of(10);
	ck_assert_int_eq(polled, 0);
	round_of(10);
	ck_assert(round_of(10));
}
END_TEST

/* Another thread has the processor when it yields. Returns in how many rounds it does not poll then. */
static int rounds_after_a_long_yield(void)
{
	int rounds = 0;

	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 0);
	ck_assert(adaptive_poll_again(&adaptive));
	now_us += 3000;
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 7);
	ck_assert(!adaptive_poll_again(&adaptive));
	adaptive_poll_happened(&adaptive, now_us);
	for (; !round_of(10); rounds++)
		ck_assert_int_le(rounds, ADAPTIVE_POLL_AGAIN_REST);
	return rounds;
}

START_TEST(the_second_long_yield_is_the_last_for_long)
{
	round_of(0);
	ck_assert_int_le(rounds_after_a_long_yield(), ADAPTIVE_POLL_CROWDED_REST);
	for (int i = 0; i < 3; i++)
		ck_assert_int_ge(rounds_after_a_long_yield(), ADAPTIVE_POLL_AGAIN_REST - 2);
}
END_TEST

START_TEST(one_now_and_then_is_soon_forgotten)
{
	round_of(0);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_le(rounds_after_a_long_yield(), ADAPTIVE_POLL_CROWDED_REST);
		for (int n = 0; n < ADAPTIVE_POLL_AGAIN; n++)
			ck_assert(round_of(10));
	}
}
END_TEST

/* Once it is firm it polls and does not yield, for that many rounds, whatever time it is away
   meanwhile. */
START_TEST(who_may_be_firm_polls_on)
{
	adaptive.may_be_firm = true;
	round_of(0);
	rounds_after_a_long_yield();
	ck_assert_int_eq(adaptive.firm, 0);
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 0);
	ck_assert(adaptive_poll_again(&adaptive));
	now_us += 3000;
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 7);
	ck_assert_int_eq(adaptive.firm, ADAPTIVE_POLL_FIRM);
	adaptive_poll_happened(&adaptive, now_us);
	for (int i = 1; i < ADAPTIVE_POLL_FIRM; i++) {
		ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 0);
		ck_assert(adaptive_poll_again(&adaptive));
		now_us += ADAPTIVE_POLL_US - 1;
		ck_assert_int_gt(adaptive.firm, 0);
		adaptive_poll_happened(&adaptive, now_us);
	}
	ck_assert_int_eq(adaptive.firm, 0);
	/* It still remembers that the processor was crowded. */
	adaptive_poll_wait_ms(&adaptive, now_us, 7);
	adaptive_poll_again(&adaptive);
	now_us += 3000;
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 7);
	ck_assert_int_eq(adaptive.firm, ADAPTIVE_POLL_FIRM);
}
END_TEST

/* The thread that would have come perhaps waits for this very processor. */
START_TEST(who_is_firm_sleeps_after_one_miss)
{
	int polled = 0;

	adaptive = (struct adaptive_poll){.firm = ADAPTIVE_POLL_FIRM, .may_be_firm = true};
	round_of(0);
	ck_assert(!round_of(ADAPTIVE_POLL_US + 10));
	for (int i = 1; i < ADAPTIVE_POLL_FIRM_REST; i++)
		polled += round_of(10);
	ck_assert_int_eq(polled, 0);
	round_of(10);
	ck_assert(round_of(10));
}
END_TEST

/* Threads that are served share the processors with the one that polls. A new one alone is not
   several; and when there is only one again, the poll knows that the processor is crowded. */
START_TEST(who_has_several_to_serve_is_not_firm)
{
	adaptive = (struct adaptive_poll){
		.firm = ADAPTIVE_POLL_FIRM, .again = ADAPTIVE_POLL_AGAIN, .may_be_firm = true};
	round_of(0);
	adaptive_poll_another(&adaptive);
	ck_assert_int_gt(adaptive.firm, 0);
	adaptive_poll_another(&adaptive);
	ck_assert_int_eq(adaptive.firm, 0);
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 0);
	ck_assert(adaptive_poll_again(&adaptive));
	now_us += 3000;
	ck_assert_int_eq(adaptive_poll_wait_ms(&adaptive, now_us, 7), 7);
	adaptive_poll_happened(&adaptive, now_us);
	for (int i = 2; i < ADAPTIVE_POLL_SEVERAL; i++) {
		ck_assert_int_eq(adaptive.firm, 0);
		ck_assert(!round_of(10));
	}
	round_of(10);
	ck_assert_int_gt(adaptive.firm, 0);
	ck_assert(round_of(10));
}
END_TEST

/* The work that was found may take any time. */
START_TEST(what_was_done_between_two_polls_is_no_yield)
{
	round_of(0);
	for (int i = 0; i < 100; i++) {
		ck_assert(round_of(10));
		now_us += 5000;
		adaptive_poll_happened(&adaptive, now_us);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("spin");
	Suite *s = suite_create("spin");

	tcase_add_checked_fixture(tc, reset, NULL);
	tcase_add_test(tc, what_comes_soon_is_polled_for);
	tcase_add_test(tc, what_comes_late_is_slept_for_after_some_tries);
	tcase_add_test(tc, the_second_long_yield_is_the_last_for_long);
	tcase_add_test(tc, who_may_be_firm_polls_on);
	tcase_add_test(tc, who_is_firm_sleeps_after_one_miss);
	tcase_add_test(tc, who_has_several_to_serve_is_not_firm);
	tcase_add_test(tc, one_now_and_then_is_soon_forgotten);
	tcase_add_test(tc, what_was_done_between_two_polls_is_no_yield);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
