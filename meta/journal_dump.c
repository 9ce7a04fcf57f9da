/*
 * The journal's snapshots. See journal_dump.h.
 *
 * The stream is a sequence of frames {u32 number, u32 CRC32C of the payload, blob payload}; a
 * payload is rows, each {u8 table + 1, values}, a value is {u8 kind, u64 or blob}. Rows are never
 * split, a frame is closed when it is past FRAME_BYTES, and the last frame is empty. Rows come in
 * the order of their keys, so that the same tables give the same bytes on every node: a transfer
 * may be continued from another dump of the same index.
 *
 * How it fails: an error of a dump's own connection is returned to the caller. Restoring is done by
 * the writer and fails as the journal does. A dump that doesn't decode is refused before anything
 * is written (journal_dump_valid).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "journal_dump.h"
#include "journal_impl.h"
#include "journal_sql.h"
#include "journal_tables.h"

#define FRAME_BYTES (48u << 10)
#define ROW_BYTES   (8u << 10) /* no row is longer */
#define FRAME_HEAD  12

enum value { VALUE_INT = 1, VALUE_TEXT, VALUE_BLOB };

struct journal_dump {
	sqlite3 *db;
	bool own_db;	  /* false: the writer's, for journal_tables_sum */
	sqlite3_stmt *st; /* of tables[table] */
	size_t table;	  /* journal_n_tables: all rows were given */
	uint64_t index, term;
	uint32_t number; /* of the next frame */
	uint64_t offset; /* of the frame in buf */
	size_t len;	 /* of the frame in buf; 0: none yet */
	bool done;	 /* the frame in buf is the last */
	uint8_t buf[FRAME_HEAD + FRAME_BYTES + ROW_BYTES];
};

/* ---- dumping
   ----------------------------------------------------------------------------------- */

static void put_row(struct wire_w *w, sqlite3_stmt *st, size_t table)
{
	int i;

	wire_put_u8(w, (uint8_t)(table + 1));
	for (i = 0; i < journal_tables[table].columns; i++) {
		switch (sqlite3_column_type(st, i)) {
		case SQLITE_INTEGER:
			wire_put_u8(w, VALUE_INT);
			wire_put_u64(w, (uint64_t)sqlite3_column_int64(st, i));
			break;
		case SQLITE_TEXT:
			wire_put_u8(w, VALUE_TEXT);
			wire_put_blob(w, sqlite3_column_text(st, i),
				      (size_t)sqlite3_column_bytes(st, i));
			break;
		default:
			wire_put_u8(w, VALUE_BLOB);
			wire_put_blob(w, sqlite3_column_blob(st, i),
				      (size_t)sqlite3_column_bytes(st, i));
			break;
		}
	}
}

/* Steps to the next row of any table. Returns 1, 0 at the end, or -EIO. */
static int next_row(struct journal_dump *d)
{
	for (; d->table < journal_n_tables; d->table++) {
		if (!d->st && sqlite3_prepare_v2(d->db, journal_tables[d->table].dump, -1, &d->st,
						 NULL) != SQLITE_OK)
			return -EIO;
		switch (sqlite3_step(d->st)) {
		case SQLITE_ROW:
			return 1;
		case SQLITE_DONE:
			sqlite3_finalize(d->st);
			d->st = NULL;
			break;
		default:
			return -EIO;
		}
	}
	return 0;
}

/* Makes the next frame in buf. */
static int next_frame(struct journal_dump *d)
{
	struct wire_w payload, head;
	int more = 1;

	wire_w_init(&payload, d->buf + FRAME_HEAD, sizeof(d->buf) - FRAME_HEAD);
	while (payload.len < FRAME_BYTES && (more = next_row(d)) == 1)
		put_row(&payload, d->st, d->table);
	if (more < 0 || payload.bad)
		return -EIO;
	d->offset += d->len;
	wire_w_init(&head, d->buf, FRAME_HEAD);
	wire_put_u32(&head, d->number++);
	wire_put_u32(&head, wire_crc32c(d->buf + FRAME_HEAD, payload.len));
	wire_put_u32(&head, (uint32_t)payload.len);
	d->len = FRAME_HEAD + payload.len;
	d->done = payload.len == 0;
	return 0;
}

static int begin_read(struct journal_dump *d, const char *path, const char *vfs,
		      struct ramp_err *err)
{
	sqlite3_stmt *st = NULL;
	int rc = journal_connect(path, vfs, false, &d->db, err);

	if (rc < 0)
		return rc;
	d->own_db = true;
	/* The first read fixes the state that the transaction sees. */
	if (sqlite3_exec(d->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(d->db,
			       "SELECT (SELECT v FROM meta WHERE k = 'applied'), "
			       "(SELECT v FROM meta WHERE k = 'applied_term')",
			       -1, &st, NULL) != SQLITE_OK ||
	    sqlite3_step(st) != SQLITE_ROW) {
		rc = ramp_err_set(err, EIO, "journal %s: dump: %s", path, sqlite3_errmsg(d->db));
	} else {
		d->index = (uint64_t)sqlite3_column_int64(st, 0);
		d->term = (uint64_t)sqlite3_column_int64(st, 1);
	}
	sqlite3_finalize(st);
	return rc;
}

int journal_dump_open(struct journal *j, struct journal_dump **out, struct ramp_err *err)
{
	struct journal_dump *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return ramp_err_set(err, ENOMEM, "journal: out of memory");
	rc = begin_read(d, j->path, j->vfs, err);
	if (rc < 0) {
		journal_dump_close(d);
		return rc;
	}
	*out = d;
	return 0;
}

void journal_dump_close(struct journal_dump *d)
{
	if (!d)
		return;
	sqlite3_finalize(d->st);
	if (d->own_db)
		sqlite3_close(d->db);
	free(d);
}

uint64_t journal_dump_index(const struct journal_dump *d)
{
	return d->index;
}

uint64_t journal_dump_term(const struct journal_dump *d)
{
	return d->term;
}

int journal_dump_read(struct journal_dump *d, uint64_t offset, const uint8_t **bytes, size_t *len,
		      bool *done)
{
	int rc = 0;

	if (d->len == 0)
		rc = next_frame(d);
	while (rc == 0 && d->offset < offset && !d->done)
		rc = next_frame(d);
	if (rc < 0)
		return rc;
	if (d->offset != offset)
		return -ESTALE;
	*bytes = d->buf;
	*len = d->len;
	*done = d->done;
	return 0;
}

int journal_tables_sum(struct journal *j, uint64_t *sum)
{
	struct journal_dump *d = calloc(1, sizeof(*d));
	uint64_t h = UINT64_C(0xcbf29ce484222325), word;
	size_t i;
	int rc = 0;

	if (!d)
		return -ENOMEM;
	d->db = j->db;
	while (rc == 0 && !d->done) {
		rc = next_frame(d);
		for (i = 0; rc == 0 && i < d->len; i += sizeof(word)) {
			word = 0;
			memcpy(&word, d->buf + i,
			       d->len - i < sizeof(word) ? d->len - i : sizeof(word));
			h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
			h ^= h >> 32;
		}
	}
	journal_dump_close(d);
	*sum = h;
	return rc;
}

/* ---- restoring
   ------------------------------------------------------------------------------------ */

/* Reads one value, and binds it where st is not NULL. Returns false where there is none. */
static bool take_value(struct wire_r *r, sqlite3_stmt *st, int *at)
{
	uint8_t kind = wire_get_u8(r);
	const uint8_t *bytes;
	uint64_t v;
	size_t len;

	if (kind == VALUE_INT) {
		v = wire_get_u64(r);
		if (st)
			sql_put_u64(st, at, v);
		return !r->bad;
	}
	if (kind != VALUE_TEXT && kind != VALUE_BLOB)
		return false;
	bytes = wire_get_view(r, &len);
	if (r->bad || len > ROW_BYTES)
		return false;
	if (st && kind == VALUE_TEXT)
		sqlite3_bind_text64(st, (*at)++, len ? (const char *)bytes : "", len, SQLITE_STATIC,
				    SQLITE_UTF8);
	else if (st)
		sql_put_blob(st, at, bytes, len);
	return true;
}

/* Reads one row, and writes it where insert (a statement for each table) is not NULL. Returns false
   where there is none, or it can't be written. */
static bool take_row(struct wire_r *r, sqlite3_stmt **insert)
{
	size_t table = (size_t)wire_get_u8(r) - 1;
	sqlite3_stmt *st = NULL;
	int i, at = 1;

	if (r->bad || table >= journal_n_tables)
		return false;
	if (insert) {
		st = insert[table];
		sqlite3_reset(st);
	}
	for (i = 0; i < journal_tables[table].columns; i++)
		if (!take_value(r, st, &at))
			return false;
	return !st || sqlite3_step(st) == SQLITE_DONE;
}

static bool take_dump(const void *bytes, size_t len, sqlite3_stmt **insert)
{
	uint32_t number = 0, crc;
	struct wire_r r, rows;
	const uint8_t *payload;
	size_t n;

	wire_r_init(&r, bytes, len);
	do {
		if (wire_get_u32(&r) != number++)
			return false;
		crc = wire_get_u32(&r);
		payload = wire_get_view(&r, &n);
		if (r.bad || crc != wire_crc32c(payload, n))
			return false;
		wire_r_init(&rows, payload, n);
		while (rows.pos < rows.len)
			if (!take_row(&rows, insert))
				return false;
	} while (n > 0);
	return wire_r_done(&r);
}

bool journal_dump_valid(const void *bytes, size_t len)
{
	return take_dump(bytes, len, NULL);
}

static int clear_tables(struct journal *j)
{
	size_t i;

	for (i = 0; i < journal_n_tables; i++)
		if (sqlite3_exec(j->db, journal_tables[i].clear, NULL, NULL, NULL) != SQLITE_OK)
			return journal_fail(j, journal_tables[i].clear);
	return 0;
}

int journal_restore(struct journal *j, const void *bytes, size_t len, uint64_t index, uint64_t term,
		    const struct raft_data *conf, uint64_t conf_index)
{
	sqlite3_stmt **insert = calloc(journal_n_tables, sizeof(sqlite3_stmt *));
	size_t i;
	int rc = insert ? 0 : journal_fail(j, "out of memory");

	if (!j->in_turn || j->dead)
		rc = -EIO;
	for (i = 0; rc == 0 && i < journal_n_tables; i++)
		if (sqlite3_prepare_v2(j->db, journal_tables[i].insert, -1, &insert[i], NULL) !=
		    SQLITE_OK)
			rc = journal_fail(j, journal_tables[i].insert);
	journal_changes_row(j, 0);
	rc = rc ? rc : clear_tables(j);
	if (rc == 0 && !take_dump(bytes, len, insert))
		rc = journal_fail(j, "a snapshot can't be restored");
	for (i = 0; insert && i < journal_n_tables; i++)
		sqlite3_finalize(insert[i]);
	free(insert);
	rc = rc ? rc : journal_truncate(j, 1);
	rc = rc ? rc : journal_put_applied(j, index, term);
	return rc ? rc : journal_compact(j, index, term, conf, conf_index);
}
