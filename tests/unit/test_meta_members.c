/*
 * Members that join, vote and leave; and admission: a node that was formatted again may not vote.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "lib/run_suite.h"
#include "meta/command.h"
#include "meta/meta_core.h"
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
	/* Node 3 might have been in a quorum with either of them, which they can't know. */
	usleep(1000000);
	ck_assert(meta_awaits_admission(meta_of(1)));
	ck_assert(meta_awaits_admission(meta_of(2)));
	ck_assert_uint_eq(leader_among(1, 2), 0);
	net_start(3);
	wait_leader(1, 3);
	/* Two may have begun before the third heard that they were fresh; it is admitted by its
	   instance. */
	all_up(3);
	WAIT_FOR(!meta_awaits_admission(meta_of(1)) && !meta_awaits_admission(meta_of(2)) &&
		 !meta_awaits_admission(meta_of(3)));
}
END_TEST

START_TEST(a_node_formatted_again_has_no_voice)
{
	struct segment_row row;
	ramp_node_t old, a, b;

	net_found(3);
	all_up(3);
	old = another(wait_leader(1, 3));
	a = another(old);
	b = 6 - old - a; /* the third */
	net_stop(old);
	net_format(old, 3, 3, 999);
	net_start(old);
	/* It takes the log, but is refused, and is no quorum together with one other. */
	ck_assert_int_eq(create(a, a, "x", NULL), 0);
	WAIT_FOR(meta_lookup(meta_of(old), a, "x", &row) == 0);
	ck_assert_int_eq(node_up(old, old, 55, 999), -EPERM);
	ck_assert(meta_awaits_admission(meta_of(old)));
	net_stop(b);
	ck_assert_int_ne(create(a, a, "y", NULL), 0);
	net_start(b);
	ck_assert_int_eq(create(a, a, "z", NULL), 0);
}
END_TEST

static _Atomic ramp_node_t ungreeting;

static bool greets_nobody(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	(void)to;
	return len == 0 || bytes[0] != WIRE_ADMISSION || from != atomic_load(&ungreeting);
}

/* A node that counts the voters that may vote must not wait for a report of its own. */
START_TEST(a_node_formatted_again_is_known_before_it_says_so)
{
	ramp_node_t leader, old;

	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	old = another(leader);
	net_stop(old);
	net_format(old, 3, 3, 999);
	WAIT_FOR(!meta_is_nonvoting(meta_of(leader), old)); /* as all nodes are at first */
	atomic_store(&ungreeting, old);
	atomic_store(&net.passes, greets_nobody);
	net_start(old);
	WAIT_FOR(meta_is_nonvoting(meta_of(leader), old));
	atomic_store(&net.passes, NULL);
	/* People are told when it lasts: any founder begins so. */
	ck_assert(!meta_gets_no_vote(meta_of(leader), old));
	WAIT_FOR(meta_is_nonvoting(meta_of(old), old));
	ck_assert(!meta_gets_no_vote(meta_of(old), old));
	WAIT_FOR(meta_gets_no_vote(meta_of(leader), old));
	WAIT_FOR(meta_gets_no_vote(meta_of(old), old));
}
END_TEST

static _Atomic unsigned int heard_of, heard_of_known;

static void note_heard_of(void *arg, const struct node_row *row)
{
	(void)arg;
	atomic_fetch_add(&heard_of, 1);
	if (row->node <= 3 || strcmp(row->name, "x") != 0 || strcmp(row->address, "h:1") != 0)
		atomic_fetch_add(&heard_of_known, 1);
}

/* Names `count` members, from number `first` on. */
static void tell_members(ramp_node_t to, ramp_node_t from, uint64_t instance, ramp_node_t first,
			 unsigned int count)
{
	struct node_row row = {.name = "x", .address = "h:1"};
	uint8_t buf[8192];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, WIRE_MEMBERS);
	for (row.node = first; row.node < first + count; row.node++)
		member_encode(&w, &row);
	ck_assert(!w.bad);
	meta_receive(meta_of(to), from, instance, buf, w.len);
}

/* Members are believed about members that the tables lack; another instance is not believed. */
START_TEST(who_else_is_a_member_is_heard_from_members)
{
	net.heard_of = note_heard_of;
	net_found(3);
	all_up(3);
	atomic_store(&heard_of, 0);
	tell_members(1, 2, net.node[2].instance, 1, 5);
	WAIT_FOR(atomic_load(&heard_of) == 2);
	tell_members(1, 2, 999, 4, 1);
	tell_members(1, 2, net.node[2].instance, 4, 300);
	WAIT_FOR(atomic_load(&heard_of) >= 2 + RAFT_NODES_MAX);
	ck_assert_int_eq(sync_done_with(1), 0);
	ck_assert_uint_eq(atomic_load(&heard_of), 2 + RAFT_NODES_MAX);
	ck_assert_uint_eq(atomic_load(&heard_of_known), 0);
	net.heard_of = NULL;
}
END_TEST

/* A sole voter has no other node to ask and may vote at once. A node that knows the instance before
   it must not take the new one's empty history for the cluster's. */
START_TEST(a_sole_voter_formatted_again_is_not_followed)
{
	ramp_segment_t precious;
	struct segment_row row;
	ramp_node_t id;
	int rc;

	for (id = 1; id <= 2; id++) {
		net_format(id, 2, 1, 100 + id);
		net_start(id);
	}
	wait_leader(1, 2);
	all_up(2);
	ck_assert_int_eq(create(2, 2, "precious", &precious), 0);
	net_stop(1);
	net_format(1, 2, 1, 999);
	if (_i == 1) /* it leads before another node is there */
		net_stop(2);
	net_start(1);
	if (_i == 1) {
		WAIT_FOR(meta_leader(meta_of(1)) == 1);
		ck_assert_int_eq(node_up(1, 1, 55, 999), 0);
		net_start(2);
	}
	WAIT_FOR(meta_awaits_admission(meta_of(1)));
	ck_assert_uint_eq(leader_among(1, 2), 0);
	/* Where no node has reported the other instance for a second it leads briefly, with no
	   node up. */
	while ((rc = create(1, 1, "other", NULL)) == -EHOSTDOWN && _i == 0)
		;
	ck_assert_int_eq(rc, -EROFS);
	ck_assert_int_eq(meta_lookup(meta_of(2), 2, "precious", &row), 0);
	ck_assert_uint_eq(row.id, precious);
	ck_assert_int_eq(meta_lookup(meta_of(1), 2, "precious", &row), -ENOENT);
	ck_assert_int_eq(sync_done_with(2), 1);
}
END_TEST

static void move_journal(ramp_node_t id, const char *from, const char *to)
{
	const char *path = net.node[id].path;
	char text[900];

	snprintf(text, sizeof(text), "rm -f %s%s-wal %s%s-shm; mv %s%s %s%s", path, to, path, to,
		 path, from, path, to);
	ck_assert_int_eq(system(text), 0);
}

/* The acts of another instance under its number do not count against the one that is bound. */
START_TEST(a_node_that_another_stood_in_for_comes_back)
{
	struct segment_row row;
	ramp_node_t old, a, b;
	int starts;

	net.election_ms = 2000; /* so that the leader remains the same */
	net_found(3);
	all_up(3);
	a = wait_leader(1, 3);
	old = another(a);
	b = 6 - old - a;
	net_stop(old);
	move_journal(old, "", ".kept");

	/* It catches up, and has more lives than the first had. */
	net_format(old, 3, 3, 999);
	ck_assert_int_eq(create(a, a, "x", NULL), 0);
	for (starts = 0; starts < 3; starts++) {
		net_start(old);
		meta_peer(meta_of(a), old, true);
		WAIT_FOR(meta_lookup(meta_of(old), a, "x", &row) == 0);
		ck_assert_int_eq(node_up(old, old, 55, 999), -EPERM);
		net_stop(old);
	}

	move_journal(old, ".kept", "");
	net.node[old].instance = 100u + old;
	net_start(old); /* an old copy would end the test */
	meta_peer(meta_of(a), old, true);
	meta_peer(meta_of(old), a, true);
	ck_assert_int_eq(create(old, old, "mine", NULL), 0);
	ck_assert(!meta_awaits_admission(meta_of(old)));
	/* Its acknowledgements count. */
	net_stop(b);
	ck_assert_int_eq(create(a, a, "of two", NULL), 0);
	net_start(b);
}
END_TEST

/* Checks that every other member knows that `mute` may not vote, and that `go` can't be removed:
   without it the voters that may vote would be one of two, no quorum. */
static void cannot_be_spared(ramp_node_t go, ramp_node_t mute)
{
	ramp_node_t asks = 6 - go - mute;
	struct node_row row;

	WAIT_FOR(meta_is_nonvoting(meta_of(asks), mute) && meta_is_nonvoting(meta_of(go), mute));
	ck_assert(meta_is_nonvoting(meta_of(mute), mute));
	/* New founders may not vote at first. */
	WAIT_FOR(!meta_is_nonvoting(meta_of(asks), go) && !meta_is_nonvoting(meta_of(mute), go));
	ck_assert_int_ne(member(asks, META_MEMBER_REMOVE, go, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(asks), go, &row), 0);
	ck_assert_int_eq(row.role, NODE_VOTER);
	ck_assert_int_eq(create(asks, asks, "continues", NULL), 0);
}

START_TEST(a_voter_stays_where_the_others_have_no_voice)
{
	struct node_row row;
	ramp_node_t old, a, b;

	net_found(3);
	all_up(3);
	a = wait_leader(1, 3);
	old = another(a);
	b = 6 - old - a;
	net_stop(old);
	net_format(old, 3, 3, 999);
	net_start(old);
	cannot_be_spared(b, old);
	cannot_be_spared(a, old); /* it may lead */

	/* It can be removed itself, which leaves two of two. */
	ck_assert_int_eq(member(a, META_MEMBER_REMOVE, old, NULL, NULL), 0);
	ck_assert(!meta_in_configuration(meta_of(a), old));
	ck_assert(meta_in_configuration(meta_of(a), b));
	ck_assert_int_eq(meta_node(meta_of(a), old, &row), 0);
	ck_assert_int_eq(row.role, NODE_REMOVED);
}
END_TEST

/* Makes a joiner's journal, with the members as named to it: the address of one has changed
   since. */
static void format_joiner(ramp_node_t id, uint64_t instance)
{
	struct node_row rows[3] = {{.node = 1, .name = "a", .address = "old:1"},
				   {.node = 2, .name = "b", .address = "host2:1"},
				   {.node = id, .name = "d", .address = "host:9"}};
	struct meta_founding f = {.instance = instance,
				  .self = id,
				  .arena_addr = UINT64_C(0x200000000000),
				  .arena_len = UINT64_C(1) << 40,
				  .nodes = rows,
				  .n_nodes = 3,
				  .joins = true};
	struct ramp_err err = {0};

	memset(f.cluster_id, 7, sizeof(f.cluster_id));
	rows[2].role = NODE_STANDBY;
	net.node[id].instance = instance;
	unlink(net.node[id].path);
	ck_assert_msg(meta_format(net.node[id].path, &f, &err) == 0, "%s", err.text);
}

START_TEST(a_joiner_knows_whom_it_was_told_of_until_it_has_the_tables)
{
	struct node_row row;
	ramp_node_t id;

	net_found(3);
	all_up(3);
	ck_assert_int_eq(member(1, META_MEMBER_ADD, 0, "d", &id), 0);
	format_joiner(id, 104);
	net_cut(id, true);
	net_start(id);
	ck_assert_int_eq(meta_node(meta_of(id), 1, &row), 0);
	ck_assert_str_eq(row.address, "old:1");
	ck_assert_int_eq(meta_node(meta_of(id), 3, &row), -ENOENT);
	ck_assert_int_eq(meta_node(meta_of(id), id, &row), 0);
	ck_assert_str_eq(row.address, "host:9");
	ck_assert(meta_awaits_admission(meta_of(id)));

	net_cut(id, false);
	WAIT_FOR(meta_node(meta_of(id), 3, &row) == 0);
	ck_assert_int_eq(meta_node(meta_of(id), 1, &row), 0);
	ck_assert_str_eq(row.address, "host1:1");
	ck_assert_int_eq(node_up(id, id, 14, 104), 0);
	ck_assert_int_eq(member(id, META_MEMBER_PROMOTE, id, NULL, NULL), 0);
}
END_TEST

START_TEST(a_voter_that_lost_its_state_comes_back_under_a_new_number)
{
	struct meta_command fence;
	struct node_row row;
	ramp_node_t old, a, id;

	net_found(3);
	all_up(3);
	old = another(wait_leader(1, 3));
	a = old == 1 ? 2 : 1;
	net_stop(old);
	ck_assert_int_eq(meta_node(meta_of(a), old, &row), 0);
	fence = command(a, META_NODE_FENCE);
	fence.node = old;
	fence.node_inc = row.incarnation;
	ck_assert_int_eq(meta_propose_wait(meta_of(a), &fence, NULL), 0);
	ck_assert_int_eq(member(a, META_MEMBER_REMOVE, old, NULL, NULL), 0);
	ck_assert_int_eq(member(a, META_MEMBER_ADD, 0, row.name, &id), 0);
	ck_assert_uint_eq(id, 4);
	format_joiner(id, 999);
	net_start(id);
	WAIT_FOR(meta_node(meta_of(id), a, &row) == 0 && row.incarnation != 0);
	ck_assert_int_eq(node_up(id, id, 55, 999), 0);
	WAIT_FOR(!meta_awaits_admission(meta_of(id)));
	ck_assert_int_eq(member(id, META_MEMBER_PROMOTE, id, NULL, NULL), 0);
	/* Its vote counts: without one of the others a quorum needs it. */
	net_stop(a);
	ck_assert_int_eq(create(id, id, "x", NULL), 0);
}
END_TEST

static atomic_bool old_copy_said;

static void on_old_copy(void *arg, const char *text)
{
	(void)arg;
	ck_assert_msg(strstr(text, "old copy") && strstr(text, "--rejoin"), "%s", text);
	atomic_store(&old_copy_said, true);
}

static void copy_journal(ramp_node_t id, bool back)
{
	const char *path = net.node[id].path;
	char command[500];

	snprintf(command, sizeof(command), "cp %s%s %s%s", path, back ? ".bak" : "", path,
		 back ? "" : ".bak");
	ck_assert_int_eq(system(command), 0);
}

START_TEST(a_journal_from_a_backup_has_no_voice_and_catches_up)
{
	struct segment_row row;
	ramp_node_t old, a, b;

	net_found(3);
	all_up(3);
	old = another(wait_leader(1, 3));
	a = another(old);
	b = 6 - old - a; /* the third */
	net_stop(old);
	copy_journal(old, false);
	net_start(old);
	ck_assert_int_eq(create(old, old, "later", NULL), 0);
	net_stop(old);
	copy_journal(old, true);
	net.fatal = on_old_copy;
	net_start(old);
	meta_peer(meta_of(a), old, true);
	WAIT_FOR(atomic_load(&old_copy_said));
	net_stop(old);

	net.fatal = NULL;
	net_start(old);
	meta_peer(meta_of(a), old, true);
	WAIT_FOR(meta_lookup(meta_of(old), old, "later", &row) == 0);
	ck_assert_int_eq(create(old, old, "from here", NULL), 0);
	ck_assert(meta_awaits_admission(meta_of(old)));
	net_stop(b);
	ck_assert_int_ne(create(a, a, "y", NULL), 0);
	net_start(b);
	ck_assert_int_eq(create(a, a, "z", NULL), 0);
	ck_assert(meta_awaits_admission(meta_of(old)));
	cannot_be_spared(b, old);
}
END_TEST

static void start_without_voice(ramp_node_t id)
{
	net.fatal = on_old_copy;
	net_start(id);
	WAIT_FOR(atomic_load(&old_copy_said));
	net_stop(id);
	net.fatal = NULL;
	net_start(id);
}

/* A copy that was made while the node ran is of no earlier life than the cluster knows. */
START_TEST(a_journal_from_a_hot_backup_has_no_voice_and_catches_up)
{
	ramp_node_t leader, old;
	struct segment_row row;
	char command[600];

	net.election_ms = 2000; /* another leader would not know the acknowledgements to this one */
	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	old = another(leader);
	snprintf(command, sizeof(command), "sqlite3 %s '.backup %s.bak'", net.node[old].path,
		 net.node[old].path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(create(leader, old, "later", NULL), 0);
	WAIT_FOR(meta_lookup(meta_of(old), old, "later", &row) == 0);
	net_stop(old);
	copy_journal(old, true);
	start_without_voice(old);
	WAIT_FOR(meta_lookup(meta_of(old), old, "later", &row) == 0);
	ck_assert(meta_awaits_admission(meta_of(old)));
	ck_assert_int_eq(create(old, old, "from here", NULL), 0);
}
END_TEST

static _Atomic ramp_node_t mute_from, mute_to;

static bool mute_one(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	(void)bytes;
	(void)len;
	return from != atomic_load(&mute_from) || to != atomic_load(&mute_to);
}

/* Another node leads by now, to which it has acknowledged nothing; the earlier leader still
   knows. */
START_TEST(a_hot_backup_is_found_out_by_a_leader_of_the_past)
{
	ramp_node_t past, old, now;
	struct segment_row row;
	char command[600];

	net.election_ms = 1000;
	net_found(3);
	all_up(3);
	past = wait_leader(1, 3);
	old = another(past);
	now = 6 - past - old;
	snprintf(command, sizeof(command), "sqlite3 %s '.backup %s.bak'", net.node[old].path,
		 net.node[old].path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(create(past, old, "later", NULL), 0);
	WAIT_FOR(meta_lookup(meta_of(old), old, "later", &row) == 0);
	net_stop(old);
	/* From here on the third is ahead, and so leadership is handed to it. */
	ck_assert_int_eq(create(past, past, "without it", NULL), 0);
	meta_transfer_leadership(meta_of(past));
	WAIT_FOR(meta_leader(meta_of(past)) == now);

	/* Before it has caught up. */
	atomic_store(&mute_from, now);
	atomic_store(&mute_to, old);
	atomic_store(&net.passes, mute_one);
	copy_journal(old, true);
	net.fatal = on_old_copy;
	net_start(old);
	meta_peer(meta_of(past), old, true);
	WAIT_FOR(atomic_load(&old_copy_said));
	net_stop(old);

	atomic_store(&net.passes, NULL);
	net.fatal = NULL;
	net_start(old);
	WAIT_FOR(meta_lookup(meta_of(old), old, "later", &row) == 0);
	meta_peer(meta_of(past), old, true);
	ck_assert_int_eq(create(old, old, "from here", NULL), 0);
	ck_assert(meta_awaits_admission(meta_of(old)));
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
	tcase_add_test(members, a_node_formatted_again_is_known_before_it_says_so);
	tcase_add_test(members, who_else_is_a_member_is_heard_from_members);
	tcase_add_loop_test(members, a_sole_voter_formatted_again_is_not_followed, 0, 2);
	tcase_add_test(members, a_node_that_another_stood_in_for_comes_back);
	tcase_add_test(members, a_voter_stays_where_the_others_have_no_voice);
	tcase_add_test(members, a_joiner_knows_whom_it_was_told_of_until_it_has_the_tables);
	tcase_add_test(members, a_voter_that_lost_its_state_comes_back_under_a_new_number);
	tcase_add_test(members, a_journal_from_a_backup_has_no_voice_and_catches_up);
	tcase_add_test(members, a_journal_from_a_hot_backup_has_no_voice_and_catches_up);
	tcase_add_test(members, a_hot_backup_is_found_out_by_a_leader_of_the_past);
	return s;
}

int main(void)
{
	log_open("test_meta_members", 0, LOG_LEVEL_ERROR);
	return run_suite(suite());
}
