/*
 * What a quorum has reached, and what follows from it: commits, reads, leadership itself.
 */
#ifndef RAMP_META_RAFT_QUORUM_H
#define RAMP_META_RAFT_QUORUM_H

#include "raft_core.h"

/* Commits what a quorum holds (3.6.2). */
void step_advance_commit(struct raft_ctx *s);
/* Answers the reads whose round a quorum has answered (6.4). */
void step_answer_reads(struct raft_ctx *s);
/* Steps down where no quorum has answered since the last call (6.2). */
void step_check_quorum(struct raft_ctx *s);
/* Returns true where a quorum of conf's voters has answered since the last step_check_quorum. */
bool raft_hears_quorum(struct raft *r, const struct raft_conf *conf);

#endif
