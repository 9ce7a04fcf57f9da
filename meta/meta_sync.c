/*
 * Linearizable reads. See meta_sync.h.
 *
 * The happy path: a read asks the leader for the committed index, in rounds (all reads that came
 * while one was under way go with the next), and is done when this node has applied that much. An
 * answer says only what was committed after its question: the numbers of questions begin at random,
 * so that an answer to an earlier life of this node, still on its way, matches no question.
 *
 * How it fails: a question or an answer that is lost is asked again, and at once of a new leader.
 * After META_PATIENCE_MS the result is -EROFS.
 */
#include "meta_sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta_core.h"
#include "raft.h"

void syncs_init(struct syncs *all)
{
	memset(all, 0, sizeof(*all));
	all->next_ctx = (ramp_random64() >> 1) + 1; /* never 0: a free place has that */
}

static void end_syncs(struct sync_read *list, int result)
{
	struct meta_reply reply = {.result = result};

	while (list) {
		struct sync_read *s = list;

		list = s->next;
		s->done(s->arg, &reply);
		free(s);
	}
}

void syncs_add(struct meta *meta, struct sync_read *sync)
{
	sync->next = NULL;
	sync->deadline_ms = meta_now_ms(meta) + META_PATIENCE_MS;
	if (meta_forsaken(meta)) {
		end_syncs(sync, -EROFS);
		return;
	}
	sync->next = meta_syncs(meta)->waiting;
	meta_syncs(meta)->waiting = sync;
}

static void late_syncs(struct meta *meta, struct sync_read **at)
{
	while (*at) {
		struct sync_read *s = *at;

		if (meta_now_ms(meta) < s->deadline_ms) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = NULL;
		end_syncs(s, -EROFS);
	}
}

static void begin_round(struct meta *meta)
{
	struct syncs *all = meta_syncs(meta);
	struct raft_event ev = {.type = RAFT_EV_READ};
	ramp_node_t leader = meta_raft(meta)->leader;

	all->round_again_ms = meta_now_ms(meta) + META_RETRY_LOCAL_MS;
	all->round_asked = false;
	if (leader == 0)
		return;
	all->round_ctx = ev.ctx = all->next_ctx++;
	if (leader == meta_opened(meta)->self) {
		all->round_asked = meta_step(meta, &ev) == 0;
	} else {
		meta_send_small(meta, leader, WIRE_READ, all->round_ctx, 0);
		all->round_asked = true;
	}
	if (all->round_asked)
		all->round_again_ms = meta_now_ms(meta) + META_RETRY_FORWARD_MS;
}

/* Returns true where a reader finds `index` in the tables now. The core's last_applied is no
   answer: it counts entries that the turn's transaction is still to apply. */
static bool in_the_tables(struct meta *meta, uint64_t index)
{
	struct journal_state s;

	journal_state(meta_journal(meta), &s);
	return s.applied >= index;
}

static void tend_round(struct meta *meta, bool leader_changed)
{
	struct syncs *all = meta_syncs(meta);
	struct sync_read *done;

	if (all->round && all->round_known && in_the_tables(meta, all->round_index)) {
		done = all->round;
		all->round = NULL;
		end_syncs(done, 0);
	}
	if (!all->round && all->waiting) {
		all->round = all->waiting;
		all->waiting = NULL;
		all->round_known = false;
		begin_round(meta);
	} else if (all->round && !all->round_known &&
		   (leader_changed || meta_now_ms(meta) >= all->round_again_ms)) {
		begin_round(meta);
	}
}

void syncs_read_answer(struct meta *meta, uint64_t ctx, uint64_t index)
{
	struct syncs *all = meta_syncs(meta);

	if (!all->round || all->round_known || ctx != all->round_ctx)
		return;
	all->round_known = true;
	all->round_index = index;
}

void syncs_read_ready(struct meta *meta, const struct raft_read *read)
{
	struct syncs *all = meta_syncs(meta);
	size_t i;

	for (i = 0; i < RAFT_READS_MAX; i++) {
		if (all->served[i].ctx != read->ctx)
			continue;
		all->served[i].ctx = 0;
		if (read->result == 0)
			meta_send_small(meta, all->served[i].from, WIRE_READ_ANSWER,
					all->served[i].theirs, read->index);
		return;
	}
	if (read->result == 0)
		syncs_read_answer(meta, read->ctx, read->index);
	else if (read->ctx == all->round_ctx)
		all->round_again_ms = meta_now_ms(meta);
}

void syncs_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx)
{
	struct syncs *all = meta_syncs(meta);
	struct raft_event ev = {.type = RAFT_EV_READ};
	size_t i;

	for (i = 0; i < RAFT_READS_MAX && all->served[i].ctx != 0; i++)
		;
	if (i == RAFT_READS_MAX)
		return; /* the node asks again */
	all->served[i].ctx = ev.ctx = all->next_ctx++;
	all->served[i].theirs = ctx;
	all->served[i].from = from;
	if (meta_step(meta, &ev) < 0)
		all->served[i].ctx = 0;
}

void syncs_tend(struct meta *meta, bool leader_changed)
{
	struct syncs *all = meta_syncs(meta);

	late_syncs(meta, &all->waiting);
	late_syncs(meta, &all->round);
	tend_round(meta, leader_changed);
}

void syncs_fail_all(struct meta *meta, int result)
{
	struct syncs *all = meta_syncs(meta);

	end_syncs(all->waiting, result);
	end_syncs(all->round, result);
	all->waiting = all->round = NULL;
}
