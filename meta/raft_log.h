/*
 * The log in memory: a ring of a fixed number of entries, those after snap_index, and the
 * configuration in force, which is always derived from it. Also the references that messages hold
 * of entries.
 */
#ifndef RAMP_META_RAFT_LOG_H
#define RAMP_META_RAFT_LOG_H

#include "raft.h"

/* Returns the ring's place for an index, whether it holds that entry or not. */
struct raft_entry *raft_log_slot(const struct raft *r, uint64_t index);
/* Returns the entry at index, borrowed; NULL: the log does not hold it. */
const struct raft_entry *raft_entry_at(const struct raft *r, uint64_t index);
/* Returns the term of the entry at index, or of snap_index; 0: unknown. */
uint64_t raft_term_at(const struct raft *r, uint64_t index);
/* Returns how many more entries fit. */
uint64_t raft_log_room(const struct raft *r);

/* Appends an entry at last_index + 1 and takes a reference of its data. Returns 0, or -ENOSPC: the
   ring is full. */
int raft_log_append(struct raft *r, const struct raft_entry *e);
/* Drops the entries >= from; from > snap_index. */
void raft_log_truncate(struct raft *r, uint64_t from);
/* Drops the entries <= to; to <= last_applied. */
void raft_log_compact(struct raft *r, uint64_t to);
/* Empties the log, which begins after a snapshot then; takes a reference of conf. */
void raft_log_reset(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		    uint64_t conf_index);

/* Returns the configuration as of `index` >= snap_index (borrowed; NULL: none), and in *conf_index
   the index of its entry. */
struct raft_data *raft_conf_at(const struct raft *r, uint64_t index, uint64_t *conf_index);
/* Derives r->conf: the last configuration in the log, or the snapshot's. */
void raft_log_find_conf(struct raft *r);

/* Copies a message and takes references for the copy. */
void raft_message_copy(struct raft_message *to, const struct raft_message *from);
/* Drops the message's references. */
void raft_message_release(struct raft_message *m);

#endif
