/*
 * The Raft core's roof: events in, one handler each. The states are drawn in raft.h; raft_go is
 * their only door.
 *
 * The happy path: a proposal is appended (step_propose), goes to the followers with the turn's
 * FLUSH while the leader's own transaction runs, is counted when the followers' answers and
 * PERSISTED say that it is durable at a quorum (step_advance_commit), and is handed to the driver
 * to apply. Followers learn of the commit with the next FLUSH or heartbeat.
 *
 * How it fails: lost, repeated and reordered messages are answered or dropped by comparing terms,
 * indexes and rounds. A follower whose log differs goes back to PROBE; one that needs compacted
 * entries gets a snapshot. A leader without a quorum's answers for an election time-out steps down,
 * so that it can't pretend to be one. Where a committed entry would have to be overwritten, which
 * must never happen, actions.failed is set, and the driver ends the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raft_conf.h"
#include "raft_core.h"
#include "raft_elect.h"
#include "raft_follow.h"
#include "raft_lead.h"
#include "raft_log.h"
#include "raft_quorum.h"
#include "raft_replicate.h"

/* ---- time ---------------------------------------------------------------------------------- */

static int step_election(struct raft_ctx *s)
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
		step_campaign(s);
	return 0;
}

static int step_tick(struct raft_ctx *s)
{
	struct raft *r = s->r;

	if (r->transfer_to != 0 && s->now_ms >= r->transfer_until)
		r->transfer_to = 0;
	if (r->lease && s->now_ms >= r->lease_until)
		r->lease = false;
	if (s->now_ms >= r->election_due)
		step_election(s);
	if (r->state == RAFT_LEADER && s->now_ms >= r->heartbeat_due)
		step_heartbeat(s);
	return 0;
}

/* ---- messages ------------------------------------------------------------------------------ */

static int step_received(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_conf conf;

	if (m->type == RAFT_SNAPSHOT &&
	    (!m->conf || raft_conf_decode(m->conf->bytes, m->conf->len, &conf) < 0))
		return -EPROTO;
	if (m->type == RAFT_VOTE && m->term > r->term && !m->transfer && raft_knows_leader(r))
		/* 4.2.3: a vote asked for while a leader is known does not change this node's term.
		   If there is no leader any more, the next message meets the higher term. */
		return 0;
	/* Figure 3.1, all servers: "If RPC request or response contains term T > currentTerm: set
	   currentTerm = T, convert to follower". step_vote does it by itself. */
	if (m->term > r->term && m->type != RAFT_PREVOTE && m->type != RAFT_VOTE)
		step_follow(s, m->term, 0);

	switch (m->type) {
	case RAFT_PREVOTE:
		step_prevote(s, m);
		break;
	case RAFT_PREVOTE_ANSWER:
		step_prevote_answer(s, m);
		break;
	case RAFT_VOTE:
		step_vote(s, m);
		break;
	case RAFT_VOTE_ANSWER:
		step_vote_answer(s, m);
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
		step_timeout_now(s, m);
		break;
	default:
		return -EPROTO;
	}
	return 0;
}

/* Makes a sole voter campaign at once: no other node can win, and none can be disturbed. */
static void campaign_if_alone(struct raft_ctx *s)
{
	if (raft_is_voter(s->r, s->r->opt.self) && raft_conf_voters(&s->r->conf) == 1)
		s->r->election_due = s->now_ms;
}

static int step_confirm(struct raft_ctx *s)
{
	struct raft *r = s->r;

	if (r->confirmed)
		return 0;
	r->confirmed = true;
	/* An earlier instance under this number may have voted in this term: use the vote up. */
	if (r->voted_for == 0)
		r->voted_for = r->opt.self;
	s->a->hard_state = true;
	campaign_if_alone(s);
	return 0;
}

/* Not durable: the node that knows another instance may be of a cluster that exists no more. */
static int step_deny(struct raft_ctx *s)
{
	s->r->confirmed = false;
	if (s->r->state != RAFT_FOLLOWER)
		step_follow(s, s->r->term, 0);
	return 0;
}

static int step_persisted(struct raft_ctx *s)
{
	struct raft *r = s->r;
	uint64_t applied = r->last_applied; /* by that transaction, so these entries may go */

	r->stable_index = r->last_index;
	r->stable_term = r->term;
	if (r->state == RAFT_CANDIDATE)
		step_count_votes(s);
	if (r->state == RAFT_LEADER)
		step_advance_commit(s);
	step_compact(s, applied);
	return 0;
}

int raft_start(struct raft *r, uint64_t applied, uint64_t now_ms)
{
	struct raft_ctx s = {.r = r, .now_ms = now_ms};

	if (applied < r->snap_index || applied > r->last_index)
		return -EINVAL;
	r->commit_index = r->last_applied = applied;
	r->state = RAFT_FOLLOWER;
	raft_refresh_conf(r);
	step_election_clock(&s);
	campaign_if_alone(&s);
	return 0;
}

bool raft_has_quorum(const struct raft *r)
{
	return r->state == RAFT_LEADER || (r->leader != 0 && r->lease);
}

int raft_step(struct raft *r, const struct raft_event *ev, struct raft_actions *a)
{
	struct raft_ctx s = {.r = r, .a = a, .now_ms = ev->now_ms};

	a->stage = RAFT_STAGE_NONE;
	switch (ev->type) {
	case RAFT_EV_TICK:
		return step_tick(&s);
	case RAFT_EV_HEARTBEAT:
		return step_heartbeat(&s);
	case RAFT_EV_ELECTION:
		return step_election(&s);
	case RAFT_EV_MESSAGE:
		return step_received(&s, ev->message);
	case RAFT_EV_PROPOSE:
		return step_propose(&s, &ev->entry);
	case RAFT_EV_READ:
		return step_read(&s, ev->ctx);
	case RAFT_EV_FLUSH:
		return step_flush(&s);
	case RAFT_EV_PERSISTED:
		return step_persisted(&s);
	case RAFT_EV_SNAPSHOT_READY:
		return step_snapshot_ready(&s, ev);
	case RAFT_EV_SNAPSHOT_LOST:
		return step_snapshot_lost(&s, ev->node);
	case RAFT_EV_TRANSFER:
		return step_transfer(&s, ev->node);
	case RAFT_EV_CONFIRM:
		return step_confirm(&s);
	case RAFT_EV_DENY:
		return step_deny(&s);
	case RAFT_EV_PEER:
		return step_peer(&s, ev->node);
	}
	return -EINVAL;
}
