/*
 * The journal's readers. See journal_reader.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "journal_reader.h"
#include "journal_rows.h"
#include "journal_sql.h"

enum read_statement {
	R_SEGMENT,
	R_NAME,
	R_SEGMENTS,
	R_ALL_SEGMENTS,
	R_NODE,
	R_NODE_BY_NAME,
	R_NODES,
	R_MEMBER,
	R_COUNTER,
	R_USES,
	R_USE_OF_ALL,
	R_SEGMENT_WAS,
	R_ADDRESS,
	N_READS
};

static const char *const read_text[N_READS] = {
	[R_SEGMENT] = "SELECT " SEGMENT_COLUMNS " FROM segment WHERE id = ?",
	[R_NAME] = "SELECT " SEGMENT_COLUMNS " FROM segment WHERE id = (SELECT segment FROM name "
		   "WHERE node = ? AND name = ? AND reserved = 0)",
	[R_SEGMENTS] = "SELECT " SEGMENT_COLUMNS " FROM segment WHERE node = ? AND id > ? "
		       "AND phase <> 3 AND unlinked = 0 ORDER BY id LIMIT ?",
	[R_ALL_SEGMENTS] =
		"SELECT " SEGMENT_COLUMNS " FROM segment WHERE id > ? ORDER BY id LIMIT ?",
	[R_NODE] = "SELECT " NODE_COLUMNS " FROM node WHERE node = ?",
	[R_NODE_BY_NAME] = "SELECT " NODE_COLUMNS " FROM node WHERE name = ? AND role <> 2",
	[R_NODES] = "SELECT " NODE_COLUMNS " FROM node WHERE node > ? ORDER BY node LIMIT ?",
	[R_MEMBER] = "SELECT count(*) FROM member WHERE node = ?",
	[R_COUNTER] = "SELECT v FROM counter WHERE k = ?",
	[R_USES] = ("SELECT uid, sum(extent_len) FROM segment WHERE extent_len <> 0 "
		    "GROUP BY uid ORDER BY 2 DESC, uid LIMIT ?"),
	[R_USE_OF_ALL] = "SELECT sum(len) FROM extent",
	[R_SEGMENT_WAS] = SEGMENT_WAS,
	[R_ADDRESS] = "SELECT v FROM meta WHERE k = '" ADDRESS_KEY "' || ?",
};
_Static_assert(SEGMENT_ORPHAN == 3 && NODE_REMOVED == 2, "the numbers in the statements");

struct journal_reader {
	sqlite3 *db;
	sqlite3_stmt *stmt[N_READS];
};

int journal_reader_open(const char *path, const char *vfs, struct journal_reader **out,
			struct ramp_err *err)
{
	struct journal_reader *r = calloc(1, sizeof(*r));
	size_t i;
	int rc;

	if (!r)
		return ramp_err_set(err, ENOMEM, "journal: out of memory");
	rc = journal_connect(path, vfs, false, &r->db, err);
	for (i = 0; rc == 0 && i < N_READS; i++)
		if (sqlite3_prepare_v3(r->db, read_text[i], -1, SQLITE_PREPARE_PERSISTENT,
				       &r->stmt[i], NULL) != SQLITE_OK)
			rc = ramp_err_set(err, EIO, "journal %s: %s", path, sqlite3_errmsg(r->db));
	if (rc < 0) {
		journal_reader_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

void journal_reader_close(struct journal_reader *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < N_READS; i++)
		sqlite3_finalize(r->stmt[i]);
	sqlite3_close(r->db);
	free(r);
}

const char *journal_reader_why(struct journal_reader *r)
{
	return sqlite3_errmsg(r->db);
}

/* Steps to a row. Returns 1, 0: there is none; -EIO. Without a row the statement is reset. */
static int step_row(sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	if (rc == SQLITE_ROW)
		return 1;
	sqlite3_reset(st);
	return rc == SQLITE_DONE ? 0 : -EIO;
}

static int one_segment(sqlite3_stmt *st, struct segment_row *row)
{
	int rc = step_row(st);

	if (rc <= 0)
		return rc < 0 ? rc : -ENOENT;
	sql_get_segment(st, row);
	sqlite3_reset(st);
	return 0;
}

static int one_node(sqlite3_stmt *st, struct node_row *row)
{
	int rc = step_row(st);

	if (rc <= 0)
		return rc < 0 ? rc : -ENOENT;
	sql_get_node(st, row);
	sqlite3_reset(st);
	return 0;
}

int journal_read_segment(struct journal_reader *r, ramp_segment_t id, struct segment_row *row)
{
	int at = 1;

	sql_put_u64(r->stmt[R_SEGMENT], &at, id);
	return one_segment(r->stmt[R_SEGMENT], row);
}

int journal_read_name(struct journal_reader *r, ramp_node_t node, const char *name,
		      struct segment_row *row)
{
	int at = 1;

	sql_put_u64(r->stmt[R_NAME], &at, node);
	sql_put_text(r->stmt[R_NAME], &at, name);
	return one_segment(r->stmt[R_NAME], row);
}

int journal_read_segments(struct journal_reader *r, ramp_node_t node, ramp_segment_t after,
			  struct segment_row *rows, size_t max)
{
	sqlite3_stmt *st = r->stmt[node ? R_SEGMENTS : R_ALL_SEGMENTS];
	int at = 1, n = 0, rc;

	if (node)
		sql_put_u64(st, &at, node);
	sql_put_u64(st, &at, after);
	sql_put_u64(st, &at, max);
	while ((rc = step_row(st)) == 1)
		sql_get_segment(st, &rows[n++]);
	return rc < 0 ? rc : n;
}

int journal_read_node(struct journal_reader *r, ramp_node_t node, struct node_row *row)
{
	int at = 1;

	sql_put_u64(r->stmt[R_NODE], &at, node);
	return one_node(r->stmt[R_NODE], row);
}

/* Reads the one number that a statement with one parameter gives. */
static int one_number(sqlite3_stmt *st, uint64_t v)
{
	int at = 1, is = 0, rc;

	sql_put_u64(st, &at, v);
	while ((rc = step_row(st)) == 1)
		is = sqlite3_column_int(st, 0);
	return rc < 0 ? rc : is;
}

int journal_read_member(struct journal_reader *r, ramp_node_t node)
{
	return one_number(r->stmt[R_MEMBER], node);
}

int journal_read_segment_was(struct journal_reader *r, ramp_segment_t id)
{
	return one_number(r->stmt[R_SEGMENT_WAS], id);
}

int journal_read_address(struct journal_reader *r, ramp_node_t node, char *text, size_t cap)
{
	sqlite3_stmt *st = r->stmt[R_ADDRESS];
	int at = 1, rc;

	sql_put_u64(st, &at, node);
	rc = step_row(st);
	if (rc <= 0)
		return rc < 0 ? rc : -ENOENT;
	at = 0;
	sql_get_text(st, &at, text, cap);
	sqlite3_reset(st);
	return 0;
}

int journal_read_node_by_name(struct journal_reader *r, const char *name, struct node_row *row)
{
	int at = 1;

	sql_put_text(r->stmt[R_NODE_BY_NAME], &at, name);
	return one_node(r->stmt[R_NODE_BY_NAME], row);
}

int journal_read_nodes(struct journal_reader *r, ramp_node_t after, struct node_row *rows,
		       size_t max)
{
	sqlite3_stmt *st = r->stmt[R_NODES];
	int at = 1, n = 0, rc;

	sql_put_u64(st, &at, after);
	sql_put_u64(st, &at, max);
	while ((rc = step_row(st)) == 1)
		sql_get_node(st, &rows[n++]);
	return rc < 0 ? rc : n;
}

int journal_read_counter(struct journal_reader *r, const char *key, uint64_t first, uint64_t *value)
{
	sqlite3_stmt *st = r->stmt[R_COUNTER];
	int at = 1, rc;

	sql_put_text(st, &at, key);
	rc = step_row(st);
	*value = first;
	if (rc == 1) {
		at = 0;
		*value = sql_get_u64(st, &at);
		sqlite3_reset(st);
	}
	return rc < 0 ? rc : 0;
}

int journal_read_uses(struct journal_reader *r, struct arena_use *uses, size_t max,
		      uint64_t *all_bytes)
{
	sqlite3_stmt *st = r->stmt[R_USES], *all = r->stmt[R_USE_OF_ALL];
	int at = 1, n = 0, rc;

	sql_put_u64(st, &at, max);
	while ((rc = step_row(st)) == 1) {
		at = 0;
		uses[n].uid = sql_get_u32(st, &at);
		uses[n++].bytes = sql_get_u64(st, &at);
	}
	if (rc < 0)
		return rc;
	rc = step_row(all);
	if (rc < 0)
		return rc;
	at = 0;
	*all_bytes = rc == 1 ? sql_get_u64(all, &at) : 0;
	sqlite3_reset(all);
	return n;
}
