/*
 * The Raft core: what a leader is asked to do. See raft_lead.h.
 *
 * How it fails: a request that can't be met is refused at once, and changes nothing.
 */
#include "raft_lead.h"

#include <errno.h>

#include "raft_log.h"
#include "raft_quorum.h"
#include "raft_replicate.h"

#define CATCH_UP_ENTRIES 64 /* a learner that lags more is not made a voter (4.2.1) */

/* Single-server changes (4.1) with the correction of 2015: none before an entry of the leader's own
   term is committed, and none while another configuration is not committed. Returns 0 or the errno
   of PROPOSE (raft.h). */
static int check_conf(struct raft *r, const struct raft_entry *e)
{
	struct raft_conf next;
	uint32_t i;

	if (!e->data || raft_conf_decode(e->data->bytes, e->data->len, &next) < 0)
		return -EINVAL;
	if (r->conf_index > r->commit_index || r->commit_index < r->term_start)
		return -EBUSY;
	if (!raft_conf_single(&r->conf, &next))
		return -EINVAL;
	for (i = 0; i < next.n; i++) {
		const struct raft_peer *p = raft_find_peer(r, next.member[i].node);

		if (next.member[i].role != RAFT_VOTER || raft_is_voter(r, next.member[i].node))
			continue;
		/* A new voter must have caught up, or it would hold up every commit. */
		if (!p || p->nonvoting || p->match_index + CATCH_UP_ENTRIES < r->last_index)
			return -EAGAIN;
	}
	if (!raft_conf_find(&next, r->opt.self) ||
	    raft_conf_find(&next, r->opt.self)->role != RAFT_VOTER)
		return -EINVAL; /* a leader hands over before it leaves */
	return raft_hears_quorum(r, &next) ? 0 : -EAGAIN;
}

int step_propose(struct raft_ctx *s, const struct raft_entry *entry)
{
	struct raft *r = s->r;
	struct raft_entry e = *entry;
	int rc;

	/* An eighth of the log is reserved for the first entries of new terms. */
	if (r->state != RAFT_LEADER || r->transfer_to != 0 ||
	    raft_log_room(r) <= r->opt.log_capacity / 8)
		return -EAGAIN;
	if (e.type == RAFT_CONF) {
		rc = check_conf(r, &e);
		if (rc < 0)
			return rc;
	}
	e.term = r->term;
	step_append_own(s, &e);
	return 0;
}

int step_read(struct raft_ctx *s, uint64_t ctx)
{
	struct raft *r = s->r;
	uint32_t i;

	/* Until an entry of its own term is committed, a leader doesn't know which ones are
	   (6.4). */
	if (r->state != RAFT_LEADER || r->n_reads == RAFT_READS_MAX ||
	    r->commit_index < r->term_start)
		return -EAGAIN;
	r->round++;
	r->reads[r->n_reads++] =
		(struct raft_read){.ctx = ctx, .index = r->commit_index, .round = r->round};
	/* A follower that takes a snapshot answers the round with its next piece. */
	for (i = 0; i < r->n_peers; i++)
		if (r->peers[i].flow != RAFT_SNAPSHOTTING && r->peers[i].next_index > r->snap_index)
			step_send_append(s, &r->peers[i], true);
	step_answer_reads(s);
	return 0;
}

/* Returns true where the leader should hand over to p rather than to `than`: to one that answers,
   then to the one that holds more. Nothing is proposed until it has taken over, and a leader that
   is to leave asks again and again. */
static bool is_better(const struct raft_peer *p, const struct raft_peer *than)
{
	if (p->recent_recv != than->recent_recv)
		return p->recent_recv;
	return p->match_index > than->match_index;
}

int step_transfer(struct raft_ctx *s, ramp_node_t to)
{
	struct raft *r = s->r;
	const struct raft_peer *best = NULL;
	uint32_t i;

	if (r->state != RAFT_LEADER)
		return -EAGAIN;
	if (r->transfer_to != 0 && (to == 0 || to == r->transfer_to))
		return 0; /* it still has time; a second candidate would only split the votes */
	for (i = 0; i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];

		if (!raft_is_voter(r, p->node) || p->nonvoting || (to != 0 && p->node != to))
			continue;
		if (!best || is_better(p, best))
			best = p;
	}
	if (!best || best->match_index + CATCH_UP_ENTRIES < r->last_index)
		return -EAGAIN;
	r->transfer_to = best->node;
	r->transfer_sent = false;
	r->transfer_until = s->now_ms + r->opt.election_ms;
	return 0;
}

/* Drops applied entries, but for some that followers may still need, and those after a snapshot
   that is on its way. */
void step_compact(struct raft_ctx *s, uint64_t applied)
{
	struct raft *r = s->r;
	uint64_t to, held = r->last_index - r->snap_index;
	uint32_t i;

	if (applied < r->snap_index + r->opt.compact_entries ||
	    applied < r->snap_index + r->opt.compact_keep)
		return;
	to = applied - r->opt.compact_keep;
	for (i = 0; r->state == RAFT_LEADER && i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];

		if (p->flow == RAFT_SNAPSHOTTING && !p->snapshot_requested && p->snap_index < to &&
		    held < r->opt.log_capacity / 4 * 3)
			to = p->snap_index;
	}
	if (to <= r->snap_index)
		return;
	raft_log_compact(r, to);
	s->a->compact_to = to;
}
