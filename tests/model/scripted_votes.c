/*
 * Scripted cases: votes. One vote a term, durable, for an up-to-date log; nodes that may not vote.
 */
#include "scripted.h"

#include "meta/raft_log.h"

static struct raft_message vote(ramp_node_t from, ramp_node_t to, uint64_t term, uint64_t index,
				uint64_t log_term)
{
	struct raft_message m = {
		.type = RAFT_VOTE,
		.from = from,
		.to = to,
		.term = term,
		.index = index,
		.log_term = log_term,
	};

	return m;
}

/* Asks for a vote. Returns whether it was granted. */
static bool asked(ramp_node_t from, ramp_node_t to, uint64_t term, uint64_t index,
		  uint64_t log_term)
{
	struct raft_message m = vote(from, to, term, index, log_term), *answer;
	bool given;

	stage_give(&m);
	answer = stage_take(to, from, RAFT_VOTE_ANSWER);
	given = !answer->reject;
	stage_free(answer);
	return given;
}

START_TEST(one_vote_a_term)
{
	stage_open(3, 0, 0);
	ck_assert(asked(1, 3, 2, 1, 1));
	ck_assert(!asked(2, 3, 2, 1, 1));
	ck_assert(asked(1, 3, 2, 1, 1)); /* again, for the same candidate */
	stage_crash(3);
	ck_assert(!asked(2, 3, 2, 1, 1));
	ck_assert(asked(1, 3, 2, 1, 1));
}
END_TEST

/* The term was known before, so only the vote is new on the disk. */
START_TEST(a_vote_in_a_known_term_is_kept)
{
	stage_open(3, 0, 0);
	ck_assert(!asked(1, 3, 2, 0, 0)); /* its log lacks the founders' entry */
	ck_assert_uint_eq(stage_node(3)->disk.term, 2);
	ck_assert(asked(2, 3, 2, 1, 1));
	stage_crash(3);
	ck_assert(!asked(1, 3, 2, 1, 1));
}
END_TEST

START_TEST(a_vote_is_of_its_term)
{
	stage_open(3, 0, 0);
	ck_assert(asked(1, 3, 2, 1, 1));
	ck_assert(asked(2, 3, 3, 1, 1)); /* an old vote doesn't bind in a new term ... */
	ck_assert(!asked(1, 3, 3, 1, 1));
	stage_crash(3);
	ck_assert_uint_eq(stage_raft(3)->term, 3);
	ck_assert(!asked(1, 3, 3, 1, 1));
	ck_assert(!asked(2, 3, 2, 1, 1)); /* ... and an old term gets none */
}
END_TEST

/* A new term that came by another message: the old vote must not be in it, nor on the disk. */
START_TEST(an_old_vote_does_not_stand_in_a_new_term)
{
	struct raft_message a;

	stage_open(3, 0, 0);
	ck_assert(asked(1, 3, 2, 1, 1));
	a = stage_append(2, 3, 3, 1, 1, 1);
	stage_give(&a);
	ck_assert_uint_eq(stage_node(3)->disk.term, 3);
	ck_assert_uint_eq(stage_node(3)->disk.vote, 0);
	stage_lease_over(3);
	stage_drop(ANY, ANY, 0);
	ck_assert(asked(2, 3, 3, 1, 1));
}
END_TEST

START_TEST(a_vote_is_durable_before_it_is_sent)
{
	struct raft_message m = vote(1, 3, 2, 1, 1);

	stage_open(3, 0, 0);
	stage_step_message(3, &m);
	stage_early(3);
	ck_assert_uint_eq(stage_count(3, ANY, 0), 0);
	stage_crash(3);
	ck_assert(asked(2, 3, 2, 1, 1)); /* no node was promised anything */
	stage_crash(3);
	ck_assert(!asked(1, 3, 2, 1, 1));
}
END_TEST

START_TEST(a_candidate_counts_its_own_vote_when_durable)
{
	stage_open(1, 0, 0);
	stage_step(1, RAFT_EV_ELECTION);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
	stage_early(1);
	stage_commit(1);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
	stage_finish(1);
	ck_assert_int_eq(stage_raft(1)->state, RAFT_LEADER);
	stage_turns(1);
	ck_assert_uint_eq(stage_node(1)->disk.vote, 1);
}
END_TEST

/* A campaign asks for votes once its term and its own vote are durable. */
START_TEST(a_campaign_is_durable_before_it_is_sent)
{
	struct raft_message *m;

	stage_open(3, 0, 0);
	stage_event(1, RAFT_EV_ELECTION);
	stage_deliver(1, 2, RAFT_PREVOTE);
	m = stage_take(2, 1, RAFT_PREVOTE_ANSWER);
	stage_drop(ANY, ANY, 0);
	stage_step_message(1, m);
	stage_free(m);
	ck_assert_int_eq(stage_raft(1)->state, RAFT_CANDIDATE);
	stage_early(1);
	ck_assert_uint_eq(stage_count(1, ANY, 0), 0);
	stage_commit(1);
	ck_assert_uint_eq(stage_node(1)->disk.term, 2);
	ck_assert_uint_eq(stage_node(1)->disk.vote, 1);
	stage_finish(1);
	ck_assert_uint_eq(stage_count(1, ANY, RAFT_VOTE), 2);
}
END_TEST

START_TEST(no_vote_for_a_shorter_or_older_log)
{
	struct raft_message a;

	stage_open(3, 0, 0);
	a = stage_append(1, 3, 3, 1, 1, 1);
	stage_add_entry(&a, 3, 1);
	stage_add_entry(&a, 3, 2);
	stage_give(&a);
	raft_message_release(&a);
	stage_lease_over(3);
	stage_drop(ANY, ANY, 0);
	ck_assert(!asked(2, 3, 4, 2, 3)); /* shorter */
	ck_assert(!asked(2, 3, 5, 9, 2)); /* longer, of an older term */
	ck_assert(asked(2, 3, 6, 3, 3));
}
END_TEST

/* An answer to an older campaign doesn't count in a newer one. */
START_TEST(an_old_answer_does_not_count)
{
	struct raft_message *old, *pre;

	stage_open(3, 0, 0);
	stage_event(1, RAFT_EV_ELECTION);
	stage_deliver(1, 2, RAFT_PREVOTE);
	pre = stage_take(2, 1, RAFT_PREVOTE_ANSWER);
	stage_give(pre);
	stage_deliver(1, 2, RAFT_VOTE);
	old = stage_take(2, 1, RAFT_VOTE_ANSWER);
	ck_assert(!old->reject);
	stage_drop(ANY, ANY, 0);
	/* Another campaign: no answer to the first one makes it a candidate or a leader. */
	stage_event(1, RAFT_EV_ELECTION);
	stage_give(pre);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_CANDIDATE);
	stage_give(old);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
	stage_drop(ANY, ANY, RAFT_PREVOTE_ANSWER);
	stage_deliver(1, 3, RAFT_PREVOTE);
	stage_deliver(3, 1, RAFT_PREVOTE_ANSWER);
	ck_assert_int_eq(stage_raft(1)->state, RAFT_CANDIDATE);
	stage_give(old);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
	stage_free(old);
	stage_free(pre);
}
END_TEST

/* A wiped disk under an old number: no vote, no campaign, no acknowledgement that counts. */
START_TEST(a_node_formatted_again_has_no_voice)
{
	struct raft_options opt;
	struct raft_conf conf;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2));
	stage_drop(ANY, ANY, 0);
	opt = stage_node(3)->opt;
	conf = stage_raft(3)->conf;
	puppet_free(stage_node(3));
	puppet_format(stage_node(3), &opt, &conf, false);
	ck_assert(!asked(2, 3, 9, 9, 9));
	stage_event(3, RAFT_EV_ELECTION);
	ck_assert_int_eq(stage_raft(3)->state, RAFT_FOLLOWER);
	ck_assert_uint_eq(stage_count(3, ANY, 0), 0);
	/* By its answers alone nothing is committed, and no quorum has answered. */
	stage_close();
	stage_open(3, 0, 0);
	puppet_free(stage_node(3));
	puppet_format(stage_node(3), &opt, &conf, false);
	stage_lead(1, BIT(2));
	stage_propose(1, 5);
	stage_settle(BIT(1) | BIT(3));
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_uint_eq(stage_raft(3)->last_index, 3);
	ck_assert_uint_eq(stage_commit_of(1), 2);
	ck_assert_int_eq(stage_event(1, RAFT_EV_ELECTION), 0); /* node 2 has answered before */
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	stage_event(1, RAFT_EV_ELECTION);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
}
END_TEST

/* A node's number may have been used before its first start: in the term of its confirmation it
   doesn't vote again. */
START_TEST(a_confirmed_node_uses_its_vote_up)
{
	struct raft_options opt;
	struct raft_conf conf;

	stage_open(3, 0, 0);
	opt = stage_node(3)->opt;
	conf = stage_raft(3)->conf;
	puppet_free(stage_node(3));
	puppet_format(stage_node(3), &opt, &conf, false);
	ck_assert(!asked(1, 3, 2, 1, 1));
	stage_event(3, RAFT_EV_CONFIRM);
	ck_assert(!asked(1, 3, 2, 1, 1));
	ck_assert(asked(1, 3, 3, 1, 1));
	stage_crash(3);
	ck_assert(stage_raft(3)->confirmed);
}
END_TEST

START_TEST(an_isolated_node_does_not_disturb)
{
	uint64_t term;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	term = stage_raft(1)->term;
	for (int i = 0; i < 5; i++) {
		stage_event(3, RAFT_EV_ELECTION);
		stage_drop(ANY, ANY, 0);
	}
	ck_assert_uint_eq(stage_raft(3)->term, term);
	stage_event(3, RAFT_EV_ELECTION); /* it has answered again */
	stage_settle(BIT(1) | BIT(2) | BIT(3));
	ck_assert_int_eq(stage_raft(1)->state, RAFT_LEADER);
	ck_assert_uint_eq(stage_raft(1)->term, term);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(2) | BIT(3));
	ck_assert_int_eq(stage_raft(3)->state, RAFT_FOLLOWER);
	ck_assert_uint_eq(stage_raft(3)->leader, 1);
}
END_TEST

START_TEST(a_learner_has_no_voice)
{
	stage_open(2, 1, 0);
	stage_event(3, RAFT_EV_ELECTION);
	ck_assert_uint_eq(stage_count(3, ANY, 0), 0);
	stage_event(1, RAFT_EV_ELECTION);
	ck_assert_uint_eq(stage_count(1, 3, 0), 0);
	stage_lead(1, BIT(2));
	stage_propose(1, 5);
	stage_settle(BIT(1) | BIT(3)); /* the learner has it, node 2 not */
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	ck_assert_uint_eq(stage_raft(3)->last_index, 3);
	ck_assert_uint_eq(stage_commit_of(1), 2);
	stage_event(1, RAFT_EV_ELECTION);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(BIT(1) | BIT(3));
	stage_event(1, RAFT_EV_ELECTION);
	ck_assert_int_ne(stage_raft(1)->state, RAFT_LEADER);
}
END_TEST

TCase *scripted_votes(void)
{
	TCase *tc = tcase_create("votes");

	tcase_add_checked_fixture(tc, NULL, stage_close);
	tcase_add_test(tc, one_vote_a_term);
	tcase_add_test(tc, a_vote_in_a_known_term_is_kept);
	tcase_add_test(tc, a_vote_is_of_its_term);
	tcase_add_test(tc, an_old_vote_does_not_stand_in_a_new_term);
	tcase_add_test(tc, a_vote_is_durable_before_it_is_sent);
	tcase_add_test(tc, a_candidate_counts_its_own_vote_when_durable);
	tcase_add_test(tc, a_campaign_is_durable_before_it_is_sent);
	tcase_add_test(tc, no_vote_for_a_shorter_or_older_log);
	tcase_add_test(tc, an_old_answer_does_not_count);
	tcase_add_test(tc, a_node_formatted_again_has_no_voice);
	tcase_add_test(tc, a_confirmed_node_uses_its_vote_up);
	tcase_add_test(tc, an_isolated_node_does_not_disturb);
	tcase_add_test(tc, a_learner_has_no_voice);
	return tc;
}
