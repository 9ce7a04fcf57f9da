/*
 * Scripted cases: the leader. When it must step down, what it may read, which members it may take,
 * how it hands over.
 */
#include "scripted.h"

#include <errno.h>

#include "meta/raft_log.h"

#define ALL (BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5))

START_TEST(a_leader_without_a_quorum_steps_down)
{
	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_event(1, RAFT_EV_ELECTION); /* both have answered since the last check */
	ck_assert_int_eq(stage_raft(1)->state, RAFT_LEADER);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_drop(ANY, ANY, 0);
	stage_event(1, RAFT_EV_ELECTION);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
	ck_assert(!raft_has_quorum(stage_raft(1)));
}
END_TEST

/* A leader that was replaced without noticing answers no read. */
START_TEST(a_replaced_leader_reads_nothing)
{
	uint64_t index;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_lead(2, BIT(3));
	stage_propose(2, 5);
	stage_settle(BIT(2) | BIT(3));
	ck_assert_int_eq(stage_raft(1)->state, RAFT_LEADER);
	ck_assert_int_eq(stage_read(1, 77), 0);
	stage_drop(ANY, ANY, 0);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1)); /* no other node receives */
	ck_assert_uint_eq(stage_reads_good(77, &index), 0);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_uint_eq(stage_reads_good(77, &index), 0);
}
END_TEST

/* An answer to a round that began before the read proves nothing for it. */
START_TEST(a_read_needs_a_round_of_its_own)
{
	struct raft_message *m;
	uint64_t index = 0;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_deliver(1, 2, RAFT_APPEND);
	stage_drop(1, ANY, 0);
	m = stage_take(2, 1, RAFT_APPEND_ANSWER);
	ck_assert_int_eq(stage_read(1, 77), 0);
	stage_give(m); /* sent before the read */
	stage_free(m);
	ck_assert_uint_eq(stage_reads_good(77, &index), 0);
	stage_settle(BIT(1) | BIT(2));
	ck_assert_uint_eq(stage_reads_good(77, &index), 1);
	ck_assert_uint_eq(index, 2);
}
END_TEST

START_TEST(a_new_leader_reads_after_its_first_commit)
{
	uint64_t index;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_propose(1, 5);
	stage_settle(ALL);
	/* Node 2 doesn't know yet that entry 3 is committed. */
	stage_elect(2, BIT(3));
	ck_assert_int_eq(stage_read(2, 78), -EAGAIN);
	stage_lead(2, BIT(3));
	ck_assert_int_eq(stage_read(2, 79), 0);
	stage_settle(ALL);
	ck_assert_uint_eq(stage_reads_good(79, &index), 1);
	ck_assert_uint_ge(index, 4);
}
END_TEST

/* A leader counts its rounds from the start after its restart: an answer to a message of its
   earlier life proves nothing for a round of the same number now. */
START_TEST(a_round_of_an_earlier_life_proves_nothing)
{
	struct raft_message *late, *answer;
	uint64_t index;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	for (int i = 0; i < 4; i++) {
		stage_event(1, RAFT_EV_HEARTBEAT);
		stage_settle(ALL);
	}
	stage_event(1, RAFT_EV_HEARTBEAT);
	late = stage_take(1, 2, RAFT_APPEND); /* round 6 or so of term 2 */
	stage_drop(ANY, ANY, 0);
	stage_crash(1);
	stage_lead(1, BIT(2) | BIT(3)); /* term 3 */
	stage_drop(ANY, ANY, 0);
	stage_give(late);
	answer = stage_take(2, 1, RAFT_APPEND_ANSWER);
	while (stage_raft(1)->round + 1 < late->round) {
		stage_event(1, RAFT_EV_HEARTBEAT);
		stage_drop(ANY, ANY, 0);
	}
	ck_assert_int_eq(stage_read(1, 77), 0);
	stage_drop(ANY, ANY, 0);
	stage_give(answer);
	ck_assert_uint_eq(stage_reads_good(77, &index), 0);
	stage_free(late);
	stage_free(answer);
}
END_TEST

/* ---- members --------------------------------------------------------------------------------- */

static struct raft_conf conf_without(const struct raft *r, ramp_node_t node)
{
	struct raft_conf conf = {0};

	for (uint32_t i = 0; i < r->conf.n; i++)
		if (r->conf.member[i].node != node)
			conf.member[conf.n++] = r->conf.member[i];
	return conf;
}

START_TEST(members_change_one_at_a_time)
{
	struct raft_conf conf, two;

	stage_open(5, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	conf = conf_without(stage_raft(1), 5);
	two = conf;
	two.n--;
	ck_assert_int_eq(stage_propose_conf(1, &two), -EINVAL);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	stage_drop(ANY, ANY, 0);
	ck_assert_int_eq(stage_propose_conf(1, &two), -EBUSY);
	/* In force as soon as it is in the log: three of four are needed now. */
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2));
	ck_assert_uint_lt(stage_commit_of(1), stage_raft(1)->conf_index);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2) | BIT(3));
	ck_assert_uint_ge(stage_commit_of(1), stage_raft(1)->conf_index);
	ck_assert_int_eq(stage_propose_conf(1, &two), 0);
}
END_TEST

/* The bug of 2015: two leaders, each with a change of its own over the same configuration. */
START_TEST(a_new_leader_changes_members_after_its_first_commit)
{
	struct raft_conf conf;

	stage_open(4, 0, 0);
	stage_lead(1, BIT(2) | BIT(3) | BIT(4));
	conf = conf_without(stage_raft(1), 4);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0); /* term 2; reaches no node */
	stage_drop(ANY, ANY, 0);
	stage_elect(2, BIT(3) | BIT(4)); /* term 3, with the old configuration */
	conf = conf_without(stage_raft(2), 1);
	ck_assert_int_eq(stage_propose_conf(2, &conf), -EBUSY);
	stage_lead(2, BIT(3) | BIT(4));
	ck_assert_int_eq(stage_propose_conf(2, &conf), 0);
	stage_settle(BIT(2) | BIT(3) | BIT(4));
	ck_assert_uint_ge(stage_commit_of(2), stage_raft(2)->conf_index);
	/* Node 1 and its own change can't win any more: nodes 2 and 3 hold a newer entry. */
	stage_lease_over(2);
	stage_lease_over(3);
	stage_event(1, RAFT_EV_ELECTION);
	stage_event(1, RAFT_EV_ELECTION);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
}
END_TEST

/* A configuration entry that is truncated after the one before it was compacted away: the old one
   is in force again, also after a restart. */
START_TEST(a_truncated_configuration_gives_way_to_the_compacted_one)
{
	struct raft_conf conf;
	struct raft_message a;
	struct raft_data *data;

	stage_open(3, 0, 2);
	stage_lead(1, BIT(2) | BIT(3));
	conf = conf_without(stage_raft(1), 3);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	stage_settle(BIT(1) | BIT(2));
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2));
	stage_propose(1, 4);
	stage_settle(BIT(1) | BIT(2));
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2));
	ck_assert_uint_ge(stage_raft(2)->snap_index, 3); /* {1, 2} is in no log any more */
	ck_assert_uint_eq(stage_raft(2)->conf.n, 2);
	/* Leader 1 adds node 3 again; the entry reaches node 2 and is never committed. */
	conf.member[conf.n++] = (struct raft_member){.node = 3, .role = RAFT_LEARNER};
	data = raft_conf_encode(&conf);
	a = stage_append(1, 2, 2, stage_raft(2)->last_index, 2, stage_commit_of(2));
	a.entries[a.n_entries++] = (struct raft_entry){.term = 2, .type = RAFT_CONF, .data = data};
	stage_give(&a);
	ck_assert_uint_eq(stage_raft(2)->conf.n, 3);
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->conf.n, 3);
	raft_message_release(&a);
	/* Another leader's log has another entry there. */
	a = stage_append(1, 2, 4, stage_raft(2)->last_index - 1, 2, stage_commit_of(2));
	stage_add_entry(&a, 4, 9);
	stage_give(&a);
	raft_message_release(&a);
	ck_assert_uint_eq(stage_raft(2)->conf.n, 2);
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->conf.n, 2);
}
END_TEST

/* A snapshot brings the configuration of its index. */
START_TEST(a_snapshot_brings_its_configuration)
{
	struct raft_conf conf;

	stage_open(3, 1, 3);
	stage_lead(1, BIT(2) | BIT(3));
	conf = conf_without(stage_raft(1), 3);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	for (uint32_t i = 0; i < 4; i++) {
		stage_settle(BIT(1) | BIT(2));
		stage_event(1, RAFT_EV_HEARTBEAT);
		stage_settle(BIT(1) | BIT(2));
		stage_propose(1, i);
	}
	ck_assert_uint_gt(stage_raft(1)->snap_index, 3);
	for (uint32_t i = 0; i < 3; i++) {
		stage_event(1, RAFT_EV_HEARTBEAT);
		stage_settle(BIT(1) | BIT(2) | BIT(4));
	}
	ck_assert_uint_gt(stage_raft(4)->snap_index, 3);
	ck_assert_uint_eq(stage_raft(4)->conf.n, 3);
	ck_assert_ptr_null(raft_conf_find(&stage_raft(4)->conf, 3));
	stage_crash(4);
	ck_assert_uint_eq(stage_raft(4)->conf.n, 3);
}
END_TEST

/* ... and not one that is only at the log's end: it may never be committed. */
START_TEST(a_snapshot_does_not_bring_a_later_configuration)
{
	struct raft_event lost = {.type = RAFT_EV_SNAPSHOT_LOST, .node = 4};
	struct raft_message *m;
	struct raft_conf conf;

	stage_open(3, 1, 3);
	stage_lead(1, BIT(2) | BIT(3));
	for (uint32_t i = 0; i < 3; i++) {
		stage_propose(1, i);
		stage_settle(BIT(1) | BIT(2) | BIT(3));
	}
	ck_assert_uint_gt(stage_raft(1)->snap_index, 1);
	conf = conf_without(stage_raft(1), 3);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	stage_drop(ANY, ANY, 0); /* it reaches no node */
	ck_assert_uint_gt(stage_raft(1)->conf_index, stage_commit_of(1));
	puppet_step(stage_node(1), &lost); /* a dump is made now */
	stage_turns(1);
	m = stage_take(1, 4, RAFT_SNAPSHOT);
	ck_assert_int_eq(raft_conf_decode(m->conf->bytes, m->conf->len, &conf), 0);
	ck_assert_uint_eq(conf.n, 4);
	ck_assert_uint_eq(m->conf_index, 1);
	stage_free(m);
}
END_TEST

/* A learner becomes a voter when it has caught up, not before. */
START_TEST(a_learner_that_lags_is_not_promoted)
{
	struct raft_conf conf;

	stage_open(1, 1, 0);
	stage_lead(1, 0);
	conf = stage_raft(1)->conf;
	conf.member[1].role = RAFT_VOTER;
	/* Its log is as long, but it has not answered: the gap is within the bound. */
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	stage_drop(ANY, ANY, 0);
	ck_assert_uint_lt(stage_commit_of(1), stage_raft(1)->conf_index); /* needs both now */
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_uint_ge(stage_commit_of(1), stage_raft(1)->conf_index);
}
END_TEST

/* A configuration is in force when it is proposed: the leader refuses one without a quorum of
   answering voters, since the removed voter would be the one that could commit it, or any entry. */
START_TEST(nobody_goes_whose_going_leaves_no_quorum)
{
	struct raft_conf conf;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_event(1, RAFT_EV_ELECTION);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2)); /* node 3 does not answer any more */
	conf = conf_without(stage_raft(1), 2);
	ck_assert_int_eq(stage_propose_conf(1, &conf), -EAGAIN);
	ck_assert_int_eq(stage_propose(1, 5), 0);
	stage_settle(BIT(1) | BIT(2));
	ck_assert_uint_eq(stage_commit_of(1), stage_raft(1)->last_index);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_int_eq(stage_propose_conf(1, &conf), 0);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_uint_ge(stage_commit_of(1), stage_raft(1)->conf_index);
}
END_TEST

/* ---- handing over ---------------------------------------------------------------------------- */

START_TEST(a_leader_hands_over)
{
	struct raft_event ev = {.type = RAFT_EV_TRANSFER, .node = 3};

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_propose(1, 5);
	stage_settle(BIT(1) | BIT(2)); /* node 3 lacks it */
	ck_assert_int_eq(puppet_step(stage_node(1), &ev), 0);
	stage_turns(1);
	ck_assert_uint_eq(stage_count(1, 3, RAFT_TIMEOUT_NOW), 0);
	ck_assert_int_eq(stage_propose(1, 6), -EAGAIN);
	stage_drop(ANY, ANY, 0);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_event(1, RAFT_EV_PEER);
	/* Now it has all entries, gets TIMEOUT_NOW, and wins in spite of the others' leases. */
	stage_settle(ALL);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_int_eq(stage_raft(3)->state, RAFT_LEADER);
	ck_assert_int_eq(stage_raft(1)->state, RAFT_FOLLOWER);
	ck_assert_uint_eq(stage_raft(1)->leader, 3);
}
END_TEST

/* Node 2 has all entries, and has died. */
START_TEST(a_leader_hands_over_to_who_is_heard)
{
	struct raft_event ev = {.type = RAFT_EV_TRANSFER};

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_settle(ALL);
	stage_event(1, RAFT_EV_ELECTION);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_int_eq(puppet_step(stage_node(1), &ev), 0);
	stage_turns(1);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_int_eq(stage_raft(3)->state, RAFT_LEADER);
}
END_TEST

/* A leader that is to leave asks until it has handed over. Asking again chooses no other node,
   repeats nothing and prolongs nothing, since no entry is proposed meanwhile. */
START_TEST(to_hand_over_again_changes_nothing)
{
	struct raft_event ev = {.type = RAFT_EV_TRANSFER, .now_ms = 1000};
	uint64_t until;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	stage_propose(1, 5);
	stage_deliver(1, 3, RAFT_APPEND);
	stage_deliver(3, 1, RAFT_APPEND_ANSWER);
	ck_assert_int_eq(puppet_step(stage_node(1), &ev), 0);
	stage_turns(1);
	ck_assert_uint_eq(stage_count(1, 3, RAFT_TIMEOUT_NOW), 1);
	until = stage_raft(1)->transfer_until;
	stage_deliver(1, 2, RAFT_APPEND);
	stage_deliver(2, 1, RAFT_APPEND_ANSWER); /* node 2 would do as well now */
	ev.now_ms = 1050;
	ck_assert_int_eq(puppet_step(stage_node(1), &ev), 0);
	stage_turns(1);
	ck_assert_uint_eq(stage_count(1, ANY, RAFT_TIMEOUT_NOW), 1);
	ck_assert_uint_eq(stage_raft(1)->transfer_to, 3);
	ck_assert_uint_eq(stage_raft(1)->transfer_until, until);
	ev.node = 2; /* asked for by name, it is another */
	ck_assert_int_eq(puppet_step(stage_node(1), &ev), 0);
	ck_assert_uint_eq(stage_raft(1)->transfer_to, 2);
}
END_TEST

TCase *scripted_leader(void)
{
	TCase *tc = tcase_create("leader");

	tcase_add_checked_fixture(tc, stage_reads_clear, stage_close);
	tcase_add_test(tc, a_leader_without_a_quorum_steps_down);
	tcase_add_test(tc, a_replaced_leader_reads_nothing);
	tcase_add_test(tc, a_read_needs_a_round_of_its_own);
	tcase_add_test(tc, a_new_leader_reads_after_its_first_commit);
	tcase_add_test(tc, a_round_of_an_earlier_life_proves_nothing);
	tcase_add_test(tc, members_change_one_at_a_time);
	tcase_add_test(tc, a_new_leader_changes_members_after_its_first_commit);
	tcase_add_test(tc, a_truncated_configuration_gives_way_to_the_compacted_one);
	tcase_add_test(tc, a_snapshot_brings_its_configuration);
	tcase_add_test(tc, a_snapshot_does_not_bring_a_later_configuration);
	tcase_add_test(tc, a_learner_that_lags_is_not_promoted);
	tcase_add_test(tc, nobody_goes_whose_going_leaves_no_quorum);
	tcase_add_test(tc, a_leader_hands_over);
	tcase_add_test(tc, a_leader_hands_over_to_who_is_heard);
	tcase_add_test(tc, to_hand_over_again_changes_nothing);
	return tc;
}
