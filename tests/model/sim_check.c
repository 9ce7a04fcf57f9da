/*
 * The invariants of a simulated world.
 *
 * After every step of a node: the core's own assertions; one leader in a term; an entry that any
 * node holds to be committed is the same on all nodes; a new leader has all of them. For every
 * result that a node reports: it is the same at that index on every node. At equal applied indexes:
 * equal tables. At the end: every member has all entries, and every row that was acknowledged is
 * there.
 */
#include "meta/journal_dump.h"
#include "meta/journal_segments.h"
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "meta/raft_log.h"
#include "meta/raft_state.h"

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return sim_mix(h);
}

static uint64_t hash_entry(const struct raft_entry *e)
{
	uint64_t h = sim_mix(e->term * 4 + e->type);

	return e->data ? hash_bytes(h, e->data->bytes, e->data->len) : h;
}

static struct sim_entry_record *record_of(struct sim_world *w, uint64_t index)
{
	if (index >= SIM_INDEXES)
		sim_fail(w, "index %" PRIu64 ": the log grew beyond the simulator's bounds", index);
	return &w->records[index];
}

/* ---- after each step ------------------------------------------------------------------------- */

static void check_leader(struct sim_world *w, struct sim_node *n, const struct raft *r)
{
	if (r->term >= SIM_TERMS)
		sim_fail(w, "term %" PRIu64 ": elections without end", r->term);
	if (w->leaders[r->term] && w->leaders[r->term] != n->id)
		sim_fail(w, "nodes %u and %u both lead in term %" PRIu64, w->leaders[r->term],
			 n->id, r->term);
	if (n->fresh)
		sim_fail(w, "node %u was formatted again and leads", n->id);
	w->leaders[r->term] = n->id;
	if (n->seen_term_led == r->term)
		return;
	n->seen_term_led = r->term;
	w->counts.elections++;
	sim_trace(w, "node %u: leads term %" PRIu64 " from %" PRIu64, n->id, r->term,
		  r->term_start);
	/* Entries committed in an earlier term; a late leader of an old term may lack later
	   ones. */
	for (uint64_t i = r->snap_index + 1; i <= w->committed; i++) {
		const struct raft_entry *e = raft_entry_at(r, i);

		if (!w->records[i].entry || w->records[i].committed_in >= r->term)
			continue;
		if (!e || hash_entry(e) != w->records[i].entry)
			sim_fail(w,
				 "node %u leads term %" PRIu64 " without committed entry %" PRIu64,
				 n->id, r->term, i);
	}
}

static void conf_note(struct sim_world *w, uint64_t index, const struct raft_entry *e)
{
	if (e->type != RAFT_CONF)
		return;
	if (w->n_confs == SIM_CONFS || (w->n_confs && w->confs[w->n_confs - 1].index >= index))
		sim_fail(w, "configuration %" PRIu64 " is out of order", index);
	w->confs[w->n_confs++] = (struct sim_conf_record){
		.index = index, .data = hash_bytes(1, e->data->bytes, e->data->len)};
}

/* A compacted log must keep the last configuration before its beginning. */
static void check_snap_conf(struct sim_world *w, struct sim_node *n, const struct raft *r)
{
	uint32_t i = w->n_confs;

	if (n->seen_snap == r->snap_index || !r->snap_index)
		return;
	n->seen_snap = r->snap_index;
	while (i && w->confs[i - 1].index > r->snap_index)
		i--;
	if (r->snap_conf_index != (i ? w->confs[i - 1].index : 1))
		sim_fail(w, "node %u: compacted to %" PRIu64 " with the configuration of %" PRIu64,
			 n->id, r->snap_index, r->snap_conf_index);
	if (i && hash_bytes(1, r->snap_conf->bytes, r->snap_conf->len) != w->confs[i - 1].data)
		sim_fail(w, "node %u: compacted to %" PRIu64 " with another configuration", n->id,
			 r->snap_index);
}

static void check_commit(struct sim_world *w, struct sim_node *n, const struct raft *r)
{
	uint64_t i = n->seen_commit;

	if (r->commit_index < i)
		sim_fail(w, "node %u: commit goes back from %" PRIu64 " to %" PRIu64, n->id, i,
			 r->commit_index);
	if (i < r->snap_index)
		i = r->snap_index;
	for (i++; i <= r->commit_index; i++) {
		const struct raft_entry *e = raft_entry_at(r, i);
		struct sim_entry_record *rec = record_of(w, i);

		if (!e)
			sim_fail(w, "node %u: committed entry %" PRIu64 " isn't there", n->id, i);
		if (!rec->entry) {
			rec->entry = hash_entry(e);
			rec->term = e->term;
			rec->committed_in = r->term;
			conf_note(w, i, e);
		} else if (rec->entry != hash_entry(e)) {
			sim_fail(w,
				 "node %u commits another entry %" PRIu64 " (term %" PRIu64
				 ", was %" PRIu64 ")",
				 n->id, i, e->term, rec->term);
		}
	}
	n->seen_commit = r->commit_index;
	if (r->commit_index > w->committed)
		w->committed = r->commit_index;
	if (r->snap_index > 1 && r->snap_index < SIM_INDEXES && w->records[r->snap_index].entry &&
	    w->records[r->snap_index].term != r->snap_term)
		sim_fail(w,
			 "node %u: its log begins after %" PRIu64 " of term %" PRIu64
			 ", committed was term %" PRIu64,
			 n->id, r->snap_index, r->snap_term, w->records[r->snap_index].term);
}

/* Between turns a snapshot is in memory only where one is coming in. */
static void check_stages(struct sim_world *w, const struct sim_node *n, const struct raft *r)
{
	struct replica_counts counts;

	replica_counts(n->replica, &counts);
	if (counts.staged_bytes &&
	    (r->incoming_offset == 0 || r->incoming_index <= r->commit_index))
		sim_fail(w, "node %u: keeps %" PRIu64 " bytes of a snapshot that it does not take",
			 n->id, counts.staged_bytes);
}

void sim_check_step(struct sim_world *w, struct sim_node *n)
{
	const struct raft *r;
	const char *wrong;

	if (n->phase == SIM_DOWN || n->fatal)
		return;
	r = replica_raft(n->replica);
	wrong = raft_check(r);
	if (wrong)
		sim_fail(w, "node %u: raft_check: %s", n->id, wrong);
	if (!n->in_turn)
		check_stages(w, n, r);
	if (r->state == RAFT_LEADER)
		check_leader(w, n, r);
	check_commit(w, n, r);
	check_snap_conf(w, n, r);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

void sim_check_leave(struct sim_node *n)
{
	const struct raft *r = replica_raft(n->replica);

	n->left = !n->in_turn && !n->fatal;
	if (!n->left)
		return;
	n->left_term = r->term;
	n->left_vote = r->voted_for;
	n->left_snap = r->snap_index;
	n->left_last = r->last_index;
	for (uint64_t i = r->snap_index + 1; i <= r->last_index; i++)
		n->left_log[i - r->snap_index - 1] = hash_entry(raft_entry_at(r, i));
}

/* A compaction may be undone (it isn't synced); everything else must be as it was. */
void sim_check_return(struct sim_world *w, struct sim_node *n)
{
	const struct raft *r = replica_raft(n->replica);

	if (!n->left)
		return;
	n->left = false;
	if (r->term != n->left_term || r->voted_for != n->left_vote)
		sim_fail(w,
			 "node %u: died in term %" PRIu64 " with vote %u, came back in %" PRIu64
			 " with %u",
			 n->id, n->left_term, n->left_vote, r->term, r->voted_for);
	if (r->last_index != n->left_last || r->snap_index > n->left_snap)
		sim_fail(w,
			 "node %u: died with a log to %" PRIu64 ", came back with one to %" PRIu64,
			 n->id, n->left_last, r->last_index);
	for (uint64_t i = n->left_snap + 1; i <= n->left_last; i++)
		if (hash_entry(raft_entry_at(r, i)) != n->left_log[i - n->left_snap - 1])
			sim_fail(w, "node %u: came back with another entry %" PRIu64, n->id, i);
}

/* ---- results and tables ---------------------------------------------------------------------- */

void sim_check_result(struct sim_world *w, struct sim_node *n, uint64_t index,
		      const struct fsm_result *r)
{
	struct sim_entry_record *rec = record_of(w, index);
	uint64_t h = sim_mix(1 + r->command);
	uint64_t part[9] = {
		r->first,
		r->cid.client,
		r->cid.unique,
		r->type,
		(uint64_t)(int64_t)r->reply.result,
		r->reply.id,
		r->reply.node,
		r->reply.epoch,
		r->reply.extent_addr,
	};

	if (r->command)
		h = hash_bytes(h, part, sizeof(part));
	if (index > w->committed)
		sim_fail(w, "node %u reports entry %" PRIu64 ", which no node holds committed",
			 n->id, index);
	if (!rec->result)
		rec->result = h;
	else if (rec->result != h)
		sim_fail(w, "node %u: entry %" PRIu64 " gave another result than elsewhere", n->id,
			 index);
	w->digest = sim_mix(w->digest ^ h ^ index);
	if (index > w->applied)
		w->applied = index;
}

void sim_check_sum(struct sim_world *w, struct sim_node *n)
{
	struct journal *j = replica_journal(n->replica);
	struct sim_entry_record *rec;
	struct journal_state state;
	uint64_t sum;

	journal_state(j, &state);
	if (!state.snap_index)
		return; /* a joiner that has nothing yet */
	if (journal_tables_sum(j, &sum))
		sim_fail(w, "node %u: its tables can't be summed", n->id);
	rec = record_of(w, state.applied);
	if (!rec->sum)
		rec->sum = sum;
	else if (rec->sum != sum)
		sim_fail(w, "node %u: other tables at %" PRIu64 " than elsewhere", n->id,
			 state.applied);
}

/* ---- the end --------------------------------------------------------------------------------- */

static const struct raft *the_leader(struct sim_world *w)
{
	const struct raft *found = NULL;

	for (ramp_node_t id = 1; id < SIM_NODES; id++) {
		const struct raft *r;

		if (!sim_node_up(w, id))
			continue;
		r = replica_raft(w->nodes[id].replica);
		if (r->state == RAFT_LEADER && (!found || r->term > found->term))
			found = r;
	}
	return found;
}

const char *sim_check_unsettled(struct sim_world *w)
{
	static char text[128];
	const struct raft *leader = the_leader(w);

	if (!leader)
		return "no node leads";
	if (!sim_clients_resting(w))
		return "a client has no answer";
	if (leader->commit_index != leader->last_index)
		return "the leader's last entry isn't committed";
	if (leader->conf_index > leader->commit_index)
		return "the last configuration isn't committed";
	for (uint32_t i = 0; i < leader->conf.n; i++) {
		ramp_node_t id = leader->conf.member[i].node;
		const struct raft *r;

		if (w->nodes[id].fresh)
			continue;
		snprintf(text, sizeof(text), "node %u is behind", id);
		if (!sim_node_up(w, id) || w->nodes[id].phase != SIM_IDLE)
			return text;
		r = replica_raft(w->nodes[id].replica);
		if (r->last_applied != leader->commit_index || r->leader != leader->opt.self)
			return text;
	}
	return NULL;
}

bool sim_check_settled(struct sim_world *w)
{
	return !sim_check_unsettled(w);
}

static void check_rows(struct sim_world *w, struct sim_node *n)
{
	struct journal *j = replica_journal(n->replica);

	for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *c = &w->clients[i];

		if (w->params.wild && i == SIM_WILD)
			continue;
		for (uint32_t k = 0; k < c->n_rows; k++) {
			const struct sim_row *row = &c->rows[k];
			char name[RAMP_NAME_MAX + 1];
			ramp_segment_t id = 0;
			bool reserved = false;
			int rc;

			if (!row->id)
				continue;
			sim_client_name(i, row->name, name, sizeof(name));
			rc = journal_get_name(j, row->node, name, &id, &reserved);
			if (rc || id != row->id || reserved)
				sim_fail(w,
					 "node %u: acknowledged segment %s (%" PRIu64
					 ") is lost: %d",
					 n->id, name, row->id, rc);
		}
	}
}

void sim_check_end(struct sim_world *w)
{
	const struct raft *leader = the_leader(w);
	struct journal_state state;

	if (!leader)
		sim_fail(w, "no node leads at the end");
	for (uint32_t i = 0; i < leader->conf.n; i++) {
		struct sim_node *n = &w->nodes[leader->conf.member[i].node];

		if (n->fresh)
			continue;
		journal_state(replica_journal(n->replica), &state);
		if (state.applied != leader->commit_index)
			sim_fail(w, "node %u: tables at %" PRIu64 ", %" PRIu64 " is committed",
				 n->id, state.applied, leader->commit_index);
		sim_check_sum(w, n);
		check_rows(w, n);
	}
}
