/*
 * The making of a journal: its tables, and the founding members. See journal_create.h.
 */
#include "journal_create.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"
#include "journal_format.h"
#include "journal_impl.h"
#include "journal_keys.h"
#include "journal_nodes.h"
#include "journal_sql.h"
#include "journal_tables.h"

static const char *const private_tables =
	"CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID;"
	"CREATE TABLE log (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, type INTEGER NOT NULL, "
	"data BLOB);"
	"CREATE INDEX log_conf ON log (idx) WHERE type = 3;"; /* RAFT_CONF */

static int write_members(struct journal *j, const struct meta_founding *f)
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
	rc = rc ? rc : journal_put_conf(j, data, 1);
	raft_data_unref(data);
	return rc;
}

/* Writes the first rows. Founders begin as if a first entry of term 1 had made these tables, so
   that a node that joins later with none of the log (index 0) is sent a snapshot. */
static int write_founding(struct journal *j, const struct meta_founding *f)
{
	size_t i;
	bool founder = f->n_nodes > 0 && !f->joins;
	int rc = journal_put_key_u64(j, "format", JOURNAL_FORMAT);

	rc = rc ? rc : journal_put_key_blob(j, "cluster", f->cluster_id, sizeof(f->cluster_id));
	rc = rc ? rc : journal_put_key_u64(j, "node", f->self);
	rc = rc ? rc : journal_put_key_u64(j, "instance", f->instance);
	rc = rc ? rc : journal_put_key_u64(j, "life", f->life);
	rc = rc ? rc : journal_put_key_u64(j, "arena_addr", f->arena_addr);
	rc = rc ? rc : journal_put_key_u64(j, "arena_len", f->arena_len);
	rc = rc ? rc : journal_put_hard_state(j, founder, 0, false);
	rc = rc ? rc : journal_put_key_u64(j, "applied", founder);
	rc = rc ? rc : journal_put_key_u64(j, "applied_term", founder);
	rc = rc ? rc : journal_put_key_u64(j, "snap_index", founder);
	rc = rc ? rc : journal_put_key_u64(j, "snap_term", founder);
	rc = rc ? rc : journal_put_key_u64(j, "conf_index", 0);
	if (rc == 0 && founder)
		rc = write_members(j, f);
	if (rc == 0 && founder && f->arena_user_max != META_DEFAULT)
		rc = journal_put_count(j, ARENA_USER_MAX_KEY, f->arena_user_max);
	for (i = 0; rc == 0 && !founder && i < f->n_nodes; i++)
		rc = journal_put_node(j, &f->nodes[i]);
	return rc;
}

/* Prepares every statement: one that does not fit the tables is found here, not at its first
   use. */
static int prepare_all(struct journal *j)
{
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < N_STATEMENTS; i++)
		rc = journal_prepare(j, (enum statement)i);
	return rc;
}

static int make_tables(struct journal *j)
{
	size_t i;
	int rc = journal_run_text(j, private_tables);

	for (i = 0; rc == 0 && i < journal_n_tables; i++)
		rc = journal_run_text(j, journal_tables[i].create);
	return rc;
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
	struct journal j = {.lock_fd = -1,
			    .config = {.fatal = journal_remember_failure, .arg = err}};
	int there = 0, rc = check_founding(founding, err);

	if (rc < 0)
		return rc;
	if (!vfs || vfs->xAccess(vfs, path, SQLITE_ACCESS_EXISTS, &there) != SQLITE_OK)
		return ramp_err_set(err, EIO, "journal %s: can't be reached", path);
	if (there)
		return ramp_err_set(err, EEXIST, "journal %s: exists already", path);
	if (sqlite3_open_v2(path, &j.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs_name) !=
	    SQLITE_OK) {
		rc = ramp_err_set(err, EIO, "journal %s: %s", path, sqlite3_errmsg(j.db));
		goto out_close;
	}
	j.path = strdup(path);
	rc = j.path ? 0 : ramp_err_set(err, ENOMEM, "journal %s: out of memory", path);
	rc = rc ? rc
		: journal_run_text(&j,
				   "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN");
	rc = rc ? rc : make_tables(&j);
	rc = rc ? rc : prepare_all(&j);
	j.in_turn = true;
	rc = rc ? rc : write_founding(&j, founding);
	rc = rc ? rc : journal_run_text(&j, "COMMIT");
out_close:
	for (size_t i = 0; i < N_STATEMENTS; i++)
		sqlite3_finalize(j.stmt[i]);
	sqlite3_close(j.db);
	if (rc < 0)
		vfs->xDelete(vfs, path, 1);
	free(j.path);
	return rc;
}
