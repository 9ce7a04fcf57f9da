/*
 * Stories of moves that are made in steps: held after a step for a client, which continues, gives up
 * or dies; and what happens to the segment and to both nodes meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <unistd.h>

#include "transfer_stories.h"
#include "transport/proto.h"

static bool waits_at(int ask, enum session_step step)
{
	ck_assert_msg(!atomic_load(&world->answers[ask].done), "answered: %d %s",
		      world->answers[ask].result, world_text(ask));
	return atomic_load(&world->answers[ask].held) == step;
}

/* A segment of A's, which a program of A's maps, on its way to B: it waits after `step`. */
static ramp_segment_t held_at(enum session_step step, int *ask)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);

	world_hold(A, id);
	*ask = world_connect(A, id, B, step, 0);
	eventually(waits_at(*ask, step));
	ck_assert(world_program(A, id).access);
	ck_assert(world_reserved(B) || (step == SESSION_PREPARED && world->looks[0]));
	ck_assert_int_eq(world_row(id).phase,
			 step == SESSION_PREPARED ? SEGMENT_MOVING : SEGMENT_STABLE);
	return id;
}

static void goes_over(ramp_segment_t id, int ask)
{
	world_go(A, ask, SESSION_TAKEN, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	eventually(world_owner(id) == B); /* the answer comes before the commit */
	stays(id, B);
}

START_TEST(in_steps)
{
	int ask;
	ramp_segment_t id = held_at(SESSION_CONNECTED, &ask);

	if (_i) {
		world_go(A, ask, SESSION_PREPARED, 0);
		eventually(waits_at(ask, SESSION_PREPARED));
		ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
		ck_assert(world_program(A, id).access);
	}
	goes_over(id, ask);
	ck_assert_uint_eq(world_failed(A), 0);
}
END_TEST

/* The answer comes with TAKEN: no commit is waited for. */
START_TEST(answered_when_it_is_taken)
{
	int ask;
	ramp_segment_t id = held_at(SESSION_PREPARED, &ask);

	atomic_store(&world->quorum, false);
	world_go(A, ask, SESSION_TAKEN, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	atomic_store(&world->quorum, true);
	eventually(world_owner(id) == B);
	stays(id, B);
}
END_TEST

/* A receiver has it by then, and may move it at once: back, or on, before the tables show it there. */
START_TEST(moved_on_before_its_arrival_is_committed)
{
	ramp_node_t to = _i & 1 ? C : A;
	int ask;
	ramp_segment_t id = held_at(SESSION_PREPARED, &ask);

	atomic_store(&world->quorum, false);
	world_go(A, ask, SESSION_TAKEN, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	ask = _i & 2 ? world_ask(B, id, to, 0, false)
		     : world_connect(B, id, to, SESSION_CONNECTED, 0);
	usleep(200000);
	ck_assert(waits_at(ask, 0));
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	atomic_store(&world->quorum, true);
	if (!(_i & 2)) {
		eventually(waits_at(ask, SESSION_CONNECTED));
		world_go(B, ask, SESSION_TAKEN, 0);
	}
	ck_assert_int_eq(world_answer(ask), 0);
	eventually(world_owner(id) == to);
	stays(id, to);
}
END_TEST

START_TEST(given_up_by_its_client)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
	ck_assert(!world_has_file(B, id));
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(held_for_too_long)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask = world_connect(A, id, B, _i ? SESSION_PREPARED : SESSION_CONNECTED, 100);

	ck_assert_int_eq(world_answer(ask), -ETIMEDOUT);
	ck_assert_str_eq(world_text(ask), "it was held for too long");
	ck_assert_uint_eq(world->answers[ask].held, _i ? SESSION_PREPARED : SESSION_CONNECTED);
	stays(id, A);
}
END_TEST

START_TEST(held_for_longer)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask = world_connect(A, id, B, SESSION_CONNECTED, 2000);

	eventually(waits_at(ask, SESSION_CONNECTED));
	world_go(A, ask, SESSION_HOLD, 60000);
	usleep(2500000);
	ck_assert(waits_at(ask, SESSION_CONNECTED));
	world_go(A, ask, SESSION_HOLD, 1);
	ck_assert_int_eq(world_answer(ask), -ETIMEDOUT);
	stays(id, A);
}
END_TEST

/* ---- what may be asked ----------------------------------------------------------------------- */

START_TEST(in_steps_of_what_is_not_here)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask = world_connect(C, id, B, SESSION_CONNECTED, 0);

	ck_assert_int_eq(world_answer(ask), -EREMOTE);
	ask = world_connect(A, id, A, SESSION_CONNECTED, 0);
	ck_assert_int_eq(world_answer(ask), -EALREADY);
	world_unmovable(A, id);
	ask = world_connect(A, id, B, SESSION_CONNECTED, 0);
	ck_assert_int_eq(world_answer(ask), -EBUSY);
	stays(id, A);
}
END_TEST

START_TEST(moved_by_another_while_it_is_held)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	ck_assert_int_eq(world_move(A, id, B), -EBUSY);
	ck_assert_int_eq(world_move(C, id, C), -EBUSY);
	goes_over(id, ask);
}
END_TEST

/* ---- what changes meanwhile ------------------------------------------------------------------ */

/* The row has another epoch: another attempt is made at once, not when it is to go over. */
START_TEST(renamed_while_it_is_held)
{
	int ask;
	ramp_segment_t id = held_at(SESSION_CONNECTED, &ask);

	world_rename(id, "z");
	usleep(100000);
	eventually(world_reserved(B));
	ck_assert(waits_at(ask, SESSION_CONNECTED));
	goes_over(id, ask);
	ck_assert_str_eq(world_row(id).name, "x");
}
END_TEST

START_TEST(unlinked_while_it_is_held)
{
	int ask;
	ramp_segment_t id = held_at(SESSION_CONNECTED, &ask);

	world_unlink(id);
	ck_assert_int_eq(world_answer(ask), -ENOENT);
	eventually(!world_reserved(B));
}
END_TEST

/* It has outgrown its room at B: that is seen before the prepare, so none is aborted. */
START_TEST(grown_while_it_is_held)
{
	ramp_segment_t id = world_segment(A, "x", 16384, 1024);
	int ask = world_connect(A, id, B, SESSION_CONNECTED, 0);
	uint64_t epoch = world_row(id).epoch;

	eventually(waits_at(ask, SESSION_CONNECTED));
	world_fill_holes(id);
	goes_over(id, ask);
	ck_assert_uint_eq(world_row(id).epoch, epoch + 3);
}
END_TEST

/* ---- ends that die --------------------------------------------------------------------------- */

/* B's next daemon has no reservation: room is taken once more. */
START_TEST(its_target_was_killed)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	world_kill(B);
	world_wait_peers(A, NODES - 2);
	world_start(B);
	world_wait_peers(A, NODES - 1);
	goes_over(id, ask);
}
END_TEST

/* Nothing is prepared or frozen for a target that is down. */
START_TEST(its_target_is_down)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	world_kill(B);
	world_wait_peers(A, NODES - 2);
	world_go(A, ask, SESSION_TAKEN, 0);
	ck_assert_int_eq(world_answer(ask), -EHOSTUNREACH);
	eventually(world_row(id).phase == SEGMENT_STABLE);
	ck_assert(world_program(A, id).access);
	world_start(B);
	stays(id, A);
}
END_TEST

/* Its client has died with A's daemon, or asks the next one. */
START_TEST(its_source_was_killed)
{
	int ask;
	ramp_segment_t id = held_at(_i & 1 ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	world_kill(A);
	world_start(A);
	if (_i < 2) {
		eventually(!world_reserved(B));
		stays(id, A);
		return;
	}
	ask = world_connect(A, id, B, SESSION_TAKEN, 0);
	goes_over(id, ask);
}
END_TEST

START_TEST(its_source_is_unmounted)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	world_take_no_more(A);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
}
END_TEST

/* ---- mode precopy ---------------------------------------------------------------------------- */

/* Rounds are read before it is prepared, and what is stored into while it is held follows. */
START_TEST(rounds_before_it_is_held)
{
	int ask;
	ramp_segment_t id = held_at(_i ? SESSION_PREPARED : SESSION_CONNECTED, &ask);

	ck_assert_uint_eq(world->looks[0], _i ? 1 : 0);
	ck_assert_uint_eq(world->watches, _i ? 1 : 0);
	goes_over(id, ask);
	ck_assert_uint_eq(world->looks[0], 1);
	eventually(world->watches == 0);
}
END_TEST

START_TEST(the_watch_ends_with_it)
{
	int ask;
	ramp_segment_t id = held_at(SESSION_PREPARED, &ask);

	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
	ck_assert_uint_eq(world->watches, 0);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

void add_precopy_steps_stories(Suite *suite)
{
	TCase *tc = precopy_story(suite, "precopy.steps");

	tcase_add_loop_test(tc, rounds_before_it_is_held, 0, 2);
	tcase_add_test(tc, the_watch_ends_with_it);
	tcase_add_loop_test(tc, its_target_was_killed, 0, 2);
	tcase_add_loop_test(tc, its_target_is_down, 0, 2);
}

void add_steps_stories(Suite *suite)
{
	TCase *tc = story(suite, "steps");

	tcase_add_loop_test(tc, in_steps, 0, 2);
	tcase_add_test(tc, answered_when_it_is_taken);
	tcase_add_loop_test(tc, moved_on_before_its_arrival_is_committed, 0, 4);
	tcase_add_loop_test(tc, given_up_by_its_client, 0, 2);
	tcase_add_loop_test(tc, held_for_too_long, 0, 2);
	tcase_add_test(tc, held_for_longer);
	tcase_add_test(tc, in_steps_of_what_is_not_here);
	tcase_add_loop_test(tc, moved_by_another_while_it_is_held, 0, 2);
	tcase_add_test(tc, renamed_while_it_is_held);
	tcase_add_test(tc, unlinked_while_it_is_held);
	tcase_add_test(tc, grown_while_it_is_held);
	tcase_add_loop_test(tc, its_target_was_killed, 0, 2);
	tcase_add_loop_test(tc, its_target_is_down, 0, 2);
	tcase_add_loop_test(tc, its_source_was_killed, 0, 4);
	tcase_add_loop_test(tc, its_source_is_unmounted, 0, 2);
}
