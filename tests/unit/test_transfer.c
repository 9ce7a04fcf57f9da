/*
 * Segments that move between three daemons, and all that can go wrong. After each story there is
 * one owner, its record is OWNED, every byte is right, and nothing is left on the other nodes.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transfer/transfer_core.h"
#include "transfer_stories.h"
#include "transport/proto.h"

static TCase *story_in(Suite *suite, const char *name, SFun open)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, open, world_close);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return tc;
}

TCase *story(Suite *suite, const char *name)
{
	return story_in(suite, name, world_open);
}

TCase *precopy_story(Suite *suite, const char *name)
{
	return story_in(suite, name, world_open_precopy);
}

TCase *copy_story(Suite *suite, const char *name)
{
	return story_in(suite, name, world_open_copy);
}

void stays(ramp_segment_t id, ramp_node_t owner)
{
	ck_assert_uint_eq(world_owner(id), owner);
	world_rest(id);
}

double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- it moves -------------------------------------------------------------------------------- */

START_TEST(to_and_fro)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);

	for (int i = 0; i < 10; i++) {
		ramp_node_t from = world_owner(id), to = from == A ? B : A;

		ck_assert_int_eq(world_move(from, id, to), 0);
		ck_assert_uint_eq(world_owner(id), to);
		world_rest(id);
	}
}
END_TEST

/* A request to move on before the pull is done waits for it, then succeeds. */
START_TEST(on_to_a_third_at_once)
{
	ramp_segment_t id = world_segment(A, "x", 4000, 0);

	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_int_eq(world_move(B, id, C), 0);
	ck_assert_int_eq(world_move(C, id, A), 0);
	ck_assert_uint_eq(world_owner(id), A);
	world_rest(id);
}
END_TEST

/* Settled segments are collapsed one after the other. One that has moved on before its turn keeps
   no room where it was. */
START_TEST(on_to_a_third_before_it_is_collapsed)
{
	ramp_segment_t first = world_segment(A, "x", 10, 0), id = world_segment(A, "y", 4000, 0);

	atomic_store(&world->hold_collapse, true);
	ck_assert_int_eq(world_answer(world_ask(A, first, B, 15000, true)), 0);
	world_rest(first);
	ck_assert_int_eq(world_answer(world_ask(A, id, B, 15000, true)), 0);
	world_rest(id);
	ck_assert_uint_ge(world_used(B), 4000 * RAMP_PAGE_BYTES);
	ck_assert_int_eq(world_move(B, id, C), 0);
	eventually(world_used(B) < 1000 * RAMP_PAGE_BYTES);
	atomic_store(&world->hold_collapse, false);
	world_rest(id);
}
END_TEST

#ifdef __SANITIZE_THREAD__ /* TSan maps several bytes of its own for each */
#define LARGE_PAGES (UINT64_C(1) << 20)
#else
#define LARGE_PAGES (UINT64_C(1) << 28) /* 1 TiB */
#endif

START_TEST(of_any_shape)
{
	static const struct {
		uint64_t pages, every;
	} shapes[] = {
		{0, 0},				    /* empty */
		{1, 0},				    /* a page */
		{LARGE_PAGES, LARGE_PAGES / 3 + 1}, /* three pages in it */
		{16384, 0},			    /* 64 MiB */
		{5000, 7},			    /* holes everywhere */
		{4000, 4000},			    /* a page, then nothing */
	};
	ramp_segment_t id = world_segment(A, "x", shapes[_i].pages, shapes[_i].every);
	uint64_t blocks = world_blocks(A, id);

	ck_assert_int_eq(world_answer(world_ask(A, id, B, 15000, true)), 0);
	world_rest(id);
	ck_assert_uint_le(world_blocks(B, id), blocks + (UINT64_C(2) << 20));
	ck_assert_int_eq(world_answer(world_ask(A, id, A, 15000, true)), 0);
	world_rest(id);
}
END_TEST

START_TEST(many_at_once_both_ways)
{
	ramp_segment_t ids[20];
	int asks[20];
	char name[8];

	for (int i = 0; i < 20; i++) {
		name[0] = (char)('a' + i);
		name[1] = 0;
		ids[i] = world_segment(i % 2 ? A : B, name, 200, 0);
	}
	for (int i = 0; i < 20; i++)
		asks[i] = world_ask(C, ids[i], i % 2 ? B : A, 15000, false);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(world_answer(asks[i]), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_uint_eq(world_owner(ids[i]), i % 2 ? B : A);
		world_rest(ids[i]);
	}
}
END_TEST

/* A program at A maps it, one at B waits for it: at any time only the owner's has access. */
START_TEST(access_goes_with_it)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	world_hold(A, id);
	world_hold(B, id);
	ck_assert(world_program(A, id).access && !world_program(B, id).access);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(world_move(A, id, i % 2 ? A : B), 0);
		world_rest(id);
	}
}
END_TEST

/* ---- what changes between CONNECT and the freeze --------------------------------------------- */

/* Programs at S store into holes while T makes room. */
START_TEST(holes_are_filled_meanwhile)
{
	ramp_segment_t id = world_segment(A, "x", 64, 2);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 10000, false);
	world_wait_reservation(B);
	world_fill_holes(id);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(world->fault[B].hits, 1);
	world_rest(id);
}
END_TEST

START_TEST(it_grows_or_shrinks_meanwhile)
{
	static const uint64_t sizes[] = {100, 10, 65, 0};
	ramp_segment_t id = world_segment(A, "x", 64, 0);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 10000, false);
	world_wait_reservation(B);
	world_resize(id, sizes[_i]);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	world_rest(id);
}
END_TEST

/* Taking room lasts longer than a silent target is waited for: a tool waits, rename(2) does not. */
START_TEST(room_takes_long)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 5000, false);
	ck_assert_int_eq(world_answer(ask), -EBUSY);
	ck_assert_str_eq(world_text(ask), "node b: it is taking room for it");
	atomic_store(&world->hold, false);
	eventually(!world_has_file(B, id));
	world_hold_reservation(B);
	ask = world_ask(A, id, B, 0, false);
	sleep(7);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

/* Its size changes between the read of its size and the scan of its pages. */
START_TEST(it_grows_or_shrinks_while_it_is_looked_at)
{
	static const uint64_t sizes[] = {65, 100, 10, 0};
	ramp_segment_t id = world_segment(A, "x", 64, 0);
	int ask;

	atomic_store(&world->hold, true);
	world_arm(A, POINT(AT_SCAN, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 10000, false);
	world_wait_reservation(A);
	world_resize(id, sizes[_i]);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	world_rest(id);
}
END_TEST

/* Growth past the slack that T took: the segment is thawed, and CONNECT sent again. In mode precopy the
   next round reads what has grown, and T has room for it then. */
START_TEST(it_grows_past_the_slack)
{
	ramp_segment_t id = world_segment(A, "x", 16384, 1024);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 60000, false); /* rounds get half of that */
	world_wait_reservation(B);
	world_fill_holes(id);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(world->fault[B].hits,
			  atomic_load(&world->mode) == TRANSFER_PRECOPY ? 1 : 2);
	ck_assert_uint_eq(world_owner(id), B);
	world_rest(id);
}
END_TEST

/* Its size is the same, but its data are where T has taken no room: more than the slack needs
   another attempt, less fits. */
START_TEST(its_data_moves_past_the_slack)
{
	ramp_segment_t id = world_segment(A, "x", _i ? 16384 : 1024, 1024);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 10000, false);
	world_wait_reservation(B);
	world_move_data(id);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(world->fault[B].hits, _i ? 2 : 1);
	ck_assert_uint_eq(world_owner(id), B);
	world_rest(id);
}
END_TEST

/* The target's next daemon, too, keeps room for pages that no list named. */
START_TEST(the_slack_is_there_after_a_restart)
{
	ramp_segment_t id = world_segment(A, "x", 512, 2);
	uint64_t used;
	int ask;

	atomic_store(&world->pull_stopped, true);
	world_hold_reservation(B);
	ask = world_ask(A, id, B, 10000, false);
	world_wait_reservation(B);
	world_fill_holes(id);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	used = world_used(B);
	world_kill(B);
	ck_assert_uint_lt(world_used(B), used);
	world_start(B);
	eventually(world_used(B) >= used);
	atomic_store(&world->pull_stopped, false);
	world_rest(id);
	eventually(world_used(B) < used); /* freed when every page is there */
}
END_TEST

/* ---- it stays -------------------------------------------------------------------------------- */

START_TEST(the_name_is_taken)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	ramp_segment_t other = world_segment(B, "x", 10, 0);

	ck_assert_int_eq(world_move(A, id, B), -EEXIST);
	stays(id, A);
	stays(other, B);
}
END_TEST

/* Two segments move to C under one name: the cluster's agreement lets one win. */
START_TEST(one_name_two_sources)
{
	ramp_segment_t one = world_segment(A, "x", 500, 0), two = world_segment(B, "x", 500, 0);
	int ask_one = world_ask(A, one, C, 10000, false);
	int ask_two = world_ask(B, two, C, 10000, false);
	int rc_one = world_answer(ask_one), rc_two = world_answer(ask_two);

	ck_assert_msg((rc_one == 0 && rc_two == -EEXIST) || (rc_one == -EEXIST && rc_two == 0),
		      "%d and %d", rc_one, rc_two);
	stays(one, rc_one ? A : C);
	stays(two, rc_two ? B : C);
}
END_TEST

START_TEST(no_room_there)
{
	ramp_segment_t id = world_segment(A, "x", 40000, 0);
	ramp_segment_t other = world_segment(B, "y", 40000, 0);

	ck_assert_int_eq(world_move(A, id, B), -ENOSPC);
	stays(id, A);
	stays(other, B);
	ck_assert_int_eq(world_move(A, id, C), 0);
	stays(id, C);
}
END_TEST

static void cut_to(ramp_segment_t id, uint64_t size)
{
	char path[PATH_LEN];

	world_path(A, id, path);
	ck_assert_int_eq(truncate(path, (off_t)size), 0);
}

/* Its size exceeds the limit of messages: from the start, or only once T has taken room. */
START_TEST(it_is_too_large)
{
	ramp_segment_t id = world_segment(A, "x", 64, 0);
	int ask = -1;

	if (_i) {
		world_hold_reservation(B);
		ask = world_ask(A, id, B, 10000, false);
		world_wait_reservation(B);
	}
	cut_to(id, PROTO_SIZE_MAX + RAMP_PAGE_BYTES);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(_i ? world_answer(ask) : world_move(A, id, B), -EFBIG);
	cut_to(id, 64 * RAMP_PAGE_BYTES);
	stays(id, A);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(the_target_is_down)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	world_hold(A, id);
	world_kill(B);
	usleep(300000);
	ck_assert_int_eq(world_move(A, id, B), -EHOSTUNREACH);
	ck_assert(world_program(A, id).access);
	ck_assert_int_eq(world_move(C, id, B), -EHOSTUNREACH);
	world_start(B);
	stays(id, A);
}
END_TEST

START_TEST(the_target_hangs)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	double from = seconds();

	world_hold(A, id);
	world_arm(B, POINT(AT_SEND, PROTO_ACCEPT), DO_DROP, 0, 10000);
	ck_assert_int_eq(world_answer(world_ask(A, id, B, 0, false)), -EHOSTUNREACH);
	ck_assert(seconds() - from < 20); /* T may have answered at first that it takes room */
	world_arm(B, 0, 0, 0, 0);
	stays(id, A);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(no_quorum)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int here, there;

	world_hold(A, id);
	atomic_store(&world->quorum, false);
	here = world_ask(A, id, B, 0, false);
	there = world_ask(C, id, B, 5000, false);
	ck_assert_int_eq(world_answer(here), -EROFS);
	ck_assert_int_eq(world_answer(there), -EROFS);
	ck_assert(world_program(A, id).access);
	/* A request waits for an election. */
	here = world_ask(A, id, B, 5000, false);
	usleep(300000);
	atomic_store(&world->quorum, true);
	ck_assert_int_eq(world_answer(here), 0);
	stays(id, B);
}
END_TEST

/* The quorum is lost just before or after prepare is proposed: nothing is frozen for long. */
START_TEST(no_quorum_in_the_middle)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	world_hold(A, id);
	world_hold_reservation(B);
	ask = world_ask(A, id, B, 5000, false);
	world_wait_reservation(B);
	atomic_store(&world->quorum, false);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), -EROFS);
	ck_assert(world_program(A, id).access);
	atomic_store(&world->quorum, true);
	stays(id, A);
}
END_TEST

START_TEST(a_program_that_cannot_be_asked)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);
	int ask;

	world_hold(A, id);
	world_unmovable(A, id);
	ask = world_ask(C, id, B, 5000, false);
	ck_assert_int_eq(world_answer(ask), -EBUSY);
	ck_assert_str_eq(world_text(ask), "process 42 maps it");
	eventually(!world_has_file(B, id)); /* the room that T took meanwhile is freed */
	stays(id, A);
}
END_TEST

START_TEST(a_program_that_does_not_let_go)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	world_hold(A, id);
	world_arm(A, POINT(AT_REVOKE, 0), DO_DROP, 0, 1);
	ck_assert_int_eq(world_move(A, id, B), -EBUSY);
	ck_assert(world_program(A, id).access);
	stays(id, A);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

START_TEST(a_pull_is_not_over_because_it_was_said)
{
	ramp_segment_t id = world_segment(A, "x", 300, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	world_say_finished(B, id);
	usleep(200000);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_PULLING);
	atomic_store(&world->pull_stopped, false);
	stays(id, B);
}
END_TEST

START_TEST(a_target_that_ends_begins_nothing)
{
	ramp_segment_t id = world_segment(A, "x", 1000, 1);
	int ask;

	world_hold_reservation(B); /* else its worker would return when everything is closed */
	world_end(B);
	ask = world_ask(A, id, B, 2000, false);
	usleep(300000); /* CONNECT arrives at B meanwhile */
	ck_assert_uint_eq(world->fault[B].hits, 0);
	atomic_store(&world->hold, false);
	world_let_end(B);
	ck_assert_int_ne(world_answer(ask), 0);
	world_start(B);
	stays(id, A);
}
END_TEST

/* A node that is being unmounted finishes the moves under way and refuses others; its segments may
   leave. */
START_TEST(an_unmounted_target_takes_no_more)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0), other = world_segment(A, "y", 10, 0);
	int ask;

	world_hold_reservation(B);
	ask = world_ask(A, id, B, 0, false);
	world_wait_reservation(B);
	world_take_no_more(B);
	ck_assert_int_eq(world_move(C, other, B), -EHOSTUNREACH);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(other, A);
	stays(id, B);
	ck_assert_int_eq(world_move(C, id, A), 0);
	stays(id, A);
}
END_TEST

/* A reservation would hold its room until the next daemon, which after umount may never come. */
START_TEST(a_target_that_ends_keeps_no_reservation)
{
	ramp_segment_t id = world_segment(A, "x", 1000, 1);
	int ask;

	if (_i) /* its worker has not returned */
		world_hold_reservation(B);
	else
		world_arm(B, POINT(AT_SEND, PROTO_ACCEPT), DO_DROP, 0, 1000);
	ask = world_ask(A, id, B, 2000, false);
	eventually(atomic_load(&world->fault[B].hits));
	ck_assert(world_has_file(B, id));
	world_begin_end(B);
	usleep(50000);
	atomic_store(&world->hold, false);
	eventually(world->lingers[B]);
	ck_assert(!world_has_file(B, id));
	world_let_end(B);
	ck_assert_int_ne(world_answer(ask), 0);
	world_start(B);
	stays(id, A);
}
END_TEST

/* A source that ends does not prepare: nothing would end that attempt while the node is away. */
START_TEST(a_source_that_ends_begins_nothing)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0), other = world_segment(A, "y", 10, 0);

	atomic_store(&world->hold_revoke, true); /* the close waits for that move's worker */
	world_arm(A, POINT(AT_REVOKE, 0), DO_DELAY, 0, 1);
	world_ask(A, other, C, 0, false);
	eventually(atomic_load(&world->fault[A].hits));
	world_hold_reservation(B);
	world_ask(A, id, B, 0, false);
	world_wait_reservation(B);
	world_begin_end(A);
	usleep(50000);
	atomic_store(&world->hold, false);
	usleep(300000); /* B's ACCEPT arrives meanwhile */
	ck_assert_int_eq(world_row(id).phase, SEGMENT_STABLE);
	atomic_store(&world->hold_revoke, false);
	world_let_end(A);
	world_start(A);
	stays(id, A);
	stays(other, A);
}
END_TEST

/* ---- messages -------------------------------------------------------------------------------- */

START_TEST(a_message_is_lost_doubled_or_late)
{
	static const struct {
		ramp_node_t from;
		uint8_t type;
	} messages[] = {
		{A, PROTO_CONNECT},
		{B, PROTO_ACCEPT},
		{A, PROTO_TRANSFER},
		{B, PROTO_TAKEN},
		{B, PROTO_CLOSE},
		{B, PROTO_LISTED},
		{C, PROTO_MIGRATE},
		{A, PROTO_ANSWER},
		/* of mode copy: */ {A, PROTO_KEYS},
		{B, PROTO_COPIED},
		/* of mode precopy: */ {A, PROTO_ROUND},
		{B, PROTO_ROUND_READ},
		{A, PROTO_STORED},
	};
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	enum what what = DO_DROP + (enum what)(_i % 3);

	world_hold(A, id);
	world_hold(B, id);
	world_arm(messages[_i / 3].from, POINT(AT_SEND, messages[_i / 3].type), what, 0, 2);
	ck_assert_int_eq(world_move(C, id, B), 0);
	world_rest(id);
	ck_assert_uint_ge(world->fault[messages[_i / 3].from].hits, 1);
	world_arm(messages[_i / 3].from, 0, 0, 0, 0);
	ck_assert_int_eq(world_move(B, id, A), 0);
	world_rest(id);
}
END_TEST

/* The proposal is committed, but its proposer gets a time-out. */
START_TEST(answers_of_proposals_are_lost)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int rc;

	world_hold(A, id);
	world_hold(B, id);
	atomic_store(&world->lose_answers, (unsigned)_i + 1);
	rc = world_move(A, id, B);
	ck_assert_msg(rc == -EROFS, "%d", rc); /* prepare is the first of them */
	stays(id, A);
	atomic_store(&world->lose_answers, 0);
	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	atomic_store(&world->lose_answers, (unsigned)_i + 1); /* settled, and again */
	atomic_store(&world->pull_stopped, false);
	stays(id, B);
}
END_TEST

START_TEST(tables_are_behind)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);

	atomic_store(&world->behind_ms[_i + 1], 250);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(
			world_answer(world_ask(_i % 2 ? C : A, id, i % 2 ? A : B, 15000, true)), 0);
		world_rest(id);
	}
}
END_TEST

START_TEST(unlinked_while_it_is_pulled)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);

	atomic_store(&world->pull_stopped, true);
	ck_assert_int_eq(world_move(A, id, B), 0);
	eventually(world_row(id).phase == SEGMENT_PULLING);
	world_unlink(id);
	usleep(100000);
	ck_assert(world_has_file(A, id)); /* R9: the source keeps it until T has every page */
	atomic_store(&world->pull_stopped, false);
	world_rest_lost(id);
	eventually(!world_has_file(A, id));
}
END_TEST

/* ---- mode copy ------------------------------------------------------------------------------- */

/* The target reads nothing, or is down, or the request is cancelled: programs continue as
   before. */
START_TEST(a_copy_that_does_not_come_is_given_up)
{
	static const int results[] = {-EHOSTUNREACH, -EHOSTUNREACH, -EINTR};
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	int ask;

	world_hold(A, id);
	atomic_store(&world->pull_stopped, true);
	ask = world_ask(C, id, B, 0, false);
	eventually(!world_program(A, id).access);
	eventually(world_copying(A, id));
	if (_i == 1)
		world_kill(B);
	if (_i == 2)
		world_cancel(C, ask);
	ck_assert_int_eq(world_answer(ask), results[_i]);
	if (_i == 1)
		world_start(B);
	stays(id, A);
	ck_assert(world_program(A, id).access);
	atomic_store(&world->pull_stopped, false);
	ck_assert_int_eq(world_move(C, id, B), 0);
	world_rest(id);
}
END_TEST

/* The daemon ends when programs have just been stopped for a copy: they continue, whether or not
   another daemon starts. */
START_TEST(a_source_that_ends_holds_nobody)
{
	ramp_segment_t id = world_segment(A, "x", 10, 0);

	world_hold(A, id);
	atomic_store(&world->hold_revoke, true);
	world_arm(A, POINT(AT_REVOKE, 0), DO_DELAY, 0, 1);
	world_ask(A, id, B, 0, false);
	eventually(atomic_load(&world->fault[A].hits));
	world_begin_end(A);
	atomic_store(&world->hold_revoke, false);
	eventually(world->lingers[A]);
	ck_assert(world_program(A, id).access);
	world_let_end(A);
	world_start(A);
	stays(id, A);
}
END_TEST

/* When T records TAKEN the row is still S's, and no page is missing. */
START_TEST(nothing_is_given_before_all_is_copied)
{
	ramp_segment_t id = world_segment(A, "x", 100, 0);
	int ask;

	world_hold(A, id);
	atomic_store(&world->pull_stopped, true);
	ask = world_ask(A, id, B, 0, false);
	eventually(!world_program(A, id).access);
	usleep(300000);
	ck_assert_int_eq(world_row(id).phase, SEGMENT_MOVING);
	ck_assert(!atomic_load(&world->answers[ask].done));
	world_arm(B, POINT(AFTER_RECORD, RECORD_TAKEN), DO_KILL, 0, 1);
	atomic_store(&world->pull_stopped, false);
	world_wait_dead(B);
	atomic_store(&world->pull_stopped, true); /* a recorded segment must be whole */
	world_start(B);
	ck_assert_int_eq(world_answer(ask), 0);
	stays(id, B);
}
END_TEST

static Suite *move_stories(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tc = story(suite, "moves");

	tcase_add_test(tc, to_and_fro);
	tcase_add_test(tc, on_to_a_third_at_once);
	tcase_add_test(tc, on_to_a_third_before_it_is_collapsed);
	tcase_add_loop_test(tc, of_any_shape, 0, 6);
	tcase_add_test(tc, many_at_once_both_ways);
	tcase_add_test(tc, access_goes_with_it);
	tcase_add_test(tc, holes_are_filled_meanwhile);
	tcase_add_loop_test(tc, it_grows_or_shrinks_meanwhile, 0, 4);
	tcase_add_test(tc, room_takes_long);
	tcase_add_loop_test(tc, it_grows_or_shrinks_while_it_is_looked_at, 0, 4);
	tcase_add_test(tc, it_grows_past_the_slack);
	tcase_add_loop_test(tc, its_data_moves_past_the_slack, 0, 2);
	tcase_add_test(tc, the_slack_is_there_after_a_restart);
	tc = story(suite, "stays");
	tcase_add_test(tc, the_name_is_taken);
	tcase_add_test(tc, one_name_two_sources);
	tcase_add_test(tc, no_room_there);
	tcase_add_loop_test(tc, it_is_too_large, 0, 2);
	tcase_add_test(tc, the_target_is_down);
	tcase_add_test(tc, the_target_hangs);
	tcase_add_test(tc, no_quorum);
	tcase_add_test(tc, no_quorum_in_the_middle);
	tcase_add_test(tc, a_program_that_cannot_be_asked);
	tcase_add_test(tc, a_program_that_does_not_let_go);
	tcase_add_test(tc, a_pull_is_not_over_because_it_was_said);
	tcase_add_test(tc, a_target_that_ends_begins_nothing);
	tcase_add_test(tc, an_unmounted_target_takes_no_more);
	tcase_add_loop_test(tc, a_target_that_ends_keeps_no_reservation, 0, 2);
	tcase_add_test(tc, a_source_that_ends_begins_nothing);
	tc = story(suite, "messages");
	tcase_add_loop_test(tc, a_message_is_lost_doubled_or_late, 0, 24);
	tcase_add_loop_test(tc, answers_of_proposals_are_lost, 0, 2);
	tcase_add_loop_test(tc, tables_are_behind, 0, 3);
	tcase_add_test(tc, unlinked_while_it_is_pulled);
	add_ask_stories(suite);
	add_steps_stories(suite);
	add_depart_stories(suite);
	add_kill_stories(suite);
	return suite;
}

/* ---- mode precopy ---------------------------------------------------------------------------- */

static void says(const char *text, const char *mode, const char *why)
{
	ck_assert_msg(strncmp(text, mode, strlen(mode)) == 0 && strstr(text, why), "said: %s",
		      text);
}

START_TEST(a_round_follows_a_round)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);

	atomic_store(&world->link_bytes_s, 100000000);
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_ge(world->looks[0], 2);
	world_rest(id);
}
END_TEST

/* Each page was stored into; a round more is worth it where the link takes more than 5 ms for that. A guess does
   not count. */
START_TEST(no_round_for_what_a_fast_link_carries_at_once)
{
	static const struct {
		uint64_t link_bytes_s;
		const char *over;
	} links[] = {{100000000, "rounds ended after 2: 4 MiB or less are left"},
		     {UINT64_C(100000000000),
		      "rounds ended after 1: the link carries what is left within 5 ms"}};
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->link_bytes_s, links[_i].link_bytes_s);
	ask = world_ask(A, id, B, 10000, true);
	ck_assert_int_eq(world_answer(ask), 0);
	says(world_text(ask), "mode precopy: asked for; ", links[_i].over);
	world_rest(id);
}
END_TEST

/* Another process frees pages that the target has read: by truncate, of which the kernel says nothing, or by
   a punched hole. A round follows, after which the list of populated pages is true again. */
START_TEST(a_hole_that_another_process_makes_between_rounds)
{
	ramp_segment_t id = world_segment(A, "x", 4000, 0);
	int ask;

	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_END, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 10000, false);
	eventually(atomic_load(&world->fault[B].hits));
	world_cut(id, 2000, _i == 1);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	world_rest(id);
}
END_TEST

/* The target reads the second round, slowly: what it is to read is not said again. */
START_TEST(pages_of_a_round_are_named_once)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->link_bytes_s, 100000000); /* else one round would do */
	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_PULL, 0), DO_DELAY, 1, 1);
	ask = world_ask(A, id, B, 0, false);
	eventually(atomic_load(&world->fault[B].hits) == 2);
	world_arm(A, POINT(AT_SEND, PROTO_STORED), DO_DELAY, 0, 1000);
	usleep(2500000); /* ROUND is repeated each second */
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), 0);
	world_rest(id);
}
END_TEST

/* A chmod, say, harms nothing; a request that names it by another name than it has is not for it any more. */
START_TEST(its_name_changes_between_rounds)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_END, 0), DO_DELAY, 0, 1);
	snprintf(world->from_name, sizeof(world->from_name), "%s", _i ? "x" : "");
	ask = world_ask(A, id, B, 10000, false);
	world->from_name[0] = 0;
	eventually(atomic_load(&world->fault[B].hits));
	world_rename(id, "y");
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), _i ? -ENOENT : 0);
	stays(id, _i ? A : B);
}
END_TEST

START_TEST(it_is_unlinked_between_rounds)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->hold, true);
	world_arm(B, POINT(AT_END, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 10000, false);
	eventually(atomic_load(&world->fault[B].hits));
	world_unlink(id);
	ck_assert_int_eq(world_answer(ask), -ENOENT); /* though the round is not over */
	ck_assert_str_eq(world_text(ask), "it was unlinked");
	atomic_store(&world->hold, false);
	world_rest_lost(id);
}
END_TEST

START_TEST(as_many_rounds_as_were_asked_for)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);

	atomic_store(&world->max_rounds, 1);
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_eq(world->looks[0], 1);
	world_rest(id);
}
END_TEST

/* The segment says how it moves, where the request does not. */
START_TEST(the_row_says_how)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);

	atomic_store(&world->mode, TRANSFER_UNSAID);
	world_arm(A, POINT(AT_SEND, PROTO_ROUND), DO_DELAY, 0, 1000);
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_eq(atomic_load(&world->fault[A].hits), 0);
	world_lock();
	world->rows[0].move = 1 + TRANSFER_PRECOPY;
	world->row_version[0] = ++world->version;
	world_unlock();
	ck_assert_int_eq(world_move(B, id, A), 0); /* then A's tables have it, too */
	world_arm(A, POINT(AT_SEND, PROTO_ROUND), DO_DELAY, 0, 1000);
	ck_assert_int_eq(world_move(A, id, B), 0);
	ck_assert_uint_gt(atomic_load(&world->fault[A].hits), 0);
	world_rest(id);
}
END_TEST

/* Moves it in mode auto, and returns what was said of the mode. `rounds`: whether some were asked for. */
static const char *auto_says(ramp_segment_t id, ramp_node_t from, ramp_node_t to, bool rounds)
{
	int ask;

	world_arm(from, POINT(AT_SEND, PROTO_ROUND), DO_DELAY, 0, 1000);
	ask = world_ask(from, id, to, 10000, true);
	ck_assert_int_eq(world_answer(ask), 0);
	ck_assert_uint_eq(atomic_load(&world->fault[from].hits) > 0, rounds);
	world_rest(id);
	return world_text(ask);
}

START_TEST(auto_takes_what_pays)
{
	ramp_segment_t large = world_segment(A, "x", 2400, 0), small = world_segment(A, "y", 4, 0);

	atomic_store(&world->mode, TRANSFER_AUTO);
	says(auto_says(small, A, B, false), "mode lazy: ", "16 KiB are too little");
	says(auto_says(large, A, B, false), "mode lazy: ", "no program has it mapped here");
	world_hold(B, large);
	says(auto_says(large, B, A, true), "mode precopy: ", "the link carries");
	/* Two moves have measured the link meanwhile. */
	says(auto_says(small, B, A, false), "mode copy: ", "16 KiB, the link carries");
	world_rest(large);
}
END_TEST

/* All huge pages were stored into. Some are split, and tell how much of each is. */
START_TEST(auto_looks_into_huge_pages)
{
	static const struct {
		enum huge huge;
		const char *mode, *why;
	} ways[] = {{HUGE_THIN, "mode precopy: programs store into ",
		     "MB/s (by 20 huge pages that were split), the link carries 200 MB/s"},
		    {HUGE_FLAT, "mode lazy: programs store into ", "100 % of it"},
		    /* Of the sample none is stored into again. */
		    {HUGE_ROVING, "mode lazy: programs store into ", "the link carries 40 MB/s"}};
	ramp_segment_t id = world_segment(A, "x", 40 * RAMP_HUGE_BYTES / RAMP_PAGE_BYTES, 0);

	atomic_store(&world->mode, TRANSFER_AUTO);
	atomic_store(&world->huge, ways[_i].huge);
	atomic_store(&world->link_bytes_s, ways[_i].huge == HUGE_ROVING ? 40000000 : 200000000);
	world_hold(A, id);
	says(auto_says(id, A, B, ways[_i].huge == HUGE_THIN), ways[_i].mode, ways[_i].why);
	/* Once for the sample; then for all, when the first round has been read. */
	ck_assert_uint_ge(atomic_load(&world->split_all), ways[_i].huge == HUGE_THIN ? 2 : 1);
}
END_TEST

/* Of many at once each goes lazily, of a few each by itself. */
START_TEST(auto_does_not_weigh_many)
{
	enum { MANY = PAIR_FEW + 1 };
	ramp_segment_t ids[MANY];
	int asks[MANY], count = _i ? MANY : 3;

	atomic_store(&world->mode, TRANSFER_AUTO);
	atomic_store(&world->queues, true);
	for (int i = 0; i < count; i++) {
		ids[i] = world_segment(A, (char[]){(char)('a' + i), 0}, 1200, 0);
		world_hold(A, ids[i]);
	}
	atomic_store(&world->hold, true);
	world_arm(A, POINT(AT_SCAN, 0), DO_DELAY, 0, 1000);
	for (int i = 0; i < count; i++)
		asks[i] = world_ask(A, ids[i], B, 0, true);
	world_failed(A); /* it has begun them all */
	atomic_store(&world->hold, false);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(world_answer(asks[i]), 0);
		says(world_text(asks[i]), _i ? "mode lazy: " : "mode precopy: ",
		     _i ? "one of more than 16" : "the link carries");
		world_rest(ids[i]);
	}
}
END_TEST

/* Those that wait for their windows share a look, and each has its own verdict: one fails, or takes long. */
START_TEST(windows_of_a_batch_share_a_look)
{
	enum { MANY = 7 };
	ramp_segment_t ids[MANY];
	int asks[MANY], failed = 0;

	world_ask_many(A, B, MANY, ids, asks);
	world_arm(A, POINT(AT_REVOKE, 0), _i ? DO_DOUBLE : DO_DROP, 1, 1);
	atomic_store(&world->hold_revoke, false);
	for (int i = 0; i < MANY; i++) {
		int rc = world_answer(asks[i]);

		ck_assert_msg(!rc || (rc == -EBUSY && strstr(world_text(asks[i]), "is stopped")),
			      "%d: %s", rc, world_text(asks[i]));
		failed += rc != 0;
		ck_assert_uint_eq(world_owner(ids[i]), rc ? A : B);
		world_rest(ids[i]);
	}
	ck_assert_int_eq(failed, _i ? 0 : 1);
	ck_assert_uint_ge(atomic_load(&world->shared_looks), 1);
	ck_assert_uint_lt(atomic_load(&world->shared_looks), MANY - 2);
}
END_TEST

/* Those that wait are not frozen when their daemon ends. */
START_TEST(windows_of_a_batch_end_with_their_source)
{
	enum { MANY = 4 };
	ramp_segment_t ids[MANY];
	int asks[MANY];

	world_ask_many(A, B, MANY, ids, asks);
	world_begin_end(A);
	atomic_store(&world->hold_revoke, false);
	world_let_end(A);
	world_start(A);
	for (int i = 0; i < MANY; i++)
		stays(ids[i], A);
}
END_TEST

/* A pre-copy has no more of the link than a limit leaves it; and a limited move says nothing of the link. */
START_TEST(auto_heeds_a_limit)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	ramp_segment_t y = world_segment(B, "y", 4, 0), z = world_segment(B, "z", 4, 0);

	atomic_store(&world->mode, TRANSFER_AUTO);
	world_hold(A, id);
	world_hold(B, id);
	atomic_store(&world->limit_bytes_s, 2000000);
	says(auto_says(id, A, B, false), "mode lazy: ", "the link carries 2 MB/s");
	atomic_store(&world->limit_bytes_s, 0);
	says(auto_says(y, B, A, false), "mode lazy: ", "16 KiB are too little");
	atomic_store(&world->limit_bytes_s, UINT64_C(1) << 40);
	says(auto_says(id, B, A, true), "mode precopy: ", "the link carries 1000 MB/s (a guess)");
	atomic_store(&world->limit_bytes_s, 0);
	says(auto_says(z, B, A, false), "mode lazy: ", "16 KiB are too little");
}
END_TEST

/* rampfs-migrate refuses it by itself; another program that speaks the protocol need not. */
START_TEST(a_limit_that_is_too_small_is_refused)
{
	ramp_segment_t id = world_segment(A, "x", 4, 0);

	ck_assert_int_eq(world_limited(A, id, 1), -EINVAL);
	ck_assert_int_eq(world_limited(A, id, (UINT64_C(1) << 20) - 1), -EINVAL);
	ck_assert_int_eq(world_limited(A, id, UINT64_C(1) << 20), -ENOENT);
	ck_assert_int_eq(world_limited(A, id, 0), -ENOENT);
}
END_TEST

/* A process has pages pinned when the watch begins, when stores were counted, or after the first round. */
START_TEST(auto_goes_lazily_where_stores_are_not_seen)
{
	static const struct {
		enum where at;
		uint32_t skip;
	} points[] = {{AT_WATCH, 0}, {AT_LOOK, 0}, {AT_LOOK, 1}};
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->mode, TRANSFER_AUTO);
	world_hold(A, id);
	world_arm(A, POINT(points[_i].at, 0), DO_DROP, points[_i].skip, 1);
	ask = world_ask(A, id, B, 10000, true);
	ck_assert_int_eq(world_answer(ask), 0);
	says(world_text(ask), "mode lazy: ", "process 42 has an io_uring");
	stays(id, B);
}
END_TEST

/* The target reads nothing: a request with a deadline (mv) waits for rounds half of its time. */
START_TEST(rounds_end_when_mv_has_no_time_for_them)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->mode, _i ? TRANSFER_AUTO : TRANSFER_PRECOPY);
	world_hold(A, id);
	atomic_store(&world->pull_stopped, true);
	ask = world_ask(A, id, B, 3000, false);
	ck_assert_int_eq(world_answer(ask), 0);
	says(world_text(ask), "mode lazy: ", "longer than the request waits");
	atomic_store(&world->pull_stopped, false);
	world_rest(id);
}
END_TEST

START_TEST(a_move_that_is_being_weighed_can_be_cancelled)
{
	ramp_segment_t id = world_segment(A, "x", 2400, 0);
	int ask;

	atomic_store(&world->mode, TRANSFER_AUTO);
	atomic_store(&world->hold, true);
	world_hold(A, id);
	world_arm(A, POINT(_i ? AT_LOOK : AT_WATCH, 0), DO_DELAY, 0, 1);
	ask = world_ask(A, id, B, 0, false);
	eventually(atomic_load(&world->fault[A].hits));
	world_cancel(A, ask);
	atomic_store(&world->hold, false);
	ck_assert_int_eq(world_answer(ask), -EINTR);
	stays(id, A);
	world_rest(id);
}
END_TEST

/* All pages follow, though not all were stored into. */
START_TEST(it_says_why_all_pages_follow)
{
	ramp_segment_t id = world_segment(A, "x", 50, 0);
	int ask;

	for (int i = 0; i < 2; i++) {
		atomic_store(&world->all_count, i);
		ask = world_ask(i ? B : A, id, i ? A : B, 10000, true);
		ck_assert_int_eq(world_answer(ask), 0);
		ck_assert_str_eq(world_text(ask), i ? "mode precopy: asked for; rounds ended after "
						      "1: 4 MiB or less are left; all "
						      "pages follow: programs have mapped it"
						    : "mode precopy: asked for; rounds ended after "
						      "1: 4 MiB or less are left");
		world_rest(id);
	}
}
END_TEST

/* A process has pages pinned: before the first round, after it, or memory is short in the window. */
START_TEST(a_look_fails)
{
	static const enum where points[] = {AT_WATCH, AT_LOOK, AT_LAST};
	ramp_segment_t id = world_segment(A, "x", 50, 0);

	for (int i = 0; i < 3; i++) {
		world_arm(A, POINT(points[i], 0), DO_DROP, 0, 1);
		ck_assert_int_eq(world_move(A, id, B), i < 2 ? -EBUSY : -ENOMEM);
		stays(id, A);
	}
	world_arm(A, 0, 0, 0, 0);
	ck_assert_int_eq(world_move(A, id, B), 0);
	stays(id, B);
}
END_TEST

static Suite *copy_stories(void)
{
	Suite *suite = suite_create("transfer_copy");
	TCase *tc = copy_story(suite, "copy");
	tcase_add_test(tc, to_and_fro);
	tcase_add_loop_test(tc, of_any_shape, 0, 6);
	tcase_add_test(tc, many_at_once_both_ways);
	tcase_add_test(tc, access_goes_with_it);
	tcase_add_test(tc, holes_are_filled_meanwhile);
	tcase_add_loop_test(tc, it_grows_or_shrinks_meanwhile, 0, 4);
	tcase_add_test(tc, it_grows_past_the_slack);
	tcase_add_loop_test(tc, its_data_moves_past_the_slack, 0, 2);
	tcase_add_loop_test(tc, a_message_is_lost_doubled_or_late, 0, 30);
	tcase_add_loop_test(tc, a_copy_that_does_not_come_is_given_up, 0, 3);
	tcase_add_test(tc, a_source_that_ends_holds_nobody);
	tcase_add_test(tc, nothing_is_given_before_all_is_copied);
	add_copy_kill_stories(suite);
	return suite;
}

static Suite *precopy_stories(void)
{
	Suite *suite = suite_create("transfer_precopy");
	TCase *tc = precopy_story(suite, "precopy");
	tcase_add_test(tc, to_and_fro);
	tcase_add_loop_test(tc, of_any_shape, 0, 6);
	tcase_add_test(tc, many_at_once_both_ways);
	tcase_add_test(tc, access_goes_with_it);
	tcase_add_test(tc, holes_are_filled_meanwhile);
	tcase_add_loop_test(tc, it_grows_or_shrinks_meanwhile, 0, 4);
	tcase_add_test(tc, it_grows_past_the_slack);
	tcase_add_test(tc, a_round_follows_a_round);
	tcase_add_loop_test(tc, no_round_for_what_a_fast_link_carries_at_once, 0, 2);
	tcase_add_loop_test(tc, a_hole_that_another_process_makes_between_rounds, 0, 2);
	tcase_add_test(tc, pages_of_a_round_are_named_once);
	tcase_add_test(tc, as_many_rounds_as_were_asked_for);
	tcase_add_loop_test(tc, its_name_changes_between_rounds, 0, 2);
	tcase_add_test(tc, it_is_unlinked_between_rounds);
	tcase_add_test(tc, the_row_says_how);
	tcase_add_test(tc, auto_takes_what_pays);
	tcase_add_loop_test(tc, auto_looks_into_huge_pages, 0, 3);
	tcase_add_loop_test(tc, auto_does_not_weigh_many, 0, 2);
	tcase_add_loop_test(tc, windows_of_a_batch_share_a_look, 0, 2);
	tcase_add_test(tc, windows_of_a_batch_end_with_their_source);
	tcase_add_test(tc, auto_heeds_a_limit);
	tcase_add_test(tc, a_limit_that_is_too_small_is_refused);
	tcase_add_loop_test(tc, auto_goes_lazily_where_stores_are_not_seen, 0, 3);
	tcase_add_loop_test(tc, rounds_end_when_mv_has_no_time_for_them, 0, 2);
	tcase_add_loop_test(tc, a_move_that_is_being_weighed_can_be_cancelled, 0, 2);
	tcase_add_test(tc, it_says_why_all_pages_follow);
	tcase_add_test(tc, a_look_fails);
	tcase_add_loop_test(tc, a_message_is_lost_doubled_or_late, 0, 24);
	tcase_add_loop_test(tc, a_message_is_lost_doubled_or_late, 30, 39);
	add_precopy_steps_stories(suite);
	add_prefill_stories(suite);
	add_precopy_depart_stories(suite);
	add_precopy_kill_stories(suite);
	return suite;
}

/* test_transfer [copy|precopy]: moves in the default mode, or in that one. */
int main(int argc, char **argv)
{
	SRunner *runner;
	int failed = world_namespace();

	if (failed)
		return failed;
	runner = srunner_create(argc > 1 && strcmp(argv[1], "copy") == 0      ? copy_stories()
				: argc > 1 && strcmp(argv[1], "precopy") == 0 ? precopy_stories()
									      : move_stories());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	rmdir(world->base);
	return failed ? 1 : 0;
}
