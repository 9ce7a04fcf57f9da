/*
 * The Raft core's ground. See raft_core.h.
 *
 * How it fails: where memory runs out actions.failed is set.
 */
#include "raft_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raft_log.h"
#include "raft_state.h"

bool raft_is_voter(const struct raft *r, ramp_node_t node)
{
	const struct raft_member *m = raft_conf_find(&r->conf, node);

	return m && m->role == RAFT_VOTER;
}

uint32_t raft_majority(const struct raft *r)
{
	return raft_conf_voters(&r->conf) / 2 + 1;
}

struct raft_peer *raft_find_peer(struct raft *r, ramp_node_t node)
{
	uint32_t i;

	for (i = 0; i < r->n_peers; i++)
		if (r->peers[i].node == node)
			return &r->peers[i];
	return NULL;
}

/* Returns a number in [0, n) by xorshift64; good enough to spread the election time-outs. */
static uint64_t random_below(struct raft *r, uint64_t n)
{
	r->rng ^= r->rng << 13;
	r->rng ^= r->rng >> 7;
	r->rng ^= r->rng << 17;
	return n == 0 ? 0 : r->rng % n;
}

void step_election_clock(struct raft_ctx *s)
{
	uint32_t ms = s->r->opt.election_ms;

	s->r->election_due = s->now_ms + ms + random_below(s->r, ms);
}

struct raft_message *step_new_message(struct raft_ctx *s, enum raft_message_type type,
				      ramp_node_t to)
{
	struct raft_actions *a = s->a;
	struct raft_message *m;

	if (a->n_messages == a->cap_messages) {
		uint32_t cap = a->cap_messages ? 2 * a->cap_messages : 8;

		m = realloc(a->messages, cap * sizeof(*m));
		if (!m) {
			a->failed = true;
			return NULL;
		}
		a->messages = m;
		a->cap_messages = cap;
	}
	m = &a->messages[a->n_messages++];
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->from = s->r->opt.self;
	m->to = to;
	m->term = s->r->term;
	return m;
}

void step_end_read(struct raft_ctx *s, const struct raft_read *read, int result)
{
	struct raft_actions *a = s->a;

	if (a->n_reads == a->cap_reads) {
		uint32_t cap = a->cap_reads ? 2 * a->cap_reads : 16;
		struct raft_read *reads = realloc(a->reads, cap * sizeof(*reads));

		if (!reads) {
			a->failed = true;
			return;
		}
		a->reads = reads;
		a->cap_reads = cap;
	}
	a->reads[a->n_reads] = *read;
	a->reads[a->n_reads++].result = result;
}

void raft_drop_snapshot(struct raft_peer *p)
{
	raft_data_unref(p->snap_conf);
	p->snap_conf = NULL;
	p->snap_index = p->snap_term = p->snap_offset = p->snap_conf_index = 0;
	p->snapshot_requested = false;
}

/* The lowest such index of the turn counts. */
void step_log_changed(struct raft_ctx *s, uint64_t from)
{
	if (s->a->log_from == 0 || from < s->a->log_from)
		s->a->log_from = from;
}

void step_commit(struct raft_ctx *s, uint64_t index)
{
	struct raft *r = s->r;

	if (index <= r->commit_index)
		return;
	r->commit_index = r->last_applied = index;
	s->a->apply_to = index;
}

/* ---- peers --------------------------------------------------------------------------------- */

static void reset_peer(struct raft *r, struct raft_peer *p, ramp_node_t node)
{
	memset(p, 0, sizeof(*p));
	p->node = node;
	p->flow = RAFT_PROBE;
	p->next_index = r->last_index + 1;
	p->recent_recv = true;
}

/* Makes the peers the other members of the configuration in force. Those that stay are kept. */
static void sync_peers(struct raft *r)
{
	uint32_t i;

	for (i = 0; i < r->n_peers;) {
		if (raft_conf_find(&r->conf, r->peers[i].node)) {
			i++;
			continue;
		}
		raft_drop_snapshot(&r->peers[i]);
		r->peers[i] = r->peers[--r->n_peers];
	}
	for (i = 0; i < r->conf.n; i++) {
		ramp_node_t node = r->conf.member[i].node;

		if (node != r->opt.self && !raft_find_peer(r, node))
			reset_peer(r, &r->peers[r->n_peers++], node);
	}
}

void raft_reset_peers(struct raft *r)
{
	uint32_t i;

	for (i = 0; i < r->n_peers; i++)
		raft_drop_snapshot(&r->peers[i]);
	r->n_peers = 0;
	sync_peers(r);
}

void raft_refresh_conf(struct raft *r)
{
	raft_log_find_conf(r);
	if (r->state == RAFT_FOLLOWER)
		raft_reset_peers(r);
	else
		sync_peers(r);
}

/* ---- the door of the states ---------------------------------------------------------------- */

/* The drawing of raft.h: the states that may follow each. */
static const uint8_t next_states[] = {
	[RAFT_FOLLOWER] = 1 << RAFT_FOLLOWER | 1 << RAFT_PRECANDIDATE | 1 << RAFT_CANDIDATE,
	[RAFT_PRECANDIDATE] = 1 << RAFT_FOLLOWER | 1 << RAFT_CANDIDATE,
	[RAFT_CANDIDATE] = 1 << RAFT_FOLLOWER | 1 << RAFT_LEADER,
	[RAFT_LEADER] = 1 << RAFT_FOLLOWER,
};

void raft_go(struct raft *r, enum raft_state to)
{
	if (!(next_states[r->state] & 1 << to))
		abort();
	r->state = to;
}

void step_follow(struct raft_ctx *s, uint64_t term, ramp_node_t leader)
{
	struct raft *r = s->r;
	uint32_t i;

	if (term > r->term) {
		r->term = term;
		r->voted_for = 0; /* a vote counts in one term */
		s->a->hard_state = true;
	}
	for (i = 0; i < r->n_reads; i++)
		step_end_read(s, &r->reads[i], -EAGAIN);
	r->n_reads = 0;
	r->transfer_to = 0;
	r->transfer_sent = false;
	if (r->state == RAFT_LEADER || leader != r->leader)
		step_election_clock(s);
	raft_go(r, RAFT_FOLLOWER);
	r->leader = leader;
	r->lease = leader != 0;
	r->lease_until = s->now_ms + r->opt.election_ms;
	raft_reset_peers(r);
}

void step_append_own(struct raft_ctx *s, const struct raft_entry *e)
{
	struct raft *r = s->r;

	if (raft_log_append(r, e) < 0)
		return; /* the callers have checked that there is room */
	step_log_changed(s, r->last_index);
	if (e->type == RAFT_CONF)
		raft_refresh_conf(r);
}
