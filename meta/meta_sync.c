/*
 * Linearizable reads of this node, and those that it serves as the leader. See meta_sync.h.
 */
#include "meta_sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta_core.h"
#include "raft.h"

void syncs_init(struct syncs *s)
{
	memset(s, 0, sizeof(*s));
	s->next_ctx = (ramp_random64() >> 1) + 1; /* never 0: that is a free place */
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
	sync->next = meta_syncs(meta)->syncs;
	meta_syncs(meta)->syncs = sync;
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

static void ask_round(struct meta *meta)
{
	struct syncs *a = meta_syncs(meta);
	struct raft_event ev = {.type = RAFT_EV_READ};
	ramp_node_t leader = meta_raft(meta)->leader;

	a->round_again_ms = meta_now_ms(meta) + META_RETRY_LOCAL_MS;
	a->round_asked = false;
	if (leader == 0)
		return;
	a->round_ctx = ev.ctx = a->next_ctx++;
	if (leader == meta_opened(meta)->self) {
		a->round_asked = meta_step(meta, &ev) == 0;
	} else {
		meta_send_small(meta, leader, WIRE_READ, a->round_ctx, 0);
		a->round_asked = true;
	}
	if (a->round_asked)
		a->round_again_ms = meta_now_ms(meta) + META_RETRY_FORWARD_MS;
}

/* Whoever looks now finds it in the tables: the core counts what it gave to be applied, which the
   turn's transaction is still to bring. */
static bool in_the_tables(struct meta *meta, uint64_t index)
{
	struct journal_state s;

	journal_state(meta_journal(meta), &s);
	return s.applied >= index;
}

static void tend_round(struct meta *meta, bool leader_changed)
{
	struct syncs *a = meta_syncs(meta);
	struct sync_read *done;

	if (a->round && a->round_known && in_the_tables(meta, a->round_index)) {
		done = a->round;
		a->round = NULL;
		end_syncs(done, 0);
	}
	if (!a->round && a->syncs) {
		a->round = a->syncs;
		a->syncs = NULL;
		a->round_known = false;
		ask_round(meta);
	} else if (a->round && !a->round_known &&
		   (leader_changed || meta_now_ms(meta) >= a->round_again_ms)) {
		ask_round(meta);
	}
}

void syncs_read_answer(struct meta *meta, uint64_t ctx, uint64_t index)
{
	struct syncs *a = meta_syncs(meta);

	if (!a->round || a->round_known || ctx != a->round_ctx)
		return;
	a->round_known = true;
	a->round_index = index;
}

void syncs_read_ready(struct meta *meta, const struct raft_read *read)
{
	struct syncs *a = meta_syncs(meta);
	size_t i;

	for (i = 0; i < RAFT_READS_MAX; i++) {
		if (a->served[i].ctx != read->ctx)
			continue;
		a->served[i].ctx = 0;
		if (read->result == 0)
			meta_send_small(meta, a->served[i].from, WIRE_READ_ANSWER,
					a->served[i].theirs, read->index);
		return;
	}
	if (read->result == 0)
		syncs_read_answer(meta, read->ctx, read->index);
	else if (read->ctx == a->round_ctx)
		a->round_again_ms = meta_now_ms(meta);
}

void syncs_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx)
{
	struct syncs *a = meta_syncs(meta);
	struct raft_event ev = {.type = RAFT_EV_READ};
	size_t i;

	for (i = 0; i < RAFT_READS_MAX && a->served[i].ctx != 0; i++)
		;
	if (i == RAFT_READS_MAX)
		return; /* it asks again */
	a->served[i].ctx = ev.ctx = a->next_ctx++;
	a->served[i].theirs = ctx;
	a->served[i].from = from;
	if (meta_step(meta, &ev) < 0)
		a->served[i].ctx = 0;
}

void syncs_tend(struct meta *meta, bool leader_changed)
{
	struct syncs *a = meta_syncs(meta);

	late_syncs(meta, &a->syncs);
	late_syncs(meta, &a->round);
	tend_round(meta, leader_changed);
}

void syncs_fail_all(struct meta *meta, int result)
{
	struct syncs *a = meta_syncs(meta);

	end_syncs(a->syncs, result);
	end_syncs(a->round, result);
	a->syncs = a->round = NULL;
}
