/*
 * Between the files of the journal: journal.c (file, hard state, log, turns), journal_tables.c
 * (the state machine's rows), journal_dump.c (snapshots), journal_reader.c. Nobody else includes
 * it, so that nobody else knows SQLite.
 */
#ifndef RAMP_META_JOURNAL_SQL_H
#define RAMP_META_JOURNAL_SQL_H

#include <sqlite3.h>

#include "journal.h"

/* Every statement of the writer; its text stands in the same order in journal.c. */
enum statement {
	S_BEGIN,
	S_COMMIT,
	S_META_GET,
	S_META_PUT,
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

struct journal {
	struct journal_config config;
	char *path, *vfs;
	int lock_fd;
	sqlite3 *db;
	bool in_turn, durable, dead;
	struct journal_state state; /* as in the file, with this turn's changes */
	struct journal_state committed;
	sqlite3_stmt *stmt[N_STATEMENTS];
};

/* The writer can't go on: says so once through config.fatal. Returns -EIO. */
int journal_fail(struct journal *j, const char *what);
/* The statement, reset and ready to bind; NULL: the journal is dead, or a writing statement
   (`writes`) came outside of a turn. */
sqlite3_stmt *journal_statement(struct journal *j, enum statement s);
/* Runs a statement that gives no rows. */
int journal_run(struct journal *j, sqlite3_stmt *st, const char *what);
/* Steps to the next row: 1, 0 at the end, -EIO. */
int journal_row(struct journal *j, sqlite3_stmt *st, const char *what);

/* Binds the next parameter; *at counts from 1. The statement fails later if one can't be bound. */
void sql_put_u64(sqlite3_stmt *st, int *at, uint64_t v);
void sql_put_text(sqlite3_stmt *st, int *at, const char *s);
void sql_put_blob(sqlite3_stmt *st, int *at, const void *bytes, size_t len);
/* Reads the next column; *at counts from 0. */
uint64_t sql_get_u64(sqlite3_stmt *st, int *at);
uint32_t sql_get_u32(sqlite3_stmt *st, int *at);
void sql_get_text(sqlite3_stmt *st, int *at, char *s, size_t cap);

#define SEGMENT_COLUMNS                                                                            \
	"id, epoch, phase, unlinked, node, node_inc, dst, dst_inc, src, src_inc, k_source, "       \
	"k_ticket, k_epoch, name, dst_name, size, mode, uid, gid, atime, atime_ns, mtime, "        \
	"mtime_ns, ctime, ctime_ns, extent_addr, extent_len, extent_asked, pages, mmap"
#define NODE_COLUMNS "node, name, address, incarnation, fenced, instance, capacity, role"
void sql_get_segment(sqlite3_stmt *st, struct segment_row *row);
void sql_get_node(sqlite3_stmt *st, struct node_row *row);

/* The tables of the state machine, in the order of a dump. */
struct journal_table {
	const char *create;
	const char *dump;   /* all rows, in the order of the key */
	const char *insert; /* one row, its columns in the order of `dump` */
	const char *clear;
	int columns;
};
extern const struct journal_table journal_tables[];
extern const size_t journal_n_tables;

/* journal_open's half of journal.c for connections: opens with WAL and our settings. */
int journal_connect(const char *path, const char *vfs, bool write, sqlite3 **db,
		    struct ramp_err *err);

#endif
