/*
 * Stories of moves that are made in steps: held after a step for a client, which continues, gives up
 * or dies; and what happens to the segment and to both nodes meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/page.h"
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

/* The same, of a name that changes on the way, with tables there that do not show the prepare either. */
START_TEST(moved_on_by_a_name_that_it_has_no_more)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	atomic_store(&world->behind_ms[B], 60000);
	snprintf(world->to_name, sizeof(world->to_name), "y");
	ask = world_connect(A, id, B, SESSION_PREPARED, 0);
	eventually(waits_at(ask, SESSION_PREPARED));
	atomic_store(&world->quorum, false);
	world_go(A, ask, SESSION_TAKEN, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	snprintf(world->from_name, sizeof(world->from_name), "x");
	snprintf(world->to_name, sizeof(world->to_name), "x");
	ask = world_ask(B, id, _i ? C : A, 0, false);
	world->from_name[0] = world->to_name[0] = 0;
	usleep(200000);
	ck_assert(waits_at(ask, 0));
	atomic_store(&world->quorum, true); /* its own TAKEN shows all at once */
	eventually(world_owner(id) == B);
	atomic_store(&world->behind_ms[B], 0);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, _i ? C : A);
	ck_assert_str_eq(world_row(id).name, "y");
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

/* ---- two steps ------------------------------------------------------------------------------- */

/* A segment of A's that is closed to stores, on its way to B. B has read all of it where `whole`. */
static ramp_segment_t closed_at(bool whole, int *ask)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);

	world_hold(A, id);
	*ask = world_connect(A, id, B, SESSION_WRITES_CLOSED, 0);
	if (whole)
		eventually(waits_at(*ask, SESSION_ALL_READ));
	else
		eventually(atomic_load(&world->answers[*ask].held) >= SESSION_WRITES_CLOSED);
	ck_assert(world_program(A, id).access && world_program(A, id).closed);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	return id;
}

static void is_open(ramp_segment_t id)
{
	stays(id, A);
	ck_assert(!world_program(A, id).closed);
	ck_assert_uint_eq(world->watches, 0);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}

/* Nothing is missing at the hand-over, and nothing of what was stored into. */
START_TEST(closed_to_stores)
{
	int ask;
	ramp_segment_t id = closed_at(true, &ask);

	if (_i == 1) {
		world_go(A, ask, SESSION_PREPARED, 0);
		eventually(waits_at(ask, SESSION_PREPARED));
		ck_assert(world_program(A, id).access && world_program(A, id).closed);
	}
	atomic_store(&world->pull_stopped, true); /* all is there */
	goes_over(id, ask);
	ck_assert(!world_program(A, id).closed);
	ck_assert_uint_eq(world_failed(A), 0);
	eventually(world->watches == 0);
}
END_TEST

static void shows(ramp_node_t node, ramp_segment_t id, const char *state)
{
	struct transfer_move m;

	ck_assert_str_eq(world_move_state(node, id, &m), state);
	if (!*state)
		return;
	ck_assert(m.from == A && m.to == B && m.in_rounds == (node == A));
	ck_assert((m.left_bytes != 0) ==
		  (strcmp(state, "read ahead") == 0)); /* what was stored into since */
	ck_assert_uint_le(m.left_bytes, 300 * RAMP_PAGE_BYTES);
}

/* It is read ahead, and waits for its client; it is closed, or not. */
START_TEST(read_ahead)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	ask = world_connect(A, id, B, SESSION_READ_AHEAD, 0);
	eventually(waits_at(ask, SESSION_READ_AHEAD));
	ck_assert(!world_program(A, id).closed);
	shows(A, id, "read ahead");
	shows(B, id, "pre-copying here");
	if (_i == 0) {
		world_go(A, ask, SESSION_WRITES_CLOSED, 0);
		eventually(waits_at(ask, SESSION_ALL_READ));
		ck_assert(world_program(A, id).closed);
		shows(A, id, "writes closed");
	} else if (_i == 2) {
		world_cancel(A, ask);
		ck_assert_int_eq(world_answer(ask), -EINTR);
		shows(A, id, "");
		is_open(id);
		return;
	}
	goes_over(id, ask);
}
END_TEST

/* The client hands it over while the target reads: that is waited for. */
START_TEST(handed_over_before_all_is_read)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	ask = world_connect(A, id, B, SESSION_READ_AHEAD, 0);
	eventually(waits_at(ask, SESSION_READ_AHEAD));
	atomic_store(&world->pull_stopped, true);
	world_go(A, ask, SESSION_WRITES_CLOSED, 0);
	eventually(waits_at(ask, SESSION_WRITES_CLOSED));
	world_go(A, ask, SESSION_TAKEN, 0);
	usleep(1500000);
	ck_assert(world_program(A, id).closed);
	atomic_store(&world->pull_stopped, false);
	ck_assert_int_eq(world_answer(ask), 0);
	eventually(world_owner(id) == B);
	stays(id, B);
}
END_TEST

START_TEST(opened_again_by_its_client)
{
	int ask;
	ramp_segment_t id = closed_at(_i != 0, &ask);

	if (_i == 2) {
		world_go(A, ask, SESSION_PREPARED, 0);
		eventually(waits_at(ask, SESSION_PREPARED));
	}
	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	is_open(id);
}
END_TEST

START_TEST(closed_for_too_long)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask = world_connect(A, id, B, SESSION_WRITES_CLOSED, 100);

	world_hold(A, id);
	ck_assert_int_eq(world_answer(ask), -ETIMEDOUT);
	ck_assert_str_eq(world_text(ask), "it was held for too long");
	is_open(id);
}
END_TEST

/* What can't be closed stays as it was. */
START_TEST(not_closed)
{
	static const struct {
		enum where at;
		int result;
	} faults[] = {{AT_AHEAD, -EOPNOTSUPP},
		      {AT_REVOKE, -EBUSY},
		      {AT_CLOSE, -EBUSY},
		      {AT_LAST, -ENOMEM}};
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	world_arm(A, POINT(faults[_i].at, 0), DO_DROP, 0, 1);
	ask = world_connect(A, id, B, SESSION_WRITES_CLOSED, 0);
	ck_assert_int_eq(world_answer(ask), faults[_i].result);
	if (faults[_i].at == AT_AHEAD)
		ck_assert_str_eq(world_text(ask),
				 "the agent of process 42 is too old to close it to stores");
	is_open(id);
}
END_TEST

START_TEST(not_closed_in_another_mode)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	ask = world_connect(A, id, B, _i & 1 ? SESSION_CONNECTED : SESSION_WRITES_CLOSED, 0);
	if (_i & 1) {
		eventually(waits_at(ask, SESSION_CONNECTED));
		world_go(A, ask, _i & 2 ? SESSION_READ_AHEAD : SESSION_WRITES_CLOSED, 0);
	}
	ck_assert_int_eq(world_answer(ask), -EOPNOTSUPP);
	stays(id, A);
}
END_TEST

/* The target was killed and started again: it is heard of first as one that is down, or as another life of it. */
static void lost_its_target(int ask)
{
	int rc = world_answer(ask);

	ck_assert_msg(rc == -EIO || rc == -EHOSTUNREACH, "%d: %s", rc, world_text(ask));
}

/* Each daemon is killed at each step: stores continue, and the client is told. */
START_TEST(killed_while_it_is_closed)
{
	static const struct {
		ramp_node_t node;
		uint32_t point;
	} steps[] = {
		{A, POINT(AT_AHEAD, 0)},
		{A, POINT(AT_REVOKE, 0)},
		{A, POINT(AT_CLOSE, 0)},
		{A, POINT(AT_LAST, 0)},
		{A, 0},
		{B, 0},
	};
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	int ask;

	world_hold(A, id);
	world_arm(steps[_i].node, steps[_i].point, DO_KILL, 0, 1);
	ask = world_connect(A, id, B, SESSION_WRITES_CLOSED, 0);
	if (steps[_i].point) {
		world_wait_dead(A);
	} else {
		eventually(waits_at(ask, SESSION_ALL_READ));
		world_kill(steps[_i].node);
		world_wait_peers(steps[_i].node == A ? B : A, NODES - 2);
	}
	world_start(steps[_i].node);
	if (steps[_i].node == B)
		lost_its_target(ask);
	eventually(!world_reserved(B));
	atomic_store(&world->watches, 0);
	is_open(id);
}
END_TEST

/* It is read ahead and not closed, or closed and not all is read. */
START_TEST(killed_before_all_is_read)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);
	ramp_node_t node = _i & 1 ? A : B;
	int ask;

	world_hold(A, id);
	ask = world_connect(A, id, B, SESSION_READ_AHEAD, 0);
	eventually(waits_at(ask, SESSION_READ_AHEAD));
	if (_i & 2) {
		atomic_store(&world->pull_stopped, true);
		world_go(A, ask, SESSION_WRITES_CLOSED, 0);
		eventually(waits_at(ask, SESSION_WRITES_CLOSED));
		ck_assert(world_program(A, id).closed);
	}
	world_kill(node);
	world_wait_peers(node == A ? B : A, NODES - 2);
	atomic_store(&world->pull_stopped, false);
	world_start(node);
	if (node == B)
		lost_its_target(ask);
	else
		atomic_store(&world->watches, 0); /* of the process that was killed */
	eventually(!world_reserved(B));
	is_open(id);
}
END_TEST

/* Nothing is given, or the target has not recorded it: stores continue at the source. */
START_TEST(killed_as_it_goes_over_closed)
{
	static const struct {
		ramp_node_t node;
		uint32_t point;
	} steps[] = {
		{A, POINT(AT_PROPOSE, META_PREPARE)},
		{A, POINT(AT_RECORD, RECORD_GIVEN)},
		{B, POINT(AT_RECORD, RECORD_TAKEN)},
	};
	int ask;
	ramp_segment_t id = closed_at(true, &ask);

	world_arm(steps[_i].node, steps[_i].point, DO_KILL, 0, 1);
	world_go(A, ask, SESSION_TAKEN, 0);
	world_wait_dead(steps[_i].node);
	if (steps[_i].node == A)
		atomic_store(&world->watches, 0); /* of the process that was killed */
	world_start(steps[_i].node);
	eventually(!world_reserved(B));
	is_open(id);
}
END_TEST

/* The row changes while it is closed: the hand-over goes by the new one. */
START_TEST(renamed_while_it_is_closed)
{
	int ask;
	ramp_segment_t id = closed_at(true, &ask);

	world_rename(id, "z");
	usleep(100000); /* tables are behind */
	goes_over(id, ask);
}
END_TEST

START_TEST(its_source_is_unmounted_while_it_is_closed)
{
	int ask;
	ramp_segment_t id = closed_at(_i != 0, &ask);

	world_take_no_more(A);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
	ck_assert(!world_program(A, id).closed);
}
END_TEST

void add_precopy_steps_stories(Suite *suite)
{
	TCase *tc = precopy_story(suite, "precopy.steps");

	tcase_add_loop_test(tc, rounds_before_it_is_held, 0, 2);
	tcase_add_test(tc, the_watch_ends_with_it);
	tcase_add_loop_test(tc, closed_to_stores, 0, 2);
	tcase_add_loop_test(tc, read_ahead, 0, 3);
	tcase_add_test(tc, handed_over_before_all_is_read);
	tcase_add_loop_test(tc, opened_again_by_its_client, 0, 3);
	tcase_add_test(tc, closed_for_too_long);
	tcase_add_loop_test(tc, not_closed, 0, 4);
	tcase_add_loop_test(tc, killed_while_it_is_closed, 0, 6);
	tcase_add_loop_test(tc, killed_before_all_is_read, 0, 4);
	tcase_add_loop_test(tc, killed_as_it_goes_over_closed, 0, 3);
	tcase_add_test(tc, renamed_while_it_is_closed);
	tcase_add_loop_test(tc, its_source_is_unmounted_while_it_is_closed, 0, 2);
	tcase_add_loop_test(tc, its_target_was_killed, 0, 2);
	tcase_add_loop_test(tc, its_target_is_down, 0, 2);
}

void add_steps_stories(Suite *suite)
{
	TCase *tc = story(suite, "steps");

	tcase_add_loop_test(tc, in_steps, 0, 2);
	tcase_add_test(tc, answered_when_it_is_taken);
	tcase_add_loop_test(tc, moved_on_before_its_arrival_is_committed, 0, 4);
	tcase_add_loop_test(tc, moved_on_by_a_name_that_it_has_no_more, 0, 2);
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
	tcase_add_loop_test(tc, not_closed_in_another_mode, 0, 4);
}
