/*
 * The Raft core's rules. The states are drawn in raft.h; become_*() are their only doors.
 *
 * The happy path: a proposal is appended (propose), goes to the followers with the turn's FLUSH
 * while the leader's own transaction runs, is counted when the followers' answers and PERSISTED
 * say that it is durable at a quorum (advance_commit), and is handed to the driver to apply.
 * Followers learn of the commit with the next FLUSH or heartbeat.
 *
 * How it fails: lost, repeated and reordered messages are answered or dropped by comparing terms,
 * indexes and rounds; a follower whose log differs goes back to PROBE; one that needs what was
 * compacted away gets a snapshot; a leader that hears no quorum for an election time-out steps
 * down, so that it can't pretend to be one. What must never happen (a committed entry would be
 * overwritten) sets actions.failed, and the driver ends the process.
 *
 * Sections in comments are those of Ongaro's thesis.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raft_step.h"

/* ---- small things -------------------------------------------------------------------------- */

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

/* xorshift64: spreads the election time-outs, no more. */
static uint64_t random_below(struct raft *r, uint64_t n)
{
	r->rng ^= r->rng << 13;
	r->rng ^= r->rng >> 7;
	r->rng ^= r->rng << 17;
	return n == 0 ? 0 : r->rng % n;
}

void step_election_clock(struct step *s)
{
	uint32_t ms = s->r->opt.election_ms;

	s->r->election_due = s->now_ms + ms + random_below(s->r, ms);
}

struct raft_message *step_message(struct step *s, enum raft_message_type type, ramp_node_t to)
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

void step_answer_read(struct step *s, const struct raft_read *read, int result)
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
	p->asked = false;
}

/* The journal's log is the core's from `from` on: the lowest such index of the turn counts. */
void step_log_changed(struct step *s, uint64_t from)
{
	if (s->a->log_from == 0 || from < s->a->log_from)
		s->a->log_from = from;
}

void step_commit(struct step *s, uint64_t index)
{
	struct raft *r = s->r;

	if (index <= r->commit)
		return;
	r->commit = r->applied = index;
	s->a->apply_to = index;
}

/* ---- peers --------------------------------------------------------------------------------- */

static void reset_peer(struct raft *r, struct raft_peer *p, ramp_node_t node)
{
	memset(p, 0, sizeof(*p));
	p->node = node;
	p->flow = RAFT_PROBE;
	p->next = r->last_index + 1;
	p->heard = true;
}

/* Peers are the other members of the configuration in force; those that stay keep their place. */
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

static void reset_peers(struct raft *r)
{
	uint32_t i;

	for (i = 0; i < r->n_peers; i++)
		raft_drop_snapshot(&r->peers[i]);
	r->n_peers = 0;
	sync_peers(r);
}

void raft_refresh_conf(struct raft *r)
{
	raft_conf_refresh(r);
	if (r->state == RAFT_FOLLOWER)
		reset_peers(r);
	else
		sync_peers(r);
}

/* ---- the doors of the states --------------------------------------------------------------- */

void step_follow(struct step *s, uint64_t term, ramp_node_t leader)
{
	struct raft *r = s->r;
	uint32_t i;

	if (term > r->term) {
		r->term = term;
		r->vote = 0; /* a vote is of one term */
		s->a->hard_state = true;
	}
	for (i = 0; i < r->n_reads; i++)
		step_answer_read(s, &r->reads[i], -EAGAIN);
	r->n_reads = 0;
	r->transfer_to = 0;
	r->transfer_sent = false;
	if (r->state == RAFT_LEADER || leader != r->leader)
		step_election_clock(s);
	r->state = RAFT_FOLLOWER;
	r->leader = leader;
	r->lease = leader != 0;
	r->lease_until = s->now_ms + r->opt.election_ms;
	reset_peers(r);
}

void step_append_own(struct step *s, const struct raft_entry *e)
{
	struct raft *r = s->r;

	if (raft_log_append(r, e) < 0)
		return; /* the callers looked for room */
	step_log_changed(s, r->last_index);
	if (e->type == RAFT_CONF)
		raft_refresh_conf(r);
}

static void become_leader(struct step *s)
{
	struct raft *r = s->r;
	struct raft_entry noop = {.term = r->term, .type = RAFT_NOOP};

	if (raft_log_room(r) == 0) {
		step_follow(s, r->term, 0);
		return;
	}
	r->state = RAFT_LEADER;
	r->leader = r->opt.self;
	r->lease = false;
	r->term_start = r->last_index + 1;
	r->election_due = s->now_ms + r->opt.election_ms;
	r->heartbeat_due = s->now_ms;
	reset_peers(r);
	/* Entries of older terms commit only with one of this term (3.6.2). */
	step_append_own(s, &noop);
}

static uint32_t votes(const struct raft *r)
{
	uint32_t i, n;

	/* The pre-vote promises nothing; a vote counts once it is durable, one's own too. */
	n = raft_is_voter(r, r->opt.self) &&
	    (r->state == RAFT_PRECANDIDATE ||
	     (r->vote == r->opt.self && r->stable_term == r->term));
	for (i = 0; i < r->n_peers; i++)
		n += r->peers[i].granted && raft_is_voter(r, r->peers[i].node);
	return n;
}

static void ask_for_votes(struct step *s, enum raft_message_type type, uint64_t term, bool transfer)
{
	struct raft *r = s->r;
	uint32_t i;

	reset_peers(r);
	for (i = 0; i < r->n_peers; i++) {
		struct raft_message *m;

		if (!raft_is_voter(r, r->peers[i].node))
			continue;
		m = step_message(s, type, r->peers[i].node);
		if (!m)
			return;
		m->term = term;
		m->index = r->last_index;
		m->log_term = raft_term_at(r, r->last_index);
		m->transfer = transfer;
	}
}

static void become_candidate(struct step *s, bool transfer)
{
	struct raft *r = s->r;

	r->state = RAFT_CANDIDATE;
	r->term++;
	r->vote = r->opt.self;
	r->leader = 0;
	r->lease = false;
	s->a->hard_state = true;
	step_election_clock(s);
	ask_for_votes(s, RAFT_VOTE, r->term, transfer);
}

static void count_votes(struct step *s)
{
	struct raft *r = s->r;

	if (votes(r) < raft_majority(r))
		return;
	if (r->state == RAFT_PRECANDIDATE)
		become_candidate(s, false);
	else if (r->state == RAFT_CANDIDATE)
		become_leader(s);
}

/* Pre-vote (9.6): asks who would vote, before it disturbs anybody with a higher term. */
static void become_precandidate(struct step *s)
{
	struct raft *r = s->r;

	r->state = RAFT_PRECANDIDATE;
	ask_for_votes(s, RAFT_PREVOTE, r->term + 1, false);
	count_votes(s);
}

/* ---- time ---------------------------------------------------------------------------------- */

static int on_election(struct step *s)
{
	struct raft *r = s->r;

	if (r->state == RAFT_LEADER) {
		r->transfer_to = 0;
		step_check_quorum(s);
		return 0;
	}
	step_election_clock(s);
	step_follow(s, r->term, 0);
	if (r->confirmed && raft_is_voter(r, r->opt.self))
		become_precandidate(s);
	return 0;
}

static int on_tick(struct step *s)
{
	struct raft *r = s->r;

	if (r->transfer_to != 0 && s->now_ms >= r->transfer_until)
		r->transfer_to = 0;
	if (r->lease && s->now_ms >= r->lease_until)
		r->lease = false;
	if (s->now_ms >= r->election_due)
		on_election(s);
	if (r->state == RAFT_LEADER && s->now_ms >= r->heartbeat_due)
		step_heartbeat(s);
	return 0;
}

/* ---- elections ----------------------------------------------------------------------------- */

/* Section 3.6.1: the candidate's log must hold all that this node's holds. */
static bool up_to_date(const struct raft *r, const struct raft_message *m)
{
	uint64_t term = raft_term_at(r, r->last_index);

	return m->log_term > term || (m->log_term == term && m->index >= r->last_index);
}

/* True while this node knows of a living leader: votes would only disturb it (4.2.3). */
static bool content(const struct raft *r)
{
	return r->state == RAFT_LEADER || r->lease;
}

static void on_prevote(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_message *answer = step_message(s, RAFT_PREVOTE_ANSWER, m->from);

	if (!answer)
		return;
	answer->index = m->term;
	answer->reject = !r->confirmed || m->term <= r->term || content(r) || !up_to_date(r, m);
}

static void on_prevote_answer(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, m->from);

	if (r->state != RAFT_PRECANDIDATE || !p || m->reject || m->index != r->term + 1)
		return;
	p->voted = p->granted = true;
	count_votes(s);
}

static void on_vote(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_message *answer;
	bool grant;

	if (m->term > r->term)
		step_follow(s, m->term, 0);
	grant = m->term == r->term && r->confirmed && (r->vote == 0 || r->vote == m->from) &&
		up_to_date(r, m);
	if (grant && r->vote == 0) {
		r->vote = m->from;
		s->a->hard_state = true; /* durable before the answer goes: it is not early */
	}
	if (grant)
		step_election_clock(s);
	answer = step_message(s, RAFT_VOTE_ANSWER, m->from);
	if (answer)
		answer->reject = !grant;
}

static void on_vote_answer(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, m->from);

	if (r->state != RAFT_CANDIDATE || !p || m->term != r->term)
		return;
	p->voted = true;
	p->granted = !m->reject;
	count_votes(s);
}

/* The leader has brought this node up to date and asks it to take over (3.10). */
static void on_timeout_now(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;

	if (r->state == RAFT_FOLLOWER && m->term == r->term && m->from == r->leader &&
	    r->confirmed && raft_is_voter(r, r->opt.self))
		become_candidate(s, true);
}

/* ---- messages ------------------------------------------------------------------------------ */

static int on_message(struct step *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_conf conf;

	if (m->type == RAFT_SNAPSHOT &&
	    (!m->conf || raft_conf_decode(m->conf->bytes, m->conf->len, &conf) < 0))
		return -EPROTO;
	if (m->type == RAFT_VOTE && m->term > r->term && !m->transfer && content(r))
		return 0; /* 4.2.3; if we are wrong, our own message meets the higher term */
	if (m->term > r->term && m->type != RAFT_PREVOTE && m->type != RAFT_VOTE)
		step_follow(s, m->term, 0);

	switch (m->type) {
	case RAFT_PREVOTE:
		on_prevote(s, m);
		break;
	case RAFT_PREVOTE_ANSWER:
		on_prevote_answer(s, m);
		break;
	case RAFT_VOTE:
		on_vote(s, m);
		break;
	case RAFT_VOTE_ANSWER:
		on_vote_answer(s, m);
		break;
	case RAFT_APPEND:
		step_append(s, m);
		break;
	case RAFT_APPEND_ANSWER:
		step_append_answer(s, m);
		break;
	case RAFT_SNAPSHOT:
		step_snapshot(s, m);
		break;
	case RAFT_SNAPSHOT_ANSWER:
		step_snapshot_answer(s, m);
		break;
	case RAFT_TIMEOUT_NOW:
		on_timeout_now(s, m);
		break;
	default:
		return -EPROTO;
	}
	return 0;
}

/* Nobody else can win, and nobody else can be disturbed: there is nothing to wait for. */
static void hurry_if_alone(struct step *s)
{
	if (raft_is_voter(s->r, s->r->opt.self) && raft_conf_voters(&s->r->conf) == 1)
		s->r->election_due = s->now_ms;
}

static int on_confirm(struct step *s)
{
	struct raft *r = s->r;

	if (r->confirmed)
		return 0;
	r->confirmed = true;
	/* The node that had this number before may have voted in this term: use the vote up. */
	if (r->vote == 0)
		r->vote = r->opt.self;
	s->a->hard_state = true;
	hurry_if_alone(s);
	return 0;
}

/* Not written: who knows the other instance may be of a cluster that is no more. */
static int on_deny(struct step *s)
{
	s->r->confirmed = false;
	if (s->r->state != RAFT_FOLLOWER)
		step_follow(s, s->r->term, 0);
	return 0;
}

static int on_persisted(struct step *s)
{
	struct raft *r = s->r;

	uint64_t applied = r->applied; /* by that transaction, so they may go */

	r->stable_index = r->last_index;
	r->stable_term = r->term;
	if (r->state == RAFT_CANDIDATE)
		count_votes(s);
	if (r->state == RAFT_LEADER)
		step_advance_commit(s);
	step_compact(s, applied);
	return 0;
}

int raft_start(struct raft *r, uint64_t applied, uint64_t now_ms)
{
	struct step s = {.r = r, .now_ms = now_ms};

	if (applied < r->snap_index || applied > r->last_index)
		return -EINVAL;
	r->commit = r->applied = applied;
	r->state = RAFT_FOLLOWER;
	raft_refresh_conf(r);
	step_election_clock(&s);
	hurry_if_alone(&s);
	return 0;
}

bool raft_has_quorum(const struct raft *r)
{
	return r->state == RAFT_LEADER || (r->leader != 0 && r->lease);
}

int raft_step(struct raft *r, const struct raft_event *ev, struct raft_actions *a)
{
	struct step s = {.r = r, .a = a, .now_ms = ev->now_ms};

	a->stage = RAFT_STAGE_NONE;
	switch (ev->type) {
	case RAFT_EV_TICK:
		return on_tick(&s);
	case RAFT_EV_HEARTBEAT:
		return step_heartbeat(&s);
	case RAFT_EV_ELECTION:
		return on_election(&s);
	case RAFT_EV_MESSAGE:
		return on_message(&s, ev->message);
	case RAFT_EV_PROPOSE:
		return step_propose(&s, &ev->entry);
	case RAFT_EV_READ:
		return step_read(&s, ev->ctx);
	case RAFT_EV_FLUSH:
		return step_flush(&s);
	case RAFT_EV_PERSISTED:
		return on_persisted(&s);
	case RAFT_EV_SNAPSHOT_READY:
		return step_snapshot_ready(&s, ev);
	case RAFT_EV_SNAPSHOT_LOST:
		return step_snapshot_lost(&s, ev->node);
	case RAFT_EV_TRANSFER:
		return step_transfer(&s, ev->node);
	case RAFT_EV_CONFIRM:
		return on_confirm(&s);
	case RAFT_EV_DENY:
		return on_deny(&s);
	case RAFT_EV_PEER:
		return step_peer(&s, ev->node);
	}
	return -EINVAL;
}
