/*
 * The journal: the file, Raft's hard state and log, and turns. See journal.h.
 *
 * The happy path: journal_open takes the lock, opens the file, makes durable what it finds, and
 * counts this life; then turns: BEGIN, some statements, each prepared at its first use, COMMIT,
 * and now and then a checkpoint.
 *
 * How it fails: what is wrong when it is opened comes back as an error; once it is open any error
 * of the writer is final (journal_fail).
 */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "journal_sql.h"

#define JOURNAL_FORMAT	  1
#define CHECKPOINT_FRAMES 1000 /* of the WAL, as SQLite has it */

static const char *const statement_text[N_STATEMENTS] = {
	[S_BEGIN] = "BEGIN IMMEDIATE",
	[S_COMMIT] = "COMMIT",
	[S_META_GET] = "SELECT v FROM meta WHERE k = ?",
	[S_META_PUT] =
		"INSERT INTO meta (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = ?2",
	[S_LOG_ALL] = "SELECT idx, term, type, data FROM log ORDER BY idx",
	[S_LOG_APPEND] = "INSERT INTO log (idx, term, type, data) VALUES (?, ?, ?, ?)",
	[S_LOG_TRUNCATE] = "DELETE FROM log WHERE idx >= ?",
	[S_LOG_COMPACT] = "DELETE FROM log WHERE idx <= ?",
	[S_LOG_LAST] = "SELECT min(idx), max(idx), count(*) FROM log",
	[S_SEGMENT_GET] = "SELECT " SEGMENT_COLUMNS " FROM segment WHERE id = ?",
	[S_SEGMENT_PUT] =
		"INSERT OR REPLACE INTO segment (" SEGMENT_COLUMNS ") VALUES (?,?,?,?,?,?,"
		"?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	/* The numbers are the places of SEGMENT_COLUMNS. */
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

static const char *const private_tables =
	"CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID;"
	"CREATE TABLE log (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, type INTEGER NOT NULL, "
	"data BLOB);"
	"CREATE INDEX log_conf ON log (idx) WHERE type = 3;"; /* RAFT_CONF */

/* ---- SQLite with less ceremony ------------------------------------------------------------- */

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

static int prepare(struct journal *j, enum statement s)
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
		if (prepare(j, s) < 0) {
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

static int run_text(struct journal *j, const char *text)
{
	if (j->dead)
		return -EIO;
	return sqlite3_exec(j->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : journal_fail(j, text);
}

/* What SQLite says is "database is locked", which helps nobody to find who it is. */
static const char *why(sqlite3 *db, int rc)
{
	return rc == SQLITE_BUSY ? "another program reads or writes it (sqlite3, a backup?), and "
				   "has not ended within 5 s"
				 : sqlite3_errmsg(db);
}

/* SQLite counts what it allocates, under one mutex for all connections, whose threads then wait for
   each other at each statement. Too late where a program has used SQLite before: it counts then. */
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
	ramp_err_set(err, rc == SQLITE_BUSY ? EBUSY : EIO, "journal %s: %s", path, why(*db, rc));
	sqlite3_close(*db);
	*db = NULL;
	return rc == SQLITE_BUSY ? -EBUSY : -EIO;
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/*
 * The kernel tells of a failed sync once, and then takes for written what it was to write: a later
 * sync goes well, and behind the hole that it leaves in the WAL nothing is found again. So it must
 * be fatal wherever it happens. SQLite's own hook takes no notice of how its checkpoint ends, which
 * begins with a sync of what turns that were not durable have written.
 *
 * Where the database can't grow, or a reader is in the way, the WAL stays as it is and nothing is
 * lost; the next turn tries again.
 */
static int after_commit(void *arg, sqlite3 *db, const char *name, int frames)
{
	int rc;

	(void)arg;
	if (frames < CHECKPOINT_FRAMES)
		return SQLITE_OK;
	rc = sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_FULL:
	case SQLITE_NOMEM:
		return SQLITE_OK;
	default:
		return rc;
	}
}

/* The process before this one may have died of such a sync. What is read now may stand nowhere but
   in the kernel's memory, and would be taken for durable: so all of the WAL is written anew, into
   the database. */
static int make_durable(struct journal *j, struct ramp_err *err)
{
	int rc = sqlite3_wal_checkpoint_v2(j->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);

	if (rc == SQLITE_OK)
		return 0;
	return ramp_err_set(err, rc == SQLITE_BUSY ? EBUSY : EIO,
			    "journal %s: what it holds can't be made durable: %s", j->path,
			    why(j->db, rc));
}

/* ---- the table meta ------------------------------------------------------------------------ */

static int meta_put_u64(struct journal *j, const char *key, uint64_t v)
{
	sqlite3_stmt *st = journal_statement(j, S_META_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_u64(st, &at, v);
	return journal_run(j, st, key);
}

static int meta_put_blob(struct journal *j, const char *key, const void *bytes, size_t len)
{
	sqlite3_stmt *st = journal_statement(j, S_META_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_blob(st, &at, bytes, len);
	return journal_run(j, st, key);
}

/* Returns the statement at the key's row, to be reset; NULL where there is none. */
static sqlite3_stmt *meta_find(struct journal *j, const char *key)
{
	sqlite3_stmt *st = journal_statement(j, S_META_GET);
	int at = 1;

	if (!st)
		return NULL;
	sql_put_text(st, &at, key);
	return journal_row(j, st, key) == 1 ? st : NULL;
}

static bool meta_get_u64(struct journal *j, const char *key, uint64_t *v)
{
	sqlite3_stmt *st = meta_find(j, key);

	if (!st)
		return false;
	*v = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	return true;
}

/* ---- making -------------------------------------------------------------------------------- */

static int put_conf(struct journal *j, const struct raft_data *conf, uint64_t conf_index)
{
	int rc = meta_put_u64(j, "conf_index", conf_index);

	if (rc == 0 && conf)
		rc = meta_put_blob(j, "conf", conf->bytes, conf->len);
	return rc;
}

static int found_members(struct journal *j, const struct meta_founding *f)
{
	struct raft_conf conf = {.n = (uint32_t)f->n_nodes};
	struct raft_data *data;
	size_t i;
	int rc = 0;

	for (i = 0; i < f->n_nodes; i++) {
		conf.member[i].node = f->nodes[i].node;
		conf.member[i].role = f->nodes[i].role == NODE_VOTER ? RAFT_VOTER : RAFT_LEARNER;
		rc = rc ? rc : journal_put_node(j, &f->nodes[i]);
	}
	data = raft_conf_encode(&conf);
	if (!data)
		return journal_fail(j, "out of memory");
	rc = rc ? rc : journal_put_members(j, &conf);
	rc = rc ? rc : put_conf(j, data, 1);
	raft_data_unref(data);
	return rc;
}

/* Founders begin as if a first entry of term 1 had made these tables, so that whoever joins later
   with none of the log (index 0) is sent a snapshot. */
static int found(struct journal *j, const struct meta_founding *f)
{
	size_t i;
	bool founder = f->n_nodes > 0 && !f->joins;
	int rc = meta_put_u64(j, "format", JOURNAL_FORMAT);

	rc = rc ? rc : meta_put_blob(j, "cluster", f->cluster_id, sizeof(f->cluster_id));
	rc = rc ? rc : meta_put_u64(j, "node", f->self);
	rc = rc ? rc : meta_put_u64(j, "instance", f->instance);
	rc = rc ? rc : meta_put_u64(j, "life", 0);
	rc = rc ? rc : meta_put_u64(j, "arena_addr", f->arena_addr);
	rc = rc ? rc : meta_put_u64(j, "arena_len", f->arena_len);
	rc = rc ? rc : journal_put_hard_state(j, founder, 0, false);
	rc = rc ? rc : meta_put_u64(j, "applied", founder);
	rc = rc ? rc : meta_put_u64(j, "applied_term", founder);
	rc = rc ? rc : meta_put_u64(j, "snap_index", founder);
	rc = rc ? rc : meta_put_u64(j, "snap_term", founder);
	rc = rc ? rc : meta_put_u64(j, "conf_index", 0);
	if (rc == 0 && founder)
		rc = found_members(j, f);
	for (i = 0; rc == 0 && !founder && i < f->n_nodes; i++)
		rc = journal_put_node(j, &f->nodes[i]);
	return rc;
}

/* For a journal being made: that every statement fits its tables is said here, not at first use. */
static int prepare_all(struct journal *j)
{
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < N_STATEMENTS; i++)
		rc = prepare(j, (enum statement)i);
	return rc;
}

static int make_tables(struct journal *j)
{
	size_t i;
	int rc = run_text(j, private_tables);

	for (i = 0; rc == 0 && i < journal_n_tables; i++)
		rc = run_text(j, journal_tables[i].create);
	return rc;
}

static void remember_failure(void *arg, const char *text)
{
	ramp_err_set(arg, EIO, "%s", text);
}

static int check_founding(const struct meta_founding *f, struct ramp_err *err)
{
	size_t i;

	if (f->self == 0 || f->n_nodes > RAFT_NODES_MAX)
		return ramp_err_set(err, EINVAL, "a cluster has 1 to %d nodes", RAFT_NODES_MAX);
	for (i = 0; i < f->n_nodes && !f->joins; i++)
		if (f->nodes[i].node != i + 1)
			return ramp_err_set(err, EINVAL, "founding nodes are numbered from 1");
	return 0;
}

int journal_create(const char *path, const char *vfs_name, const struct meta_founding *founding,
		   struct ramp_err *err)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(vfs_name);
	struct journal j = {.lock_fd = -1, .config = {.fatal = remember_failure, .arg = err}};
	int there = 0, rc = check_founding(founding, err);

	if (rc < 0)
		return rc;
	if (!vfs || vfs->xAccess(vfs, path, SQLITE_ACCESS_EXISTS, &there) != SQLITE_OK)
		return ramp_err_set(err, EIO, "journal %s: can't be reached", path);
	if (there)
		return ramp_err_set(err, EEXIST, "journal %s: is there already", path);
	if (sqlite3_open_v2(path, &j.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs_name) !=
	    SQLITE_OK) {
		rc = ramp_err_set(err, EIO, "journal %s: %s", path, sqlite3_errmsg(j.db));
		goto out_close;
	}
	j.path = strdup(path);
	rc = j.path ? 0 : ramp_err_set(err, ENOMEM, "journal %s: out of memory", path);
	rc = rc ? rc : run_text(&j, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN");
	rc = rc ? rc : make_tables(&j);
	rc = rc ? rc : prepare_all(&j);
	j.in_turn = true;
	rc = rc ? rc : found(&j, founding);
	rc = rc ? rc : run_text(&j, "COMMIT");
out_close:
	for (size_t i = 0; i < N_STATEMENTS; i++)
		sqlite3_finalize(j.stmt[i]);
	sqlite3_close(j.db);
	if (rc < 0)
		vfs->xDelete(vfs, path, 1);
	free(j.path);
	return rc;
}

/* ---- opening ------------------------------------------------------------------------------- */

static int take_lock(struct journal *j, struct ramp_err *err)
{
	char name[4096];

	/* SQLite's own locks are for connections; this one is for processes. The files of another
	   VFS are its own business. */
	if (j->vfs)
		return 0;
	if (snprintf(name, sizeof(name), "%s.lock", j->path) >= (int)sizeof(name))
		return ramp_err_set(err, ENAMETOOLONG, "journal %s: the path is too long", j->path);
	j->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (j->lock_fd < 0)
		return ramp_err_sys(err, errno, "journal: %s", name);
	if (flock(j->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return ramp_err_set(err, EBUSY, "journal %s: another process has it open", j->path);
	return 0;
}

static bool load_log_range(struct journal *j)
{
	sqlite3_stmt *st = journal_statement(j, S_LOG_LAST);
	uint64_t first, last, n;
	int at = 0;

	if (!st || journal_row(j, st, "log") != 1)
		return false;
	first = sql_get_u64(st, &at);
	last = sql_get_u64(st, &at);
	n = sql_get_u64(st, &at);
	sqlite3_reset(st);
	j->state.last_index = n > 0 ? last : j->state.snap_index;
	return n == 0 || (first == j->state.snap_index + 1 && last - first + 1 == n);
}

static bool load_state(struct journal *j)
{
	struct journal_state *s = &j->state;
	uint64_t format = 0, node = 0, vote = 0, confirmed = 0, restored = 0;
	sqlite3_stmt *st = meta_find(j, "cluster");
	bool ok = st && sqlite3_column_bytes(st, 0) == (int)sizeof(s->cluster_id);

	if (ok)
		memcpy(s->cluster_id, sqlite3_column_blob(st, 0), sizeof(s->cluster_id));
	if (st)
		sqlite3_reset(st);
	ok = ok && meta_get_u64(j, "format", &format) && format == JOURNAL_FORMAT &&
	     meta_get_u64(j, "node", &node) && meta_get_u64(j, "instance", &s->instance) &&
	     meta_get_u64(j, "life", &s->life) && meta_get_u64(j, "arena_addr", &s->arena_addr) &&
	     meta_get_u64(j, "arena_len", &s->arena_len) && meta_get_u64(j, "term", &s->term) &&
	     meta_get_u64(j, "vote", &vote) && meta_get_u64(j, "confirmed", &confirmed) &&
	     meta_get_u64(j, "applied", &s->applied) &&
	     meta_get_u64(j, "applied_term", &s->applied_term) &&
	     meta_get_u64(j, "snap_index", &s->snap_index) &&
	     meta_get_u64(j, "snap_term", &s->snap_term) &&
	     meta_get_u64(j, "conf_index", &s->snap_conf_index);
	s->self = (ramp_node_t)node;
	s->vote = (ramp_node_t)vote;
	s->confirmed = confirmed != 0;
	s->restored = ok && meta_get_u64(j, "restored", &restored) && restored != 0;
	return ok && load_log_range(j);
}

int journal_open(const struct journal_config *config, struct journal **out, struct ramp_err *err)
{
	struct journal *j = calloc(1, sizeof(*j));
	int rc;

	if (!j)
		return ramp_err_set(err, ENOMEM, "journal: out of memory");
	j->lock_fd = -1;
	j->path = strdup(config->path);
	j->vfs = config->vfs ? strdup(config->vfs) : NULL;
	/* Until it is open, what is wrong comes back as an error. */
	j->config = (struct journal_config){.fatal = remember_failure, .arg = err};
	rc = j->path ? take_lock(j, err) : ramp_err_set(err, ENOMEM, "journal: out of memory");
	rc = rc ? rc : journal_connect(j->path, j->vfs, true, &j->db, err);
	rc = rc ? rc : make_durable(j, err);
	if (rc < 0)
		goto err_close;
	sqlite3_wal_hook(j->db, after_commit, NULL);
	if (prepare(j, S_META_GET) < 0 || !load_state(j)) {
		rc = j->dead ? -EIO
			     : ramp_err_set(err, EPROTO, "journal %s: is no journal of rampfs %s",
					    j->path, RAMPFS_VERSION);
		goto err_close;
	}
	rc = journal_begin(j, true);
	rc = rc ? rc : meta_put_u64(j, "life", j->state.life + 1);
	j->state.life++;
	rc = rc ? rc : journal_commit(j);
	if (rc < 0)
		goto err_close;
	j->config = *config;
	*out = j;
	return 0;
err_close:
	journal_close(j);
	return rc;
}

void journal_close(struct journal *j)
{
	size_t i;

	if (!j)
		return;
	for (i = 0; i < N_STATEMENTS; i++)
		sqlite3_finalize(j->stmt[i]);
	sqlite3_close(j->db); /* rolls back */
	if (j->lock_fd >= 0)
		close(j->lock_fd);
	free(j->path);
	free(j->vfs);
	free(j);
}

bool journal_dead(const struct journal *j)
{
	return j->dead;
}

void journal_state(const struct journal *j, struct journal_state *state)
{
	*state = j->state;
}

struct raft_data *journal_snap_conf(struct journal *j)
{
	sqlite3_stmt *st = meta_find(j, "conf");
	struct raft_data *d;

	if (!st)
		return NULL;
	d = raft_data_make(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0));
	sqlite3_reset(st);
	return d;
}

int journal_each_entry(struct journal *j,
		       int (*fn)(void *arg, uint64_t index, const struct raft_entry *e), void *arg)
{
	sqlite3_stmt *st = journal_statement(j, S_LOG_ALL);
	int rc = 0, more = st ? 1 : -EIO;

	while (more == 1 && rc == 0 && (more = journal_row(j, st, "log")) == 1) {
		struct raft_entry e = {.term = (uint64_t)sqlite3_column_int64(st, 1),
				       .type = (enum raft_entry_type)sqlite3_column_int(st, 2)};

		if (e.type != RAFT_NOOP)
			e.data = raft_data_make(sqlite3_column_blob(st, 3),
						(size_t)sqlite3_column_bytes(st, 3));
		rc = e.data || e.type == RAFT_NOOP
			     ? fn(arg, (uint64_t)sqlite3_column_int64(st, 0), &e)
			     : -ENOMEM;
		raft_data_unref(e.data);
	}
	if (st)
		sqlite3_reset(st);
	return more < 0 ? more : rc;
}

/* ---- a turn -------------------------------------------------------------------------------- */

/* A statement without parameters and rows. */
static int run(struct journal *j, enum statement s)
{
	sqlite3_stmt *st = journal_statement(j, s);

	return st ? journal_run(j, st, statement_text[s]) : -EIO;
}

int journal_begin(struct journal *j, bool durable)
{
	int rc = 0;

	if (durable != j->durable) /* can't be changed within a transaction */
		rc = run_text(j, durable ? "PRAGMA synchronous = FULL"
					 : "PRAGMA synchronous = NORMAL");
	if (rc < 0)
		return rc;
	j->durable = durable;
	j->in_turn = true;
	j->committed = j->state;
	return run(j, S_BEGIN);
}

int journal_commit(struct journal *j)
{
	int rc = run(j, S_COMMIT);

	if (rc == 0)
		j->in_turn = false;
	return rc;
}

void journal_rollback(struct journal *j)
{
	if (!j->in_turn)
		return;
	sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
	j->in_turn = false;
	j->state = j->committed;
}

int journal_put_hard_state(struct journal *j, uint64_t term, ramp_node_t vote, bool confirmed)
{
	int rc = meta_put_u64(j, "term", term);

	rc = rc ? rc : meta_put_u64(j, "vote", vote);
	rc = rc ? rc : meta_put_u64(j, "confirmed", confirmed);
	j->state.term = term;
	j->state.vote = vote;
	j->state.confirmed = confirmed;
	return rc;
}

int journal_put_restored(struct journal *j, uint64_t life)
{
	int rc = journal_put_hard_state(j, j->state.term, j->state.vote, false);

	rc = rc ? rc : meta_put_u64(j, "restored", 1);
	rc = rc ? rc : meta_put_u64(j, "life", life);
	j->state.restored = true;
	return rc;
}

int journal_truncate(struct journal *j, uint64_t from)
{
	sqlite3_stmt *st;
	int at = 1;

	if (from > j->state.last_index)
		return j->dead ? -EIO : 0;
	st = journal_statement(j, S_LOG_TRUNCATE);
	if (!st)
		return -EIO;
	sql_put_u64(st, &at, from);
	j->state.last_index = from - 1;
	return journal_run(j, st, "truncate the log");
}

int journal_append(struct journal *j, uint64_t index, const struct raft_entry *e)
{
	sqlite3_stmt *st = journal_statement(j, S_LOG_APPEND);
	int at = 1;

	if (!st)
		return -EIO;
	if (index != j->state.last_index + 1)
		return journal_fail(j, "an entry is not appended at the log's end");
	sql_put_u64(st, &at, index);
	sql_put_u64(st, &at, e->term);
	sql_put_u64(st, &at, (uint64_t)e->type);
	if (e->data)
		sql_put_blob(st, &at, e->data->bytes, e->data->len);
	j->state.last_index = index;
	return journal_run(j, st, "append to the log");
}

int journal_put_applied(struct journal *j, uint64_t index, uint64_t term)
{
	int rc = meta_put_u64(j, "applied", index);

	if (rc == 0 && term != j->state.applied_term)
		rc = meta_put_u64(j, "applied_term", term);
	j->state.applied = index;
	j->state.applied_term = term;
	return rc;
}

int journal_compact(struct journal *j, uint64_t index, uint64_t term, const struct raft_data *conf,
		    uint64_t conf_index)
{
	sqlite3_stmt *st = journal_statement(j, S_LOG_COMPACT);
	int at = 1, rc;

	if (!st)
		return -EIO;
	sql_put_u64(st, &at, index);
	rc = journal_run(j, st, "compact the log");
	rc = rc ? rc : meta_put_u64(j, "snap_index", index);
	rc = rc ? rc : meta_put_u64(j, "snap_term", term);
	rc = rc ? rc : put_conf(j, conf, conf_index);
	j->state.snap_index = index;
	j->state.snap_term = term;
	j->state.snap_conf_index = conf_index;
	if (j->state.last_index < index)
		j->state.last_index = index;
	return rc;
}
