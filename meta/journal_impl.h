/*
 * The journal as its own files see it: journal.c, journal_sql.c, journal_create.c, journal_format.c,
 * journal_dump.c.
 */
#ifndef RAMP_META_JOURNAL_IMPL_H
#define RAMP_META_JOURNAL_IMPL_H

#include "journal.h"
#include "journal_sql.h"

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

#endif
