/*
 * The node's one SQLite file: Raft's log and hard state, and the tables of the state machine.
 *
 * The journal_*.c are the only files that know SQLite. WAL; a turn is one transaction:
 * journal_begin, what is to be written, journal_commit. A durable one syncs the WAL
 * (synchronous=FULL); one that only applies entries does not (NORMAL), since the log can redo it:
 * a lost one is lost whole, with its applied index, and WAL keeps the order.
 *
 * How it fails: any SQLite error on the writer calls config.fatal with one line and marks the
 * journal dead: every further call gives -EIO and writes nothing. In production fatal ends the
 * process (a Raft node that goes on after a failed write breaks its promises); a test's may
 * return, and then drops the node. Errors of readers are returned.
 *
 * Faults are injected with an SQLite VFS of the test's own, named in config.vfs.
 *
 * Thread-safety: one thread uses a journal; readers (journal_reader_open) belong to one thread at
 * a time each, and see what was committed.
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
	void *arg;
};

/* Opens it for writing; -EBUSY: another process has it; -EPROTO: another version or no journal. */
int journal_open(const struct journal_config *config, struct journal **out, struct ramp_err *err);
/* Rolls back what is not committed and closes. */
void journal_close(struct journal *j);
bool journal_dead(const struct journal *j);

/* ---- what stands in it --------------------------------------------------------------------- */

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
void journal_state(const struct journal *j, struct journal_state *state);
/* The encoded configuration at snap_index; one reference, the caller's. NULL: a joiner's. */
struct raft_data *journal_snap_conf(struct journal *j);
/* Calls fn for each entry of the log in order; entry->data is fn's to reference. Returns fn's
   first nonzero, or -EIO. */
int journal_each_entry(struct journal *j,
		       int (*fn)(void *arg, uint64_t index, const struct raft_entry *e), void *arg);

/* ---- a turn -------------------------------------------------------------------------------- */

int journal_begin(struct journal *j, bool durable);
int journal_put_hard_state(struct journal *j, uint64_t term, ramp_node_t vote, bool confirmed);
/* The file is an old copy of what this node had, which lived up to `life`: what it promised since
   is not in here. It never has a voice again, and its next life is above that one. */
int journal_put_restored(struct journal *j, uint64_t life);
int journal_truncate(struct journal *j, uint64_t from); /* entries >= from go */
int journal_append(struct journal *j, uint64_t index, const struct raft_entry *e);
int journal_put_applied(struct journal *j, uint64_t index, uint64_t term);
/* Entries <= index go; (index, term, conf, conf_index) are the beginning. */
int journal_compact(struct journal *j, uint64_t index, uint64_t term, const struct raft_data *conf,
		    uint64_t conf_index);
int journal_commit(struct journal *j);
/* Where the process can't go on anyway (a test that drops a node before its commit). */
void journal_rollback(struct journal *j);

#endif
