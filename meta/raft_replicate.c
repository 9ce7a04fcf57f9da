/*
 * The Raft core's replication. See raft_replicate.h.
 *
 * The happy path: FLUSH sends each follower what is new (REPLICATE, as much as may be in flight),
 * its answers raise match_index, and what a quorum holds of this term is committed.
 *
 * How it fails: a refusal, or a new connection, puts the follower back to PROBE, one message at a
 * time from where the logs agree. A follower that needs compacted entries is SNAPSHOTTING, and goes
 * through PROBE back to REPLICATE. A lost message is sent again with the next heartbeat.
 *
 *	PROBE -> REPLICATE		[matched] an answer matches
 *	REPLICATE -> PROBE		[refused, step_peer] a refusal, or a new connection
 *	PROBE -> PROBE			[refused] a refusal
 *	PROBE, REPLICATE -> SNAPSHOTTING [ask_for_dump] it needs compacted entries
 *	SNAPSHOTTING -> SNAPSHOTTING	[ask_for_dump] the dump is lost, another one is made
 *	SNAPSHOTTING -> PROBE		[matched] it has the snapshot, or needs none any more
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raft_replicate.h"

#include <stdlib.h>

#include "raft_log.h"
#include "raft_quorum.h"

#define APPEND_BYTES_MAX (256u << 10) /* in one message */

/* ---- the door of the flows ----------------------------------------------------------------- */

/* The drawing above: the flows that may follow each. */
static const uint8_t next_flows[] = {
	[RAFT_PROBE] = 1 << RAFT_PROBE | 1 << RAFT_REPLICATE | 1 << RAFT_SNAPSHOTTING,
	[RAFT_REPLICATE] = 1 << RAFT_PROBE | 1 << RAFT_SNAPSHOTTING,
	[RAFT_SNAPSHOTTING] = 1 << RAFT_SNAPSHOTTING | 1 << RAFT_PROBE,
};

/* Sets the flow: the one door. Aborts where the drawing has no such arrow. */
static void peer_go(struct raft_peer *p, enum raft_flow to)
{
	if (!(next_flows[p->flow] & 1 << to))
		abort();
	p->flow = to;
}

/* ---- sending entries ----------------------------------------------------------------------- */

static void ask_for_dump(struct raft_ctx *s, struct raft_peer *p)
{
	uint32_t i;

	if (p->flow == RAFT_SNAPSHOTTING && p->snapshot_requested)
		return;
	raft_drop_snapshot(p);
	peer_go(p, RAFT_SNAPSHOTTING);
	p->snapshot_requested = true;
	p->paused = false;
	p->inflight_bytes = 0;
	for (i = 0; i < s->a->n_snapshot_to; i++)
		if (s->a->snapshot_to[i] == p->node)
			return;
	s->a->snapshot_to[s->a->n_snapshot_to++] = p->node;
}

/* Returns the highest entry that the peer has promised to keep. A node that may not vote promises
   nothing: it may lose its log again, and another instance may come back under its number. */
static uint64_t promised(const struct raft_peer *p)
{
	return p->nonvoting ? 0 : p->match_index;
}

static void send_piece(struct raft_ctx *s, struct raft_peer *p)
{
	struct raft_message *m;

	if (p->paused || p->snapshot_requested)
		return;
	m = step_new_message(s, RAFT_SNAPSHOT, p->node);
	if (!m)
		return;
	m->index = p->snap_index;
	m->log_term = p->snap_term;
	m->conf = raft_data_ref(p->snap_conf);
	m->conf_index = p->snap_conf_index;
	m->offset = p->snap_offset;
	m->round = s->r->round;
	m->hint = promised(p);
	p->paused = true;
}

bool step_send_append(struct raft_ctx *s, struct raft_peer *p, bool even_empty)
{
	struct raft *r = s->r;
	uint64_t bytes = 0, index = p->next_index;
	struct raft_message *m;

	if (p->inflight_bytes >= r->opt.inflight_bytes)
		index = r->last_index + 1;
	if (!even_empty && (index > r->last_index || p->paused))
		return false;
	m = step_new_message(s, RAFT_APPEND, p->node);
	if (!m)
		return false;
	m->early = true;
	m->index = p->next_index - 1;
	m->log_term = raft_term_at(r, p->next_index - 1);
	m->leader_commit = r->commit_index;
	m->round = r->round;
	m->hint = promised(p);
	for (; index <= r->last_index && m->n_entries < RAFT_APPEND_MAX; index++) {
		const struct raft_entry *e = raft_entry_at(r, index);

		if (bytes > 0 && bytes + (e->data ? e->data->len : 0) > APPEND_BYTES_MAX)
			break;
		bytes += e->data ? e->data->len : 0;
		m->entries[m->n_entries++] = *e;
		raft_data_ref(e->data);
	}
	p->commit_sent = r->commit_index;
	if (p->flow == RAFT_PROBE) {
		p->paused = true;
	} else {
		p->next_index += m->n_entries;
		p->inflight_bytes += bytes;
	}
	return m->n_entries > 0;
}

/* Sends what this follower lacks, as far as its flow allows. */
static void send_news(struct raft_ctx *s, struct raft_peer *p, bool even_empty)
{
	struct raft *r = s->r;

	/* The term of the entry before is needed, and known down to snap_index. */
	if (p->flow != RAFT_SNAPSHOTTING && p->next_index <= r->snap_index)
		ask_for_dump(s, p);
	if (p->flow == RAFT_SNAPSHOTTING) {
		send_piece(s, p);
		return;
	}
	if (p->flow == RAFT_PROBE) {
		if (!p->paused)
			step_send_append(s, p, true);
		return;
	}
	while (step_send_append(s, p, even_empty || p->commit_sent < r->commit_index))
		even_empty = false;
}

static void send_timeout_now(struct raft_ctx *s)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, r->transfer_to);

	if (!p || r->transfer_sent || p->match_index != r->last_index)
		return;
	r->transfer_sent = step_new_message(s, RAFT_TIMEOUT_NOW, p->node) != NULL;
}

int step_flush(struct raft_ctx *s)
{
	uint32_t i;

	if (s->r->state != RAFT_LEADER)
		return 0;
	for (i = 0; i < s->r->n_peers; i++)
		send_news(s, &s->r->peers[i], false);
	send_timeout_now(s);
	return 0;
}

/* A round proves to the followers that the leader lives and, by their answers, to the leader that
   it still leads. */
int step_heartbeat(struct raft_ctx *s)
{
	struct raft *r = s->r;
	uint32_t i;

	if (r->state != RAFT_LEADER)
		return 0;
	r->round++;
	r->heartbeat_due = s->now_ms + r->opt.heartbeat_ms;
	r->transfer_sent = false; /* the TimeoutNow that was sent may be lost */
	for (i = 0; i < r->n_peers; i++) {
		r->peers[i].paused = false;
		send_news(s, &r->peers[i], true);
	}
	return 0;
}

/* ---- the answers ----------------------------------------------------------------------------- */

/* Notes an answer. Returns its peer; NULL where it is not of this term or this node does not
   lead. */
static struct raft_peer *heard_follower(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, m->from);

	if (r->state != RAFT_LEADER || m->term != r->term || !p)
		return NULL;
	/* It may be another instance that was admitted: the progress of the nonvoting one isn't
	   its. */
	if (p->nonvoting && !m->nonvoting)
		p->match_index = p->acked_round = 0;
	p->recent_recv = true;
	p->nonvoting = m->nonvoting;
	if (m->round > p->acked_round && m->round <= r->round)
		p->acked_round = m->round;
	step_answer_reads(s);
	return p;
}

static void refused(struct raft *r, struct raft_peer *p, const struct raft_message *m)
{
	uint64_t next;

	/* Formatted again: it never counted, and has lost its log. */
	if (m->nonvoting && m->hint < p->match_index)
		p->match_index = m->hint;
	if (p->flow == RAFT_SNAPSHOTTING || m->index <= p->match_index || m->index >= p->next_index)
		return; /* old */
	if (p->flow == RAFT_PROBE && m->index != p->next_index - 1)
		return;
	next = m->hint < m->index ? m->hint + 1 : m->index;
	peer_go(p, RAFT_PROBE);
	p->next_index = next > p->match_index ? next : p->match_index + 1;
	p->paused = false;
	p->inflight_bytes = 0;
	if (p->next_index > r->last_index + 1)
		p->next_index = r->last_index + 1;
}

static uint64_t entry_bytes(const struct raft *r, uint64_t from, uint64_t to)
{
	uint64_t i, bytes = 0;

	for (i = from > r->snap_index ? from : r->snap_index + 1; i <= to; i++) {
		const struct raft_entry *e = raft_entry_at(r, i);

		bytes += e && e->data ? e->data->len : 0;
	}
	return bytes;
}

static void matched(struct raft_ctx *s, struct raft_peer *p, uint64_t index)
{
	struct raft *r = s->r;
	uint64_t bytes;

	if (index > r->last_index)
		return;
	if (index > p->match_index) {
		bytes = entry_bytes(r, p->match_index + 1, index);
		p->inflight_bytes -= bytes < p->inflight_bytes ? bytes : p->inflight_bytes;
		p->match_index = index;
	}
	/* Also where it was slow to install one, and another is made or on its way: the entries
	   that it lacks now are in the log. */
	if (p->flow == RAFT_SNAPSHOTTING && (p->match_index >= r->snap_index ||
					     (!p->snapshot_requested && index >= p->snap_index))) {
		raft_drop_snapshot(p);
		peer_go(p, RAFT_PROBE);
	}
	if (p->flow == RAFT_PROBE && index == p->match_index) {
		peer_go(p, RAFT_REPLICATE);
		p->next_index = p->match_index + 1;
		p->inflight_bytes = 0;
		p->paused = false;
	}
	if (p->next_index <= p->match_index)
		p->next_index = p->match_index + 1;
	if (p->match_index + 1 == p->next_index)
		p->inflight_bytes = 0;
	step_advance_commit(s);
}

void step_append_answer(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft_peer *p = heard_follower(s, m);

	if (!p)
		return;
	if (m->reject)
		refused(s->r, p, m);
	else
		matched(s, p, m->index);
}

void step_snapshot_answer(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft_peer *p = heard_follower(s, m);

	if (!p || p->flow != RAFT_SNAPSHOTTING || p->snapshot_requested ||
	    m->index != p->snap_index)
		return;
	if (m->offset == p->snap_offset)
		return; /* an answer to an older copy; the heartbeat sends the piece again */
	p->snap_offset = m->offset;
	p->paused = false;
}

/* ---- dumps and connections ------------------------------------------------------------------- */

int step_snapshot_ready(struct raft_ctx *s, const struct raft_event *ev)
{
	struct raft *r = s->r;
	struct raft_peer *p = raft_find_peer(r, ev->node);

	if (r->state != RAFT_LEADER || !p || p->flow != RAFT_SNAPSHOTTING || !p->snapshot_requested)
		return 0;
	if (ev->index < r->snap_index || ev->index > r->last_applied) {
		ask_for_dump(s, p);
		return 0;
	}
	p->snapshot_requested = false;
	p->snap_index = ev->index;
	p->snap_term = ev->term;
	p->snap_conf = raft_data_ref(raft_conf_at(r, ev->index, &p->snap_conf_index));
	send_piece(s, p);
	return 0;
}

int step_snapshot_lost(struct raft_ctx *s, ramp_node_t node)
{
	struct raft_peer *p = raft_find_peer(s->r, node);

	if (s->r->state == RAFT_LEADER && p && p->flow == RAFT_SNAPSHOTTING)
		ask_for_dump(s, p);
	return 0;
}

int step_peer(struct raft_ctx *s, ramp_node_t node)
{
	struct raft_peer *p = raft_find_peer(s->r, node);

	if (s->r->state != RAFT_LEADER || !p)
		return 0;
	p->paused = false;
	if (p->flow == RAFT_REPLICATE) {
		peer_go(p, RAFT_PROBE);
		p->next_index = p->match_index + 1;
		p->inflight_bytes = 0;
	}
	return 0;
}
