/*
 * A follower's handling of its leader's messages: entries (3.5) and snapshots (5.3).
 */
#ifndef RAMP_META_RAFT_FOLLOW_H
#define RAMP_META_RAFT_FOLLOW_H

#include "raft_core.h"

/* One message, one handler. */
void step_append(struct raft_ctx *s, const struct raft_message *m);
void step_snapshot(struct raft_ctx *s, const struct raft_message *m);

#endif
