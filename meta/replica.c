/*
 * One node's Raft core, journal and state machine, moved by explicit calls. See replica.h.
 *
 * The happy path: events fill the core's actions; the turn sends what may go early, makes the one
 * transaction, sends the rest, tells what was applied, and gives the core PERSISTED.
 *
 * How it fails: the journal's errors, and a core that says `failed`, end in config.journal.fatal
 * and -EIO from replica_commit; the replica is then only good for replica_close. A dump that can't
 * be opened is tried again in later turns; one that can't go on is begun anew. One of which nobody
 * takes a piece is let go for a while: it is a reader that SQLite may not take the WAL from under,
 * which grows with every commit meanwhile, and its node may be down for days. Who has been given all
 * of it has longer, since nothing is heard of a node while it installs a snapshot.
 */
#include "replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal_dump.h"
#include "raft_log.h"
#include "raft_state.h"

/* In election time-outs: a dump waits for its next piece to be asked for, for its taker to have
   installed it, and rests. */
#define DUMP_IDLE    10
#define DUMP_INSTALL 40
#define DUMP_REST    2

/* The bytes of a snapshot that comes in. */
struct stage {
	uint8_t *bytes;
	size_t len, cap;
};

/* A snapshot that goes out. */
struct outgoing {
	ramp_node_t node; /* 0: this place is free */
	bool wanted;	  /* the dump is still to be opened */
	bool lost;	  /* it can't give what the core asks for */
	bool given;	  /* all of it */
	struct journal_dump *dump;
	uint64_t offset, since_ms; /* of the last piece, and when it was first given */
	uint64_t rests_until_ms;   /* 0: it does not rest */
};

struct replica {
	struct replica_config config;
	struct raft raft;
	struct raft_actions actions;
	struct journal *journal;
	struct replica_counts counts;
	struct stage coming, whole; /* whole: complete, to be installed by this turn */
	struct outgoing out[RAFT_NODES_MAX];
	struct fsm_result *results; /* of this turn's entries */
	size_t n_results, cap_results;
	uint64_t first_result; /* index of results[0] */
	bool restored;	       /* this turn installed a snapshot */
	bool failed;
	bool members_differ; /* the tables may want another configuration */
	uint64_t members_due;
	uint64_t now_ms;
	enum raft_state was;
};

/* ---- opening ------------------------------------------------------------------------------- */

static int restore_entry(void *arg, uint64_t index, const struct raft_entry *e)
{
	return raft_restore(arg, index, e);
}

static void fill_defaults(struct raft_options *o, const struct journal_state *s)
{
	o->self = s->self;
	o->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : REPLICA_HEARTBEAT_MS;
	o->election_ms = o->election_ms ? o->election_ms : REPLICA_ELECTION_MS;
	o->log_capacity = o->log_capacity ? o->log_capacity : REPLICA_LOG_CAPACITY;
	o->compact_entries = o->compact_entries ? o->compact_entries : REPLICA_COMPACT_ENTRIES;
	o->compact_keep = o->compact_keep ? o->compact_keep : REPLICA_COMPACT_KEEP;
	o->inflight_bytes = o->inflight_bytes ? o->inflight_bytes : REPLICA_INFLIGHT_BYTES;
	o->seed = o->seed ? o->seed : s->instance ^ s->life << 32 ^ s->self;
}

static int load(struct replica *p, struct ramp_err *err)
{
	struct journal_state s;
	struct raft_data *conf;
	int rc;

	journal_state(p->journal, &s);
	fill_defaults(&p->config.raft, &s);
	if (raft_init(&p->raft, &p->config.raft) < 0)
		return ramp_err_set(err, ENOMEM, "meta: out of memory");
	conf = journal_snap_conf(p->journal);
	if (!conf && s.snap_conf_index != 0)
		return ramp_err_set(err, ENOMEM, "meta: out of memory");
	raft_set_durable(&p->raft, s.term, s.vote, s.confirmed);
	raft_set_snapshot(&p->raft, s.snap_index, s.snap_term, conf, s.snap_conf_index);
	raft_data_unref(conf);
	rc = journal_each_entry(p->journal, restore_entry, &p->raft);
	rc = rc ? rc : raft_start(&p->raft, s.applied, p->now_ms);
	if (rc == 0)
		return 0;
	return ramp_err_set(err, -rc, "journal %s: its log makes no sense", p->config.journal.path);
}

int replica_open(const struct replica_config *config, uint64_t now_ms, struct replica **out,
		 struct ramp_err *err)
{
	struct replica *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return ramp_err_set(err, ENOMEM, "meta: out of memory");
	p->config = *config;
	p->now_ms = now_ms;
	p->members_differ = true;
	raft_actions_init(&p->actions);
	rc = journal_open(&config->journal, &p->journal, err);
	rc = rc ? rc : load(p, err);
	if (rc < 0) {
		replica_close(p);
		return rc;
	}
	*out = p;
	return 0;
}

static void free_stage(struct stage *s)
{
	free(s->bytes);
	memset(s, 0, sizeof(*s));
}

void replica_close(struct replica *p)
{
	size_t i;

	if (!p)
		return;
	for (i = 0; i < RAFT_NODES_MAX; i++)
		journal_dump_close(p->out[i].dump);
	raft_actions_fini(&p->actions);
	if (p->raft.log)
		raft_fini(&p->raft);
	journal_close(p->journal);
	free_stage(&p->coming);
	free_stage(&p->whole);
	free(p->results);
	free(p);
}

const struct raft *replica_raft(const struct replica *p)
{
	return &p->raft;
}

struct journal *replica_journal(struct replica *p)
{
	return p->journal;
}

void replica_counts(const struct replica *p, struct replica_counts *counts)
{
	*counts = p->counts;
	counts->staged_bytes = p->coming.cap + p->whole.cap;
}

static int fail(struct replica *p, const char *text)
{
	if (!p->failed && !journal_dead(p->journal))
		p->config.journal.fatal(p->config.journal.arg, text);
	p->failed = true;
	return -EIO;
}

/* ---- a snapshot coming in ------------------------------------------------------------------ */

/* Puts a piece at its place; the bytes behind it are not there any more. */
static bool stage_piece(struct stage *s, uint64_t offset, const uint8_t *bytes, size_t len)
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
 * The last piece is put there first, so that the whole can be checked before the core is told.
 * Where the core doesn't want it (another snapshot, or late), the bytes before it are as they
 * were, and what stands behind them is written over by the next piece.
 */
static int step_snapshot_piece(struct replica *p, const struct raft_event *event)
{
	struct raft_message m = *event->message; /* borrows the references */
	struct raft_event ev = *event;
	size_t before = p->coming.len;
	bool at_end = m.offset == before || m.offset == 0;
	struct stage kept;
	int rc;

	if (m.done && m.offset == before)
		m.bad = !stage_piece(&p->coming, m.offset, m.bytes, m.len) ||
			!journal_dump_valid(p->coming.bytes, p->coming.len);
	else if (m.done)
		m.bad = !journal_dump_valid(m.bytes, m.len) && at_end;
	p->coming.len = before;
	ev.message = &m;
	rc = raft_step(&p->raft, &ev, &p->actions);
	if (p->actions.stage == RAFT_STAGE_FIRST)
		p->coming.len = 0;
	if (p->actions.stage != RAFT_STAGE_NONE &&
	    !stage_piece(&p->coming, m.offset, m.bytes, m.len))
		return fail(p, "meta: no memory for a snapshot");
	if (p->actions.stage != RAFT_STAGE_NONE && m.done) {
		kept = p->whole;
		p->whole = p->coming;
		p->coming = kept;
		p->coming.len = 0;
	}
	return rc;
}

/* ---- events -------------------------------------------------------------------------------- */

int replica_step(struct replica *p, const struct raft_event *event)
{
	if (p->failed)
		return -EIO;
	p->now_ms = event->now_ms;
	if (event->type == RAFT_EV_MESSAGE && event->message->type == RAFT_SNAPSHOT)
		return step_snapshot_piece(p, event);
	return raft_step(&p->raft, event, &p->actions);
}

/* The leader makes Raft's configuration what the tables want, one change at a time; a refusal (one
   is under way, the new voter lags) is tried again a heartbeat later. */
static void follow_tables(struct replica *p)
{
	struct raft_event ev = {.type = RAFT_EV_PROPOSE, .now_ms = p->now_ms};
	const struct raft_member *self;
	struct raft_conf next;
	ramp_node_t subject;
	int rc;

	if (p->raft.state == RAFT_LEADER && p->was != RAFT_LEADER)
		p->members_differ = true;
	p->was = p->raft.state;
	if (!p->members_differ || p->raft.state != RAFT_LEADER || p->now_ms < p->members_due)
		return;
	p->members_due = p->now_ms + p->config.raft.heartbeat_ms;
	rc = fsm_next_conf(p->journal, &p->raft.conf, &next, &subject);
	if (rc <= 0) {
		p->members_differ = rc < 0;
		return;
	}
	self = raft_conf_find(&next, p->raft.opt.self);
	if (!self || self->role != RAFT_VOTER) { /* hand over: the next leader does it */
		ev.type = RAFT_EV_TRANSFER;
		raft_step(&p->raft, &ev, &p->actions);
		return;
	}
	ev.entry.type = RAFT_CONF;
	ev.entry.data = raft_conf_encode(&next);
	if (ev.entry.data)
		raft_step(&p->raft, &ev, &p->actions);
	raft_data_unref(ev.entry.data);
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

static void want_dumps(struct replica *p)
{
	struct outgoing *o;
	uint32_t i;

	for (i = 0; i < p->actions.n_snapshot_to; i++) {
		o = find_outgoing(p, p->actions.snapshot_to[i]);
		o = o ? o : find_outgoing(p, 0);
		if (!o)
			continue; /* can't be: there are as many places as nodes */
		end_outgoing(o);
		o->node = p->actions.snapshot_to[i];
		o->wanted = true;
	}
}

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

/* After the commit and PERSISTED: the dump is of what the core has applied. */
static void tend_dumps(struct replica *p)
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
				   p->raft.peers[k].flow == RAFT_SENDING;
		if (!sending || p->raft.state != RAFT_LEADER) {
			end_outgoing(o);
			continue;
		}
		rest_if_idle(p, o);
		ev.node = o->node;
		if (o->lost) {
			end_outgoing(o);
			ev.type = RAFT_EV_SNAPSHOT_LOST;
			raft_step(&p->raft, &ev, &p->actions);
		} else if (o->wanted && journal_dump_open(p->journal, &o->dump, NULL) == 0) {
			o->wanted = false;
			o->since_ms = p->now_ms;
			p->counts.snapshots_sent++;
			ev.type = RAFT_EV_SNAPSHOT_READY;
			ev.index = journal_dump_index(o->dump);
			ev.term = journal_dump_term(o->dump);
			raft_step(&p->raft, &ev, &p->actions);
		}
	}
}

static bool fill_piece(struct replica *p, struct raft_message *m)
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

static void send_messages(struct replica *p, bool early)
{
	uint32_t i;

	for (i = 0; i < p->actions.n_messages; i++) {
		struct raft_message *m = &p->actions.messages[i];

		if (m->early != early || (m->type == RAFT_SNAPSHOT && !fill_piece(p, m)))
			continue;
		p->config.hooks.send(p->config.hooks.arg, m);
	}
}

void replica_send_early(struct replica *p)
{
	struct raft_event flush = {.type = RAFT_EV_FLUSH, .now_ms = p->now_ms};

	if (p->failed)
		return;
	follow_tables(p);
	raft_step(&p->raft, &flush, &p->actions);
	send_messages(p, true);
}

/* ---- the transaction ----------------------------------------------------------------------- */

static int write_log(struct replica *p)
{
	uint64_t i;
	int rc = journal_truncate(p->journal, p->actions.log_from);

	for (i = p->actions.log_from; rc == 0 && i <= p->raft.last_index; i++)
		rc = journal_append(p->journal, i, raft_entry_at(&p->raft, i));
	return rc;
}

static int apply_entries(struct replica *p)
{
	struct journal_state s;
	uint64_t i, to = p->actions.apply_to;
	int rc = 0;

	journal_state(p->journal, &s);
	if (to <= s.applied)
		return 0;
	if (to - s.applied > p->cap_results) {
		struct fsm_result *more = realloc(p->results, (to - s.applied) * sizeof(*more));

		if (!more)
			return fail(p, "meta: no memory to apply the log");
		p->results = more;
		p->cap_results = to - s.applied;
	}
	p->first_result = s.applied + 1;
	for (i = s.applied + 1; rc == 0 && i <= to; i++) {
		rc = fsm_apply(p->journal, i, raft_entry_at(&p->raft, i),
			       &p->results[p->n_results]);
		p->n_results += rc == 0;
	}
	return rc ? rc : journal_put_applied(p->journal, to, raft_term_at(&p->raft, to));
}

static int write_turn(struct replica *p)
{
	const struct raft_actions *a = &p->actions;
	const struct raft *r = &p->raft;
	int rc = 0;

	if (a->hard_state)
		rc = journal_put_hard_state(p->journal, r->term, r->vote, r->confirmed);
	if (rc == 0 && a->install)
		rc = journal_restore(p->journal, p->whole.bytes, p->whole.len, r->snap_index,
				     r->snap_term, r->snap_conf, r->snap_conf_index);
	if (rc == 0 && a->log_from != 0)
		rc = write_log(p);
	if (rc == 0 && a->apply_to != 0)
		rc = apply_entries(p);
	if (rc == 0 && a->compact_to != 0)
		rc = journal_compact(p->journal, a->compact_to, r->snap_term, r->snap_conf,
				     r->snap_conf_index);
	return rc;
}

int replica_commit(struct replica *p)
{
	bool durable;
	int rc;

	if (p->failed)
		return -EIO;
	if (p->actions.failed)
		return fail(p,
			    "meta: this node's log contradicts the cluster's, or memory ran out");
	if (!raft_actions_write(&p->actions, &durable))
		return 0;
	rc = journal_begin(p->journal, durable);
	rc = rc ? rc : write_turn(p);
	rc = rc ? rc : journal_commit(p->journal);
	if (rc < 0)
		return fail(p, "meta: the journal can't be written");
	p->restored = p->actions.install;
	p->counts.snapshots_taken += p->actions.install;
	p->counts.commits++;
	return 0;
}

/* ---- after it ------------------------------------------------------------------------------ */

/* A snapshot is as large as the tables: its bytes go once it is installed, or once the log has come
   as far without it. */
static void drop_stages(struct replica *p)
{
	const struct raft *r = &p->raft;

	free_stage(&p->whole);
	if (r->taking_offset == 0 || r->taking_index <= r->commit)
		free_stage(&p->coming);
}

static void tell(struct replica *p)
{
	const struct replica_hooks *h = &p->config.hooks;
	struct journal_state s;
	size_t i;

	if (p->restored) {
		journal_state(p->journal, &s);
		p->members_differ = true;
		h->restored(h->arg, s.applied);
	}
	for (i = 0; i < p->n_results; i++) {
		p->members_differ |= p->results[i].members;
		h->applied(h->arg, p->first_result + i, &p->results[i]);
	}
	for (i = 0; i < p->actions.n_reads; i++)
		h->read_ready(h->arg, &p->actions.reads[i]);
	p->restored = false;
	p->n_results = 0;
	if (p->actions.forgot && h->forgot)
		h->forgot(h->arg);
	else if (p->actions.forgot)
		fail(p, "meta: the journal ends before what this node acknowledged");
}

bool replica_finish(struct replica *p, uint64_t now_ms)
{
	struct raft_event ev = {.type = RAFT_EV_PERSISTED, .now_ms = now_ms};
	bool durable;

	if (p->failed)
		return false;
	p->now_ms = now_ms;
	send_messages(p, false);
	tell(p);
	want_dumps(p);
	raft_actions_reset(&p->actions);
	raft_step(&p->raft, &ev, &p->actions);
	drop_stages(p);
	tend_dumps(p);
	return raft_actions_write(&p->actions, &durable) || p->actions.n_messages > 0 ||
	       p->actions.n_reads > 0 || p->actions.n_snapshot_to > 0;
}
