/*
 * The Raft core: what a quorum has reached. See raft_quorum.h.
 */
#include "raft_quorum.h"

#include <stdlib.h>

#include "raft_log.h"

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Returns the highest entry that a quorum holds (match_index), or with `rounds` the highest round
   that a quorum has answered (acked_round). Nodes that may not vote yet count as 0. */
static uint64_t quorum_of(struct raft *r, bool rounds)
{
	uint64_t v[RAFT_NODES_MAX];
	uint32_t i, n = 0;

	if (raft_is_voter(r, r->opt.self))
		v[n++] = rounds ? r->round : r->stable_index;
	for (i = 0; i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];

		if (!raft_is_voter(r, p->node))
			continue;
		v[n] = rounds ? p->acked_round : p->match_index;
		if (p->nonvoting)
			v[n] = 0;
		n++;
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(v[0]), compare_u64);
	return v[n - raft_majority(r)];
}

/* Figure 3.1, leaders: "If there exists an N such that N > commitIndex, a majority of matchIndex[i]
   >= N, and log[N].term == currentTerm: set commitIndex = N" (3.6.2: only an entry of the leader's
   own term is committed by counting). */
void step_advance_commit(struct raft_ctx *s)
{
	uint64_t index = quorum_of(s->r, false);

	if (index > s->r->commit_index && raft_term_at(s->r, index) == s->r->term)
		step_commit(s, index);
}

/* ReadIndex (6.4): a read is answered once a quorum has answered a round that began after it. */
void step_answer_reads(struct raft_ctx *s)
{
	struct raft *r = s->r;
	uint64_t seq = quorum_of(r, true);
	uint32_t i, kept = 0;

	for (i = 0; i < r->n_reads; i++) {
		if (r->reads[i].round <= seq)
			step_end_read(s, &r->reads[i], 0);
		else
			r->reads[kept++] = r->reads[i];
	}
	r->n_reads = kept;
}

/* Check-quorum (6.2): a leader that a quorum has not answered since the last check steps down. */
void step_check_quorum(struct raft_ctx *s)
{
	struct raft *r = s->r;
	uint32_t i, n = raft_is_voter(r, r->opt.self);

	for (i = 0; i < r->n_peers; i++) {
		struct raft_peer *p = &r->peers[i];

		n += p->recent_recv && !p->nonvoting && raft_is_voter(r, p->node);
		p->recent_recv = false;
	}
	r->election_due = s->now_ms + r->opt.election_ms;
	if (n < raft_majority(r))
		step_follow(s, r->term, 0);
}

/* Asked before a configuration is proposed: it is in force at once, also where it can't be
   committed, and the member that it leaves out may be the one that a quorum lacks. */
bool raft_hears_quorum(struct raft *r, const struct raft_conf *conf)
{
	uint32_t i, n = 0;

	for (i = 0; i < conf->n; i++) {
		const struct raft_peer *p = raft_find_peer(r, conf->member[i].node);

		n += conf->member[i].role == RAFT_VOTER &&
		     (p ? p->recent_recv && !p->nonvoting : conf->member[i].node == r->opt.self);
	}
	return n >= raft_conf_voters(conf) / 2 + 1;
}
