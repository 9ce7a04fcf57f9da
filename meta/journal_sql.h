/*
 * SQLite in short, for the files of the journal: connections, the writer's statements, parameters
 * and columns. Only journal*.c include it, so that nothing else knows SQLite.
 */
#ifndef RAMP_META_JOURNAL_SQL_H
#define RAMP_META_JOURNAL_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct journal;

/* Every statement of the writer; the texts are in journal_sql.c, in the same order. */
enum statement {
	S_BEGIN,
	S_COMMIT,
	S_META_GET,
	S_META_PUT,
	S_META_DELETE,
	S_LOG_ALL,
	S_LOG_APPEND,
	S_LOG_TRUNCATE,
	S_LOG_COMPACT,
	S_LOG_LAST,
	S_SEGMENT_GET,
	S_SEGMENT_PUT,
	S_SEGMENT_CHANGE,
	S_SEGMENT_DELETE,
	S_SEGMENT_USES,
	S_SEGMENT_ORPHAN,
	S_SEGMENT_USE,
	S_SEGMENT_WAS,
	S_NAME_GET,
	S_NAME_PUT,
	S_NAME_DELETE,
	S_EXTENT_FROM,
	S_EXTENT_PUT,
	S_EXTENT_DELETE,
	S_HINT_GET,
	S_HINT_PUT,
	S_HINT_LOWER,
	S_NODE_GET,
	S_NODE_FIND,
	S_NODE_PUT,
	S_NODE_ALL,
	S_PAST_GET,
	S_PAST_PUT,
	S_MEMBER_GET,
	S_MEMBER_PUT,
	S_MEMBER_CLEAR,
	S_RESULT_GET,
	S_RESULT_PUT,
	S_RESULT_EVICT,
	S_RESULT_DROP,
	S_CLIENT_GET,
	S_CLIENT_PUT,
	S_CLIENT_COUNT,
	S_CLIENT_OLDEST,
	S_CLIENT_DELETE,
	S_FLOOR_GET,
	S_FLOOR_PUT,
	S_COUNTER_GET,
	S_COUNTER_PUT,
	N_STATEMENTS
};

/* Marks the journal dead and reports `what`, with SQLite's reason, through config.fatal, once.
   Returns -EIO. */
int journal_fail(struct journal *j, const char *what);
/* Keeps the text in a struct ramp_err: config.fatal while a failure is the caller's error. */
void journal_remember_failure(void *err, const char *text);
/* Returns the statement, prepared at its first use, reset and ready to bind; NULL: the journal is
   dead, or dies of this: the statement writes, and no turn is open. */
sqlite3_stmt *journal_statement(struct journal *j, enum statement s);
/* Runs a bound statement that gives no rows. Returns 0 or -EIO. */
int journal_run(struct journal *j, sqlite3_stmt *st, const char *what);
/* Returns how many rows the last statement changed. */
int journal_changes(struct journal *j);
/* Says that the turn changes that segment's row; 0: nodes' rows, or all (config.changes). */
void journal_changes_row(struct journal *j, ramp_segment_t id);
/* Steps to the next row. Returns 1, 0 at the end (the statement is reset then), or -EIO. */
int journal_row(struct journal *j, sqlite3_stmt *st, const char *what);

/* Runs a statement without parameters and rows. */
int journal_run_plain(struct journal *j, enum statement s);
/* Runs statements given as text. */
int journal_run_text(struct journal *j, const char *text);
/* Prepares a statement. Returns 0, or -EPROTO: it does not fit the tables. */
int journal_prepare(struct journal *j, enum statement s);
/* Finds one row by up to two numbers. Returns the statement at it, which the caller resets; NULL:
   no such row, or the journal is dead: journal_missing says which. */
sqlite3_stmt *journal_find_row(struct journal *j, enum statement s, uint64_t a, uint64_t b);
/* Returns -ENOENT, or -EIO where the journal is dead. */
int journal_missing(const struct journal *j);
/* Runs a statement that writes, with up to three numbers. */
int journal_write_row(struct journal *j, enum statement s, uint64_t a, uint64_t b, uint64_t c);

/* Each binds the next parameter; *at counts from 1. Where one can't be bound the statement fails
   later. */
void sql_put_u64(sqlite3_stmt *st, int *at, uint64_t v);
void sql_put_text(sqlite3_stmt *st, int *at, const char *s);
void sql_put_blob(sqlite3_stmt *st, int *at, const void *bytes, size_t len);
/* Each reads the next column; *at counts from 0. */
uint64_t sql_get_u64(sqlite3_stmt *st, int *at);
uint32_t sql_get_u32(sqlite3_stmt *st, int *at);
void sql_get_text(sqlite3_stmt *st, int *at, char *s, size_t cap);

/* Opens a connection with the journal's settings; for writing in WAL mode. Returns 0, -EBUSY or
   -EIO. */
int journal_connect(const char *path, const char *vfs, bool write, sqlite3 **db,
		    struct ramp_err *err);

/* Returns SQLite's reason for rc in words. */
const char *sql_why(sqlite3 *db, int rc);

#endif
