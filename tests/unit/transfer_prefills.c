/*
 * Stories of segments that are kept near another node (user.ramp.prefill): moves that continue such a
 * prefill, or end it; what stands in its way; and each end killed meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "transfer_stories.h"
#include "transport/proto.h"

#define PAGES 300

static bool is_state(ramp_node_t node, ramp_segment_t id, const char *state)
{
	struct transfer_prefill p;

	return strcmp(world_prefill_state(node, id, &p), state) == 0;
}

static bool waits_for(ramp_segment_t id, const char *why)
{
	struct transfer_prefill p;

	return strcmp(world_prefill_state(A, id, &p), "waiting") == 0 && strstr(p.why, why);
}

/* A segment of A's, which programs of both nodes know, with all of it at B. */
static ramp_segment_t kept_near(void)
{
	ramp_segment_t id = world_segment(A, "x", PAGES, 0);

	atomic_store(&world->mode, TRANSFER_UNSAID);
	world_hold(A, id);
	world_hold(B, id);
	world_prefill(id, B);
	eventually(is_state(A, id, "keeping"));
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	ck_assert(world_program(A, id).access);
	return id;
}

/* Nothing of it is at that node. */
static void is_free(ramp_node_t node, ramp_segment_t id)
{
	eventually(!world_has_file(node, id));
}

static void at_rest(ramp_segment_t id, ramp_node_t owner)
{
	world_prefill(id, 0);
	stays(id, owner);
}

static bool is_whole(ramp_segment_t id)
{
	return world_figures(B, id).of_target;
}

/* mv finds nearly all there: what it reads afterwards is what the last two looks have found, each one page of 14. */
START_TEST(a_move_continues_a_prefill)
{
	static const enum transfer_mode modes[] = {TRANSFER_UNSAID, TRANSFER_AUTO,
						   TRANSFER_PRECOPY};
	ramp_segment_t id = kept_near();
	struct msg_figures f;
	int ask;

	atomic_store(&world->mode, modes[_i]);
	world_arm(A, POINT(AT_SEND, PROTO_CONNECT), DO_DELAY, 0, 100);
	ask = world_ask(A, id, B, 10000, true);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_msg(strstr(world_text(ask), "user.ramp.prefill"), "said: %s", world_text(ask));
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	eventually(is_whole(id));
	f = world_figures(B, id);
	ck_assert_uint_le(f.demand_pages + f.prefetch_pages, 2 * (PAGES / 14 + 1));
	eventually(is_state(B, id, "here"));
	ck_assert(is_state(A, id, ""));
	ck_assert_uint_eq(world_failed(A), 0);
	at_rest(id, B);
}
END_TEST

/* In another mode, in steps, or to another node: the prefill ends first. The wish goes with the segment. */
START_TEST(another_move_ends_it_first)
{
	ramp_segment_t id = kept_near();
	ramp_node_t to = _i == 0 ? C : B;
	int ask;

	atomic_store(&world->mode, _i == 1 ? TRANSFER_LAZY : TRANSFER_UNSAID);
	ask = _i == 2 ? world_connect(A, id, B, SESSION_TAKEN, 0)
		      : world_ask(A, id, to, 10000, true);
	ck_assert_int_eq(world_answer(ask), 0);
	eventually(world_owner(id) == to);
	eventually(is_state(to, id, to == B ? "here" : "keeping"));
	ck_assert_uint_eq(world_failed(A), 0);
	at_rest(id, to);
}
END_TEST

/* A move that can't begin leaves it alone. */
START_TEST(a_move_to_a_node_that_is_down)
{
	ramp_segment_t id = kept_near();

	world_kill(C);
	world_wait_peers(A, 1);
	world_arm(A, POINT(AT_SEND, PROTO_CLOSE), DO_DELAY, 0, 100);
	ck_assert_int_eq(world_move(A, id, C), -EHOSTUNREACH);
	ck_assert(is_state(A, id, "keeping"));
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	world_start(C);
	at_rest(id, A);
}
END_TEST

/* Names and sizes are free meanwhile, and the same attempt continues. */
START_TEST(names_and_sizes_are_free)
{
	ramp_segment_t id = kept_near();

	world_arm(A, POINT(AT_SEND, PROTO_CONNECT), DO_DELAY, 0, 100);
	world_rename(id, "y");
	if (_i == 0)
		world_resize(id, PAGES + 100);
	else if (_i == 1)
		world_cut(id, 100, true);
	else if (_i == 2)
		world_cut(id, 100, false);
	usleep(200000); /* some rounds */
	ck_assert(is_state(A, id, "keeping"));
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	ck_assert_str_eq(world_row(id).name, "y");
	at_rest(id, B);
}
END_TEST

START_TEST(it_ends_with_the_name_or_the_wish)
{
	ramp_segment_t id = kept_near();

	if (_i == 0)
		world_unlink(id);
	else
		world_prefill(id, _i == 1 ? 0 : C);
	is_free(B, id);
	if (_i == 2)
		eventually(is_state(A, id, "keeping") && world_has_file(C, id));
	else
		eventually(is_state(A, id, ""));
	if (_i)
		at_rest(id, A);
}
END_TEST

/* A request that is cancelled leaves the prefill as it was; one that comes then continues it. */
START_TEST(a_cancelled_move_leaves_it)
{
	ramp_segment_t id = world_segment(A, "x", PAGES, 0);
	int ask;

	atomic_store(&world->mode, TRANSFER_UNSAID);
	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_PULL, 0), DO_DELAY, 0, 1);
	world_prefill(id, B);
	eventually(atomic_load(&world->fault[B].hits)); /* in the first round */
	world_arm(A, POINT(AT_SEND, PROTO_CONNECT), DO_DELAY, 0, 100);
	ask = world_ask(A, id, B, 0, false);
	usleep(50000);
	world_cancel(A, ask);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	atomic_store(&world->hold, false);
	eventually(is_state(A, id, "keeping"));
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	at_rest(id, B);
}
END_TEST

/* The reason why one does not stand is said, and passes. */
START_TEST(what_stands_in_the_way)
{
	ramp_segment_t id = kept_near();

	if (_i == 0) {
		world_kill(B);
		eventually(waits_for(id, "down") || waits_for(id, "does not answer"));
		world_start(B);
	} else if (_i == 1) {
		world_arm(A, POINT(AT_LOOK, 0), DO_DROP, 0, 1);
		eventually(waits_for(id, "process 42 has an io_uring"));
	} else {
		world_fence(B);
		eventually(waits_for(id, "fenced"));
		is_free(B, id);
		at_rest(id, A);
		return;
	}
	eventually(is_state(A, id, "keeping"));
	ck_assert_int_eq(world_move(A, id, B), 0);
	at_rest(id, B);
}
END_TEST

/* The target's daemon begins again right before the move: that is made all the same. */
START_TEST(a_target_that_has_forgotten_it)
{
	ramp_segment_t id = kept_near();

	world_kill(B);
	world_start(B);
	world_wait_peers(A, NODES - 1);
	ck_assert_int_eq(world_move(A, id, B), 0);
	at_rest(id, B);
}
END_TEST

/* Room: none is taken from others. One that stands makes room for a segment that moves. */
START_TEST(a_full_target)
{
	ramp_segment_t near = world_segment(A, "x", _i ? 30000 : 40000, 0);
	ramp_segment_t moved = world_segment(C, "y", 40000, 0);

	atomic_store(&world->mode, TRANSFER_LAZY);
	if (_i == 0) {
		ck_assert_int_eq(world_move(C, moved, B), 0);
		world_prefill(near, B);
		eventually(waits_for(near, "room"));
	} else {
		world_prefill(near, B);
		eventually(is_state(A, near, "keeping"));
		ck_assert_int_eq(world_move(C, moved, B), 0);
		is_free(B, near);
	}
	at_rest(near, A);
	world_rest(moved);
}
END_TEST

/* Either end dies, at each step of a prefill, or of a request that has joined it. It begins again by the row. */
START_TEST(killed)
{
	static const struct {
		ramp_node_t node;
		uint32_t point;
	} points[] = {
		{A, POINT(AT_SEND, PROTO_ROUND)},	 {B, POINT(AT_SEND, PROTO_ROUND_READ)},
		{A, POINT(AT_SEND, PROTO_STORED)},	 {A, POINT(AT_LOOK, 0)},
		{A, POINT(AT_SEND, PROTO_CONNECT)},	 {B, POINT(AT_SEND, PROTO_ACCEPT)},
		{A, POINT(AT_SEND, PROTO_PREFILL)},	 {A, POINT(AT_PROPOSE, META_PREPARE)},
		{A, POINT(AFTER_PROPOSE, META_PREPARE)}, {A, POINT(AFTER_RECORD, RECORD_GIVEN)},
		{B, POINT(AT_RECORD, RECORD_TAKEN)},	 {B, POINT(AFTER_RECORD, RECORD_TAKEN)},
	};
	ramp_node_t victim = points[_i].node;
	ramp_segment_t id;
	int ask, rc;

	if (_i < 6) {
		id = world_segment(A, "x", PAGES, 0);
		atomic_store(&world->mode, TRANSFER_UNSAID);
		world_hold(A, id);
		world_arm(victim, points[_i].point, DO_KILL, 0, 1);
		world_prefill(id, B);
		world_wait_dead(victim);
		world_start(victim);
		eventually(is_state(A, id, "keeping"));
		rc = world_move(C, id, B);
	} else {
		id = kept_near();
		world_arm(victim, points[_i].point, DO_KILL, 0, 1);
		ask = world_ask(C, id, B, 10000, false);
		world_wait_dead(victim);
		world_start(victim);
		rc = world_answer(ask);
	}
	if (rc) { /* the target may have been given up with what it had read */
		eventually(is_state(A, id, "keeping"));
		ck_assert_int_eq(world_move(C, id, B), 0);
	}
	at_rest(id, B);
}
END_TEST

/* The node of either end is unmounted: nothing waits for a prefill. */
START_TEST(nothing_waits_for_it_at_an_end)
{
	ramp_segment_t id = kept_near();

	world_take_no_more(_i ? B : A);
	is_free(B, id);
	if (_i)
		eventually(waits_for(id, "unmounted") || waits_for(id, "gave the pre-copy up"));
	else
		eventually(is_state(A, id, ""));
	at_rest(id, A);
}
END_TEST

void add_prefill_stories(Suite *suite)
{
	TCase *tc = precopy_story(suite, "precopy.prefill");

	tcase_add_loop_test(tc, a_move_continues_a_prefill, 0, 3);
	tcase_add_loop_test(tc, another_move_ends_it_first, 0, 3);
	tcase_add_test(tc, a_move_to_a_node_that_is_down);
	tcase_add_loop_test(tc, names_and_sizes_are_free, 0, 3);
	tcase_add_loop_test(tc, it_ends_with_the_name_or_the_wish, 0, 3);
	tcase_add_test(tc, a_cancelled_move_leaves_it);
	tcase_add_loop_test(tc, what_stands_in_the_way, 0, 3);
	tcase_add_test(tc, a_target_that_has_forgotten_it);
	tcase_add_loop_test(tc, a_full_target, 0, 2);
	tcase_add_loop_test(tc, killed, 0, 12);
	tcase_add_loop_test(tc, nothing_waits_for_it_at_an_end, 0, 2);
}
