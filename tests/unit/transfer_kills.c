/*
 * Stories of transfers in which daemons are killed at every step, or machines die, or both at once;
 * and of the state that they leave to the other nodes.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transfer_stories.h"
#include "transport/proto.h"

/* ---- kill -9 at every step (R4, R5, R8) ------------------------------------------------------ */

enum pulled { NONE, COPIES, ALL };

static const struct step {
	const char *name;
	ramp_node_t node;
	uint32_t point;
	int owner;	   /* the owner in the end; 0: either */
	enum pulled after; /* which moves have pulled pages by then */
} steps[] = {
	{"S connects", A, POINT(AT_SEND, PROTO_CONNECT), A, NONE},
	{"S proposes prepare", A, POINT(AT_PROPOSE, META_PREPARE), A, NONE},
	{"S has prepare committed", A, POINT(AFTER_PROPOSE, META_PREPARE), A, NONE},
	{"S revokes", A, POINT(AT_REVOKE, 0), A, NONE},
	{"S records GIVEN", A, POINT(AT_RECORD, RECORD_GIVEN), A, COPIES},
	{"S has recorded GIVEN", A, POINT(AFTER_RECORD, RECORD_GIVEN), B, COPIES},
	{"S sends TRANSFER", A, POINT(AT_SEND, PROTO_TRANSFER), B, COPIES},
	{"S removes the file", A, POINT(AT_REMOVE, 0), B, ALL},
	{"S has removed the file", A, POINT(AFTER_REMOVE, 0), B, ALL},
	{"T makes room", B, POINT(AT_RESERVE, 0), 0, NONE}, /* CONNECT is repeated */
	{"T accepts", B, POINT(AT_SEND, PROTO_ACCEPT), 0, NONE},
	{"T records TAKEN", B, POINT(AT_RECORD, RECORD_TAKEN), A, COPIES},
	{"T has recorded TAKEN", B, POINT(AFTER_RECORD, RECORD_TAKEN), B, COPIES},
	{"T answers TAKEN", B, POINT(AT_SEND, PROTO_TAKEN), B, COPIES},
	{"T proposes taken", B, POINT(AT_PROPOSE, META_TAKEN), B, COPIES},
	{"T has taken committed", B, POINT(AFTER_PROPOSE, META_TAKEN), B, COPIES},
	{"T has half of the pages", B, POINT(AT_PULL, 0), B, ALL},
	{"T proposes settled", B, POINT(AT_PROPOSE, META_SETTLED), B, ALL},
	{"T has settled committed", B, POINT(AFTER_PROPOSE, META_SETTLED), B, ALL},
	{"T records OWNED", B, POINT(AT_RECORD, RECORD_OWNED), B, ALL},
	{"T has recorded OWNED", B, POINT(AFTER_RECORD, RECORD_OWNED), B, ALL},
	{"T says LISTED", B, POINT(AT_SEND, PROTO_LISTED), B, COPIES},
	{"T says CLOSE", B, POINT(AT_SEND, PROTO_CLOSE), B, ALL},
	/* Mode copy, in which T has half of the pages first. */
	{"S sends KEYS", A, POINT(AT_SEND, PROTO_KEYS), A, NONE},
	{"T says COPIED", B, POINT(AT_SEND, PROTO_COPIED), A, COPIES},
	/* Mode precopy. */
	{"S watches stores", A, POINT(AT_WATCH, 0), A, NONE},
	{"S asks for a round", A, POINT(AT_SEND, PROTO_ROUND), A, NONE},
	{"T has read a round", B, POINT(AT_SEND, PROTO_ROUND_READ), A, COPIES},
	{"S looks for stores", A, POINT(AT_LOOK, 0), A, COPIES},
	{"S looks for the last stores", A, POINT(AT_LAST, 0), A, COPIES},
	{"S says what is left", A, POINT(AT_SEND, PROTO_STORED), A, COPIES},
};
#define N_PRECOPY_STEPS 6
#define N_COPY_STEPS	2
#define N_STEPS		((int)(sizeof(steps) / sizeof(steps[0])) - N_COPY_STEPS - N_PRECOPY_STEPS)

static bool by_precopy(void)
{
	return atomic_load(&world->mode) == TRANSFER_PRECOPY;
}

static bool has_pulled(const struct step *step)
{
	return step->after == ALL || by_precopy() ||
	       (step->after == COPIES && atomic_load(&world->mode) == TRANSFER_COPY);
}

/* The owner in the end. */
static bool ends_well(const struct step *step, ramp_segment_t id)
{
	int owner = step->owner;

	if (atomic_load(&world->mode) != TRANSFER_LAZY && step->point == POINT(AT_PULL, 0))
		owner = A;
	/* The next daemon of S can't say what was stored into, and T, which has read ahead, refuses. */
	if (by_precopy() && step->point == POINT(AFTER_RECORD, RECORD_GIVEN))
		owner = A;
	if (by_precopy() && step->point == POINT(AT_SEND, PROTO_TRANSFER))
		owner = 0;
	return !owner || world_owner(id) == (ramp_node_t)owner;
}

START_TEST(killed_and_started_again)
{
	const struct step *step = &steps[_i];
	ramp_segment_t id = world_segment(A, "x", 200, 0);

	world_hold(A, id);
	world_hold(B, id);
	world_arm(step->node, step->point, DO_KILL, 0, 1);
	world_ask_dead(A, id, B, step->node);
	world_start(step->node);
	world_rest(id);
	ck_assert_msg(ends_well(step, id), "%s: it is at %u", step->name, world_owner(id));
	/* And it can be moved again. */
	ck_assert_int_eq(world_move(C, id, C), 0);
	world_rest(id);
}
END_TEST

/* S dies when some of a batch are given, and others wait for their windows. */
START_TEST(killed_between_the_windows_of_a_batch)
{
	enum { MANY = 6 };
	static const uint32_t points[] = {POINT(AT_REVOKE, 0), POINT(AT_RECORD, RECORD_GIVEN),
					  POINT(AFTER_RECORD, RECORD_GIVEN),
					  POINT(AT_SEND, PROTO_TRANSFER)};
	ramp_segment_t ids[MANY];
	int asks[MANY];

	world_ask_many(A, B, MANY, ids, asks);
	world_arm(A, points[_i], DO_KILL, 2, 1);
	atomic_store(&world->hold_revoke, false);
	world_wait_dead(A);
	world_start(A);
	for (int i = 0; i < MANY; i++) {
		world_rest(ids[i]);
		ck_assert_int_eq(world_move(C, ids[i], C), 0);
		world_rest(ids[i]);
	}
}
END_TEST

/* One daemon is killed at a step, and the other one right after it. */
START_TEST(both_are_killed)
{
	const struct step *step = &steps[_i];
	ramp_node_t other = step->node == A ? B : A;
	ramp_segment_t id = world_segment(A, "x", 200, 0);

	world_hold(A, id);
	world_hold(B, id);
	world_arm(step->node, step->point, DO_KILL, 0, 1);
	world_ask_dead(A, id, B, step->node);
	world_kill(other);
	world_start(step->node);
	world_start(other);
	world_rest(id);
	ck_assert_int_eq(world_move(C, id, C), 0);
	world_rest(id);
}
END_TEST

/* The machine fails, not the daemon alone: record and bytes are gone. */
START_TEST(the_other_end_reboots)
{
	const struct step *step = &steps[_i];
	ramp_node_t other = step->node == A ? B : A;
	ramp_segment_t id = world_segment(A, "x", 200, 0);
	struct segment_row row;

	world_hold(A, id);
	atomic_store(&world->pull_stopped, !has_pulled(step));
	world_arm(step->node, step->point, DO_KILL, 0, 1);
	world_ask_dead(A, id, B, step->node);
	world_reboot(other);
	world_start(step->node);
	atomic_store(&world->pull_stopped, false);
	eventually((row = world_row(id)).phase ==
		   SEGMENT_STABLE); /* decided, wherever its bytes are */
	if (world_rolled_back(A, id))
		ck_assert_int_eq(world_reclaim(A, id), 0);
	usleep(50000);
	ck_assert_uint_eq(world->double_access, 0);
	/* Where the newest bytes were on the machine that is up, they are still there. */
	if (row.node == A && other == B)
		world_rest(id);
}
END_TEST

/* ---- the state that a killed daemon leaves --------------------------------------------------- */

/* The source's next daemon can't grant reads of its pages at first (R8). */
START_TEST(a_grant_fails_after_a_restart)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);

	if (_i) { /* killed in GIVEN, before TRANSFER went out */
		world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
		world_ask_dead(A, id, B, A);
	} else {
		atomic_store(&world->pull_stopped, true);
		ck_assert_int_eq(world_move(A, id, B), 0);
		world_kill(A);
	}
	world_arm(A, POINT(AT_GRANT, 0), DO_DROP, 0, 3);
	world_start(A);
	atomic_store(&world->pull_stopped, false);
	world_rest(id);
	ck_assert_uint_eq(world_owner(id), B);
	ck_assert_uint_ge(world->fault[A].hits, 4);
}
END_TEST

/* T is killed when it has recorded TAKEN and its programs do not have the segment yet: they attach
   to the next daemon, and have it when mv returns. The worker that waits for them has normal
   priority, and leaves them the processors. */
START_TEST(programs_come_back_before_mv_returns)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);
	int ask;

	world_hold(B, id);
	world_arm(B, POINT(AFTER_RECORD, RECORD_TAKEN), DO_KILL, 0, 1);
	ask = world_ask(A, id, B, 0, false);
	world_wait_dead(B);
	atomic_store(&world->sessions_away, true);
	world_start(B);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert(world_program(B, id).access);
	ck_assert_uint_eq(atomic_load(&world->hasty_waits), 0);
	world_rest(id);
}
END_TEST

/* Its pages are wanted only by a request to move it on, before its new daemon has begun to pull. */
START_TEST(asked_to_move_on_before_the_pull_begins_again)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);
	int ask;

	atomic_store(&world->mode, TRANSFER_DEMAND);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_kill(B);
	atomic_store(&world->mode, TRANSFER_LAZY);
	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_BEGIN, 0), DO_DELAY, 0, 1);
	world_start(B);
	eventually(atomic_load(&world->fault[B].hits));
	ask = world_ask(B, id, C, 0, false);
	usleep(100000);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	world_rest(id);
	ck_assert_uint_eq(world_owner(id), C);
}
END_TEST

/* It is unlinked, pulled and settled, so its row is gone; T is killed before its record says so.
   Its next daemon reads the tables before the pages, and a program there still has it open. */
START_TEST(a_row_that_went_with_settled_takes_nothing_away)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	eventually(world_row(id).phase == SEGMENT_PULLING);
	world_unlink(id);
	world_arm(B, POINT(AFTER_PROPOSE, META_SETTLED), DO_KILL, 0, 1);
	atomic_store(&world->pull_stopped, false);
	world_wait_dead(B);
	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_END, 0), DO_DELAY, 0, 1);
	world_start(B);
	eventually(atomic_load(&world->fault[B].hits));
	usleep(300000);
	ck_assert(world_has_file(B, id));
	atomic_store(&world->hold, false);
	world_rest_lost(id);
	ck_assert(world_has_file(B, id)); /* until no program has it open: rampfs/mount */
}
END_TEST

/* The source is killed before prepare is committed: no TRANSFER comes for the reservation, and its
   room is free long before its time-out. */
START_TEST(a_reservation_goes_with_its_source)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);

	if (_i) /* while the target makes room */
		world_hold_reservation(B);
	else
		world_arm(A, POINT(AT_PROPOSE, META_PREPARE), DO_KILL, 0, 1);
	world_ask(A, id, B, 0, false);
	if (_i) {
		world_wait_reservation(B);
		world_kill(A);
		world_wait_peers(B, NODES - 2);
		atomic_store(&world->hold, false);
	} else {
		world_wait_dead(A);
	}
	eventually(!world_reserved(B) && !world_has_file(B, id));
	world_start(A);
	world_rest(id);
	ck_assert_uint_eq(world_owner(id), A);
}
END_TEST

/* Prepare is committed, so the source may have recorded GIVEN: the reservation waits for its
   daemon. */
START_TEST(a_prepared_reservation_waits_for_its_source)
{
	ramp_segment_t id = world_segment(A, "x", 200, 0);

	world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
	world_ask_dead(A, id, B, A);
	world_wait_peers(B, NODES - 2);
	ck_assert(world_reserved(B));
	world_start(A);
	world_rest(id);
	ck_assert_uint_eq(world_owner(id), B);
}
END_TEST

/* ---- proofs ---------------------------------------------------------------------------------- */

/* T may have served, then its machine died: S has the bytes of the freeze, and a user must accept
   that. */
START_TEST(rolled_back_until_reclaimed)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	world_hold(A, id);
	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_reboot(B);
	eventually(world_rolled_back(A, id));
	ck_assert(!world_program(A, id).access);
	ck_assert_int_eq(world_move(A, id, C), -EIO);
	/* It is still rolled back after a restart. */
	world_kill(A);
	world_start(A);
	eventually(world_rolled_back(A, id));
	ck_assert_int_eq(world_reclaim(C, id), -EREMOTE);
	usleep(50000);
	world_arm(A, POINT(AT_RECORD, RECORD_OWNED), DO_DELAY, 0, 1);
	ck_assert_int_eq(world_reclaim(A, id), 0);
	ck_assert(!world_rolled_back(A, id)); /* the answer comes only then */
	ck_assert_int_eq(world_reclaim(A, id), -EINVAL);
	atomic_store(&world->pull_stopped, false);
	stays(id, A);
}
END_TEST

static void *let_go(void *arg)
{
	(void)arg;
	usleep(300000);
	atomic_store(&world->hold, false);
	return NULL;
}

/* S's daemon has just started and found it GIVEN: it is rolled back all the same. */
START_TEST(reclaimed_right_after_a_restart)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	pthread_t thread;

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_reboot(B);
	eventually(world_rolled_back(A, id));
	world_kill(A);
	atomic_store(&world->hold, true);
	world_arm(A, POINT(AT_GRANT, 0), DO_DELAY, 0, 1);
	world_start(A);
	pthread_create(&thread, NULL, let_go, NULL);
	ck_assert_int_eq(world_reclaim(A, id), 0);
	pthread_join(thread, NULL);
	atomic_store(&world->pull_stopped, false);
	stays(id, A);
	ck_assert_int_eq(world_reclaim(A, id), -EINVAL);
}
END_TEST

/* S's machine dies when T has half: the pages that were not pulled are lost, and shown as lost. */
START_TEST(the_source_reboots_while_it_is_pulled)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_reboot(A);
	world_rest_lost(id);
	ck_assert_uint_eq(world_owner(id), B);
}
END_TEST

/* Lost pages are still lost when the segment comes back to a daemon that found it GIVEN. */
START_TEST(refused_with_lost_pages_after_a_restart)
{
	ramp_segment_t id = world_segment(B, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(B, id, A), 0);
	world_reboot(B);
	world_rest_lost(id);
	world_arm(A, POINT(AFTER_RECORD, RECORD_GIVEN), DO_KILL, 0, 1);
	world_ask_dead(A, id, C, A);
	world_kill(C);
	world_start(C);
	world_start(A);
	world_rest_lost(id);
	ck_assert_uint_eq(world_owner(id), A);
	ck_assert_uint_ge(atomic_load(&world->lost_watched), 1);
}
END_TEST

/* A silent target proves nothing; the operator's fence does. */
START_TEST(fenced)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	world_hold(A, id);
	world_arm(B, POINT(AFTER_RECORD, RECORD_TAKEN), DO_KILL, 0, 1);
	world_ask_dead(A, id, B, B);
	usleep(1500000);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	ck_assert(!world_program(A, id).access);
	world_fence(B);
	eventually(world_rolled_back(A, id));
	ck_assert_uint_eq(world_owner(id), A);
	/* The fenced node is back: it takes no part, and drops the segment that it took. */
	world_start(B);
	eventually(!world_has_file(B, id));
	ck_assert_int_eq(world_move(A, id, B), -EIO);
}
END_TEST

/* ---- a life without metadata ------------------------------------------------------------------ */

static void start_by_copy(ramp_node_t node)
{
	atomic_store(&world->by_copy[node], true);
	world_start(node);
	atomic_store(&world->by_copy[node], false);
	world_wait_peers(node, NODES - 1);
	usleep(500000); /* for all that must not happen */
}

/* The copy shows that T, which may have served, is over, and that the segment is S's again. */
START_TEST(given_stays_frozen_without_metadata)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	world_hold(A, id);
	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_reboot(B);
	eventually(world_rolled_back(A, id));
	world_kill(A);
	start_by_copy(A);
	ck_assert(!world_program(A, id).access);
	world_kill(A);
	world_start(A);
	eventually(world_rolled_back(A, id));
	ck_assert_int_eq(world_reclaim(A, id), 0);
	atomic_store(&world->pull_stopped, false);
	stays(id, A);
}
END_TEST

/* The copy shows that the source is over. */
START_TEST(lost_never_follows_from_a_copy)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_kill(B);
	world_reboot(A);
	start_by_copy(B);
	ck_assert_uint_eq(atomic_load(&world->sources_over), 0);
	world_kill(B);
	world_start(B);
	world_rest_lost(id);
	ck_assert_uint_ge(atomic_load(&world->sources_over), 1);
}
END_TEST

START_TEST(nothing_comes_to_a_node_without_metadata)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	int ask;

	world_kill(B);
	start_by_copy(B);
	ask = world_ask(A, id, B, 10000, true);
	ck_assert_int_eq(world_answer(ask), -EROFS);
	ck_assert_ptr_nonnull(strstr(world_text(ask), "it has no metadata"));
	stays(id, A);
}
END_TEST

/* ---- an orderly end -------------------------------------------------------------------------- */

START_TEST(ended_in_the_middle)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_close_nodes();
	world_start(A);
	world_start(B);
	world_start(C);
	atomic_store(&world->pull_stopped, false);
	stays(id, B);
}
END_TEST

/* ---- everything at once ---------------------------------------------------------------------- */

/* Messages are lost, doubled and late, daemons are killed, segments are moved around; in the second life of it in
   modes at random. */
START_TEST(chaos)
{
	static const int modes[] = {TRANSFER_LAZY, TRANSFER_COPY, TRANSFER_PRECOPY, TRANSFER_AUTO};
	ramp_segment_t ids[8];
	int asks[8];
	char name[8] = "a";
	double until = seconds() + 12;
	unsigned rng = (unsigned)_i + 1, moves = 0, moved = 0;

	for (int i = 0; i < 8; i++) {
		name[0] = (char)('a' + i);
		ids[i] = world_segment(1 + (ramp_node_t)i % NODES, name, 100 + 100 * (uint64_t)i,
				       i % 3 ? 0 : 5);
		for (ramp_node_t n = 1; n <= NODES; n++)
			world_hold(n, ids[i]);
		asks[i] = -1;
	}
	atomic_store(&world->chaos_per_mille, 150);
	while (seconds() < until) {
		int i = rand_r(&rng) % 8;

		if (asks[i] < 0 || atomic_load(&world->answers[asks[i]].done)) {
			moved += asks[i] >= 0 && world->answers[asks[i]].result == 0;
			if (_i)
				atomic_store(&world->mode, modes[rand_r(&rng) % 4]);
			asks[i] = world_ask(1 + (ramp_node_t)rand_r(&rng) % NODES, ids[i],
					    1 + (ramp_node_t)rand_r(&rng) % NODES, 2000, false);
			moves++;
		}
		if (rand_r(&rng) % 100 == 0) {
			ramp_node_t n = 1 + (ramp_node_t)rand_r(&rng) % NODES;

			world_kill(n);
			for (int k = 0; k < 8; k++)
				asks[k] = -1;
			world_start(n);
		}
		usleep(10000);
	}
	atomic_store(&world->chaos_per_mille, 0);
	for (int i = 0; i < 8; i++)
		world_rest(ids[i]);
	ck_assert_msg(moved > 20, "only %u of %u moves went through", moved, moves);
}
END_TEST

void add_kill_stories(Suite *suite)
{
	TCase *tc = story(suite, "kills");

	tcase_add_loop_test(tc, killed_and_started_again, 0, N_STEPS);
	tcase_add_loop_test(tc, killed_between_the_windows_of_a_batch, 0, 4);
	tcase_add_loop_test(tc, both_are_killed, 0, N_STEPS);
	tcase_add_loop_test(tc, the_other_end_reboots, 0, N_STEPS);
	tc = story(suite, "leftovers");
	tcase_add_loop_test(tc, a_grant_fails_after_a_restart, 0, 2);
	tcase_add_test(tc, programs_come_back_before_mv_returns);
	tcase_add_test(tc, asked_to_move_on_before_the_pull_begins_again);
	tcase_add_test(tc, a_row_that_went_with_settled_takes_nothing_away);
	tcase_add_loop_test(tc, a_reservation_goes_with_its_source, 0, 2);
	tcase_add_test(tc, a_prepared_reservation_waits_for_its_source);
	tc = story(suite, "proofs");
	tcase_add_test(tc, rolled_back_until_reclaimed);
	tcase_add_test(tc, reclaimed_right_after_a_restart);
	tcase_add_test(tc, refused_with_lost_pages_after_a_restart);
	tcase_add_test(tc, the_source_reboots_while_it_is_pulled);
	tcase_add_test(tc, fenced);
	tcase_add_test(tc, given_stays_frozen_without_metadata);
	tcase_add_test(tc, lost_never_follows_from_a_copy);
	tcase_add_test(tc, nothing_comes_to_a_node_without_metadata);
	tcase_add_test(tc, ended_in_the_middle);
	tc = story(suite, "chaos");
	tcase_add_loop_test(tc, chaos, 0, 2);
}

void add_copy_kill_stories(Suite *suite)
{
	TCase *tc = copy_story(suite, "copy.kills");
	tcase_add_loop_test(tc, killed_and_started_again, 0, N_STEPS + N_COPY_STEPS);
	tcase_add_loop_test(tc, both_are_killed, 0, N_STEPS + N_COPY_STEPS);
	tcase_add_loop_test(tc, the_other_end_reboots, 0, N_STEPS + N_COPY_STEPS);
}

/* Of a segment that is so large that a third and a fourth round are worth it. */
START_TEST(killed_in_a_later_round)
{
	static const struct step late[] = {
		{"S asks for round 3", A, POINT(AT_SEND, PROTO_ROUND), A, NONE},
		{"T has read round 3", B, POINT(AT_SEND, PROTO_ROUND_READ), A, NONE},
		{"S looks after round 2", A, POINT(AT_LOOK, 0), A, NONE},
	};
	const struct step *step = &late[_i];
	ramp_segment_t id = world_segment(A, "x", 16384, 0);

	world_hold(A, id);
	world_hold(B, id);
	world_arm(step->node, step->point, DO_KILL, _i == 2 ? 2 : 3, 1);
	world_ask_dead(A, id, B, step->node);
	ck_assert_uint_ge(world->looks[0], 1); /* a ROUND may have been repeated */
	world_start(step->node);
	stays(id, A);
	ck_assert_int_eq(world_move(C, id, B), 0);
	world_rest(id);
}
END_TEST

static const struct step weighed[] = {
	{"S begins to weigh it", A, POINT(AT_WATCH, 0), A, NONE},
	{"S has weighed it", A, POINT(AT_LOOK, 0), A, NONE},
};

/* In mode auto, before it is decided. */
START_TEST(killed_while_it_is_weighed)
{
	ramp_segment_t id = world_segment(A, "x", 1200, 0);

	atomic_store(&world->mode, TRANSFER_AUTO);
	world_hold(A, id);
	world_arm(A, weighed[_i].point, DO_KILL, 0, 1);
	world_ask_dead(A, id, B, A);
	world_start(A);
	stays(id, A);
	ck_assert_int_eq(world_move(C, id, B), 0);
	world_rest(id);
}
END_TEST

void add_precopy_kill_stories(Suite *suite)
{
	TCase *tc = precopy_story(suite, "precopy.kills");
	int from = N_STEPS + N_COPY_STEPS;

	tcase_add_loop_test(tc, killed_and_started_again, 0, N_STEPS);
	tcase_add_loop_test(tc, killed_and_started_again, from, from + N_PRECOPY_STEPS);
	tcase_add_loop_test(tc, both_are_killed, 0, N_STEPS);
	tcase_add_loop_test(tc, both_are_killed, from, from + N_PRECOPY_STEPS);
	tcase_add_loop_test(tc, the_other_end_reboots, 0, N_STEPS);
	tcase_add_loop_test(tc, the_other_end_reboots, from, from + N_PRECOPY_STEPS);
	tc = precopy_story(suite, "precopy.late");
	tcase_add_loop_test(tc, killed_in_a_later_round, 0, 3);
	tcase_add_loop_test(tc, killed_while_it_is_weighed, 0, 2);
}
