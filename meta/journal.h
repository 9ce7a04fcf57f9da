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

/* Makes the file, in one transaction; an error leaves none behind. -EEXIST: it is there. */
int journal_create(const char *path, const char *vfs, const struct meta_founding *founding,
		   struct ramp_err *err);
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

/* ---- snapshots ----------------------------------------------------------------------------- */

/*
 * A dump reads the tables as of the last commit, through a connection of its own, piece by piece,
 * while the writer goes on. journal_dump_read gives the piece that begins at `offset`: the last
 * one again, or a later one; -ESTALE for another offset. *done: it was the last. The bytes are
 * the dump's until the next call. Dumps of the same applied index are equal on all nodes.
 */
struct journal_dump;
int journal_dump_open(struct journal *j, struct journal_dump **out, struct ramp_err *err);
uint64_t journal_dump_index(const struct journal_dump *d); /* applied, as of the dump */
uint64_t journal_dump_term(const struct journal_dump *d);
int journal_dump_read(struct journal_dump *d, uint64_t offset, const uint8_t **bytes, size_t *len,
		      bool *done);
void journal_dump_close(struct journal_dump *d);

/* True when the whole dump's checksum and format are right. */
bool journal_dump_valid(const void *bytes, size_t len);
/* In a turn: the tables become the dump's, the log is empty, applied = snap_index = index, and
   (index, term, conf, conf_index) are the beginning. The dump must be valid. */
int journal_restore(struct journal *j, const void *bytes, size_t len, uint64_t index, uint64_t term,
		    const struct raft_data *conf, uint64_t conf_index);
/* A checksum over all tables in order: equal tables, equal sums. */
int journal_tables_sum(struct journal *j, uint64_t *sum);

/* ---- the state machine's tables (writer; within a turn; the writer sees its own rows) ------ */

int journal_get_segment(struct journal *j, ramp_segment_t id,
			struct segment_row *row);			   /* -ENOENT */
int journal_put_segment(struct journal *j, const struct segment_row *row); /* new or changed */
int journal_delete_segment(struct journal *j, ramp_segment_t id);	   /* with its extent */
int journal_next_segment_id(struct journal *j, ramp_segment_t *id);	   /* and counts on */
/* 1: that id was given once, whether its row is there or not; 0: it was not. */
int journal_segment_was(struct journal *j, ramp_segment_t id);
/* The first ORPHAN of that incarnation of a node. -ENOENT */
int journal_find_orphan(struct journal *j, ramp_node_t node, ramp_incarnation_t inc,
			ramp_segment_t *id);
/* 0: `node` appears in no segment's row (as owner, target or source); 1: it does. */
int journal_node_used(struct journal *j, ramp_node_t node);

/* Names of directories: listed, or reserved by a prepare. */
int journal_get_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t *id,
		     bool *reserved); /* -ENOENT */
int journal_put_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t id,
		     bool reserved);
int journal_delete_name(struct journal *j, ramp_node_t node, const char *name);

/* First fit of `len` (a power of two) in the arena, aligned to len; it is taken for id. -ENOSPC */
int journal_take_extent(struct journal *j, ramp_segment_t id, uint64_t len, uint64_t *addr);

int journal_get_node(struct journal *j, ramp_node_t node, struct node_row *row);  /* -ENOENT */
int journal_find_node(struct journal *j, const char *name, struct node_row *row); /* -ENOENT */
int journal_put_node(struct journal *j, const struct node_row *row);
int journal_next_node(struct journal *j, ramp_node_t *node); /* never given before */
int journal_walk_nodes(struct journal *j, int (*fn)(void *arg, const struct node_row *row),
		       void *arg);
/* Incarnations of a node that are over because a newer one came. 1: it is one; 0: not. */
int journal_is_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
int journal_put_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);

/* The configuration as applied (table member). */
int journal_get_member(struct journal *j, ramp_node_t node, enum raft_role *role); /* -ENOENT */
int journal_put_members(struct journal *j, const struct raft_conf *conf);

/* Results of the last META_RESULTS_KEPT commands of each client, and some more. */
int journal_get_result(struct journal *j, struct meta_command_id cid,
		       struct meta_reply *reply); /* -ENOENT */
/* `index`: of the command's entry. */
int journal_put_result(struct journal *j, struct meta_command_id cid,
		       const struct meta_reply *reply, uint64_t index);
/* The floor below which a node's proposals are stale (command.h); 0, 0 where none is. */
int journal_get_floor(struct journal *j, ramp_node_t node, uint64_t *life, uint64_t *lowest);
int journal_put_floor(struct journal *j, ramp_node_t node, uint64_t life, uint64_t lowest);

/* ---- readers ------------------------------------------------------------------------------- */

struct journal_reader;
int journal_reader_open(const char *path, const char *vfs, struct journal_reader **out,
			struct ramp_err *err);
void journal_reader_close(struct journal_reader *r);
/* Why the last call gave -EIO. */
const char *journal_reader_why(struct journal_reader *r);
int journal_read_segment(struct journal_reader *r, ramp_segment_t id, struct segment_row *row);
int journal_read_name(struct journal_reader *r, ramp_node_t node, const char *name,
		      struct segment_row *row);
/* As meta_each_segment: at most `max` rows with id > after into rows; returns how many. */
int journal_read_segments(struct journal_reader *r, ramp_node_t node, ramp_segment_t after,
			  struct segment_row *rows, size_t max);
int journal_read_node(struct journal_reader *r, ramp_node_t node, struct node_row *row);
/* 1: it is in the configuration as applied; 0: not. */
int journal_read_member(struct journal_reader *r, ramp_node_t node);
int journal_read_node_by_name(struct journal_reader *r, const char *name, struct node_row *row);
int journal_read_nodes(struct journal_reader *r, ramp_node_t after, struct node_row *rows,
		       size_t max);

#endif
