/*
 * The Raft core's state as a value, and the actions of a turn. See raft_state.h.
 *
 * How it fails: only where memory runs out, and where the restored log makes no sense.
 */
#include "raft_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "raft_log.h"

/* ---- making, copying ------------------------------------------------------------------------- */

int raft_init(struct raft *r, const struct raft_options *opt)
{
	memset(r, 0, sizeof(*r));
	r->opt = *opt;
	r->rng = opt->seed * 2 + 1;
	r->log = calloc(opt->log_capacity, sizeof(*r->log));
	r->peers = calloc(RAFT_NODES_MAX, sizeof(*r->peers));
	if (r->log && r->peers)
		return 0;
	free(r->log);
	free(r->peers);
	memset(r, 0, sizeof(*r));
	return -ENOMEM;
}

void raft_fini(struct raft *r)
{
	uint32_t i;

	raft_log_truncate(r, r->snap_index + 1);
	raft_data_unref(r->snap_conf);
	for (i = 0; i < r->n_peers; i++)
		raft_data_unref(r->peers[i].snap_conf);
	free(r->log);
	free(r->peers);
	memset(r, 0, sizeof(*r));
}

void raft_set_durable(struct raft *r, uint64_t term, ramp_node_t vote, bool confirmed)
{
	r->term = r->stable_term = term;
	r->voted_for = vote;
	r->confirmed = confirmed;
}

void raft_set_snapshot(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		       uint64_t conf_index)
{
	raft_log_reset(r, index, term, conf, conf_index);
}

int raft_restore(struct raft *r, uint64_t index, const struct raft_entry *e)
{
	struct raft_conf conf;
	int rc;

	if (index != r->last_index + 1 || e->term < raft_term_at(r, r->last_index))
		return -EINVAL;
	if (e->type == RAFT_CONF &&
	    (!e->data || raft_conf_decode(e->data->bytes, e->data->len, &conf) < 0))
		return -EINVAL;
	rc = raft_log_append(r, e);
	if (rc == 0)
		r->stable_index = index;
	return rc;
}

int raft_clone(struct raft *to, const struct raft *from)
{
	uint64_t i;
	uint32_t p;

	*to = *from;
	to->log = calloc(from->opt.log_capacity, sizeof(*to->log));
	to->peers = calloc(RAFT_NODES_MAX, sizeof(*to->peers));
	if (!to->log || !to->peers) {
		free(to->log);
		free(to->peers);
		return -ENOMEM;
	}
	for (i = from->snap_index + 1; i <= from->last_index; i++) {
		*raft_log_slot(to, i) = *raft_log_slot(from, i);
		raft_data_ref(raft_log_slot(to, i)->data);
	}
	raft_data_ref(to->snap_conf);
	for (p = 0; p < from->n_peers; p++) {
		to->peers[p] = from->peers[p];
		raft_data_ref(to->peers[p].snap_conf);
	}
	return 0;
}

static void put_data(struct wire_w *w, const struct raft_data *d)
{
	wire_put_u8(w, d != NULL);
	if (d)
		wire_put_blob(w, d->bytes, d->len);
}

static void put_peer(struct wire_w *w, const struct raft_peer *p, bool reads)
{
	wire_put_u32(w, p->node);
	wire_put_u8(w, (uint8_t)p->flow);
	wire_put_u8(w, (uint8_t)(p->voted | p->granted << 1 | p->recent_recv << 2 |
				 p->nonvoting << 3 | p->paused << 4 | p->snapshot_requested << 5));
	wire_put_u64(w, p->match_index);
	wire_put_u64(w, p->next_index);
	wire_put_u64(w, p->commit_sent);
	wire_put_u64(w, reads ? p->acked_round : 0);
	wire_put_u64(w, p->inflight_bytes);
	wire_put_u64(w, p->snap_index);
	wire_put_u64(w, p->snap_term);
	wire_put_u64(w, p->snap_offset);
	put_data(w, p->snap_conf);
}

size_t raft_canonical(const struct raft *r, void *buf, size_t cap)
{
	bool reads = r->n_reads > 0; /* rounds matter only to reads that wait for one */
	struct wire_w w;
	uint64_t i;

	wire_w_init(&w, buf, cap);
	wire_put_u64(&w, r->term);
	wire_put_u32(&w, r->voted_for);
	wire_put_u64(&w, r->snap_index);
	wire_put_u64(&w, r->snap_term);
	put_data(&w, r->snap_conf);
	wire_put_u64(&w, r->last_index);
	for (i = r->snap_index + 1; i <= r->last_index; i++) {
		wire_put_u64(&w, raft_log_slot(r, i)->term);
		wire_put_u8(&w, (uint8_t)raft_log_slot(r, i)->type);
		put_data(&w, raft_log_slot(r, i)->data);
	}
	wire_put_u8(&w, (uint8_t)r->state);
	wire_put_u8(&w, (uint8_t)(r->confirmed | r->lease << 1 | r->transfer_sent << 2));
	wire_put_u64(&w, r->commit_index);
	wire_put_u64(&w, r->last_applied);
	wire_put_u64(&w, r->stable_index);
	wire_put_u64(&w, r->stable_term);
	wire_put_u32(&w, r->leader);
	wire_put_u64(&w, r->term_start);
	wire_put_u32(&w, r->transfer_to);
	wire_put_u64(&w, r->incoming_index);
	wire_put_u64(&w, r->incoming_term);
	wire_put_u64(&w, r->incoming_offset);
	wire_put_u32(&w, r->n_peers);
	for (i = 0; i < r->n_peers; i++)
		put_peer(&w, &r->peers[i], reads);
	wire_put_u32(&w, r->n_reads);
	wire_put_u64(&w, reads ? r->round : 0);
	for (i = 0; i < r->n_reads; i++) {
		wire_put_u64(&w, r->reads[i].ctx);
		wire_put_u64(&w, r->reads[i].index);
		wire_put_u64(&w, r->reads[i].round);
	}
	return w.bad ? 0 : w.len;
}

/* ---- actions ------------------------------------------------------------------------------- */

void raft_actions_init(struct raft_actions *a)
{
	memset(a, 0, sizeof(*a));
}

void raft_actions_reset(struct raft_actions *a)
{
	struct raft_actions empty = {.messages = a->messages,
				     .cap_messages = a->cap_messages,
				     .reads = a->reads,
				     .cap_reads = a->cap_reads};
	uint32_t i;

	for (i = 0; i < a->n_messages; i++)
		raft_message_release(&a->messages[i]);
	*a = empty;
}

void raft_actions_fini(struct raft_actions *a)
{
	raft_actions_reset(a);
	free(a->messages);
	free(a->reads);
	memset(a, 0, sizeof(*a));
}

bool raft_actions_write(const struct raft_actions *a, bool *durable)
{
	*durable = a->hard_state || a->install || a->log_from != 0;
	return *durable || a->apply_to != 0 || a->compact_to != 0;
}

const char *raft_state_name(enum raft_state state)
{
	static const char *const names[] = {
		[RAFT_FOLLOWER] = "FOLLOWER",
		[RAFT_PRECANDIDATE] = "PRECANDIDATE",
		[RAFT_CANDIDATE] = "CANDIDATE",
		[RAFT_LEADER] = "LEADER",
	};

	return names[state];
}

/* ---- what always holds --------------------------------------------------------------------- */

static const char *check_peers(const struct raft *r)
{
	uint32_t i;

	for (i = 0; i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];

		if (!raft_conf_find(&r->conf, p->node) || p->node == r->opt.self)
			return "a peer is no other member";
		if (r->state == RAFT_LEADER && p->match_index > r->last_index)
			return "a follower has more than the leader";
		if (r->state == RAFT_LEADER && p->next_index <= p->match_index &&
		    p->flow != RAFT_SNAPSHOTTING)
			return "next_index is not after match_index";
	}
	return NULL;
}

const char *raft_check(const struct raft *r)
{
	uint64_t i;

	if (r->last_applied > r->commit_index || r->commit_index > r->last_index)
		return "last_applied <= commit_index <= last_index";
	if (r->snap_index > r->last_applied)
		return "an entry was compacted that is not applied";
	if (r->stable_index > r->last_index || r->stable_term > r->term)
		return "more is durable than there is";
	if (r->last_index - r->snap_index > r->opt.log_capacity)
		return "the log is longer than its ring";
	if (raft_term_at(r, r->last_index) > r->term)
		return "an entry's term is above the node's";
	if (r->state == RAFT_LEADER && (r->leader != r->opt.self || r->voted_for != r->opt.self))
		return "leads without its own vote";
	if (r->state == RAFT_LEADER && r->stable_term != r->term)
		return "leads in a term that is not durable";
	if (r->state != RAFT_FOLLOWER && !r->confirmed)
		return "campaigns without being confirmed";
	if (r->state != RAFT_LEADER && (r->n_reads > 0 || r->transfer_to != 0))
		return "reads or a hand-over are open on a node that does not lead";
	for (i = r->snap_index + 2; i <= r->last_index; i++)
		if (raft_term_at(r, i) < raft_term_at(r, i - 1))
			return "terms in the log go down";
	return check_peers(r);
}
