/*
 * Scripted cases: the log. Acknowledgements, commits, and what a snapshot may take away. Each is a
 * mistake that some Raft implementation made and that random schedules seldom meet.
 */
#include "scripted.h"

#include <errno.h>

#include "meta/raft_log.h"

#define ALL (BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5))

static uint64_t term_of(ramp_node_t id, uint64_t index)
{
	return raft_term_at(stage_raft(id), index);
}

/* Figure 8 of the paper: an entry of an old term on a majority isn't committed by counting. */
START_TEST(an_old_term_is_not_committed_by_counting)
{
	struct raft_message *m;

	stage_open(5, 0, 0);
	stage_elect(1, BIT(2) | BIT(3)); /* term 2: its entry 2 reaches node 2 alone */
	stage_deliver(1, 2, RAFT_APPEND);
	stage_drop(ANY, ANY, 0);
	stage_elect(5, BIT(3) | BIT(4)); /* term 3: another entry 2, which reaches no node */
	stage_drop(ANY, ANY, 0);
	stage_crash(1);
	stage_elect(1, BIT(2) | BIT(3)); /* term 4 needs votes of those without term 3's entry */
	stage_drop(ANY, ANY, 0);
	stage_event(1, RAFT_EV_HEARTBEAT);
	for (ramp_node_t id = 2; id <= 3; id++) {
		/* Node 1 sends its old entry alone, as a leader with small messages would. */
		struct raft_message a = stage_append(1, id, stage_raft(1)->term, 1, 1, 1);

		stage_drop(1, id, 0);
		a.entries[a.n_entries++] = *raft_entry_at(stage_raft(1), 2);
		stage_give(&a);
		m = stage_take(id, 1, RAFT_APPEND_ANSWER);
		ck_assert(!m->reject);
		ck_assert_uint_eq(m->index, 2);
		stage_give(m);
		stage_free(m);
	}
	/* Three of five hold entry 2 of term 2; node 5 could still win and replace it. */
	ck_assert_uint_eq(term_of(1, 2), 2);
	ck_assert_uint_eq(term_of(2, 2), 2);
	ck_assert_uint_eq(term_of(3, 2), 2);
	ck_assert_uint_eq(stage_commit_of(1), 1);
	stage_crash(5); /* it still believed that it leads term 3 */
	stage_elect(5, BIT(2) | BIT(3) | BIT(4));
	stage_settle(ALL);
	stage_event(5, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_uint_eq(term_of(1, 2), 3);
	ck_assert_uint_eq(term_of(2, 2), 3);
}
END_TEST

/* A follower with a suffix that the message doesn't reach acknowledges only the checked entries. */
START_TEST(an_unchecked_suffix_is_not_acknowledged)
{
	struct raft_message a, *m;

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 1, 1,
			 1); /* leader 1 of term 2: entries 2, 3, 4 for node 2 alone */
	stage_add_entry(&a, 2, 10);
	stage_add_entry(&a, 2, 11);
	stage_add_entry(&a, 2, 12);
	stage_give(&a);
	raft_message_release(&a);
	stage_drop(ANY, ANY, 0);
	/* Leader 3 of term 3, whose entries 2, 3, 4 are others and committed: a heartbeat at 1. */
	a = stage_append(3, 2, 3, 1, 1, 4);
	stage_give(&a);
	m = stage_take(2, 3, RAFT_APPEND_ANSWER);
	ck_assert(!m->reject);
	ck_assert_uint_eq(m->index, 1);
	stage_free(m);
	ck_assert_uint_eq(stage_commit_of(2), 1);
	/* One entry of the three: those behind it must go, and the commit stops there. */
	a = stage_append(3, 2, 3, 1, 1, 4);
	stage_add_entry(&a, 3, 20);
	stage_give(&a);
	raft_message_release(&a);
	m = stage_take(2, 3, RAFT_APPEND_ANSWER);
	ck_assert_uint_eq(m->index, 2);
	stage_free(m);
	ck_assert_uint_eq(stage_commit_of(2), 2);
	ck_assert_uint_eq(stage_raft(2)->last_index, 2);
	ck_assert_uint_eq(stage_node(2)->disk.last, 2);
}
END_TEST

START_TEST(an_acknowledgement_waits_for_the_disk)
{
	struct raft_message a = {0};

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 1, 1, 1);
	stage_add_entry(&a, 2, 10);
	stage_step_message(2, &a);
	stage_early(2);
	ck_assert_uint_eq(stage_count(2, 1, 0), 0);
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->last_index, 1);
	stage_step_message(2, &a);
	stage_early(2);
	stage_commit(2);
	stage_finish(2);
	ck_assert_uint_eq(stage_count(2, 1, RAFT_APPEND_ANSWER), 1);
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->last_index, 2);
	raft_message_release(&a);
}
END_TEST

START_TEST(a_leader_counts_its_own_entries_when_durable)
{
	struct raft_event ev = {.type = RAFT_EV_PROPOSE, .entry = {.type = RAFT_COMMAND}};
	uint32_t command = 7;

	stage_open(3, 0, 0);
	stage_lead(1, BIT(2) | BIT(3));
	ev.entry.data = raft_data_make(&command, sizeof(command));
	puppet_step(stage_node(1), &ev);
	raft_data_unref(ev.entry.data);
	stage_early(1);
	ck_assert_uint_ge(stage_count(1, 2, RAFT_APPEND), 1);
	stage_deliver(1, 2, RAFT_APPEND);
	{
		struct raft_message *m = stage_take(2, 1, RAFT_APPEND_ANSWER);

		ck_assert_uint_eq(m->index, 3);
		stage_step_message(1, m); /* before its own transaction */
		stage_free(m);
	}
	ck_assert_uint_eq(stage_commit_of(1), 2);
	stage_turns(1);
	ck_assert_uint_eq(stage_commit_of(1), 3);
}
END_TEST

/* Compacted entries were applied: a message that begins below them adds only new ones. */
START_TEST(entries_below_the_log_are_not_new)
{
	struct raft_message a, *m;

	stage_open(3, 0, 3);
	stage_lead(1, BIT(2) | BIT(3));
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(stage_propose(1, 100 + i), 0);
	stage_settle(ALL);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	ck_assert_uint_eq(stage_raft(2)->last_index, 7);
	ck_assert_uint_ge(stage_raft(2)->snap_index, 4);
	a = stage_append(1, 2, 2, 2, 2, 7);
	for (uint32_t i = 0; i < 6; i++)
		stage_add_entry(&a, 2, 100 + i); /* 3 .. 8: the last is new */
	stage_give(&a);
	raft_message_release(&a);
	m = stage_take(2, 1, RAFT_APPEND_ANSWER);
	ck_assert(!m->reject);
	ck_assert_uint_eq(m->index, 8);
	stage_free(m);
	ck_assert_uint_eq(stage_raft(2)->last_index, 8);
	ck_assert_uint_eq(stage_node(2)->disk.last, 8);
	ck_assert_uint_ge(stage_commit_of(2), 7);
	/* Wholly below: nothing changes, and no more is acknowledged than it proves. */
	a = stage_append(1, 2, 2, 2, 2, 7);
	stage_add_entry(&a, 2, 100);
	stage_give(&a);
	raft_message_release(&a);
	m = stage_take(2, 1, RAFT_APPEND_ANSWER);
	ck_assert_uint_eq(m->index, 3);
	stage_free(m);
	ck_assert_uint_eq(stage_raft(2)->last_index, 8);
}
END_TEST

/* The term of the entry before the first one: known after compaction, on both sides. */
START_TEST(the_term_before_the_first_entry_is_kept)
{
	struct raft_message *m;

	stage_open(3, 0, 1);
	stage_lead(1, BIT(2) | BIT(3));
	for (uint32_t i = 0; i < 3; i++)
		stage_propose(1, i);
	stage_settle(ALL);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_settle(ALL);
	for (ramp_node_t id = 1; id <= 3; id++) {
		ck_assert_uint_eq(stage_raft(id)->snap_index, 5); /* all compacted */
		stage_crash(id);
		ck_assert_uint_eq(term_of(id, 5), 2);
	}
	stage_event(2, RAFT_EV_ELECTION);
	m = stage_take(2, 3, RAFT_PREVOTE);
	ck_assert_uint_eq(m->index, 5);
	ck_assert_uint_eq(m->log_term, 2);
	stage_free(m);
	stage_elect(2, BIT(3));
	m = stage_take(2, 3, RAFT_APPEND);
	ck_assert_uint_eq(m->index, 5);
	ck_assert_uint_eq(m->log_term, 2);
	stage_give(m);
	stage_free(m);
	m = stage_take(3, 2, RAFT_APPEND_ANSWER);
	ck_assert(!m->reject);
	stage_free(m);
}
END_TEST

static struct raft_message snapshot_of(ramp_node_t from, ramp_node_t to, uint64_t term,
				       uint64_t index, uint64_t log_term)
{
	struct raft_message m = {
		.type = RAFT_SNAPSHOT,
		.from = from,
		.to = to,
		.term = term,
		.index = index,
		.log_term = log_term,
		.conf = stage_raft(from)->snap_conf,
		.conf_index = 1,
		.done = true,
	};

	return m;
}

/* A late or repeated snapshot takes away no entry that was acknowledged. */
START_TEST(a_late_snapshot_takes_nothing_away)
{
	struct raft_message a, s;

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 1, 1, 4);
	for (uint32_t i = 0; i < 6; i++)
		stage_add_entry(&a, 2, i); /* 2 .. 7, committed up to 4 */
	stage_give(&a);
	raft_message_release(&a);
	for (uint64_t index = 3; index <= 7; index++) {
		s = snapshot_of(1, 2, 2, index, 2);
		stage_give(&s);
		stage_give(&s);
		ck_assert_uint_eq(stage_raft(2)->last_index, 7);
		ck_assert_uint_eq(stage_node(2)->disk.last, 7);
		ck_assert_uint_ge(stage_commit_of(2), 4);
	}
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->last_index, 7);
}
END_TEST

START_TEST(a_snapshot_twice_takes_nothing_away)
{
	struct raft_message a, s;

	stage_open(3, 0, 0);
	s = snapshot_of(1, 2, 2, 5, 2);
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 5);
	ck_assert_uint_eq(stage_node(2)->disk.applied, 5);
	a = stage_append(1, 2, 2, 5, 2, 5);
	stage_add_entry(&a, 2, 6);
	stage_add_entry(&a, 2, 7);
	stage_give(&a);
	raft_message_release(&a);
	ck_assert_uint_eq(stage_node(2)->disk.last, 7);
	stage_give(&s);
	ck_assert_uint_eq(stage_node(2)->disk.last, 7);
	ck_assert_uint_eq(stage_raft(2)->last_index, 7);
	/* A snapshot of an older term's leader is refused, with the term. */
	s.term = 1;
	stage_drop(ANY, ANY, 0);
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->last_index, 7);
	ck_assert_uint_eq(stage_count(2, 1, RAFT_APPEND_ANSWER), 1);
}
END_TEST

/* A snapshot against a log that contradicts it: the log goes, in memory and on the disk. */
START_TEST(a_snapshot_replaces_a_log_that_contradicts_it)
{
	struct raft_message a, s;

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 1, 1, 1);
	for (uint32_t i = 0; i < 6; i++)
		stage_add_entry(&a, 2, i); /* 2 .. 7 of term 2, never committed */
	stage_give(&a);
	raft_message_release(&a);
	s = snapshot_of(3, 2, 4, 5, 3);
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->last_index, 5);
	ck_assert_uint_eq(stage_node(2)->disk.last, 5);
	ck_assert_uint_eq(stage_node(2)->disk.applied, 5);
	stage_crash(2);
	ck_assert_uint_eq(term_of(2, 5), 3);
}
END_TEST

/* Pieces are taken in order, of one snapshot; others are asked for again. */
START_TEST(pieces_of_two_snapshots_do_not_mix)
{
	struct raft_message s, *m;
	uint8_t bytes[10] = {0};

	stage_open(3, 0, 0);
	s = snapshot_of(1, 2, 2, 5, 2);
	s.done = false;
	s.bytes = bytes;
	s.len = sizeof(bytes);
	stage_give(&s);
	m = stage_take(2, 1, RAFT_SNAPSHOT_ANSWER);
	ck_assert_uint_eq(m->offset, 10);
	stage_free(m);
	/* The last piece of a newer snapshot: its beginning is missing. */
	s.index = 7;
	s.offset = 10;
	s.done = true;
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 1);
	m = stage_take(2, 1, RAFT_SNAPSHOT_ANSWER);
	ck_assert_uint_eq(m->index, 7);
	ck_assert_uint_eq(m->offset, 0);
	stage_free(m);
	/* A gap, then the piece itself, then the same again. */
	s.offset = 20;
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 1);
	s.offset = 0;
	s.done = false;
	stage_give(&s);
	s.offset = 10;
	s.done = true;
	s.bad = true; /* a damaged dump is begun again */
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 1);
	s.bad = false;
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 1);
	s.offset = 0;
	s.done = false;
	stage_give(&s);
	s.offset = 10;
	s.done = true;
	stage_give(&s);
	ck_assert_uint_eq(stage_raft(2)->snap_index, 7);
}
END_TEST

/* A follower far behind gets a snapshot, then the log again, whatever is lost on the way. */
START_TEST(a_follower_far_behind_catches_up)
{
	stage_open(3, 0, 1);
	stage_lead(1, BIT(2));
	for (uint32_t i = 0; i < 9; i++) {
		ck_assert_int_eq(stage_propose(1, i), 0);
		stage_settle(BIT(1) | BIT(2));
	}
	ck_assert_uint_gt(stage_raft(1)->snap_index, 1);
	stage_event(1, RAFT_EV_HEARTBEAT);
	stage_drop(1, 3, 0); /* lost */
	for (int i = 0; i < 3; i++) {
		stage_event(1, RAFT_EV_HEARTBEAT);
		stage_settle(ALL);
	}
	ck_assert_uint_eq(stage_raft(3)->last_index, stage_raft(1)->last_index);
	ck_assert_uint_eq(stage_commit_of(3), stage_commit_of(1));
	ck_assert_uint_gt(stage_raft(3)->snap_index, 1);
}
END_TEST

static enum raft_flow flow_to(ramp_node_t leader, ramp_node_t id)
{
	const struct raft *r = stage_raft(leader);

	for (uint32_t i = 0; i < r->n_peers; i++)
		if (r->peers[i].node == id)
			return r->peers[i].flow;
	ck_abort_msg("node %u is no peer", id);
	return RAFT_PROBE;
}

/* A follower that is slow to install a snapshot answers when the next one is asked for (0) or on
   its way (1): the entries that it lacks by then are in the log, and it does not need the next
   one. */
START_TEST(a_late_answer_ends_the_next_snapshot)
{
	struct raft_event lost = {.type = RAFT_EV_SNAPSHOT_LOST, .node = 3};
	struct raft_message *late;

	stage_open(3, 0, 3);
	stage_lead(1, BIT(2));
	for (uint32_t i = 0; i < 5; i++) {
		stage_propose(1, i);
		stage_settle(BIT(1) | BIT(2));
	}
	stage_drop(ANY, ANY, 0);
	puppet_step(stage_node(1), &lost); /* a dump is made now */
	stage_turns(1);
	stage_deliver(1, 3, RAFT_SNAPSHOT);
	late = stage_take(3, 1, RAFT_APPEND_ANSWER);
	stage_drop(ANY, ANY, 0);
	stage_propose(1, 9);
	stage_settle(BIT(1) | BIT(2));
	ck_assert_uint_ge(late->index, stage_raft(1)->snap_index);
	puppet_step(stage_node(1), &lost);
	if (_i)
		stage_turns(1);
	ck_assert_uint_eq(stage_count(1, 3, RAFT_SNAPSHOT), (uint32_t)_i);
	stage_drop(ANY, ANY, 0);
	stage_give(late);
	ck_assert_int_eq(flow_to(1, 3), RAFT_REPLICATE);
	ck_assert_uint_eq(stage_count(1, 3, RAFT_SNAPSHOT), 0);
	stage_settle(ALL);
	ck_assert_uint_eq(stage_raft(3)->last_index, stage_raft(1)->last_index);
	ck_assert_uint_eq(stage_raft(3)->snap_index, late->index);
	stage_free(late);
}
END_TEST

/* A conflicting tail is dropped, entry by entry as the leader's arrive, also from the disk. */
START_TEST(a_contradicting_tail_is_replaced)
{
	struct raft_message a;

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 1, 1, 1);
	for (uint32_t i = 0; i < 4; i++)
		stage_add_entry(&a, 2, i);
	stage_give(&a);
	raft_message_release(&a);
	/* In one turn: a new leader's entry 3, then a still newer one's entry 2. */
	a = stage_append(3, 2, 3, 2, 2, 1);
	stage_add_entry(&a, 3, 30);
	stage_step_message(2, &a);
	raft_message_release(&a);
	a = stage_append(1, 2, 4, 1, 1, 1);
	stage_add_entry(&a, 4, 40);
	stage_step_message(2, &a);
	raft_message_release(&a);
	stage_turns(2);
	stage_crash(2);
	ck_assert_uint_eq(stage_raft(2)->last_index, 2);
	ck_assert_uint_eq(term_of(2, 2), 4);
}
END_TEST

/* The leader's log doesn't reach what the message is about, or has another term there. */
START_TEST(a_gap_is_refused)
{
	struct raft_message a, *m;

	stage_open(3, 0, 0);
	a = stage_append(1, 2, 2, 4, 2, 1);
	stage_add_entry(&a, 2, 5);
	stage_give(&a);
	m = stage_take(2, 1, RAFT_APPEND_ANSWER);
	ck_assert(m->reject);
	ck_assert_uint_eq(m->hint, 1);
	stage_free(m);
	a.index = 1;
	a.log_term = 1;
	stage_give(&a); /* entry 2 of term 2 */
	stage_drop(ANY, ANY, 0);
	a.index = 2;
	a.term = a.log_term = 3;
	stage_give(&a);
	m = stage_take(2, 1, RAFT_APPEND_ANSWER);
	ck_assert(m->reject);
	ck_assert_uint_eq(m->hint, 1);
	stage_free(m);
	ck_assert_uint_eq(stage_raft(2)->last_index, 2);
	raft_message_release(&a);
}
END_TEST

TCase *scripted_log(void)
{
	TCase *tc = tcase_create("log");

	tcase_add_checked_fixture(tc, NULL, stage_close);
	tcase_add_test(tc, an_old_term_is_not_committed_by_counting);
	tcase_add_test(tc, an_unchecked_suffix_is_not_acknowledged);
	tcase_add_test(tc, an_acknowledgement_waits_for_the_disk);
	tcase_add_test(tc, a_leader_counts_its_own_entries_when_durable);
	tcase_add_test(tc, entries_below_the_log_are_not_new);
	tcase_add_test(tc, the_term_before_the_first_entry_is_kept);
	tcase_add_test(tc, a_late_snapshot_takes_nothing_away);
	tcase_add_test(tc, a_snapshot_twice_takes_nothing_away);
	tcase_add_test(tc, a_snapshot_replaces_a_log_that_contradicts_it);
	tcase_add_test(tc, pieces_of_two_snapshots_do_not_mix);
	tcase_add_test(tc, a_follower_far_behind_catches_up);
	tcase_add_loop_test(tc, a_late_answer_ends_the_next_snapshot, 0, 2);
	tcase_add_test(tc, a_contradicting_tail_is_replaced);
	tcase_add_test(tc, a_gap_is_refused);
	return tc;
}
