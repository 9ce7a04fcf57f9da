/*
 * Members that come, vote and go; and who may vote at all: nodes formatted again may not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "meta_net.h"

/* ---- members ------------------------------------------------------------------------------- */

static int member(ramp_node_t at, enum meta_command_type type, ramp_node_t node, const char *name,
		  ramp_node_t *added)
{
	struct meta_command c = command(at, type);
	struct meta_reply reply = {0};
	int rc;

	c.node = node;
	if (name)
		snprintf(c.new_name, sizeof(c.new_name), "%s", name);
	snprintf(c.address, sizeof(c.address), "host:9");
	rc = meta_propose_wait(meta_of(at), &c, &reply);
	if (added)
		*added = reply.node;
	return rc;
}

START_TEST(a_node_joins_votes_and_leaves)
{
	struct segment_row row;
	struct node_row node;
	ramp_node_t id;

	net_found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
	ck_assert_int_eq(member(2, META_MEMBER_ADD, 0, "d", &id), 0);
	ck_assert_uint_eq(id, 4);
	ck_assert_int_eq(member(2, META_MEMBER_ADD, 0, "d", NULL), -EEXIST);

	net_format(4, 0, 0, 104);
	net_start(4);
	WAIT_FOR(meta_lookup(meta_of(4), 1, "x", &row) == 0);
	ck_assert_int_eq(node_up(4, 4, 14, 104), 0);
	ck_assert_int_eq(create(4, 4, "mine", NULL), 0);
	ck_assert_int_eq(member(4, META_MEMBER_PROMOTE, 4, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(4), 4, &node), 0);
	ck_assert_int_eq(node.role, NODE_VOTER);

	/* Four voters: three are a quorum, with the new one. */
	net_stop(1);
	ck_assert_int_eq(create(4, 4, "more", NULL), 0);
	net_start(1);

	ck_assert_int_eq(member(2, META_MEMBER_REMOVE, 4, NULL, NULL), -EBUSY);
	ck_assert_int_eq(member(2, META_MEMBER_REMOVE, 3, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(2), 3, &node), 0);
	ck_assert_int_eq(node.role, NODE_REMOVED);
	net_stop(3);
	net_stop(1);
	ck_assert_int_eq(create(2, 2, "two of three", NULL), 0);
}
END_TEST

START_TEST(a_leader_that_is_removed_hands_over_first)
{
	struct node_row node;
	ramp_node_t leader, other;

	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	other = another(leader);
	ck_assert_int_eq(member(other, META_MEMBER_REMOVE, leader, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(other), leader, &node), 0);
	ck_assert_int_eq(node.role, NODE_REMOVED);
	net_stop(leader);
	ck_assert_int_eq(create(other, other, "x", NULL), 0);
}
END_TEST

START_TEST(a_standby_proposes_and_reads_but_is_no_quorum)
{
	struct segment_row row;
	ramp_node_t id;

	for (id = 1; id <= 4; id++)
		net_format(id, 4, 3, 100 + id);
	for (id = 1; id <= 4; id++)
		net_start(id);
	wait_leader(1, 3);
	all_up(4);
	ck_assert_int_eq(create(4, 4, "x", NULL), 0);
	ck_assert_int_eq(sync_done_with(4), 0);
	ck_assert_int_eq(meta_lookup(meta_of(4), 4, "x", &row), 0);
	net_stop(1);
	net_stop(2);
	WAIT_FOR(meta_leader(meta_of(4)) == 0);
	ck_assert_int_eq(create(4, 4, "y", NULL), -EROFS);
}
END_TEST

/* ---- formatted again ----------------------------------------------------------------------- */

START_TEST(a_founder_alone_waits_for_the_others)
{
	ramp_node_t id;

	for (id = 1; id <= 3; id++)
		net_format(id, 3, 3, 100 + id);
	net_start(1);
	net_start(2);
	/* Node 3 might have been in a quorum with either of them: they can't know. */
	usleep(1000000);
	ck_assert(meta_waits_for_voice(meta_of(1)));
	ck_assert(meta_waits_for_voice(meta_of(2)));
	ck_assert_uint_eq(leader_among(1, 2), 0);
	net_start(3);
	wait_leader(1, 3);
	/* Two may have begun before the third heard that they were new; it is taken in by name. */
	all_up(3);
	WAIT_FOR(!meta_waits_for_voice(meta_of(1)) && !meta_waits_for_voice(meta_of(2)) &&
		 !meta_waits_for_voice(meta_of(3)));
}
END_TEST

START_TEST(a_node_formatted_again_has_no_voice)
{
	struct segment_row row;
	ramp_node_t old, a, b;

	net_found(3);
	all_up(3);
	old = another(wait_leader(1, 3));
	a = old == 1 ? 2 : 1;
	b = old == 3 || a == 3 ? 2 : 3;
	net_stop(old);
	net_format(old, 3, 3, 999);
	net_start(old);
	/* It takes the log, but is refused, and is no quorum together with one other. */
	ck_assert_int_eq(create(a, a, "x", NULL), 0);
	WAIT_FOR(meta_lookup(meta_of(old), a, "x", &row) == 0);
	ck_assert_int_eq(node_up(old, old, 55, 999), -EPERM);
	ck_assert(meta_waits_for_voice(meta_of(old)));
	net_stop(b);
	ck_assert_int_ne(create(a, a, "y", NULL), 0);
	net_start(b);
	ck_assert_int_eq(create(a, a, "z", NULL), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_members");
	TCase *members = tcase_create("members");

	tcase_add_checked_fixture(members, net_setup, net_teardown);
	tcase_set_timeout(members, 120);
	suite_add_tcase(s, members);
	tcase_add_test(members, a_node_joins_votes_and_leaves);
	tcase_add_test(members, a_leader_that_is_removed_hands_over_first);
	tcase_add_test(members, a_standby_proposes_and_reads_but_is_no_quorum);
	tcase_add_test(members, a_founder_alone_waits_for_the_others);
	tcase_add_test(members, a_node_formatted_again_has_no_voice);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	log_open("test_meta_members", 0, LOG_LEVEL_ERROR);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
