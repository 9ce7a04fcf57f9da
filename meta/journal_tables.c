/*
 * The journal's tables of the state machine: rows in, rows out, no rule of what they mean.
 *
 * All of it runs in a turn of the writer. It fails only as the journal does (journal_fail).
 */
#include <errno.h>
#include <string.h>

#include "command.h"
#include "journal_sql.h"

#define CLIENTS_KEPT	 256 /* those not heard of for longest go, with their results */
#define EVICTED_TOGETHER 32  /* results of a client; each time all that it has are looked at */

const struct journal_table journal_tables[] = {
	{"CREATE TABLE counter (k TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID",
	 "SELECT k, v FROM counter ORDER BY k", "INSERT INTO counter VALUES (?,?)",
	 "DELETE FROM counter", 2},
	{"CREATE TABLE member (node INTEGER PRIMARY KEY, role INTEGER NOT NULL)",
	 "SELECT node, role FROM member ORDER BY node", "INSERT INTO member VALUES (?,?)",
	 "DELETE FROM member", 2},
	{"CREATE TABLE node (node INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT NOT NULL, "
	 "incarnation INTEGER NOT NULL, fenced INTEGER NOT NULL, instance INTEGER NOT NULL, "
	 "capacity INTEGER NOT NULL, role INTEGER NOT NULL);"
	 "CREATE INDEX node_name ON node (name)",
	 "SELECT " NODE_COLUMNS " FROM node ORDER BY node",
	 "INSERT INTO node (" NODE_COLUMNS ") VALUES (?,?,?,?,?,?,?,?)", "DELETE FROM node", 8},
	{"CREATE TABLE past (node INTEGER NOT NULL, incarnation INTEGER NOT NULL, "
	 "PRIMARY KEY (node, incarnation)) WITHOUT ROWID",
	 "SELECT node, incarnation FROM past ORDER BY node, incarnation",
	 "INSERT INTO past VALUES (?,?)", "DELETE FROM past", 2},
	{"CREATE TABLE segment (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, "
	 "phase INTEGER NOT NULL, unlinked INTEGER NOT NULL, node INTEGER NOT NULL, "
	 "node_inc INTEGER NOT NULL, dst INTEGER NOT NULL, dst_inc INTEGER NOT NULL, "
	 "src INTEGER NOT NULL, src_inc INTEGER NOT NULL, k_source INTEGER NOT NULL, "
	 "k_ticket INTEGER NOT NULL, k_epoch INTEGER NOT NULL, name TEXT NOT NULL, "
	 "dst_name TEXT NOT NULL, size INTEGER NOT NULL, mode INTEGER NOT NULL, "
	 "uid INTEGER NOT NULL, gid INTEGER NOT NULL, atime INTEGER NOT NULL, "
	 "atime_ns INTEGER NOT NULL, mtime INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, "
	 "ctime INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, extent_addr INTEGER NOT NULL, "
	 "extent_len INTEGER NOT NULL, extent_asked INTEGER NOT NULL, pages INTEGER NOT NULL, "
	 "mmap INTEGER NOT NULL);"
	 "CREATE INDEX segment_node ON segment (node, id);"
	 "CREATE INDEX segment_dst ON segment (dst) WHERE dst <> 0;"
	 "CREATE INDEX segment_src ON segment (src) WHERE src <> 0",
	 "SELECT " SEGMENT_COLUMNS " FROM segment ORDER BY id",
	 "INSERT INTO segment (" SEGMENT_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
	 "?,?,?,?,?,?,?,?,?,?,?)",
	 "DELETE FROM segment", 30},
	{"CREATE TABLE name (node INTEGER NOT NULL, name TEXT NOT NULL, "
	 "segment INTEGER NOT NULL, reserved INTEGER NOT NULL, PRIMARY KEY (node, name)) "
	 "WITHOUT ROWID",
	 "SELECT node, name, segment, reserved FROM name ORDER BY node, name",
	 "INSERT INTO name VALUES (?,?,?,?)", "DELETE FROM name", 4},
	{"CREATE TABLE extent (addr INTEGER PRIMARY KEY, len INTEGER NOT NULL, "
	 "segment INTEGER NOT NULL)",
	 "SELECT addr, len, segment FROM extent ORDER BY addr", "INSERT INTO extent VALUES (?,?,?)",
	 "DELETE FROM extent", 3},
	/* No free place for an extent of len lies below addr: where to begin to look. */
	{"CREATE TABLE hint (len INTEGER PRIMARY KEY, addr INTEGER NOT NULL)",
	 "SELECT len, addr FROM hint ORDER BY len", "INSERT INTO hint VALUES (?,?)",
	 "DELETE FROM hint", 2},
	/* used: the index of its last command's entry. */
	{"CREATE TABLE client (client INTEGER PRIMARY KEY, place INTEGER NOT NULL, "
	 "used INTEGER NOT NULL)",
	 "SELECT client, place, used FROM client ORDER BY client",
	 "INSERT INTO client VALUES (?,?,?)", "DELETE FROM client", 3},
	{"CREATE TABLE result (client INTEGER NOT NULL, number INTEGER NOT NULL, "
	 "place INTEGER NOT NULL, reply BLOB NOT NULL, PRIMARY KEY (client, number)) "
	 "WITHOUT ROWID",
	 "SELECT client, number, place, reply FROM result ORDER BY client, number",
	 "INSERT INTO result VALUES (?,?,?,?)", "DELETE FROM result", 4},
	{"CREATE TABLE floor (node INTEGER PRIMARY KEY, life INTEGER NOT NULL, "
	 "lowest INTEGER NOT NULL)",
	 "SELECT node, life, lowest FROM floor ORDER BY node", "INSERT INTO floor VALUES (?,?,?)",
	 "DELETE FROM floor", 3},
};
const size_t journal_n_tables = sizeof(journal_tables) / sizeof(journal_tables[0]);

/* Finds one row by up to two numbers: the statement at it, to be reset; NULL: none, or dead. */
static sqlite3_stmt *find_row(struct journal *j, enum statement s, uint64_t a, uint64_t b)
{
	sqlite3_stmt *st = journal_statement(j, s);
	int at = 1;

	if (!st)
		return NULL;
	if (sqlite3_bind_parameter_count(st) > 0)
		sql_put_u64(st, &at, a);
	if (sqlite3_bind_parameter_count(st) > 1)
		sql_put_u64(st, &at, b);
	return journal_row(j, st, "read a row") == 1 ? st : NULL;
}

static int missing(const struct journal *j)
{
	return j->dead ? -EIO : -ENOENT;
}

/* Runs a statement that writes, with up to three numbers. */
static int write_row(struct journal *j, enum statement s, uint64_t a, uint64_t b, uint64_t c)
{
	sqlite3_stmt *st = journal_statement(j, s);
	uint64_t v[3] = {a, b, c};
	int at = 1, i;

	if (!st)
		return -EIO;
	for (i = 0; i < 3 && i < sqlite3_bind_parameter_count(st); i++)
		sql_put_u64(st, &at, v[i]);
	return journal_run(j, st, "write a row");
}

static int read_count(struct journal *j, const char *key, uint64_t first, uint64_t *value)
{
	sqlite3_stmt *st = journal_statement(j, S_COUNTER_GET);
	int at = 1, rc;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	rc = journal_row(j, st, key);
	if (rc < 0)
		return rc;
	*value = rc ? (uint64_t)sqlite3_column_int64(st, 0) : first;
	sqlite3_reset(st);
	return 0;
}

static int count_on(struct journal *j, const char *key, uint64_t first, uint64_t *value)
{
	sqlite3_stmt *st;
	int at = 1, rc = read_count(j, key, first, value);

	if (rc < 0)
		return rc;
	st = journal_statement(j, S_COUNTER_PUT);
	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_u64(st, &at, *value + 1);
	return journal_run(j, st, key);
}

/* ---- segments ------------------------------------------------------------------------------ */

void sql_get_segment(sqlite3_stmt *st, struct segment_row *row)
{
	int at = 0;

	memset(row, 0, sizeof(*row));
	row->id = sql_get_u64(st, &at);
	row->epoch = sql_get_u64(st, &at);
	row->phase = (enum segment_phase)sql_get_u32(st, &at);
	row->unlinked = sql_get_u32(st, &at) != 0;
	row->node = sql_get_u32(st, &at);
	row->node_inc = sql_get_u64(st, &at);
	row->dst = sql_get_u32(st, &at);
	row->dst_inc = sql_get_u64(st, &at);
	row->src = sql_get_u32(st, &at);
	row->src_inc = sql_get_u64(st, &at);
	row->k.source_id = sql_get_u64(st, &at);
	row->k.ticket = sql_get_u64(st, &at);
	row->k_epoch = sql_get_u64(st, &at);
	sql_get_text(st, &at, row->name, sizeof(row->name));
	sql_get_text(st, &at, row->dst_name, sizeof(row->dst_name));
	row->size = sql_get_u64(st, &at);
	row->mode = sql_get_u32(st, &at);
	row->uid = sql_get_u32(st, &at);
	row->gid = sql_get_u32(st, &at);
	row->atime.sec = (int64_t)sql_get_u64(st, &at);
	row->atime.nsec = sql_get_u32(st, &at);
	row->mtime.sec = (int64_t)sql_get_u64(st, &at);
	row->mtime.nsec = sql_get_u32(st, &at);
	row->ctime.sec = (int64_t)sql_get_u64(st, &at);
	row->ctime.nsec = sql_get_u32(st, &at);
	row->extent_addr = sql_get_u64(st, &at);
	row->extent_len = sql_get_u64(st, &at);
	row->extent_asked = sql_get_u64(st, &at);
	row->pages = (uint8_t)sql_get_u32(st, &at);
	row->mmap = (uint8_t)sql_get_u32(st, &at);
}

int journal_get_segment(struct journal *j, ramp_segment_t id, struct segment_row *row)
{
	sqlite3_stmt *st = find_row(j, S_SEGMENT_GET, id, 0);

	if (!st)
		return missing(j);
	sql_get_segment(st, row);
	sqlite3_reset(st);
	return 0;
}

static int put_segment(struct journal *j, enum statement s, const struct segment_row *row)
{
	sqlite3_stmt *st = journal_statement(j, s);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_u64(st, &at, row->id);
	sql_put_u64(st, &at, row->epoch);
	sql_put_u64(st, &at, (uint64_t)row->phase);
	sql_put_u64(st, &at, row->unlinked);
	sql_put_u64(st, &at, row->node);
	sql_put_u64(st, &at, row->node_inc);
	sql_put_u64(st, &at, row->dst);
	sql_put_u64(st, &at, row->dst_inc);
	sql_put_u64(st, &at, row->src);
	sql_put_u64(st, &at, row->src_inc);
	sql_put_u64(st, &at, row->k.source_id);
	sql_put_u64(st, &at, row->k.ticket);
	sql_put_u64(st, &at, row->k_epoch);
	sql_put_text(st, &at, row->name);
	sql_put_text(st, &at, row->dst_name);
	sql_put_u64(st, &at, row->size);
	sql_put_u64(st, &at, row->mode);
	sql_put_u64(st, &at, row->uid);
	sql_put_u64(st, &at, row->gid);
	sql_put_u64(st, &at, (uint64_t)row->atime.sec);
	sql_put_u64(st, &at, row->atime.nsec);
	sql_put_u64(st, &at, (uint64_t)row->mtime.sec);
	sql_put_u64(st, &at, row->mtime.nsec);
	sql_put_u64(st, &at, (uint64_t)row->ctime.sec);
	sql_put_u64(st, &at, row->ctime.nsec);
	sql_put_u64(st, &at, row->extent_addr);
	sql_put_u64(st, &at, row->extent_len);
	sql_put_u64(st, &at, row->extent_asked);
	sql_put_u64(st, &at, row->pages);
	sql_put_u64(st, &at, row->mmap);
	return journal_run(j, st, "write a segment");
}

/* Most changes leave the nodes as they are, and then no index has to be touched. */
int journal_put_segment(struct journal *j, const struct segment_row *row)
{
	int rc = put_segment(j, S_SEGMENT_CHANGE, row);

	if (rc < 0 || sqlite3_changes(j->db) > 0)
		return rc;
	return put_segment(j, S_SEGMENT_PUT, row);
}

int journal_delete_segment(struct journal *j, ramp_segment_t id)
{
	struct segment_row row;
	int rc = journal_get_segment(j, id, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (row.extent_len != 0) {
		rc = write_row(j, S_EXTENT_DELETE, row.extent_addr, 0, 0);
		rc = rc ? rc : write_row(j, S_HINT_LOWER, row.extent_addr, 0, 0);
	}
	return rc ? rc : write_row(j, S_SEGMENT_DELETE, id, 0, 0);
}

int journal_next_segment_id(struct journal *j, ramp_segment_t *id)
{
	return count_on(j, "segment", RAMP_SEGMENT_ID_MIN, id);
}

int journal_segment_was(struct journal *j, ramp_segment_t id)
{
	uint64_t next;
	int rc = read_count(j, "segment", RAMP_SEGMENT_ID_MIN, &next);

	return rc < 0 ? rc : id >= RAMP_SEGMENT_ID_MIN && id < next;
}

int journal_find_orphan(struct journal *j, ramp_node_t node, ramp_incarnation_t inc,
			ramp_segment_t *id)
{
	sqlite3_stmt *st = find_row(j, S_SEGMENT_ORPHAN, node, inc);

	if (!st)
		return missing(j);
	*id = (ramp_segment_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_node_used(struct journal *j, ramp_node_t node)
{
	sqlite3_stmt *st = find_row(j, S_SEGMENT_USES, node, 0);
	int used;

	if (!st)
		return -EIO;
	used = sqlite3_column_int(st, 0) != 0;
	sqlite3_reset(st);
	return used;
}

/* ---- names --------------------------------------------------------------------------------- */

int journal_get_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t *id,
		     bool *reserved)
{
	sqlite3_stmt *st = journal_statement(j, S_NAME_GET);
	int at = 1, rc;

	if (!st)
		return -EIO;
	sql_put_u64(st, &at, node);
	sql_put_text(st, &at, name);
	rc = journal_row(j, st, "read a name");
	if (rc != 1)
		return rc == 0 ? -ENOENT : rc;
	*id = (ramp_segment_t)sqlite3_column_int64(st, 0);
	*reserved = sqlite3_column_int(st, 1) != 0;
	sqlite3_reset(st);
	return 0;
}

int journal_put_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t id,
		     bool reserved)
{
	sqlite3_stmt *st = journal_statement(j, S_NAME_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_u64(st, &at, node);
	sql_put_text(st, &at, name);
	sql_put_u64(st, &at, id);
	sql_put_u64(st, &at, reserved);
	return journal_run(j, st, "write a name");
}

int journal_delete_name(struct journal *j, ramp_node_t node, const char *name)
{
	sqlite3_stmt *st = journal_statement(j, S_NAME_DELETE);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_u64(st, &at, node);
	sql_put_text(st, &at, name);
	return journal_run(j, st, "delete a name");
}

/* ---- extents ------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t v, uint64_t len)
{
	return (v + len - 1) & ~(len - 1);
}

/*
 * The first free place of len at or after `from`. Extents are powers of two aligned to their
 * length, so one that begins below `from` (itself aligned to len) reaches past it only if it
 * covers it whole: then it begins at `from` aligned down to a greater length.
 */
static int first_fit(struct journal *j, uint64_t from, uint64_t len, uint64_t *addr)
{
	sqlite3_stmt *st = journal_statement(j, S_EXTENT_FROM);
	int more;

	*addr = from;
	if (!st)
		return -EIO;
	sqlite3_bind_int64(st, 1, (sqlite3_int64)from);
	while ((more = journal_row(j, st, "look for room in the arena")) == 1) {
		uint64_t a = (uint64_t)sqlite3_column_int64(st, 0);
		uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);

		if (a >= *addr + len)
			break;
		if (a + n > *addr)
			*addr = align_up(a + n, len);
	}
	sqlite3_reset(st);
	return more < 0 ? more : 0;
}

int journal_take_extent(struct journal *j, ramp_segment_t id, uint64_t len, uint64_t *addr)
{
	uint64_t end = j->state.arena_addr + j->state.arena_len;
	uint64_t first = align_up(j->state.arena_addr, len), from = first;
	sqlite3_stmt *st;
	int rc;

	if (len > j->state.arena_len)
		return j->dead ? -EIO : -ENOSPC;
	st = find_row(j, S_HINT_GET, len, 0);
	if (st) {
		from = (uint64_t)sqlite3_column_int64(st, 0);
		sqlite3_reset(st);
	} else if (j->dead) {
		return -EIO;
	}
	/* What was freed was aligned down to len, which may be before the arena. */
	rc = first_fit(j, from > first ? from : first, len, addr);
	if (rc < 0)
		return rc;
	if (*addr > end - len)
		return -ENOSPC;
	rc = write_row(j, S_EXTENT_PUT, *addr, len, id);
	return rc ? rc : write_row(j, S_HINT_PUT, len, *addr + len, 0);
}

/* ---- nodes --------------------------------------------------------------------------------- */

void sql_get_node(sqlite3_stmt *st, struct node_row *row)
{
	int at = 0;

	memset(row, 0, sizeof(*row));
	row->node = sql_get_u32(st, &at);
	sql_get_text(st, &at, row->name, sizeof(row->name));
	sql_get_text(st, &at, row->address, sizeof(row->address));
	row->incarnation = sql_get_u64(st, &at);
	row->fenced = sql_get_u64(st, &at);
	row->instance = sql_get_u64(st, &at);
	row->capacity = sql_get_u64(st, &at);
	row->role = (enum node_role)sql_get_u32(st, &at);
}

int journal_get_node(struct journal *j, ramp_node_t node, struct node_row *row)
{
	sqlite3_stmt *st = find_row(j, S_NODE_GET, node, 0);

	if (!st)
		return missing(j);
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

	/* The founding members took theirs without counting; rows of removed ones stay. */
	rc = rc ? rc : count_on(j, "node", last + 1, &next);
	if (rc == 0)
		*node = (ramp_node_t)next;
	return rc;
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
	sqlite3_stmt *st = find_row(j, S_PAST_GET, node, inc);

	if (!st)
		return j->dead ? -EIO : 0;
	sqlite3_reset(st);
	return 1;
}

int journal_put_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	return write_row(j, S_PAST_PUT, node, inc, 0);
}

int journal_get_member(struct journal *j, ramp_node_t node, enum raft_role *role)
{
	sqlite3_stmt *st = find_row(j, S_MEMBER_GET, node, 0);

	if (!st)
		return missing(j);
	*role = (enum raft_role)sqlite3_column_int(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_put_members(struct journal *j, const struct raft_conf *conf)
{
	int rc = write_row(j, S_MEMBER_CLEAR, 0, 0, 0);
	uint32_t i;

	for (i = 0; rc == 0 && i < conf->n; i++)
		rc = write_row(j, S_MEMBER_PUT, conf->member[i].node,
			       (uint64_t)conf->member[i].role, 0);
	return rc;
}

/* ---- results ------------------------------------------------------------------------------- */

int journal_get_result(struct journal *j, struct meta_command_id cid, struct meta_reply *reply)
{
	sqlite3_stmt *st = find_row(j, S_RESULT_GET, cid.client, cid.unique);
	int rc;

	if (!st)
		return missing(j);
	rc = command_reply_decode(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0),
				  reply);
	sqlite3_reset(st);
	return rc < 0 ? journal_fail(j, "a result can't be read") : 0;
}

/* A client that is not known: where there are too many, the one longest unheard of goes. */
static int new_client(struct journal *j)
{
	sqlite3_stmt *st = find_row(j, S_CLIENT_COUNT, 0, 0);
	uint64_t client;
	int n, rc;

	if (!st)
		return -EIO;
	n = sqlite3_column_int(st, 0);
	sqlite3_reset(st);
	if (n < CLIENTS_KEPT)
		return 0;
	st = find_row(j, S_CLIENT_OLDEST, 0, 0);
	if (!st)
		return -EIO;
	client = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	rc = write_row(j, S_RESULT_DROP, client, 0, 0);
	return rc ? rc : write_row(j, S_CLIENT_DELETE, client, 0, 0);
}

int journal_put_result(struct journal *j, struct meta_command_id cid,
		       const struct meta_reply *reply, uint64_t index)
{
	uint8_t bytes[META_REPLY_BYTES];
	size_t len = command_reply_encode(reply, bytes, sizeof(bytes));
	sqlite3_stmt *st = find_row(j, S_CLIENT_GET, cid.client, 0);
	uint64_t place = 1;
	int at = 1, rc;

	if (st) {
		place = (uint64_t)sqlite3_column_int64(st, 0) + 1;
		sqlite3_reset(st);
	} else {
		rc = j->dead ? -EIO : new_client(j);
		if (rc < 0)
			return rc;
	}
	rc = write_row(j, S_CLIENT_PUT, cid.client, place, index);
	if (rc == 0 && place > META_RESULTS_KEPT && place % EVICTED_TOGETHER == 0)
		rc = write_row(j, S_RESULT_EVICT, cid.client, place - META_RESULTS_KEPT, 0);
	st = rc == 0 ? journal_statement(j, S_RESULT_PUT) : NULL;
	if (!st)
		return -EIO;
	sql_put_u64(st, &at, cid.client);
	sql_put_u64(st, &at, cid.unique);
	sql_put_u64(st, &at, place);
	sql_put_blob(st, &at, bytes, len);
	return journal_run(j, st, "write a result");
}

int journal_get_floor(struct journal *j, ramp_node_t node, uint64_t *life, uint64_t *lowest)
{
	sqlite3_stmt *st = find_row(j, S_FLOOR_GET, node, 0);
	int at = 0;

	*life = *lowest = 0;
	if (!st)
		return j->dead ? -EIO : 0;
	*life = sql_get_u64(st, &at);
	*lowest = sql_get_u64(st, &at);
	sqlite3_reset(st);
	return 0;
}

int journal_put_floor(struct journal *j, ramp_node_t node, uint64_t life, uint64_t lowest)
{
	return write_row(j, S_FLOOR_PUT, node, life, lowest);
}
