/*
 * The journal's SQLite. See journal_sql.h.
 */
#include "journal_sql.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "journal_impl.h"
#include "journal_rows.h"

static const char *const statement_text[N_STATEMENTS] = {
	[S_BEGIN] = "BEGIN IMMEDIATE",
	[S_COMMIT] = "COMMIT",
	[S_META_GET] = "SELECT v FROM meta WHERE k = ?",
	[S_META_PUT] =
		"INSERT INTO meta (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = ?2",
	[S_META_DELETE] = "DELETE FROM meta WHERE k = ?",
	[S_LOG_ALL] = "SELECT idx, term, type, data FROM log ORDER BY idx",
	[S_LOG_APPEND] = "INSERT INTO log (idx, term, type, data) VALUES (?, ?, ?, ?)",
	[S_LOG_TRUNCATE] = "DELETE FROM log WHERE idx >= ?",
	[S_LOG_COMPACT] = "DELETE FROM log WHERE idx <= ?",
	[S_LOG_LAST] = "SELECT min(idx), max(idx), count(*) FROM log",
	[S_SEGMENT_GET] = "SELECT " SEGMENT_COLUMNS " FROM segment WHERE id = ?",
	[S_SEGMENT_PUT] =
		"INSERT OR REPLACE INTO segment (" SEGMENT_COLUMNS ") VALUES (?,?,?,?,?,?,"
		"?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	/* The numbers are the positions in SEGMENT_COLUMNS. */
	[S_SEGMENT_CHANGE] =
		"UPDATE segment SET epoch = ?2, phase = ?3, unlinked = ?4, node_inc = ?6,"
		" dst_inc = ?8, src_inc = ?10, k_source = ?11, k_ticket = ?12, k_epoch = "
		"?13, name = ?14, dst_name = ?15, size = ?16, mode = ?17, uid = ?18, gid "
		"= ?19, atime = ?20, atime_ns = ?21, mtime = ?22, mtime_ns = ?23, ctime ="
		" ?24, ctime_ns = ?25, extent_addr = ?26, extent_len = ?27, extent_asked "
		"= ?28, pages = ?29, mmap = ?30 WHERE id = ?1 AND node = ?5 AND dst = ?7 "
		"AND src = ?9",
	[S_SEGMENT_DELETE] = "DELETE FROM segment WHERE id = ?",
	[S_SEGMENT_USES] =
		"SELECT EXISTS (SELECT 1 FROM segment WHERE node = ?1) OR EXISTS (SELECT "
		"1 FROM segment WHERE dst = ?1 AND dst <> 0) OR EXISTS (SELECT 1 FROM "
		"segment WHERE src = ?1 AND src <> 0)",
	[S_SEGMENT_ORPHAN] = "SELECT id FROM segment WHERE node = ? AND node_inc = ? AND phase = 3 "
			     "ORDER BY id LIMIT 1",
	/* The partial index segment_use answers it alone. */
	[S_SEGMENT_USE] = "SELECT sum(extent_len) FROM segment WHERE uid = ? AND extent_len <> 0",
	[S_SEGMENT_WAS] = SEGMENT_WAS,
	[S_NAME_GET] = "SELECT segment, reserved FROM name WHERE node = ? AND name = ?",
	[S_NAME_PUT] =
		"INSERT OR REPLACE INTO name (node, name, segment, reserved) VALUES (?,?,?,?)",
	[S_NAME_DELETE] = "DELETE FROM name WHERE node = ? AND name = ?",
	[S_EXTENT_FROM] = "SELECT addr, len FROM extent WHERE addr >= ? ORDER BY addr",
	[S_EXTENT_PUT] = "INSERT INTO extent (addr, len, segment) VALUES (?, ?, ?)",
	[S_EXTENT_DELETE] = "DELETE FROM extent WHERE addr = ?",
	[S_HINT_GET] = "SELECT addr FROM hint WHERE len = ?",
	[S_HINT_PUT] = "INSERT OR REPLACE INTO hint (len, addr) VALUES (?, ?)",
	[S_HINT_LOWER] = "UPDATE hint SET addr = min(addr, ?1 & ~(len - 1))",
	[S_NODE_GET] = "SELECT " NODE_COLUMNS " FROM node WHERE node = ?",
	[S_NODE_FIND] = "SELECT " NODE_COLUMNS " FROM node WHERE name = ? AND role <> 2",
	[S_NODE_PUT] = "INSERT OR REPLACE INTO node (" NODE_COLUMNS ") VALUES (?,?,?,?,?,?,?,?)",
	[S_NODE_ALL] = "SELECT " NODE_COLUMNS " FROM node ORDER BY node",
	[S_PAST_GET] = "SELECT 1 FROM past WHERE node = ? AND incarnation = ?",
	[S_PAST_PUT] = "INSERT OR REPLACE INTO past (node, incarnation) VALUES (?, ?)",
	[S_MEMBER_GET] = "SELECT role FROM member WHERE node = ?",
	[S_MEMBER_PUT] = "INSERT INTO member (node, role) VALUES (?, ?)",
	[S_MEMBER_CLEAR] = "DELETE FROM member",
	[S_RESULT_GET] = "SELECT reply FROM result WHERE client = ? AND number = ?",
	[S_RESULT_PUT] =
		"INSERT OR REPLACE INTO result (client, number, place, reply) VALUES (?,?,?,?)",
	[S_RESULT_EVICT] = "DELETE FROM result WHERE client = ? AND place <= ?",
	[S_RESULT_DROP] = "DELETE FROM result WHERE client = ?",
	[S_CLIENT_GET] = "SELECT place FROM client WHERE client = ?",
	[S_CLIENT_PUT] = "INSERT OR REPLACE INTO client (client, place, used) VALUES (?, ?, ?)",
	[S_CLIENT_COUNT] = "SELECT count(*) FROM client",
	[S_CLIENT_OLDEST] = "SELECT client FROM client ORDER BY used LIMIT 1",
	[S_CLIENT_DELETE] = "DELETE FROM client WHERE client = ?",
	[S_FLOOR_GET] = "SELECT life, lowest FROM floor WHERE node = ?",
	[S_FLOOR_PUT] = "INSERT OR REPLACE INTO floor (node, life, lowest) VALUES (?, ?, ?)",
	[S_COUNTER_GET] = "SELECT v FROM counter WHERE k = ?",
	[S_COUNTER_PUT] = "INSERT OR REPLACE INTO counter (k, v) VALUES (?, ?)",
};

/* ---- parameters and columns ------------------------------------------------------------------ */

void sql_put_u64(sqlite3_stmt *st, int *at, uint64_t v)
{
	sqlite3_bind_int64(st, (*at)++, (sqlite3_int64)v);
}

void sql_put_text(sqlite3_stmt *st, int *at, const char *s)
{
	sqlite3_bind_text(st, (*at)++, s, -1, SQLITE_STATIC);
}

void sql_put_blob(sqlite3_stmt *st, int *at, const void *bytes, size_t len)
{
	if (len == 0)
		sqlite3_bind_zeroblob(st, (*at)++, 0);
	else
		sqlite3_bind_blob64(st, (*at)++, bytes, len, SQLITE_STATIC);
}

uint64_t sql_get_u64(sqlite3_stmt *st, int *at)
{
	return (uint64_t)sqlite3_column_int64(st, (*at)++);
}

uint32_t sql_get_u32(sqlite3_stmt *st, int *at)
{
	return (uint32_t)sqlite3_column_int64(st, (*at)++);
}

void sql_get_text(sqlite3_stmt *st, int *at, char *s, size_t cap)
{
	const unsigned char *text = sqlite3_column_text(st, *at);

	if (!text && sqlite3_column_type(st, *at) != SQLITE_NULL)
		abort(); /* no memory: a row without its name must not be taken for one */
	(*at)++;
	snprintf(s, cap, "%s", text ? (const char *)text : "");
}

/* ---- the writer's statements ----------------------------------------------------------------- */

int journal_fail(struct journal *j, const char *what)
{
	char text[512];

	if (j->dead)
		return -EIO;
	snprintf(text, sizeof(text), "journal %s: %s: %s", j->path, what, sqlite3_errmsg(j->db));
	j->dead = true;
	j->config.fatal(j->config.arg, text);
	return -EIO;
}

void journal_remember_failure(void *arg, const char *text)
{
	ramp_err_set(arg, EIO, "%s", text);
}

bool journal_dead(const struct journal *j)
{
	return j->dead;
}

int journal_prepare(struct journal *j, enum statement s)
{
	return sqlite3_prepare_v3(j->db, statement_text[s], -1, SQLITE_PREPARE_PERSISTENT,
				  &j->stmt[s], NULL) == SQLITE_OK
		       ? 0
		       : -EPROTO;
}

sqlite3_stmt *journal_statement(struct journal *j, enum statement s)
{
	sqlite3_stmt *st = j->stmt[s];

	if (j->dead)
		return NULL;
	if (!st) {
		if (journal_prepare(j, s) < 0) {
			journal_fail(j, statement_text[s]);
			return NULL;
		}
		st = j->stmt[s];
	}
	if (!j->in_turn && !sqlite3_stmt_readonly(st)) {
		journal_fail(j, "written to outside of a turn");
		return NULL;
	}
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return st;
}

int journal_row(struct journal *j, sqlite3_stmt *st, const char *what)
{
	switch (sqlite3_step(st)) {
	case SQLITE_ROW:
		return 1;
	case SQLITE_DONE:
		sqlite3_reset(st);
		return 0;
	default:
		return journal_fail(j, what);
	}
}

int journal_run(struct journal *j, sqlite3_stmt *st, const char *what)
{
	if (sqlite3_step(st) != SQLITE_DONE)
		return journal_fail(j, what);
	sqlite3_reset(st);
	return 0;
}

int journal_run_plain(struct journal *j, enum statement s)
{
	sqlite3_stmt *st = journal_statement(j, s);

	return st ? journal_run(j, st, statement_text[s]) : -EIO;
}

int journal_run_text(struct journal *j, const char *text)
{
	if (j->dead)
		return -EIO;
	return sqlite3_exec(j->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : journal_fail(j, text);
}

sqlite3_stmt *journal_find_row(struct journal *j, enum statement s, uint64_t a, uint64_t b)
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

int journal_missing(const struct journal *j)
{
	return j->dead ? -EIO : -ENOENT;
}

int journal_write_row(struct journal *j, enum statement s, uint64_t a, uint64_t b, uint64_t c)
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

/* ---- connections ----------------------------------------------------------------------------- */

/* SQLite says "database is locked", which does not help a user to find the other program. */
const char *sql_why(sqlite3 *db, int rc)
{
	return rc == SQLITE_BUSY ? "another program reads or writes it (sqlite3, a backup?), and "
				   "has not ended within 5 s"
				 : sqlite3_errmsg(db);
}

/* Turns off SQLite's count of its memory: it is kept under one mutex for all connections, so their
   threads would wait for each other at each statement. Has no effect where the program has used
   SQLite before. */
static void count_no_memory(void)
{
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

int journal_connect(const char *path, const char *vfs, bool write, sqlite3 **db,
		    struct ramp_err *err)
{
	int flags = (write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rc;

	pthread_once(&once, count_no_memory);
	rc = sqlite3_open_v2(path, db, flags, vfs);
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(*db, 5000);
	if (rc == SQLITE_OK && write)
		rc = sqlite3_exec(*db,
				  "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
				  "PRAGMA journal_size_limit = 16777216;",
				  NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		return 0;
	ramp_err_set(err, rc == SQLITE_BUSY ? EBUSY : EIO, "journal %s: %s", path,
		     sql_why(*db, rc));
	sqlite3_close(*db);
	*db = NULL;
	return rc == SQLITE_BUSY ? -EBUSY : -EIO;
}

void journal_changes_row(struct journal *j, ramp_segment_t id)
{
	if (j->config.changes)
		j->config.changes(j->config.arg, id);
}

int journal_changes(struct journal *j)
{
	return sqlite3_changes(j->db);
}
