/*
 * What a leader is asked to do.
 */
#ifndef RAMP_META_RAFT_LEAD_H
#define RAMP_META_RAFT_LEAD_H

#include "raft_core.h"

int step_propose(struct raft_ctx *s, const struct raft_entry *entry);
int step_read(struct raft_ctx *s, uint64_t ctx);
int step_transfer(struct raft_ctx *s, ramp_node_t to);
/* Shortens the log; entries up to `applied` are durably applied. */
void step_compact(struct raft_ctx *s, uint64_t applied);

#endif
