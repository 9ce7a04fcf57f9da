/*
 * The journal's rows of nodes, past incarnations, and the configuration. See journal_nodes.h.
 */
#include "journal_nodes.h"

#include <errno.h>
#include <string.h>

#include "journal.h"
#include "journal_keys.h"
#include "journal_rows.h"
#include "journal_sql.h"

int journal_get_node(struct journal *j, ramp_node_t node, struct node_row *row)
{
	sqlite3_stmt *st = journal_find_row(j, S_NODE_GET, node, 0);

	if (!st)
		return journal_missing(j);
	sql_get_node(st, row);
	sqlite3_reset(st);
	return 0;
}

int journal_find_node(struct journal *j, const char *name, struct node_row *row)
{
	sqlite3_stmt *st = journal_statement(j, S_NODE_FIND);
	int at = 1, rc;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, name);
	rc = journal_row(j, st, "read a node");
	if (rc != 1)
		return rc == 0 ? -ENOENT : rc;
	sql_get_node(st, row);
	sqlite3_reset(st);
	return 0;
}

int journal_put_node(struct journal *j, const struct node_row *row)
{
	sqlite3_stmt *st = journal_statement(j, S_NODE_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	journal_changes_row(j, 0);
	sql_put_u64(st, &at, row->node);
	sql_put_text(st, &at, row->name);
	sql_put_text(st, &at, row->address);
	sql_put_u64(st, &at, row->incarnation);
	sql_put_u64(st, &at, row->fenced);
	sql_put_u64(st, &at, row->instance);
	sql_put_u64(st, &at, row->capacity);
	sql_put_u64(st, &at, (uint64_t)row->role);
	return journal_run(j, st, "write a node");
}

static int last_node(void *arg, const struct node_row *row)
{
	*(uint64_t *)arg = row->node;
	return 0;
}

int journal_next_node(struct journal *j, ramp_node_t *node)
{
	uint64_t last = 0, next;
	int rc = journal_walk_nodes(j, last_node, &last);

	/* The founding members' numbers were not counted; rows of removed nodes stay. */
	rc = rc ? rc : journal_next_count(j, "node", last + 1, &next);
	if (rc == 0)
		*node = (ramp_node_t)next;
	return rc;
}

int journal_skip_nodes(struct journal *j, ramp_node_t node)
{
	uint64_t next;
	int rc = journal_read_count(j, "node", UINT64_MAX, &next);

	/* Where no number was counted yet, the next one is above those of all rows. */
	return rc < 0 || next > node ? rc : journal_put_count(j, "node", (uint64_t)node + 1);
}

int journal_walk_nodes(struct journal *j, int (*fn)(void *arg, const struct node_row *row),
		       void *arg)
{
	sqlite3_stmt *st = journal_statement(j, S_NODE_ALL);
	struct node_row row;
	int rc = 0, more = st ? 1 : -EIO;

	while (more == 1 && rc == 0 && (more = journal_row(j, st, "read the nodes")) == 1) {
		sql_get_node(st, &row);
		rc = fn(arg, &row);
	}
	if (st)
		sqlite3_reset(st);
	return more < 0 ? more : rc;
}

int journal_is_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	sqlite3_stmt *st = journal_find_row(j, S_PAST_GET, node, inc);

	if (!st)
		return journal_dead(j) ? -EIO : 0;
	sqlite3_reset(st);
	return 1;
}

int journal_put_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	return journal_write_row(j, S_PAST_PUT, node, inc, 0);
}

int journal_get_member(struct journal *j, ramp_node_t node, enum raft_role *role)
{
	sqlite3_stmt *st = journal_find_row(j, S_MEMBER_GET, node, 0);

	if (!st)
		return journal_missing(j);
	*role = (enum raft_role)sqlite3_column_int(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_put_members(struct journal *j, const struct raft_conf *conf)
{
	int rc = journal_write_row(j, S_MEMBER_CLEAR, 0, 0, 0);
	uint32_t i;

	for (i = 0; rc == 0 && i < conf->n; i++)
		rc = journal_write_row(j, S_MEMBER_PUT, conf->member[i].node,
				       (uint64_t)conf->member[i].role, 0);
	return rc;
}
