/*
 * Snapshots into a replica, and out of it. See replica_snapshot.h.
 *
 * The happy path, in: pieces are staged in order; the last one makes the whole, which is checked
 * before the core is stepped, and the turn's transaction installs it. Out: the core asks for a
 * dump, a later turn opens one, and its pieces fill the core's messages.
 *
 * How it fails: a damaged dump is marked for the core (`bad`), which asks for it again. A dump that
 * can't be opened is tried again in later turns; one that can't continue is begun again. A dump of
 * which no piece is taken is closed for a while: it is a reader, so SQLite may not reset the WAL
 * under it, which grows with every commit meanwhile, and the other node may be down for days. A
 * node that was given all of a dump has longer, since it sends nothing while it installs it.
 */
#include "replica_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "journal_dump.h"
#include "raft.h"

/* In election time-outs. */
#define DUMP_IDLE    10 /* a dump waits this long for the next piece to be asked for */
#define DUMP_INSTALL 40 /* ... and for its receiver to have installed it */
#define DUMP_REST    2	/* an idle dump stays closed this long */

/* ---- a snapshot coming in ------------------------------------------------------------------ */

void snapshot_free_staging(struct staging *s)
{
	free(s->bytes);
	memset(s, 0, sizeof(*s));
}

/* Puts a piece at its offset and drops the bytes behind it. Returns false: a gap, or no memory. */
static bool stage_piece(struct staging *s, uint64_t offset, const uint8_t *bytes, size_t len)
{
	size_t want = (size_t)offset + len;

	if (offset > s->len)
		return false;
	if (want > s->cap) {
		size_t cap = want > 2 * s->cap ? want : 2 * s->cap;
		uint8_t *more = realloc(s->bytes, cap);

		if (!more)
			return false;
		s->bytes = more;
		s->cap = cap;
	}
	if (len > 0)
		memcpy(s->bytes + offset, bytes, len);
	s->len = want;
	return true;
}

/*
 * Steps the core with a piece. The last piece is staged first, so that the whole can be checked
 * before the step. Where the core doesn't want it (another snapshot, or late), the bytes before it
 * are unchanged, and the next piece overwrites those behind them.
 */
int snapshot_step_piece(struct replica *p, const struct raft_event *event)
{
	struct raft_message m = *event->message; /* borrows the references */
	struct raft_event ev = *event;
	size_t before = p->incoming.len;
	bool at_end = m.offset == before || m.offset == 0;
	struct staging kept;
	int rc;

	if (m.done && m.offset == before)
		m.bad = !stage_piece(&p->incoming, m.offset, m.bytes, m.len) ||
			!journal_dump_valid(p->incoming.bytes, p->incoming.len);
	else if (m.done)
		m.bad = !journal_dump_valid(m.bytes, m.len) && at_end;
	p->incoming.len = before;
	ev.message = &m;
	rc = replica_raft_step(p, &ev);
	if (p->actions.stage == RAFT_STAGE_FIRST)
		p->incoming.len = 0;
	if (p->actions.stage != RAFT_STAGE_NONE &&
	    !stage_piece(&p->incoming, m.offset, m.bytes, m.len))
		return replica_fail(p, "meta: no memory for a snapshot");
	if (p->actions.stage != RAFT_STAGE_NONE && m.done) {
		kept = p->complete;
		p->complete = p->incoming;
		p->incoming = kept;
		p->incoming.len = 0;
	}
	return rc;
}

void snapshot_drop_staging(struct replica *p)
{
	const struct raft *r = &p->raft;

	snapshot_free_staging(&p->complete);
	if (r->incoming_offset == 0 || r->incoming_index <= r->commit_index)
		snapshot_free_staging(&p->incoming);
}

/* ---- snapshots going out ------------------------------------------------------------------- */

static struct outgoing *find_outgoing(struct replica *p, ramp_node_t node)
{
	size_t i;

	for (i = 0; i < RAFT_NODES_MAX; i++)
		if (p->out[i].node == node)
			return &p->out[i];
	return NULL;
}

static void end_outgoing(struct outgoing *o)
{
	journal_dump_close(o->dump);
	memset(o, 0, sizeof(*o));
}

void snapshot_want_dumps(struct replica *p)
{
	struct outgoing *o;
	uint32_t i;

	for (i = 0; i < p->actions.n_snapshot_to; i++) {
		o = find_outgoing(p, p->actions.snapshot_to[i]);
		o = o ? o : find_outgoing(p, 0);
		if (!o)
			continue; /* never: there are as many places as nodes */
		end_outgoing(o);
		o->node = p->actions.snapshot_to[i];
		o->wanted = true;
	}
}

/* Closes a dump of which no piece was taken for too long. */
static void rest_if_idle(struct replica *p, struct outgoing *o)
{
	uint64_t election_ms = p->config.raft.election_ms;
	uint64_t patience_ms = (o->given ? DUMP_INSTALL : DUMP_IDLE) * election_ms;

	if (o->rests_until_ms != 0 && p->now_ms >= o->rests_until_ms)
		o->lost = true;
	if (!o->dump || p->now_ms < o->since_ms + patience_ms)
		return;
	journal_dump_close(o->dump);
	o->dump = NULL;
	o->rests_until_ms = p->now_ms + DUMP_REST * election_ms;
}

void snapshot_tend_dumps(struct replica *p)
{
	struct raft_event ev = {.now_ms = p->now_ms};
	size_t i, k;

	for (i = 0; i < RAFT_NODES_MAX; i++) {
		struct outgoing *o = &p->out[i];
		bool sending = false;

		if (o->node == 0)
			continue;
		for (k = 0; k < p->raft.n_peers; k++)
			sending |= p->raft.peers[k].node == o->node &&
				   p->raft.peers[k].flow == RAFT_SNAPSHOTTING;
		if (!sending || p->raft.state != RAFT_LEADER) {
			end_outgoing(o);
			continue;
		}
		rest_if_idle(p, o);
		ev.node = o->node;
		if (o->lost) {
			end_outgoing(o);
			ev.type = RAFT_EV_SNAPSHOT_LOST;
			replica_raft_step(p, &ev);
		} else if (o->wanted && journal_dump_open(p->journal, &o->dump, NULL) == 0) {
			o->wanted = false;
			o->since_ms = p->now_ms;
			p->counts.snapshots_sent++;
			ev.type = RAFT_EV_SNAPSHOT_READY;
			ev.index = journal_dump_index(o->dump);
			ev.term = journal_dump_term(o->dump);
			replica_raft_step(p, &ev);
		}
	}
}

bool snapshot_fill_piece(struct replica *p, struct raft_message *m)
{
	struct outgoing *o = find_outgoing(p, m->to);

	if (!o || !o->dump)
		return false;
	if (journal_dump_index(o->dump) == m->index &&
	    journal_dump_read(o->dump, m->offset, &m->bytes, &m->len, &m->done) == 0) {
		if (m->offset != o->offset)
			o->since_ms = p->now_ms;
		o->offset = m->offset;
		o->given = m->done;
		return true;
	}
	o->lost = true;
	return false;
}
