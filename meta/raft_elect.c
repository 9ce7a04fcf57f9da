/*
 * The Raft core's elections. See raft_elect.h.
 *
 * The happy path: a pre-vote (9.6) finds a quorum that would vote, the term rises, a quorum votes,
 * and the candidate leads with a first entry of its own term.
 *
 * How it fails: an answer of another campaign is dropped by its term; a campaign that finds no
 * quorum ends with the next election time-out; a node that knows a leader of its term follows it.
 */
#include "raft_elect.h"

#include "raft_log.h"

/* ---- campaigns ------------------------------------------------------------------------------- */

static void become_leader(struct raft_ctx *s)
{
	struct raft *r = s->r;
	struct raft_entry noop = {.term = r->term, .type = RAFT_NOOP};

	if (raft_log_room(r) == 0) {
		step_follow(s, r->term, 0);
		return;
	}
	raft_go(r, RAFT_LEADER);
	r->leader = r->opt.self;
	r->lease = false;
	r->term_start = r->last_index + 1;
	r->election_due = s->now_ms + r->opt.election_ms;
	r->heartbeat_due = s->now_ms;
	raft_reset_peers(r);
	/* Entries of older terms commit only with one of this term (3.6.2). */
	step_append_own(s, &noop);
}

/* Returns how many voters have granted their vote, this node included. */
static uint32_t votes(const struct raft *r)
{
	uint32_t i, n;

	/* A pre-vote promises nothing. A vote counts once it is durable, this node's own too. */
	n = raft_is_voter(r, r->opt.self) &&
	    (r->state == RAFT_PRECANDIDATE ||
	     (r->voted_for == r->opt.self && r->stable_term == r->term));
	for (i = 0; i < r->n_peers; i++)
		n += r->peers[i].granted && raft_is_voter(r, r->peers[i].node);
	return n;
}

static void ask_for_votes(struct raft_ctx *s, enum raft_message_type type, uint64_t term,
			  bool transfer)
{
	struct raft *r = s->r;
	uint32_t i;

	raft_reset_peers(r);
	for (i = 0; i < r->n_peers; i++) {
		struct raft_message *m;

		if (!raft_is_voter(r, r->peers[i].node))
			continue;
		m = step_new_message(s, type, r->peers[i].node);
		if (!m)
			return;
		m->term = term;
		m->index = r->last_index;
		m->log_term = raft_term_at(r, r->last_index);
		m->transfer = transfer;
	}
}

static void become_candidate(struct raft_ctx *s, bool transfer)
{
	struct raft *r = s->r;

	raft_go(r, RAFT_CANDIDATE);
	r->term++;
	r->voted_for = r->opt.self;
	r->leader = 0;
	r->lease = false;
	s->a->hard_state = true;
	step_election_clock(s);
	ask_for_votes(s, RAFT_VOTE, r->term, transfer);
}

void step_count_votes(struct raft_ctx *s)
{
	struct raft *r = s->r;

	if (votes(r) < raft_majority(r))
		return;
	if (r->state == RAFT_PRECANDIDATE)
		become_candidate(s, false);
	else if (r->state == RAFT_CANDIDATE)
		become_leader(s);
}

/* Pre-vote (9.6): asks which nodes would vote, before a higher term disturbs any of them. */
void step_campaign(struct raft_ctx *s)
{
	struct raft *r = s->r;

	raft_go(r, RAFT_PRECANDIDATE);
	ask_for_votes(s, RAFT_PREVOTE, r->term + 1, false);
	step_count_votes(s);
}

/* ---- votes ----------------------------------------------------------------------------------- */

/* Returns true where the candidate's log is at least as up-to-date as this node's (3.6.1). */
static bool up_to_date(const struct raft *r, const struct raft_message *m)
{
	uint64_t term = raft_term_at(r, r->last_index);

	return m->log_term > term || (m->log_term == term && m->index >= r->last_index);
}

bool raft_knows_leader(const struct raft *r)
{
	return r->state == RAFT_LEADER || r->lease;
}

/* Pre-vote (9.6): grants what step_vote would, and promises nothing. */
void step_prevote(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_message *answer = step_new_message(s, RAFT_PREVOTE_ANSWER, m->from);

	if (!answer)
		return;
	answer->index = m->term;
	answer->reject =
		!r->confirmed || m->term <= r->term || raft_knows_leader(r) || !up_to_date(r, m);
}

void step_prevote_answer(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, m->from);

	if (r->state != RAFT_PRECANDIDATE || !p || m->reject || m->index != r->term + 1)
		return;
	p->voted = p->granted = true;
	step_count_votes(s);
}

/* RequestVote (3.4). Figure 3.1: "Reply false if term < currentTerm. If votedFor is null or
   candidateId, and candidate's log is at least as up-to-date as receiver's log, grant vote". A node
   that is not confirmed grants none. */
void step_vote(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_message *answer;
	bool grant;

	if (m->term > r->term)
		step_follow(s, m->term, 0);
	grant = m->term == r->term && r->confirmed &&
		(r->voted_for == 0 || r->voted_for == m->from) && up_to_date(r, m);
	if (grant && r->voted_for == 0) {
		r->voted_for = m->from;
		s->a->hard_state = true; /* durable before the answer is sent, which is not early */
	}
	if (grant)
		step_election_clock(s);
	answer = step_new_message(s, RAFT_VOTE_ANSWER, m->from);
	if (answer)
		answer->reject = !grant;
}

void step_vote_answer(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, m->from);

	if (r->state != RAFT_CANDIDATE || !p || m->term != r->term)
		return;
	p->voted = true;
	p->granted = !m->reject;
	step_count_votes(s);
}

/* TimeoutNow (3.10): the leader has brought this node up to date, and hands over to it. */
void step_timeout_now(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;

	if (r->state == RAFT_FOLLOWER && m->term == r->term && m->from == r->leader &&
	    r->confirmed && raft_is_voter(r, r->opt.self))
		become_candidate(s, true);
}
