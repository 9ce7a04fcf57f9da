/*
 * The journal's rows of segments, names of directories and extents. See journal_segments.h.
 */
#include "journal_segments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "journal.h"
#include "journal_keys.h"
#include "journal_rows.h"
#include "journal_sql.h"

/* ---- segments ------------------------------------------------------------------------------ */

int journal_get_segment(struct journal *j, ramp_segment_t id, struct segment_row *row)
{
	sqlite3_stmt *st = journal_find_row(j, S_SEGMENT_GET, id, 0);

	if (!st)
		return journal_missing(j);
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
	sql_put_u64(st, &at, segment_asked(row));
	sql_put_u64(st, &at, row->pages);
	sql_put_u64(st, &at, segment_ways(row));
	return journal_run(j, st, "write a segment");
}

/* Most changes leave the nodes as they are, and then no index has to be changed. */
int journal_put_segment(struct journal *j, const struct segment_row *row)
{
	int rc;

	journal_changes_row(j, row->id);
	rc = put_segment(j, S_SEGMENT_CHANGE, row);

	if (rc < 0 || journal_changes(j) > 0)
		return rc;
	return put_segment(j, S_SEGMENT_PUT, row);
}

int journal_delete_segment(struct journal *j, ramp_segment_t id)
{
	struct segment_row row = {0};
	int rc = journal_get_segment(j, id, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	journal_changes_row(j, id);
	if (row.extent_len != 0)
		rc = journal_free_extent(j, row.extent_addr);
	return rc ? rc : journal_write_row(j, S_SEGMENT_DELETE, id, 0, 0);
}

int journal_next_segment_id(struct journal *j, ramp_segment_t *id)
{
	return journal_next_count(j, "segment", RAMP_SEGMENT_ID_MIN, id);
}

int journal_segment_was(struct journal *j, ramp_segment_t id)
{
	sqlite3_stmt *st = journal_find_row(j, S_SEGMENT_WAS, id, 0);
	int was;

	if (!st)
		return -EIO;
	was = id >= RAMP_SEGMENT_ID_MIN && sqlite3_column_int(st, 0) != 0;
	sqlite3_reset(st);
	return was;
}

int journal_end_generation(struct journal *j)
{
	char key[32];
	uint64_t next;
	int rc = journal_read_count(j, "segment", RAMP_SEGMENT_ID_MIN, &next);

	if (rc < 0)
		return rc;
	snprintf(key, sizeof(key), "segment %" PRIu64, next >> 32);
	rc = journal_put_count(j, key, next);
	return rc ? rc : journal_put_count(j, "segment", ((next >> 32) + 1) << 32);
}

int journal_note_recovered(struct journal *j, ramp_segment_t id)
{
	char key[40];

	snprintf(key, sizeof(key), "recovered %" PRIu64, id);
	return journal_put_count(j, key, 1);
}

int journal_find_orphan(struct journal *j, ramp_node_t node, ramp_incarnation_t inc,
			ramp_segment_t *id)
{
	sqlite3_stmt *st = journal_find_row(j, S_SEGMENT_ORPHAN, node, inc);

	if (!st)
		return journal_missing(j);
	*id = (ramp_segment_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_node_used(struct journal *j, ramp_node_t node)
{
	sqlite3_stmt *st = journal_find_row(j, S_SEGMENT_USES, node, 0);
	int used;

	if (!st)
		return -EIO;
	used = sqlite3_column_int(st, 0) != 0;
	sqlite3_reset(st);
	return used;
}

int journal_arena_use(struct journal *j, uint32_t uid, uint64_t *bytes)
{
	sqlite3_stmt *st = journal_find_row(j, S_SEGMENT_USE, uid, 0);

	if (!st)
		return -EIO;
	*bytes = (uint64_t)sqlite3_column_int64(st, 0); /* of none: NULL, which is 0 */
	sqlite3_reset(st);
	return 0;
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
 * Finds the first free place of len at or after `from`. Extents are powers of two aligned to their
 * length. So an extent that begins below `from` (itself aligned to len) reaches past it only if it
 * covers the whole place, and then it begins at `from` aligned down to a greater length.
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

int journal_free_extent(struct journal *j, uint64_t addr)
{
	int rc = journal_write_row(j, S_EXTENT_DELETE, addr, 0, 0);

	return rc ? rc : journal_write_row(j, S_HINT_LOWER, addr, 0, 0);
}

int journal_find_extent(struct journal *j, uint64_t len, uint64_t *addr)
{
	struct journal_state state;
	uint64_t end, first, from;
	sqlite3_stmt *st;
	int rc;

	journal_state(j, &state);
	end = state.arena_addr + state.arena_len;
	first = from = align_up(state.arena_addr, len);
	if (len > state.arena_len)
		return journal_dead(j) ? -EIO : -ENOSPC;
	st = journal_find_row(j, S_HINT_GET, len, 0);
	if (st) {
		from = (uint64_t)sqlite3_column_int64(st, 0);
		sqlite3_reset(st);
	} else if (journal_dead(j)) {
		return -EIO;
	}
	/* The hint was lowered to a freed address aligned down to len: perhaps below the arena. */
	rc = first_fit(j, from > first ? from : first, len, addr);
	if (rc < 0)
		return rc;
	return *addr > end - len ? -ENOSPC : 0;
}

int journal_put_extent(struct journal *j, ramp_segment_t id, uint64_t addr, uint64_t len)
{
	int rc = journal_write_row(j, S_EXTENT_PUT, addr, len, id);

	return rc ? rc : journal_write_row(j, S_HINT_PUT, len, addr + len, 0);
}
