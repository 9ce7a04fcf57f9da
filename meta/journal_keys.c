/*
 * Values in the journal under a name of their own. See journal_keys.h.
 */
#include "journal_keys.h"

#include <errno.h>

#include "journal_sql.h"

/* ---- the table meta -------------------------------------------------------------------------- */

int journal_put_key_u64(struct journal *j, const char *key, uint64_t v)
{
	sqlite3_stmt *st = journal_statement(j, S_META_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_u64(st, &at, v);
	return journal_run(j, st, key);
}

int journal_put_key_blob(struct journal *j, const char *key, const void *bytes, size_t len)
{
	sqlite3_stmt *st = journal_statement(j, S_META_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_blob(st, &at, bytes, len);
	return journal_run(j, st, key);
}

int journal_delete_key(struct journal *j, const char *key)
{
	sqlite3_stmt *st = journal_statement(j, S_META_DELETE);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	return journal_run(j, st, key);
}

sqlite3_stmt *journal_find_key(struct journal *j, const char *key)
{
	sqlite3_stmt *st = journal_statement(j, S_META_GET);
	int at = 1;

	if (!st)
		return NULL;
	sql_put_text(st, &at, key);
	return journal_row(j, st, key) == 1 ? st : NULL;
}

bool journal_get_key_u64(struct journal *j, const char *key, uint64_t *v)
{
	sqlite3_stmt *st = journal_find_key(j, key);

	if (!st)
		return false;
	*v = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	return true;
}

int journal_put_conf(struct journal *j, const struct raft_data *conf, uint64_t conf_index)
{
	int rc = journal_put_key_u64(j, "conf_index", conf_index);

	if (rc == 0 && conf)
		rc = journal_put_key_blob(j, "conf", conf->bytes, conf->len);
	return rc;
}

/* ---- the table counter ----------------------------------------------------------------------- */

int journal_read_count(struct journal *j, const char *key, uint64_t first, uint64_t *value)
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

int journal_put_count(struct journal *j, const char *key, uint64_t value)
{
	sqlite3_stmt *st = journal_statement(j, S_COUNTER_PUT);
	int at = 1;

	if (!st)
		return -EIO;
	sql_put_text(st, &at, key);
	sql_put_u64(st, &at, value);
	return journal_run(j, st, key);
}

int journal_next_count(struct journal *j, const char *key, uint64_t first, uint64_t *value)
{
	int rc = journal_read_count(j, key, first, value);

	return rc < 0 ? rc : journal_put_count(j, key, *value + 1);
}
