/*
 * What a leader is asked to do: proposals, reads, the hand-over; and compaction of the log.
 */
#ifndef RAMP_META_RAFT_LEAD_H
#define RAMP_META_RAFT_LEAD_H

#include "raft_core.h"

/* One event, one handler; its errors are listed in raft.h. */
int step_propose(struct raft_ctx *s, const struct raft_entry *entry);
int step_read(struct raft_ctx *s, uint64_t ctx);
int step_transfer(struct raft_ctx *s, ramp_node_t to);
/* Shortens the log where it is long; entries up to `applied` are durably applied. */
void step_compact(struct raft_ctx *s, uint64_t applied);

#endif
