/*
 * Stories of requests to move a segment: cancelled, repeated, answered by a daemon that has started
 * since.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "transfer_stories.h"
#include "transport/proto.h"

static void is_not_answered(int ask)
{
	usleep(300000);
	ck_assert_msg(!atomic_load(&world->answers[ask].done), "answered: %d %s",
		      world->answers[ask].result, world_text(ask));
}

/* ---- asked ----------------------------------------------------------------------------------- */

START_TEST(asked_from_any_node)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	ck_assert_int_eq(world_move(C, id, B), 0); /* C is neither source nor target */
	ck_assert_uint_eq(world_owner(id), B);
	ck_assert_int_eq(world_move(A, id, A), 0); /* the target asks */
	ck_assert_uint_eq(world_owner(id), A);
	ck_assert_int_eq(world_move(B, id, A), 0); /* it is there already */
	world_rest(id);
}
END_TEST

START_TEST(wait_is_until_stable)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	int ask;

	atomic_store(&world->pull_stopped, true);
	ask = world_ask(C, id, B, 0, true);
	eventually(world_row(id).phase == SEGMENT_PULLING);
	usleep(300000);
	ck_assert(!atomic_load(&world->answers[ask].done));
	atomic_store(&world->pull_stopped, false);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	world_rest(id);
}
END_TEST

START_TEST(two_movers)
{
	ramp_segment_t id = world_segment(A, "x", 1000, 0);
	int one, two, rc_one, rc_two;

	/* Else the first may be done before the second begins, which would then move it on. */
	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_RESERVE, 0), DO_DELAY, 0, 1);
	world_arm(C, POINT(AT_RESERVE, 0), DO_DELAY, 0, 1);
	one = world_ask(A, id, B, 10000, false);
	two = world_ask(C, id, C, 10000, false);
	eventually(atomic_load(&world->answers[one].done) ||
		   atomic_load(&world->answers[two].done));
	atomic_store(&world->hold, false);
	rc_one = world_answer(one);
	rc_two = world_answer(two);
	ck_assert_msg((rc_one == 0 && rc_two == -EBUSY) || (rc_one == -EBUSY && rc_two == 0),
		      "%d and %d", rc_one, rc_two);
	stays(id, rc_one ? C : B);
}
END_TEST

/* An earlier move was given up, which the asking node's tables do not show yet. */
START_TEST(moved_when_another_move_is_over)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	atomic_store(&world->hold_revoke, true);
	world_arm(A, POINT(AT_REVOKE, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 0, false);
	eventually(world_row(id).phase == SEGMENT_MOVING);
	usleep(100000);
	atomic_store(&world->behind_ms[C], 60000);
	world_cancel(A, ask);
	usleep(100000);
	atomic_store(&world->hold_revoke, false);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	world_rest(id);
	ask = world_ask(C, id, C, 10000, false);
	usleep(100000);
	atomic_store(&world->behind_ms[C], 0);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, C);
}
END_TEST

/* The row was read before another move, since which its name is in another directory. */
START_TEST(a_rename_does_not_follow_what_was_moved)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	atomic_store(&world->from, B);
	ck_assert_int_eq(world_move(C, id, C), -ENOENT);
	ck_assert_int_eq(world_move(A, id, C), -ENOENT);
	stays(id, A);
	atomic_store(&world->from, A);
	ck_assert_int_eq(world_move(C, id, C), 0);
	atomic_store(&world->from, 0);
	stays(id, C);
}
END_TEST

static int ask_named(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, const char *name)
{
	int ask;

	snprintf(world->from_name, sizeof(world->from_name), "%s", name);
	ask = world_ask(node, id, dst, 10000, false);
	world->from_name[0] = 0;
	return ask;
}

/* Both renames succeeded: neither may undo the other. */
static void is_renamed(int ask, ramp_segment_t id, ramp_node_t node)
{
	ck_assert_int_eq(world_answer(ask), -ENOENT);
	ck_assert_str_eq(world_text(ask), "it has another name by now");
	stays(id, node);
	ck_assert_str_eq(world_row(id).name, "z");
}

START_TEST(a_rename_is_not_undone)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	ramp_node_t asker = _i ? C : A;

	world_rename(id, "z");
	usleep(50000);
	is_renamed(ask_named(asker, id, B, "x"), id, A);
}
END_TEST

START_TEST(a_rename_while_it_is_pulled_is_not_undone)
{
	ramp_segment_t id = world_segment(B, "x", 100, 0);
	int ask;

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(B, id, A), 0);
	ask = ask_named(_i ? C : A, id, B, "x");
	is_not_answered(ask);
	world_rename(id, "z");
	atomic_store(&world->pull_stopped, false);
	is_renamed(ask, id, A);
}
END_TEST

START_TEST(a_rename_before_the_prepare_is_not_undone)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	world_hold_reservation(B);
	ask = ask_named(_i ? C : A, id, B, "x");
	world_wait_reservation(B);
	world_rename(id, "z");
	usleep(50000);
	atomic_store(&world->hold, false);
	is_renamed(ask, id, A);
}
END_TEST

/* The asking node's tables still show the old name. */
START_TEST(a_rename_that_the_owner_knows_is_not_undone)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	atomic_store(&world->behind_ms[C], 60000);
	world_rename(id, "z");
	usleep(50000);
	ask = ask_named(C, id, B, "x");
	is_not_answered(ask);
	atomic_store(&world->behind_ms[C], 0);
	is_renamed(ask, id, A);
}
END_TEST

/* Two requests are at the owner while it can't begin either; one begins before it looks at the
   other. */
START_TEST(two_renames_of_what_can_not_be_moved_yet)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int one, two, rc_one, rc_two, rest;

	atomic_store(&world->from, A);
	atomic_store(&world->no_leader[A], true);
	one = world_ask(C, id, B, 10000, false);
	usleep(20000 + 15000 * (unsigned)_i);
	two = world_ask(B, id, C, 10000, false);
	usleep(200000);
	atomic_store(&world->no_leader[A], false);
	rc_one = world_answer(one);
	rc_two = world_answer(two);
	rest = rc_one + rc_two;
	ck_assert_msg(rc_one * rc_two == 0 && (rest == -EBUSY || rest == -ENOENT), "%d and %d",
		      rc_one, rc_two);
	world_rest(id);
	stays(id, rc_one ? C : B);
}
END_TEST

/* A move that succeeded is answered so, wherever the segment is now. */
START_TEST(moved_on_before_it_is_answered)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	atomic_store(&world->from, A);
	world_arm(A, POINT(AT_SEND, PROTO_ANSWER), DO_DROP, 0, 1);
	ask = world_ask(C, id, B, 10000, false);
	eventually(atomic_load(&world->fault[A].hits));
	atomic_store(&world->from, 0);
	ck_assert_int_eq(world_move(B, id, C), 0);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, C);
}
END_TEST

START_TEST(still_being_pulled)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	int ask, patient;

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	ask = world_ask(B, id, C, 800, false);
	ck_assert_int_eq(world_answer(ask), -EBUSY);
	ck_assert_str_eq(world_text(ask), "still being pulled, 0 %");
	patient = world_ask(A, id, C, 0, false);
	usleep(100000);
	atomic_store(&world->pull_stopped, false);
	ck_assert_int_eq(world_answer(patient), 0);
	stays(id, C);
}
END_TEST

/* The connection between owner and asking node fails and comes back while the request waits. */
START_TEST(still_being_pulled_when_they_connect_anew)
{
	ramp_segment_t id = world_segment(B, "x", 100, 0);
	int ask;

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, A), 0);
	ask = world_ask(C, id, B, 10000, false);
	is_not_answered(ask);
	world_hang_up(C, A);
	is_not_answered(ask);
	atomic_store(&world->pull_stopped, false);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

/* After mv the segment is looked for at the target, whose tables are behind all others. */
START_TEST(answered_when_the_target_shows_it)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);

	atomic_store(&world->pull_stopped, true);
	world_arm(B, POINT(AFTER_PROPOSE, META_TAKEN), DO_DELAY, 0, 1);
	ck_assert_int_eq(world_move(_i ? C : A, id, B), 0);
	ck_assert(world_shows(B, id));
	ck_assert_int_eq(world_row(id).phase, SEGMENT_PULLING);
	atomic_store(&world->pull_stopped, false);
	stays(id, B);
}
END_TEST

/* A request is repeated because its daemon died meanwhile: the answer is how the first move
   ends. */
START_TEST(asked_again_after_a_restart)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);
	ramp_node_t asker = _i ? C : A;
	int ask;

	if (_i) {
		world_hold_reservation(B);
		world_ask(C, id, B, 0, false);
		world_wait_reservation(B);
		world_kill(C);
		world_wait_peers(A, NODES - 2);
		world_start(C);
	} else {
		world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
		world_ask_dead(A, id, B, A);
		world_arm(A, POINT(AT_SEND, PROTO_TRANSFER), DO_DROP, 0, 1000);
		world_start(A);
	}
	ask = world_ask(asker, id, B, 0, false);
	for (int ms = 0; ms < 300 && !atomic_load(&world->answers[ask].done); ms++)
		usleep(1000); /* an answer now would be a refusal */
	atomic_store(&world->hold, false);
	world_arm(A, 0, 0, 0, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(world_owner(id), B);
	world_rest(id);
}
END_TEST

/* It was moved on demand, and the next request waits for every page. */
START_TEST(joined_by_who_waits_for_all_of_it)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	atomic_store(&world->mode, TRANSFER_DEMAND);
	world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
	world_ask_dead(A, id, B, A);
	world_arm(A, POINT(AT_SEND, PROTO_TRANSFER), DO_DROP, 0, 1000);
	world_start(A);
	ask = world_ask(A, id, B, 0, true);
	is_not_answered(ask);
	world_arm(A, 0, 0, 0, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	stays(id, B);
}
END_TEST

/* ---- a prepare without an answer ------------------------------------------------------------- */

/* Prepare is committed, and its proposer does not know: it answers a failure, its tables behind. */
static ramp_segment_t prepared_unseen(void)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	atomic_store(&world->behind_ms[A], 60000);
	atomic_store(&world->lose_answers, 1);
	ck_assert_int_eq(world_move(A, id, B), -EROFS);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	return id;
}

/* The next attempt begins by the old tables, and learns of it when it proposes prepare. */
START_TEST(asked_again_when_a_prepare_has_come_late)
{
	ramp_segment_t id = prepared_unseen();
	int ask = world_ask(_i ? C : A, id, B, 0, false);

	eventually(world_owner(id) == B);
	atomic_store(&world->behind_ms[A], 0);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(world_failed(A), 2);
	stays(id, B);
}
END_TEST

/* Two at once: the aborted attempt blocks neither. */
START_TEST(asked_twice_when_a_prepare_has_come_late)
{
	ramp_segment_t id = prepared_unseen();
	int one, two, rc_one, rc_two;

	world_hold_reservation(B);
	one = world_ask(A, id, B, 10000, false);
	world_wait_reservation(B);
	atomic_store(&world->hold, false);
	two = world_ask(A, id, B, 10000, false);
	eventually(world_owner(id) == B);
	atomic_store(&world->behind_ms[A], 0);
	rc_one = world_answer(one);
	rc_two = world_answer(two);
	ck_assert_msg(rc_one == 0 && (rc_two == 0 || rc_two == -EBUSY), "%d and %d", rc_one,
		      rc_two);
	stays(id, B);
}
END_TEST

/* The target accepts the next attempt late: the abort does not wait for that. */
START_TEST(a_prepare_that_has_come_late_is_aborted_meanwhile)
{
	ramp_segment_t id = prepared_unseen();
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 0, false);
	world_wait_reservation(B);
	atomic_store(&world->behind_ms[A], 0);
	eventually(world_row(id).phase == SEGMENT_STABLE);
	ck_assert(!atomic_load(&world->answers[ask].done));
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

/* A cancelled request is answered so, whatever the cluster decides on its prepare. */
START_TEST(cancelled_while_a_late_prepare_is_found)
{
	ramp_segment_t id = prepared_unseen();
	int ask;

	world_arm(A, POINT(AFTER_PROPOSE, META_PREPARE), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 0, false);
	eventually(atomic_load(&world->fault[A].hits));
	usleep(50000);
	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	ck_assert_str_eq(world_text(ask), "cancelled");
	atomic_store(&world->behind_ms[A], 0);
	stays(id, A);
}
END_TEST

/* Without a quorum an attempt that is to be aborted first is not. */
START_TEST(no_quorum_for_an_abort_that_is_waited_for)
{
	ramp_segment_t id = prepared_unseen();
	int ask;

	world_arm(A, POINT(AT_PROPOSE, META_ABORT), DO_DELAY, 0, 1);
	atomic_store(&world->behind_ms[A], 0);
	eventually(atomic_load(&world->fault[A].hits));
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	ask = world_ask(A, id, B, 0, false);
	usleep(50000);
	atomic_store(&world->quorum, false);
	ck_assert_int_eq(world_answer(ask), -EROFS);
	atomic_store(&world->quorum, true);
	stays(id, A);
}
END_TEST

/* ---- cancelled ------------------------------------------------------------------------------- */

START_TEST(cancelled_in_time)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	ramp_node_t asker = _i ? C : A;
	int ask;

	world_hold_reservation(B);
	ask = world_ask(asker, id, B, 0, false);
	world_wait_reservation(B);
	world_cancel(asker, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	atomic_store(&world->hold, false);
	stays(id, A);
}
END_TEST

/* An earlier daemon of the asking node has asked, too, and died. */
START_TEST(cancelled_when_it_was_asked_again)
{
	ramp_segment_t id = world_segment(B, "x", 100, 0);
	int ask;

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, A), 0);
	is_not_answered(world_ask(C, id, B, 0, false));
	world_kill(C);
	world_wait_peers(A, NODES - 2);
	world_start(C);
	ask = world_ask(C, id, B, 0, false);
	is_not_answered(ask);
	world_cancel(C, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	atomic_store(&world->pull_stopped, false);
	world_rest(id);
	stays(id, A);
}
END_TEST

/* It is given; a cancelled request waits for every page no longer. */
START_TEST(cancelled_while_it_is_pulled)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	ramp_node_t asker = _i ? C : A;
	int ask;

	atomic_store(&world->pull_stopped, true);
	ask = world_ask(asker, id, B, 0, true);
	eventually(world_row(id).phase == SEGMENT_PULLING);
	world_cancel(asker, ask);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_PULLING);
	atomic_store(&world->pull_stopped, false);
	stays(id, B);
}
END_TEST

START_TEST(cancelled_too_late)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	world_arm(B, POINT(AT_SEND, PROTO_TAKEN), DO_DROP, 0, 3);
	world_arm(A, POINT(AT_RECORD, RECORD_GIVEN), DO_DELAY, 0, 1);
	atomic_store(&world->behind_ms[A], 400);
	ask = world_ask(A, id, B, 0, false);
	eventually(world->fault[A].hits);
	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

/* ---- the deadline comes, and the move continues ---------------------------------------------- */

static void goes_on(int ask, const char *text)
{
	ck_assert_int_eq(world_answer(ask), -EINPROGRESS);
	ck_assert_str_eq(world_text(ask), text);
}

/* A given segment can't be taken back: a request whose deadline comes, here or at a third node, is
   answered so. */
START_TEST(in_progress_when_it_is_given)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	world_arm(A, POINT(AT_SEND, PROTO_TRANSFER), DO_DROP, 0, 1000);
	ask = world_ask(_i ? C : A, id, B, 2000, false);
	ck_assert_int_eq(world_answer(ask), -EINPROGRESS);
	/* The owner's deadline is earlier, but the asking node may act on its own first. */
	if (_i == 0 || strcmp(world_text(ask), "its owner has not answered; the move may "
					       "continue by itself") != 0)
		ck_assert_str_eq(world_text(ask), "the move continues by itself");
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	world_arm(A, 0, 0, 0, 0);
	eventually(world_owner(id) == B);
	stays(id, B);
}
END_TEST

/* The target has it; the source learns that neither by a message nor from its tables. */
START_TEST(in_progress_when_it_is_taken_unheard)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	world_arm(B, POINT(AT_SEND, PROTO_TAKEN), DO_DROP, 0, 1000);
	atomic_store(&world->behind_ms[A], 60000);
	ask = world_ask(A, id, B, 2000, false);
	goes_on(ask, "the move continues by itself");
	ck_assert_uint_eq(world_owner(id), B);
	atomic_store(&world->behind_ms[A], 0);
	stays(id, B);
}
END_TEST

/* The owner's answer is lost, or the request: the asking node does not know which. */
START_TEST(in_progress_when_the_owner_does_not_answer)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	if (_i)
		world_arm(A, POINT(AT_SEND, PROTO_ANSWER), DO_DROP, 0, 1000);
	else
		world_arm(C, POINT(AT_SEND, PROTO_MIGRATE), DO_DROP, 0, 1000);
	ask = world_ask(C, id, B, 2000, false);
	goes_on(ask, "its owner has not answered; the move may continue by itself");
	stays(id, _i ? B : A);
}
END_TEST

/* It has moved, but the asking node's tables do not show that yet. */
START_TEST(in_progress_when_the_askers_tables_are_behind)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	atomic_store(&world->behind_ms[C], 60000);
	ask = world_ask(C, id, B, 2000, false);
	goes_on(ask, "it is moved, but this node's tables are behind");
	ck_assert_uint_eq(world_owner(id), B);
	atomic_store(&world->behind_ms[C], 0);
	stays(id, B);
}
END_TEST

/* ---- an owner that was killed ---------------------------------------------------------------- */

/* Kills a node when it has recorded GIVEN, by a move to B that `asker` asks for. */
static int ask_and_die_given(ramp_node_t asker, ramp_segment_t id)
{
	int ask;

	world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
	ask = world_ask(asker, id, B, 0, false);
	world_wait_dead(A);
	return ask;
}

/* CANCEL comes to the owner's next daemon, which knows no request; but the segment is given. */
START_TEST(cancelled_at_an_owner_that_was_killed_in_given)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask = ask_and_die_given(C, id);

	world_arm(C, POINT(AT_SEND, PROTO_MIGRATE), DO_DROP, 0, 1000);
	world_arm(A, POINT(AT_SEND, PROTO_TRANSFER), DO_DROP, 0, 1000);
	world_start(A);
	world_arm(C, 0, 0, 0, 0);
	world_cancel(C, ask);
	is_not_answered(ask);
	world_arm(A, 0, 0, 0, 0);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

/* The same, and the next daemon learns before the asking node that it is no longer the owner. */
START_TEST(cancelled_at_an_owner_that_is_none_any_more)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask = ask_and_die_given(C, id);

	atomic_store(&world->behind_ms[C], 2000);
	world_arm(C, POINT(AT_SEND, PROTO_MIGRATE), DO_DROP, 0, 1000);
	world_start(A);
	eventually(world_shows(B, id));
	eventually(!world_shows(A, id));
	world_arm(C, 0, 0, 0, 0);
	world_cancel(C, ask);
	ck_assert_int_eq(world_answer(ask), 0);
	atomic_store(&world->behind_ms[C], 0);
	stays(id, B);
}
END_TEST

/* The request is repeated to the next daemon, which has no quorum yet: a given segment needs no
   quorum to be waited for, and can't be cancelled. */
START_TEST(what_is_given_needs_no_quorum_to_be_waited_for)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask, cancelled;

	ask_and_die_given(A, id);
	atomic_store(&world->quorum, false);
	world_arm(A, POINT(AT_SEND, PROTO_TRANSFER), DO_DROP, 0, 1000);
	world_start(A);
	ask = world_ask(A, id, B, 0, false);
	world_cancel(A, ask);
	is_not_answered(ask);
	world_arm(A, 0, 0, 0, 0);
	atomic_store(&world->quorum, true);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
	/* A segment that is not given can be. */
	atomic_store(&world->quorum, false);
	cancelled = world_ask(B, id, A, 0, false);
	world_cancel(B, cancelled);
	ck_assert_int_eq(world_answer(cancelled), -EINTR);
	atomic_store(&world->quorum, true);
	stays(id, B);
}
END_TEST

/* The owner's next daemon takes part and gets the request before it has looked at the records. */
START_TEST(asked_before_the_records_are_looked_at)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	world_arm(B, POINT(AFTER_PROPOSE, META_SETTLED), DO_KILL, 0, 1);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_wait_dead(B);
	atomic_store(&world->hold_scan, true);
	world_start(B);
	ask = world_ask(B, id, C, 0, false);
	usleep(100000);
	atomic_store(&world->hold_scan, false);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, C);
}
END_TEST

/* It has grown too much, and another attempt is to follow when the first is aborted: that counts as
   one failed move. */
START_TEST(cancelled_between_two_attempts)
{
	ramp_segment_t id = world_segment(A, "x", 16384, 1024);
	int ask;

	atomic_store(&world->hold_revoke, true);
	world_hold(A, id);
	world_arm(A, POINT(AT_REVOKE, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 0, false);
	eventually(atomic_load(&world->fault[A].hits));
	world_fill_holes(id);
	atomic_store(&world->quorum, false);
	atomic_store(&world->hold_revoke, false);
	eventually(world_program(A, id).access);
	usleep(100000);
	world_cancel(A, ask);
	atomic_store(&world->quorum, true);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	ck_assert_uint_eq(world_failed(A), 1);
	stays(id, A);
}
END_TEST

void add_ask_stories(Suite *suite)
{
	TCase *tc = story(suite, "asks");

	tcase_add_test(tc, asked_from_any_node);
	tcase_add_test(tc, wait_is_until_stable);
	tcase_add_test(tc, two_movers);
	tcase_add_test(tc, moved_when_another_move_is_over);
	tcase_add_test(tc, a_rename_does_not_follow_what_was_moved);
	tcase_add_loop_test(tc, a_rename_is_not_undone, 0, 2);
	tcase_add_loop_test(tc, a_rename_while_it_is_pulled_is_not_undone, 0, 2);
	tcase_add_loop_test(tc, a_rename_before_the_prepare_is_not_undone, 0, 2);
	tcase_add_test(tc, a_rename_that_the_owner_knows_is_not_undone);
	tcase_add_loop_test(tc, two_renames_of_what_can_not_be_moved_yet, 0, 5);
	tcase_add_test(tc, moved_on_before_it_is_answered);
	tcase_add_test(tc, still_being_pulled);
	tcase_add_test(tc, still_being_pulled_when_they_connect_anew);
	tcase_add_test(tc, joined_by_who_waits_for_all_of_it);
	tcase_add_loop_test(tc, asked_again_when_a_prepare_has_come_late, 0, 2);
	tcase_add_test(tc, asked_twice_when_a_prepare_has_come_late);
	tcase_add_test(tc, a_prepare_that_has_come_late_is_aborted_meanwhile);
	tcase_add_test(tc, cancelled_while_a_late_prepare_is_found);
	tcase_add_test(tc, no_quorum_for_an_abort_that_is_waited_for);
	tcase_add_loop_test(tc, cancelled_in_time, 0, 2);
	tcase_add_test(tc, cancelled_when_it_was_asked_again);
	tcase_add_loop_test(tc, cancelled_while_it_is_pulled, 0, 2);
	tcase_add_test(tc, cancelled_too_late);
	tcase_add_loop_test(tc, in_progress_when_it_is_given, 0, 2);
	tcase_add_test(tc, in_progress_when_it_is_taken_unheard);
	tcase_add_loop_test(tc, in_progress_when_the_owner_does_not_answer, 0, 2);
	tcase_add_test(tc, in_progress_when_the_askers_tables_are_behind);
	tcase_add_loop_test(tc, answered_when_the_target_shows_it, 0, 2);
	tcase_add_loop_test(tc, asked_again_after_a_restart, 0, 2);
	tcase_add_test(tc, cancelled_at_an_owner_that_was_killed_in_given);
	tcase_add_test(tc, cancelled_at_an_owner_that_is_none_any_more);
	tcase_add_test(tc, what_is_given_needs_no_quorum_to_be_waited_for);
	tcase_add_test(tc, asked_before_the_records_are_looked_at);
	tcase_add_test(tc, cancelled_between_two_attempts);
}
