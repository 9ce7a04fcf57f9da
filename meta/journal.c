/*
 * The journal's file, Raft's hard state and log, and turns. See journal.h.
 *
 * The happy path: journal_open takes the lock, opens the file, makes durable what it finds, brings
 * it up to this program's format, and counts this life. Then come turns: BEGIN, some statements, each prepared at its first use,
 * COMMIT, and now and then a checkpoint.
 *
 * How it fails: a failure while it is being opened is returned as an error. Once it is open, any
 * error of the writer is final (journal_fail).
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

#include "journal_format.h"
#include "journal_impl.h"
#include "journal_keys.h"
#include "journal_sql.h"

#define CHECKPOINT_FRAMES 1000 /* of the WAL; SQLite's default */

/* ---- checkpoints --------------------------------------------------------------------------- */

/*
 * Makes a checkpoint after a commit, once the WAL is long.
 *
 * The kernel reports a failed sync once, and then takes the pages for written: a later sync
 * succeeds, and behind the hole that the failed one leaves in the WAL nothing is found again. So a
 * failed sync must be fatal wherever it happens. SQLite's own hook ignores the result of its
 * checkpoint, which begins with a sync of the pages that turns which were not durable have written.
 *
 * Where the database can't grow, or a reader is in the way, the WAL stays as it is and nothing is
 * lost; the next turn tries again.
 */
static int checkpoint_if_due(void *arg, sqlite3 *db, const char *name, int frames)
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

/* Writes all of the WAL into the database again. The process before this one may have died of such
   a sync: what is read now may be in the kernel's memory alone, and would be taken for durable. */
static int make_durable(struct journal *j, struct ramp_err *err)
{
	int rc = sqlite3_wal_checkpoint_v2(j->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);

	if (rc == SQLITE_OK)
		return 0;
	return ramp_err_set(err, rc == SQLITE_BUSY ? EBUSY : EIO,
			    "journal %s: its contents can't be made durable: %s", j->path,
			    sql_why(j->db, rc));
}

/* ---- opening ------------------------------------------------------------------------------- */

static int take_lock(struct journal *j, struct ramp_err *err)
{
	char name[4096];

	/* SQLite's own locks are for connections; this one is for processes. A VFS of a test locks
	   its own files. */
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
	uint64_t node = 0, vote = 0, confirmed = 0, restored = 0;
	sqlite3_stmt *st = journal_find_key(j, "cluster");
	bool ok = st && sqlite3_column_bytes(st, 0) == (int)sizeof(s->cluster_id);

	if (ok)
		memcpy(s->cluster_id, sqlite3_column_blob(st, 0), sizeof(s->cluster_id));
	if (st)
		sqlite3_reset(st);
	ok = ok && journal_get_key_u64(j, "node", &node) &&
	     journal_get_key_u64(j, "instance", &s->instance) &&
	     journal_get_key_u64(j, "life", &s->life) &&
	     journal_get_key_u64(j, "arena_addr", &s->arena_addr) &&
	     journal_get_key_u64(j, "arena_len", &s->arena_len) &&
	     journal_get_key_u64(j, "term", &s->term) && journal_get_key_u64(j, "vote", &vote) &&
	     journal_get_key_u64(j, "confirmed", &confirmed) &&
	     journal_get_key_u64(j, "applied", &s->applied) &&
	     journal_get_key_u64(j, "applied_term", &s->applied_term) &&
	     journal_get_key_u64(j, "snap_index", &s->snap_index) &&
	     journal_get_key_u64(j, "snap_term", &s->snap_term) &&
	     journal_get_key_u64(j, "conf_index", &s->snap_conf_index);
	s->self = (ramp_node_t)node;
	s->vote = (ramp_node_t)vote;
	s->confirmed = confirmed != 0;
	s->restored = ok && journal_get_key_u64(j, "restored", &restored) && restored != 0;
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
	/* Until it is open, a failure is returned as an error. */
	j->config = (struct journal_config){.fatal = journal_remember_failure, .arg = err};
	rc = j->path ? take_lock(j, err) : ramp_err_set(err, ENOMEM, "journal: out of memory");
	rc = rc ? rc : journal_connect(j->path, j->vfs, true, &j->db, err);
	rc = rc ? rc : make_durable(j, err);
	if (rc < 0)
		goto err_close;
	sqlite3_wal_hook(j->db, checkpoint_if_due, NULL);
	rc = journal_check_format(j, err);
	if (rc == 0 && !load_state(j))
		rc = journal_is_none(j, err);
	if (rc < 0)
		goto err_close;
	rc = journal_begin(j, true);
	rc = rc ? rc : journal_bring_up(j);
	rc = rc ? rc : journal_put_key_u64(j, "life", j->state.life + 1);
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

void journal_state(const struct journal *j, struct journal_state *state)
{
	*state = j->state;
}

struct raft_data *journal_snap_conf(struct journal *j)
{
	sqlite3_stmt *st = journal_find_key(j, "conf");
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

int journal_begin(struct journal *j, bool durable)
{
	int rc = 0;

	if (durable != j->durable) /* can't be changed within a transaction */
		rc = journal_run_text(j, durable ? "PRAGMA synchronous = FULL"
						 : "PRAGMA synchronous = NORMAL");
	if (rc < 0)
		return rc;
	j->durable = durable;
	j->in_turn = true;
	j->committed = j->state;
	return journal_run_plain(j, S_BEGIN);
}

int journal_commit(struct journal *j)
{
	int rc = journal_run_plain(j, S_COMMIT);

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
	int rc = journal_put_key_u64(j, "term", term);

	rc = rc ? rc : journal_put_key_u64(j, "vote", vote);
	rc = rc ? rc : journal_put_key_u64(j, "confirmed", confirmed);
	j->state.term = term;
	j->state.vote = vote;
	j->state.confirmed = confirmed;
	return rc;
}

int journal_put_restored(struct journal *j, uint64_t life)
{
	int rc = journal_put_hard_state(j, j->state.term, j->state.vote, false);

	rc = rc ? rc : journal_put_key_u64(j, "restored", 1);
	rc = rc ? rc : journal_put_key_u64(j, "life", life);
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
	int rc = journal_put_key_u64(j, "applied", index);

	if (rc == 0 && term != j->state.applied_term)
		rc = journal_put_key_u64(j, "applied_term", term);
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
	rc = rc ? rc : journal_put_key_u64(j, "snap_index", index);
	rc = rc ? rc : journal_put_key_u64(j, "snap_term", term);
	rc = rc ? rc : journal_put_conf(j, conf, conf_index);
	j->state.snap_index = index;
	j->state.snap_term = term;
	j->state.snap_conf_index = conf_index;
	if (j->state.last_index < index)
		j->state.last_index = index;
	return rc;
}
