/*
 * The journal's results of commands and floors of proposals. See journal_results.h.
 */
#include "journal_results.h"

#include <errno.h>

#include "command.h"
#include "journal.h"
#include "journal_sql.h"

#define CLIENTS_KEPT	 256 /* of more, the least recently used go, with their results */
#define EVICTED_TOGETHER 32  /* results of a client: each time all of its results are scanned */

int journal_get_result(struct journal *j, struct meta_command_id cid, struct meta_reply *reply)
{
	sqlite3_stmt *st = journal_find_row(j, S_RESULT_GET, cid.client, cid.unique);
	int rc;

	if (!st)
		return journal_missing(j);
	rc = command_reply_decode(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0),
				  reply);
	sqlite3_reset(st);
	return rc < 0 ? journal_fail(j, "a result can't be read") : 0;
}

/* Makes room for a new client: of too many, the least recently used one goes. */
static int new_client(struct journal *j)
{
	sqlite3_stmt *st = journal_find_row(j, S_CLIENT_COUNT, 0, 0);
	uint64_t client;
	int n, rc;

	if (!st)
		return -EIO;
	n = sqlite3_column_int(st, 0);
	sqlite3_reset(st);
	if (n < CLIENTS_KEPT)
		return 0;
	st = journal_find_row(j, S_CLIENT_OLDEST, 0, 0);
	if (!st)
		return -EIO;
	client = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	rc = journal_write_row(j, S_RESULT_DROP, client, 0, 0);
	return rc ? rc : journal_write_row(j, S_CLIENT_DELETE, client, 0, 0);
}

int journal_put_result(struct journal *j, struct meta_command_id cid,
		       const struct meta_reply *reply, uint64_t index)
{
	uint8_t bytes[META_REPLY_BYTES];
	size_t len = command_reply_encode(reply, bytes, sizeof(bytes));
	sqlite3_stmt *st = journal_find_row(j, S_CLIENT_GET, cid.client, 0);
	uint64_t place = 1;
	int at = 1, rc;

	if (st) {
		place = (uint64_t)sqlite3_column_int64(st, 0) + 1;
		sqlite3_reset(st);
	} else {
		rc = journal_dead(j) ? -EIO : new_client(j);
		if (rc < 0)
			return rc;
	}
	rc = journal_write_row(j, S_CLIENT_PUT, cid.client, place, index);
	if (rc == 0 && place > META_RESULTS_KEPT && place % EVICTED_TOGETHER == 0)
		rc = journal_write_row(j, S_RESULT_EVICT, cid.client, place - META_RESULTS_KEPT, 0);
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
	sqlite3_stmt *st = journal_find_row(j, S_FLOOR_GET, node, 0);
	int at = 0;

	*life = *lowest = 0;
	if (!st)
		return journal_dead(j) ? -EIO : 0;
	*life = sql_get_u64(st, &at);
	*lowest = sql_get_u64(st, &at);
	sqlite3_reset(st);
	return 0;
}

int journal_put_floor(struct journal *j, ramp_node_t node, uint64_t life, uint64_t lowest)
{
	return journal_write_row(j, S_FLOOR_PUT, node, life, lowest);
}
