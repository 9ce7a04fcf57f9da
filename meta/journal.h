/*
 * The node's one SQLite file: Raft's log and hard state, and the tables of the state machine.
 *
 * Only the files journal*.c know SQLite. The file is in WAL mode. A turn is one transaction:
 * journal_begin, the writes, journal_commit. A durable turn syncs the WAL (synchronous=FULL). A
 * turn that only applies entries does not (NORMAL), since the log can redo it: a lost turn is lost
 * whole, with its applied index, and the WAL keeps the order.
 *
 * How it fails: any SQLite error of the writer calls config.fatal with one line and marks the
 * journal dead: every further call returns -EIO and writes nothing. In production fatal ends the
 * process (a Raft node that continues after a failed write breaks its promises); a test's may
 * return, and the test then drops the node. Errors of readers are returned.
 *
 * Faults are injected with an SQLite VFS of the test's own, named in config.vfs.
 *
 * Thread-safety: one thread uses a journal. Readers (journal_reader.h) belong to one thread at a
 * time each, and see what was committed.
 */
#ifndef RAMP_META_JOURNAL_H
#define RAMP_META_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "meta.h"
#include "raft.h"

struct journal;

struct journal_config {
	const char *path;
	const char *vfs; /* NULL: SQLite's default */
	/* Called at the first error of the writer. Must be set. */
	void (*fatal)(void *arg, const char *text);
	/* NULL, or called in a turn, before its commit: it changes that segment's row; 0: nodes' rows, or
	   all of them. */
	void (*changes)(void *arg, ramp_segment_t id);
	void *arg;
};

/* Opens the file for writing and counts a new life. Returns 0, -EBUSY: another process has it open;
   -EOPNOTSUPP: of a newer program; -EPROTO: no journal; -EIO, -ENOMEM. */
int journal_open(const struct journal_config *config, struct journal **out, struct ramp_err *err);
/* Rolls back what is not committed and closes. */
void journal_close(struct journal *j);
/* Returns true once a write has failed. */
bool journal_dead(const struct journal *j);

/* ---- its content --------------------------------------------------------------------------- */

struct journal_state {
	uint8_t cluster_id[32];
	ramp_node_t self;
	uint64_t instance, life; /* life: +1 at each journal_open */
	uint64_t arena_addr, arena_len;

	uint64_t term;
	ramp_node_t vote;
	bool confirmed;
	bool restored; /* journal_put_restored */
	uint64_t applied, applied_term;
	uint64_t snap_index, snap_term, snap_conf_index;
	uint64_t last_index; /* of the log; snap_index where it is empty */
};
/* Returns the state as in the file, with this turn's changes. */
void journal_state(const struct journal *j, struct journal_state *state);
/* Returns the encoded configuration at snap_index with one reference, the caller's; NULL: none (a
   joiner's journal), or out of memory. */
struct raft_data *journal_snap_conf(struct journal *j);
/* Calls fn for each entry of the log in order. entry->data is borrowed: fn takes a reference of its
   own. Returns fn's first nonzero result, 0, -EIO or -ENOMEM. */
int journal_each_entry(struct journal *j,
		       int (*fn)(void *arg, uint64_t index, const struct raft_entry *e), void *arg);

/* ---- a turn -------------------------------------------------------------------------------- */

/* All of these return 0, or -EIO: the journal is dead. */

int journal_begin(struct journal *j, bool durable);
int journal_put_hard_state(struct journal *j, uint64_t term, ramp_node_t vote, bool confirmed);
/* Marks the file as an old copy of the node's journal, whose lives went up to `life`: the promises
   since the copy was made are not in it. It never votes again, and its next life is above that
   one. */
int journal_put_restored(struct journal *j, uint64_t life);
int journal_truncate(struct journal *j, uint64_t from); /* drops the entries >= from */
int journal_append(struct journal *j, uint64_t index, const struct raft_entry *e);
int journal_put_applied(struct journal *j, uint64_t index, uint64_t term);
/* Drops the entries <= index; (index, term, conf, conf_index) are the beginning then. */
int journal_compact(struct journal *j, uint64_t index, uint64_t term, const struct raft_data *conf,
		    uint64_t conf_index);
int journal_commit(struct journal *j);
/* Drops the turn: for a process that can't continue anyway (a test that drops a node before its
   commit). */
void journal_rollback(struct journal *j);

#endif
