/*
 * One node: open and close, events, and the parts of a turn. See replica.h.
 *
 * The happy path: events fill the core's actions. The turn sends the early messages, makes the one
 * transaction, sends the other messages, reports the results, and gives the core PERSISTED.
 *
 * How it fails: the journal's errors, a core that sets `failed`, and entries or tables of a newer
 * program end in config.journal.fatal and -EIO from replica_commit; the replica can then only be
 * closed (replica_close).
 */
#include "replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_level.h"
#include "fsm_members.h"
#include "journal_dump.h"
#include "raft_log.h"
#include "raft_state.h"
#include "replica_core.h"
#include "replica_snapshot.h"

/* ---- opening ------------------------------------------------------------------------------- */

/* The log on its way into the core. */
struct loading {
	struct raft *raft;
	uint64_t applied;
	uint64_t unknown; /* the first entry that can't be applied here; 0: none */
};

static int restore_entry(void *arg, uint64_t index, const struct raft_entry *e)
{
	struct loading *l = arg;

	if (index > l->applied && l->unknown == 0 && !fsm_knows(e))
		l->unknown = index;
	return raft_restore(l->raft, index, e);
}

/* Refuses tables and entries of a newer program before this node takes part. */
static int check_known(struct replica *p, const struct loading *l, struct ramp_err *err)
{
	char text[RAMP_ERR_TEXT_BYTES];
	uint64_t level;

	if (fsm_level(p->journal, &level) < 0)
		return ramp_err_set(err, EIO, "journal %s: its tables can't be read",
				    p->config.journal.path);
	if (level > META_LEVEL_KNOWN)
		fsm_word_level(level, text, sizeof(text));
	else if (l->unknown != 0 && !p->config.only_read)
		fsm_word_unknown(l->unknown, text, sizeof(text));
	else
		return 0;
	return ramp_err_set(err, EOPNOTSUPP, "%s", text);
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
	struct loading loading = {.raft = &p->raft};
	struct journal_state s;
	struct raft_data *conf;
	int rc;

	journal_state(p->journal, &s);
	loading.applied = s.applied;
	fill_defaults(&p->config.raft, &s);
	if (raft_init(&p->raft, &p->config.raft) < 0)
		return ramp_err_set(err, ENOMEM, "meta: out of memory");
	conf = journal_snap_conf(p->journal);
	if (!conf && s.snap_conf_index != 0)
		return ramp_err_set(err, ENOMEM, "meta: out of memory");
	raft_set_durable(&p->raft, s.term, s.vote, s.confirmed);
	raft_set_snapshot(&p->raft, s.snap_index, s.snap_term, conf, s.snap_conf_index);
	raft_data_unref(conf);
	rc = journal_each_entry(p->journal, restore_entry, &loading);
	rc = rc ? rc : raft_start(&p->raft, s.applied, p->now_ms);
	if (rc == 0)
		return check_known(p, &loading, err);
	return ramp_err_set(err, -rc, "journal %s: its log is inconsistent",
			    p->config.journal.path);
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
	snapshot_free_staging(&p->incoming);
	snapshot_free_staging(&p->complete);
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
	counts->staged_bytes = p->incoming.cap + p->complete.cap;
}

/* ---- events -------------------------------------------------------------------------------- */

int replica_step(struct replica *p, const struct raft_event *event)
{
	if (p->failed)
		return -EIO;
	p->now_ms = event->now_ms;
	if (event->type == RAFT_EV_MESSAGE && event->message->type == RAFT_SNAPSHOT)
		return snapshot_step_piece(p, event);
	return replica_raft_step(p, event);
}

/* Proposes, as the leader, the configuration that the tables want, one change at a time. A refused
   one (another is under way, the new voter lags) is proposed again a heartbeat later. */
static void propose_members(struct replica *p)
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
	if (!self || self->role != RAFT_VOTER) { /* hand over: the next leader proposes it */
		ev.type = RAFT_EV_TRANSFER;
		replica_raft_step(p, &ev);
		return;
	}
	ev.entry.type = RAFT_CONF;
	ev.entry.data = raft_conf_encode(&next);
	if (ev.entry.data)
		replica_raft_step(p, &ev);
	raft_data_unref(ev.entry.data);
}

static void send_messages(struct replica *p, bool early)
{
	uint32_t i;

	for (i = 0; i < p->actions.n_messages; i++) {
		struct raft_message *m = &p->actions.messages[i];

		if (m->early != early || (m->type == RAFT_SNAPSHOT && !snapshot_fill_piece(p, m)))
			continue;
		p->config.hooks.send(p->config.hooks.arg, m);
	}
}

void replica_send_early(struct replica *p)
{
	struct raft_event flush = {.type = RAFT_EV_FLUSH, .now_ms = p->now_ms};

	if (p->failed)
		return;
	propose_members(p);
	replica_raft_step(p, &flush);
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

/* Applies an entry. One that this program does not know ends its work, or these tables would differ
   from the others' from there on. */
static int apply_entry(struct replica *p, uint64_t index, struct fsm_result *result)
{
	char text[RAMP_ERR_TEXT_BYTES];
	int rc = fsm_apply(p->journal, index, raft_entry_at(&p->raft, index), result);

	if (rc != -EPROTO)
		return rc;
	fsm_word_unknown(index, text, sizeof(text));
	return replica_fail(p, text);
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
			return replica_fail(p, "meta: no memory to apply the log");
		p->results = more;
		p->cap_results = to - s.applied;
	}
	p->first_result = s.applied + 1;
	for (i = s.applied + 1; rc == 0 && i <= to; i++) {
		rc = apply_entry(p, i, &p->results[p->n_results]);
		p->n_results += rc == 0;
	}
	return rc ? rc : journal_put_applied(p->journal, to, raft_term_at(&p->raft, to));
}

/* Ends the replica's work where the tables of a snapshot are of a level that it does not know. */
static int check_installed(struct replica *p)
{
	char text[RAMP_ERR_TEXT_BYTES];
	uint64_t level;
	int rc = fsm_level(p->journal, &level);

	if (rc < 0 || level <= META_LEVEL_KNOWN)
		return rc;
	fsm_word_level(level, text, sizeof(text));
	return replica_fail(p, text);
}

static int write_turn(struct replica *p)
{
	const struct raft_actions *a = &p->actions;
	const struct raft *r = &p->raft;
	int rc = 0;

	if (a->hard_state)
		rc = journal_put_hard_state(p->journal, r->term, r->voted_for, r->confirmed);
	if (rc == 0 && a->install)
		rc = journal_restore(p->journal, p->complete.bytes, p->complete.len, r->snap_index,
				     r->snap_term, r->snap_conf, r->snap_conf_index);
	if (rc == 0 && a->install)
		rc = check_installed(p);
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
		return replica_fail(
			p, "meta: this node's log contradicts the cluster's, or memory ran out");
	if (!raft_actions_write(&p->actions, &durable))
		return 0;
	rc = journal_begin(p->journal, durable);
	rc = rc ? rc : write_turn(p);
	rc = rc ? rc : journal_commit(p->journal);
	if (rc < 0)
		return replica_fail(p, "meta: the journal can't be written");
	p->restored = p->actions.install;
	p->counts.snapshots_taken += p->actions.install;
	p->counts.commits++;
	return 0;
}

/* ---- after the transaction
   ------------------------------------------------------------------------------ */

static void report(struct replica *p)
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
	if (p->actions.amnesia && h->amnesia)
		h->amnesia(h->arg);
	else if (p->actions.amnesia)
		replica_fail(p,
			     "meta: the journal ends before an entry that this node acknowledged");
}

bool replica_finish(struct replica *p, uint64_t now_ms)
{
	struct raft_event ev = {.type = RAFT_EV_PERSISTED, .now_ms = now_ms};
	bool durable;

	if (p->failed)
		return false;
	p->now_ms = now_ms;
	send_messages(p, false);
	report(p);
	snapshot_want_dumps(p);
	raft_actions_reset(&p->actions);
	replica_raft_step(p, &ev);
	snapshot_drop_staging(p);
	snapshot_tend_dumps(p);
	return raft_actions_write(&p->actions, &durable) || p->actions.n_messages > 0 ||
	       p->actions.n_reads > 0 || p->actions.n_snapshot_to > 0;
}
