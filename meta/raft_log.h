/*
 * The log in memory: a ring of a fixed number of entries, those after snap_index, and the
 * configuration in force that it holds.
 */
#ifndef RAMP_META_RAFT_LOG_H
#define RAMP_META_RAFT_LOG_H

#include "raft.h"

/* The place of an index in the ring. */
struct raft_entry *raft_log_slot(const struct raft *r, uint64_t index);
const struct raft_entry *raft_entry_at(const struct raft *r, uint64_t index); /* NULL: not there */
/* The term of the entry at index; also of snap_index; 0 where unknown. */
uint64_t raft_term_at(const struct raft *r, uint64_t index);
/* The configuration as of `index` >= snap_index (borrowed), and where it stands. */
struct raft_data *raft_conf_at(const struct raft *r, uint64_t index, uint64_t *conf_index);

uint64_t raft_log_room(const struct raft *r); /* entries that still fit */
/* Appends at last_index + 1; takes a reference of the data. -ENOSPC: full. */
int raft_log_append(struct raft *r, const struct raft_entry *e);
void raft_log_truncate(struct raft *r, uint64_t from); /* entries >= from go; from > snap_index */
void raft_log_compact(struct raft *r, uint64_t to);    /* entries <= to go; to <= applied */
/* The log becomes empty and begins after a snapshot; takes a reference of conf. */
void raft_log_reset(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		    uint64_t conf_index);
/* Finds the configuration in force: the last one in the log, or the snapshot's. */
void raft_log_find_conf(struct raft *r);

void raft_message_copy(struct raft_message *to, const struct raft_message *from); /* references */
void raft_message_release(struct raft_message *m);

#endif
