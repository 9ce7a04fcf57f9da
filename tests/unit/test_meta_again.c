/*
 * A node that has lost its journal, and not its store, comes again under its number, with its segments.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/run_suite.h"
#include "meta_net.h"

/* Makes the journal of a node that comes again, with the life that the cluster gave. */
static void format_again(ramp_node_t id, ramp_node_t a, uint64_t instance, uint64_t life)
{
	struct node_row rows[2] = {{.node = id, .name = "again", .address = "host:9"},
				   {.node = a, .name = "other", .address = "host:1"}};
	struct meta_founding f = {.instance = instance,
				  .self = id,
				  .arena_addr = UINT64_C(0x200000000000),
				  .arena_len = UINT64_C(1) << 40,
				  .life = life,
				  .nodes = rows,
				  .n_nodes = 2,
				  .joins = true};
	struct ramp_err err = {0};

	memset(f.cluster_id, 7, sizeof(f.cluster_id));
	net.node[id].instance = instance;
	unlink(net.node[id].path);
	ck_assert_msg(meta_format(net.node[id].path, &f, &err) == 0, "%s", err.text);
}

static int come_again(ramp_node_t at, ramp_node_t node, ramp_incarnation_t inc, uint64_t instance,
		      uint64_t *life)
{
	struct meta_command c = command(at, META_MEMBER_AGAIN);
	struct meta_reply reply = {0};
	int rc;

	c.node = node;
	c.node_inc = inc;
	c.instance = instance;
	rc = meta_propose_wait(meta_of(at), &c, &reply);
	*life = reply.other;
	return rc;
}

/* A voter (_i 0), or a standby, has lost its journal and not its store. */
START_TEST(a_node_that_lost_its_journal_comes_again_with_its_segments)
{
	struct node_row was, row;
	struct segment_row mine, now;
	struct meta_command promote;
	ramp_segment_t id;
	ramp_node_t leader, old, a, b;
	uint64_t life;

	for (a = 1; a <= 4; a++)
		net_format(a, 4, 3, 100 + a);
	for (a = 1; a <= 4; a++)
		net_start(a);
	leader = wait_leader(1, 3);
	all_up(4);
	old = _i == 0 ? another(leader) : 4;
	a = leader;
	b = old == 4 ? another(leader) : 6 - old - a;
	for (int i = 0; i < 5; i++) /* lives of which the floor tells */
		ck_assert_int_eq(node_up(old, old, 10 + old, 100 + old), 0);
	ck_assert_int_eq(create(old, old, "mine", &id), 0);
	WAIT_FOR(meta_segment(meta_of(a), id, &mine) == 0); /* `old` may apply first */
	ck_assert_int_eq(meta_node(meta_of(a), old, &was), 0);
	net_stop(old);

	ck_assert_int_eq(come_again(a, old, was.incarnation + 1, 998, &life), -ESTALE);
	ck_assert_int_eq(come_again(a, old, was.incarnation, 0, &life), -EINVAL);
	/* A second word, since the answer to the first one may be lost. */
	ck_assert_int_eq(come_again(a, old, was.incarnation, 998, &life), 0);
	ck_assert_int_eq(come_again(b, old, was.incarnation, 999, &life), 0);
	ck_assert_uint_gt(life, 0);
	ck_assert_int_eq(meta_node(meta_of(b), old, &row), 0);
	ck_assert_int_eq(row.role, NODE_STANDBY);
	ck_assert_uint_eq(row.instance, 999);
	ck_assert_uint_eq(row.incarnation, was.incarnation);
	ck_assert(meta_in_configuration(meta_of(b), old));

	format_again(old, a, 999, life);
	net_start(old);
	meta_peer(meta_of(a), old,
		  true); /* it may be told that it is an old copy, which ends the test */
	meta_peer(meta_of(b), old, true);
	WAIT_FOR(meta_segment(meta_of(old), id, &now) == 0);
	ck_assert_mem_eq(&now, &mine, sizeof(now));
	ck_assert_int_eq(node_up(old, old, was.incarnation, 998), -EPERM);
	ck_assert_int_eq(node_up(old, old, was.incarnation, 999), 0);
	WAIT_FOR(!meta_awaits_admission(meta_of(old)));
	ck_assert_int_eq(create(old, old, "more", NULL), 0); /* not taken for a late copy */
	meta_peer(meta_of(a), old, true);
	meta_peer(meta_of(b), old, true);

	/* It votes by a new word alone. */
	promote = command(old, META_MEMBER_PROMOTE);
	promote.node = old;
	ck_assert_int_eq(meta_propose_wait(meta_of(old), &promote, NULL), 0);
	net_stop(b);
	if (_i == 0)
		ck_assert_int_eq(create(a, a, "of two", NULL), 0);
	net_start(b);
	ck_assert_int_eq(create(old, old, "of three", NULL), 0);
}
END_TEST

/* Promises of the lost journal count no more. */
START_TEST(a_node_that_comes_again_is_no_quorum_by_old_promises)
{
	struct node_row was;
	ramp_node_t old, a, b;
	uint64_t life;

	net_found(3);
	all_up(3);
	a = wait_leader(1, 3);
	old = another(a);
	b = 6 - old - a;
	WAIT_FOR(meta_node(meta_of(a), old, &was) == 0 && was.incarnation == 10 + old);
	net_stop(old);
	net_cut(b, true);
	/* The configuration without it needs both others. */
	ck_assert_int_ne(come_again(a, old, was.incarnation, 999, &life), 0);
	net_cut(b, false);
	wait_leader(1, 3);
	ck_assert_int_eq(come_again(a, old, was.incarnation, 998, &life), 0);
	format_again(old, a, 998, life);
	net_start(old);
	WAIT_FOR(meta_awaits_admission(meta_of(old)) == false);
	net_stop(b);
	ck_assert_int_ne(create(a, a, "x", NULL), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_again");
	TCase *again = tcase_create("again");

	tcase_set_timeout(again, 120);
	tcase_add_checked_fixture(again, net_setup, net_teardown);
	suite_add_tcase(s, again);
	tcase_add_loop_test(again, a_node_that_lost_its_journal_comes_again_with_its_segments, 0,
			    2);
	tcase_add_test(again, a_node_that_comes_again_is_no_quorum_by_old_promises);
	return s;
}

int main(void)
{
	log_open("test_meta_again", 0, LOG_LEVEL_ERROR);
	return run_suite(suite());
}
