/*
 * What a quorum has reached, and what follows from it: commits, reads, leadership itself.
 */
#ifndef RAMP_META_RAFT_QUORUM_H
#define RAMP_META_RAFT_QUORUM_H

#include "raft_core.h"

void step_advance_commit(struct raft_ctx *s);
void step_answer_reads(struct raft_ctx *s);
void step_check_quorum(struct raft_ctx *s);
bool raft_hears_quorum(struct raft *r, const struct raft_conf *conf);

#endif
