/*
 * Stories of programs that are asked before a segment leaves: the move waits for them between the
 * committed prepare and the freeze; and what happens meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "transfer_stories.h"

#define LONG_MS 60000u

/* A's next daemon waits that long for programs, which do not answer. */
static ramp_segment_t asked_for(uint32_t quiesce_ms)
{
	ramp_segment_t id;

	atomic_store(&world->quiesce_ms, quiesce_ms);
	world_kill(A);
	world_start(A);
	world_wait_peers(A, NODES - 1);
	id = world_segment(A, "x", 300, 0);
	world_hold(A, id);
	atomic_store(&world->unanswered, true);
	return id;
}

/* Waits until the row is MOVING, and a little longer: nothing is frozen. */
static void waits(ramp_segment_t id, int ask)
{
	eventually(world_row(id).phase == SEGMENT_MOVING);
	usleep(200000);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	ck_assert(world_program(A, id).access);
	ck_assert(!atomic_load(&world->answers[ask].done));
}

static void goes_on(ramp_segment_t id, int ask)
{
	atomic_store(&world->unanswered, false);
	world_say_answered(A, id);
	ck_assert_int_eq(world_answer(ask), 0);
	eventually(world_owner(id) == B);
	stays(id, B);
}

/* The second time in steps: the wait is that of the last one. */
START_TEST(it_waits_for_programs)
{
	ramp_segment_t id = asked_for(LONG_MS);
	int ask;

	if (_i) {
		ask = world_connect(A, id, B, SESSION_PREPARED, 0);
		eventually(atomic_load(&world->answers[ask].held) == SESSION_PREPARED);
		world_go(A, ask, SESSION_TAKEN, 0);
	} else {
		ask = world_ask(A, id, B, 0, true);
	}
	waits(id, ask);
	goes_on(id, ask);
	ck_assert_uint_eq(world_failed(A), 0);
}
END_TEST

START_TEST(no_answer_in_time)
{
	ramp_segment_t id = asked_for(50);
	int ask = world_ask(A, id, B, 0, true);

	ck_assert_int_eq(world_answer(ask), -EBUSY);
	ck_assert_str_eq(world_text(ask), "process 42 (deaf) was asked to let go of it, and has "
					  "not answered for 50 ms");
	stays(id, A);
	ck_assert(world_program(A, id).access);
	atomic_store(&world->forced, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(cancelled_while_it_waits)
{
	ramp_segment_t id = asked_for(LONG_MS);
	int ask = world_ask(A, id, B, 0, true);

	waits(id, ask);
	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
	ask = world_ask(A, id, B, 0, true);
	waits(id, ask);
	goes_on(id, ask);
}
END_TEST

/* B's next daemon has no reservation: nothing is frozen for it before it has one. */
START_TEST(its_target_was_killed_while_it_waits)
{
	ramp_segment_t id = asked_for(LONG_MS);
	uint64_t epoch = world_row(id).epoch;
	int ask = world_ask(A, id, B, 0, true);

	waits(id, ask);
	world_kill(B);
	world_wait_peers(A, NODES - 2);
	world_start(B);
	eventually(world_row(id).epoch == epoch + 3); /* prepare, abort, prepare */
	waits(id, ask);
	goes_on(id, ask);
	ck_assert_uint_eq(world_row(id).epoch, epoch + 5);
	ck_assert_uint_eq(world_failed(A), 0);
}
END_TEST

START_TEST(its_target_is_down_when_they_answer)
{
	ramp_segment_t id = asked_for(LONG_MS);
	int ask = world_ask(A, id, B, 0, true);

	waits(id, ask);
	world_kill(B);
	world_wait_peers(A, NODES - 2);
	atomic_store(&world->unanswered, false);
	world_say_answered(A, id);
	ck_assert_int_eq(world_answer(ask), -EHOSTUNREACH);
	eventually(world_row(id).phase == SEGMENT_STABLE);
	ck_assert(world_program(A, id).access);
	world_start(B);
	stays(id, A);
}
END_TEST

START_TEST(its_source_was_killed_while_it_waits)
{
	ramp_segment_t id = asked_for(LONG_MS);
	int ask = world_ask(A, id, B, 0, true);

	waits(id, ask);
	world_kill(A);
	atomic_store(&world->unanswered, false);
	world_start(A);
	stays(id, A);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

/* A program that waits in a store can't let go of it. */
static ramp_segment_t asked_before_it_is_closed(uint32_t quiesce_ms, int *ask)
{
	ramp_segment_t id = asked_for(quiesce_ms);

	*ask = world_connect(A, id, B, SESSION_WRITES_CLOSED, 0);
	eventually(atomic_load(&world->answers[*ask].held) == SESSION_READ_AHEAD);
	ck_assert(world_program(A, id).access && !world_program(A, id).closed);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	return id;
}

/* At the hand-over those are asked that have mapped it since. */
START_TEST(it_waits_for_programs_before_it_is_closed)
{
	int ask;
	ramp_segment_t id = asked_before_it_is_closed(LONG_MS, &ask);

	usleep(200000);
	ck_assert(!world_program(A, id).closed);
	atomic_store(&world->unanswered, false);
	world_say_answered(A, id);
	eventually(atomic_load(&world->answers[ask].held) == SESSION_ALL_READ);
	ck_assert(world_program(A, id).closed);
	atomic_store(&world->unanswered, _i != 0);
	world_go(A, ask, SESSION_TAKEN, 0);
	if (_i)
		waits(id, ask);
	goes_on(id, ask);
	ck_assert_uint_eq(world_failed(A), 0);
}
END_TEST

START_TEST(not_closed_without_an_answer)
{
	int ask;
	ramp_segment_t id = asked_before_it_is_closed(_i ? LONG_MS : 50, &ask);

	if (_i)
		world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), _i ? -EINTR : -EBUSY);
	if (!_i)
		ck_assert_str_eq(world_text(ask), "process 42 (deaf) was asked to let go of it, "
						  "and has not answered for 50 ms");
	stays(id, A);
	ck_assert(world_program(A, id).access && !world_program(A, id).closed);
	ck_assert_uint_eq(world->watches, 0);
	atomic_store(&world->unanswered, false);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(an_end_dies_before_it_is_closed)
{
	ramp_node_t node = _i ? B : A;
	int ask;
	ramp_segment_t id = asked_before_it_is_closed(LONG_MS, &ask);

	world_kill(node);
	world_wait_peers(_i ? A : B, NODES - 2);
	atomic_store(&world->unanswered, false);
	world_start(node);
	if (_i)
		ck_assert_int_eq(world_answer(ask), -EIO);
	eventually(!world_reserved(B));
	stays(id, A);
	ck_assert(!world_program(A, id).closed);
	atomic_store(&world->watches, 0);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

static void add_departs(TCase *tc)
{
	tcase_add_test(tc, no_answer_in_time);
	tcase_add_test(tc, cancelled_while_it_waits);
	tcase_add_test(tc, its_target_was_killed_while_it_waits);
	tcase_add_test(tc, its_target_is_down_when_they_answer);
	tcase_add_test(tc, its_source_was_killed_while_it_waits);
}

void add_depart_stories(Suite *suite)
{
	TCase *tc = story(suite, "departs");

	tcase_add_loop_test(tc, it_waits_for_programs, 0, 2);
	add_departs(tc);
}

void add_precopy_depart_stories(Suite *suite)
{
	TCase *tc = precopy_story(suite, "precopy.departs");

	tcase_add_loop_test(tc, it_waits_for_programs, 0, 2);
	tcase_add_loop_test(tc, it_waits_for_programs_before_it_is_closed, 0, 2);
	tcase_add_loop_test(tc, not_closed_without_an_answer, 0, 2);
	tcase_add_loop_test(tc, an_end_dies_before_it_is_closed, 0, 2);
	add_departs(tc);
}
