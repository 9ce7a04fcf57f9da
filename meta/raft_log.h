/*
 * The parts of the Raft core below its rules: the log in memory, configurations, copies.
 * For raft.c and raft_log.c alone; everybody else uses raft.h.
 */
#ifndef RAMP_META_RAFT_LOG_H
#define RAMP_META_RAFT_LOG_H

#include "raft.h"

uint64_t raft_log_room(const struct raft *r); /* entries that still fit */
/* Appends at last_index + 1; takes a reference of the data. -ENOSPC: full. */
int raft_log_append(struct raft *r, const struct raft_entry *e);
void raft_log_truncate(struct raft *r, uint64_t from); /* entries >= from go; from > snap_index */
void raft_log_compact(struct raft *r, uint64_t to);    /* entries <= to go; to <= applied */
/* The log becomes empty and begins after a snapshot; takes a reference of conf. */
void raft_log_reset(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		    uint64_t conf_index);
/* Finds the configuration in force: the last one in the log, or the snapshot's. */
void raft_conf_refresh(struct raft *r);

#endif
