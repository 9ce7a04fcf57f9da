/*
 * What a follower does with the messages of its leader (3.5, 5.3).
 */
#ifndef RAMP_META_RAFT_FOLLOW_H
#define RAMP_META_RAFT_FOLLOW_H

#include "raft_core.h"

void step_append(struct raft_ctx *s, const struct raft_message *m);
void step_snapshot(struct raft_ctx *s, const struct raft_message *m);

#endif
