/*
 * A cluster whose quorum is lost for good. See recovery.h.
 *
 * The happy path: recovery_open applies what the log has beyond the tables, in a turn that is
 * rolled back, so that the rows can be read as they will be. A change begins again from the tables:
 * a copy of the journal, then one turn with that log, the change, and a log that begins behind it.
 *
 * Why all of the log: an entry that the lost nodes had committed may be one that this node does not
 * know to be committed. An entry that was not is one whose proposer was told that it may still
 * happen.
 */
#include "recovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fsm.h"
#include "journal.h"
#include "journal_keys.h"
#include "journal_nodes.h"
#include "journal_recovery.h"
#include "journal_segments.h"
#include "raft_conf.h"

#define FOUNDED_KEY "founded_index" /* where the new cluster's log begins */

struct recovery {
	struct journal *j;
	struct recovery_facts facts;
	struct ramp_err failed; /* by config.fatal */
};

bool recovery_is_before(struct recovery_position a, struct recovery_position b)
{
	return a.term != b.term ? a.term < b.term : a.index < b.index;
}

static void note_failure(void *arg, const char *text)
{
	struct recovery *r = arg;

	ramp_err_set(&r->failed, EIO, "%s", text);
}

/* Words a failure of the journal. */
static int recovery_fail(struct recovery *r, int rc, struct ramp_err *err)
{
	if (r->failed.code)
		return ramp_err_set(err, r->failed.code, "%s", r->failed.text);
	return ramp_err_sys(err, -rc, "the journal's rows");
}

/* ---- opening --------------------------------------------------------------------------------- */

static int note_last(void *arg, uint64_t index, const struct raft_entry *e)
{
	struct recovery_position *last = arg;

	*last = (struct recovery_position){.term = e->term, .index = index};
	return 0;
}

struct replay {
	struct recovery *r;
	uint64_t after;
};

static int replay_entry(void *arg, uint64_t index, const struct raft_entry *e)
{
	struct replay *replay = arg;
	struct fsm_result result;

	if (index <= replay->after)
		return 0;
	return fsm_apply(replay->r->j, index, e, &result);
}

/* Begins a turn, and applies in it what the log has beyond the tables. */
static int begin_with_log(struct recovery *r)
{
	struct journal_state s;
	struct replay replay = {.r = r};
	int rc = journal_begin(r->j, true);

	journal_state(r->j, &s);
	replay.after = s.applied;
	return rc ? rc : journal_each_entry(r->j, replay_entry, &replay);
}

int recovery_open(const char *journal, struct recovery **out, struct ramp_err *err)
{
	struct recovery *r = calloc(1, sizeof(*r));
	struct journal_config config = {.path = journal, .fatal = note_failure, .arg = r};
	struct journal_state s;
	uint64_t founded;
	int rc;

	if (!r)
		return ramp_err_sys(err, ENOMEM, "the journal");
	rc = journal_open(&config, &r->j, err);
	if (rc < 0) {
		free(r);
		return rc;
	}
	journal_state(r->j, &s);
	memcpy(r->facts.cluster_id, s.cluster_id, sizeof(s.cluster_id));
	r->facts.self = s.self;
	r->facts.instance = s.instance;
	r->facts.old_copy = s.restored;
	r->facts.last = (struct recovery_position){.term = s.snap_term, .index = s.snap_index};
	rc = journal_each_entry(r->j, note_last, &r->facts.last);
	if (rc == 0 && journal_get_key_u64(r->j, FOUNDED_KEY, &founded))
		r->facts.founded = founded == r->facts.last.index;
	rc = rc ? rc : begin_with_log(r);
	if (rc < 0) {
		recovery_fail(r, rc, err);
		recovery_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

void recovery_close(struct recovery *r)
{
	if (!r)
		return;
	journal_rollback(r->j);
	journal_close(r->j);
	free(r);
}

void recovery_facts(const struct recovery *r, struct recovery_facts *facts)
{
	*facts = r->facts;
}

int recovery_each_node(struct recovery *r, int (*fn)(void *arg, const struct node_row *row),
		       void *arg)
{
	return journal_walk_nodes(r->j, fn, arg);
}

int recovery_each_segment(struct recovery *r, int (*fn)(void *arg, const struct segment_row *row),
			  void *arg)
{
	return journal_walk_segments(r->j, fn, arg);
}

int recovery_certificate(struct recovery *r, char **text, struct ramp_err *err)
{
	int rc = journal_get_certificate(r->j, text);

	if (rc == -ENOENT)
		return ramp_err_set(err, ENOENT, "this node's cluster was never recovered");
	return rc ? recovery_fail(r, rc, err) : 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Writes the copy, and begins the turn of the change. */
static int begin_change(struct recovery *r, const struct recovery_change *change,
			struct ramp_err *err)
{
	int rc;

	journal_rollback(r->j);
	rc = change->copy ? journal_copy_to(r->j, change->copy, err) : 0;
	if (rc < 0)
		return rc;
	rc = begin_with_log(r);
	return rc ? recovery_fail(r, rc, err) : 0;
}

static int end_change(struct recovery *r, int rc, struct ramp_err *err)
{
	rc = rc ? rc : journal_commit(r->j);
	return rc ? recovery_fail(r, rc, err) : 0;
}

static int put_addresses(struct recovery *r, const struct recovery_change *change)
{
	struct node_row row;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < change->n_addresses; i++) {
		rc = journal_get_node(r->j, change->addresses[i].node, &row);
		if (rc == 0 && strcmp(row.address, change->addresses[i].address) != 0)
			rc = journal_put_address(r->j, &row, change->addresses[i].address);
	}
	return rc;
}

/* Applies one command as if it stood in the log. A result that is an errno is returned. */
static int apply_one(struct recovery *r, uint64_t index, struct meta_command *command)
{
	const struct meta_origin origin = {0};
	uint8_t buf[META_COMMAND_BYTES];
	struct raft_entry entry = {.type = RAFT_COMMAND};
	struct fsm_result result;
	size_t len;
	int rc;

	command->cid = (struct meta_command_id){.client = ramp_random64(), .unique = 1};
	len = command_encode(&origin, command, buf, sizeof(buf));
	entry.data = len ? raft_data_make(buf, len) : NULL;
	if (!entry.data)
		return -ENOMEM;
	rc = fsm_apply(r->j, index, &entry, &result);
	raft_data_unref(entry.data);
	return rc ? rc : result.reply.result;
}

/* Fences a node that is declared lost. One that was never up has no incarnation, and nothing: it is
   removed. */
static int fence_lost(struct recovery *r, uint64_t index, ramp_node_t node)
{
	struct meta_command fence = {.type = META_NODE_FENCE, .node = node};
	struct node_row row;
	int rc = journal_get_node(r->j, node, &row);

	if (rc < 0)
		return rc;
	fence.node_inc = row.incarnation;
	if (row.incarnation != 0)
		return apply_one(r, index, &fence);
	row.role = NODE_REMOVED;
	return journal_put_node(r->j, &row);
}

struct rows {
	struct node_row row[RAFT_NODES_MAX];
	size_t n;
	bool too_many;
};

static int take_member(void *arg, const struct node_row *row)
{
	struct rows *rows = arg;

	if (row->role == NODE_REMOVED)
		return 0;
	rows->too_many = rows->n == RAFT_NODES_MAX;
	if (!rows->too_many)
		rows->row[rows->n++] = *row;
	return rows->too_many;
}

/* Makes this node the one voter, and every other member a standby. */
static int make_members(struct recovery *r, uint64_t index, uint64_t term)
{
	struct rows *rows = calloc(1, sizeof(*rows));
	struct raft_conf conf = {0};
	struct raft_data *data = NULL;
	int rc = rows ? journal_walk_nodes(r->j, take_member, rows) : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < rows->n; i++) {
		struct node_row *row = &rows->row[i];
		bool self = row->node == r->facts.self;

		row->role = self ? NODE_VOTER : NODE_STANDBY;
		conf.member[conf.n++] = (struct raft_member){
			.node = row->node, .role = self ? RAFT_VOTER : RAFT_LEARNER};
		rc = journal_put_node(r->j, row);
	}
	free(rows);
	if (rc == 0 && !raft_conf_find(&conf, r->facts.self))
		rc = -EPERM;
	if (rc == 0 && !(data = raft_conf_encode(&conf)))
		rc = -ENOMEM;
	rc = rc ? rc : journal_put_members(r->j, &conf);
	rc = rc ? rc : journal_put_hard_state(r->j, term, 0, true);
	rc = rc ? rc : journal_put_applied(r->j, index, term);
	rc = rc ? rc : journal_compact(r->j, index, term, data, index);
	raft_data_unref(data);
	return rc;
}

int recovery_found(struct recovery *r, const struct recovery_change *change, struct ramp_err *err)
{
	struct journal_state s;
	uint64_t index = r->facts.last.index;
	int rc = begin_change(r, change, err);

	if (rc < 0)
		return rc;
	journal_state(r->j, &s);
	rc = put_addresses(r, change);
	for (size_t i = 0; rc == 0 && i < change->n_lost; i++)
		rc = fence_lost(r, ++index, change->lost[i]);
	rc = rc ? rc : journal_end_generation(r->j);
	/* A term that no node of the old cluster has given an entry, as far as this one knows; their
	   messages are refused by the cluster's id. */
	rc = rc ? rc : make_members(r, ++index, s.term + 1);
	rc = rc ? rc : journal_put_key_u64(r->j, FOUNDED_KEY, index);
	rc = rc ? rc : journal_delete_key(r->j, "restored");
	rc = rc ? rc
		: journal_put_cluster(r->j, change->cluster_id, change->certificate,
				      strlen(change->certificate));
	return end_change(r, rc, err);
}

int recovery_adopt(struct recovery *r, const struct recovery_change *change, struct ramp_err *err)
{
	int rc = begin_change(r, change, err);

	if (rc < 0)
		return rc;
	rc = journal_forget(r->j);
	for (size_t i = 0; rc == 0 && i < change->n_members; i++)
		rc = journal_put_node(r->j, &change->members[i]);
	rc = rc ? rc : put_addresses(r, change);
	rc = rc ? rc
		: journal_put_cluster(r->j, change->cluster_id, change->certificate,
				      strlen(change->certificate));
	return end_change(r, rc, err);
}

int recovery_readdress(struct recovery *r, const struct recovery_change *change,
		       struct ramp_err *err)
{
	int rc;

	journal_rollback(r->j);
	rc = journal_begin(r->j, true);
	rc = rc ? rc : put_addresses(r, change);
	return end_change(r, rc, err);
}
