/*
 * The journal's part in a recovery. See journal_recovery.h.
 */
#include "journal_recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "journal.h"
#include "journal_impl.h"
#include "journal_keys.h"
#include "journal_rows.h"
#include "journal_tables.h"

#define CERTIFICATE_KEY "certificate"

int journal_put_cluster(struct journal *j, const uint8_t id[32], const void *certificate,
			size_t len)
{
	int rc = journal_put_key_blob(j, "cluster", id, sizeof(j->state.cluster_id));

	memcpy(j->state.cluster_id, id, sizeof(j->state.cluster_id));
	return rc ? rc : journal_put_key_blob(j, CERTIFICATE_KEY, certificate, len);
}

int journal_forget(struct journal *j)
{
	size_t i;
	int rc = journal_truncate(j, 1);

	for (i = 0; rc == 0 && i < journal_n_tables; i++)
		rc = journal_run_text(j, journal_tables[i].clear);
	rc = rc ? rc : journal_put_hard_state(j, 0, 0, false);
	rc = rc ? rc : journal_put_applied(j, 0, 0);
	rc = rc ? rc : journal_compact(j, 0, 0, NULL, 0);
	rc = rc ? rc : journal_delete_key(j, "conf");
	rc = rc ? rc : journal_delete_key(j, "restored");
	j->state.restored = false;
	j->state.last_index = 0;
	return rc;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void address_key(ramp_node_t node, char key[32])
{
	snprintf(key, 32, ADDRESS_KEY "%u", node);
}

int journal_put_address(struct journal *j, const struct node_row *row, const char *address)
{
	char key[32], text[2 * (RAMP_ADDRESS_MAX + 1)];

	address_key(row->node, key);
	snprintf(text, sizeof(text), "%s %s", row->address, address);
	return journal_put_key_blob(j, key, text, strlen(text));
}

int journal_settle_address(struct journal *j, const struct node_row *row)
{
	char key[32], text[2 * (RAMP_ADDRESS_MAX + 1)];
	size_t len = strlen(row->address);
	sqlite3_stmt *st;
	int at = 0;

	address_key(row->node, key);
	st = journal_find_key(j, key);
	if (!st)
		return journal_dead(j) ? -EIO : 0;
	sql_get_text(st, &at, text, sizeof(text));
	sqlite3_reset(st);
	if (strncmp(text, row->address, len) == 0 && text[len] == ' ')
		return 0;
	return journal_delete_key(j, key);
}

/* ---- reading --------------------------------------------------------------------------------- */

int journal_walk_segments(struct journal *j, int (*fn)(void *arg, const struct segment_row *row),
			  void *arg)
{
	sqlite3_stmt *st = NULL;
	struct segment_row row;
	int rc = 0, more;

	if (sqlite3_prepare_v2(j->db, "SELECT " SEGMENT_COLUMNS " FROM segment ORDER BY id", -1,
			       &st, NULL) != SQLITE_OK)
		return journal_fail(j, "read the segments");
	while (rc == 0 && (more = sqlite3_step(st)) == SQLITE_ROW) {
		sql_get_segment(st, &row);
		rc = fn(arg, &row);
	}
	if (rc == 0 && more != SQLITE_DONE)
		rc = journal_fail(j, "read the segments");
	sqlite3_finalize(st);
	return rc;
}

int journal_get_certificate(struct journal *j, char **text)
{
	sqlite3_stmt *st = journal_find_key(j, CERTIFICATE_KEY);

	if (!st)
		return journal_dead(j) ? -EIO : -ENOENT;
	*text = strndup(sqlite3_column_bytes(st, 0) ? (const char *)sqlite3_column_blob(st, 0) : "",
			(size_t)sqlite3_column_bytes(st, 0));
	sqlite3_reset(st);
	return *text ? 0 : -ENOMEM;
}

/* ---- a copy ---------------------------------------------------------------------------------- */

/* Makes a file and its name durable. */
static int sync_named(const char *path)
{
	char copy[PATH_MAX];
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	snprintf(copy, sizeof(copy), "%s", path);
	fd = rc ? -1 : open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0 && (fd < 0 || fsync(fd) < 0))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

int journal_copy_to(struct journal *j, const char *path, struct ramp_err *err)
{
	char made[PATH_MAX];
	sqlite3_stmt *st = NULL;
	int at = 1, rc = 0;

	if (snprintf(made, sizeof(made), "%s.new", path) >= (int)sizeof(made))
		return ramp_err_sys(err, ENAMETOOLONG, "%s", path);
	unlink(made); /* of an earlier try */
	if (sqlite3_prepare_v2(j->db, "VACUUM INTO ?", -1, &st, NULL) == SQLITE_OK) {
		sql_put_text(st, &at, made);
		rc = sqlite3_step(st) == SQLITE_DONE ? 0 : -EIO;
	} else {
		rc = -EIO;
	}
	if (rc < 0)
		ramp_err_set(err, EIO, "%s: %s", made, sqlite3_errmsg(j->db));
	sqlite3_finalize(st);
	if (rc == 0 && rename(made, path) < 0)
		rc = ramp_err_sys(err, errno, "%s", path);
	if (rc == 0 && (rc = sync_named(path)) < 0)
		ramp_err_sys(err, -rc, "%s", path);
	if (rc < 0)
		unlink(made);
	return rc;
}
