/*
 * What a quorum has reached, and what follows from it: commits, reads, leadership itself.
 */
#ifndef RAMP_META_RAFT_QUORUM_H
#define RAMP_META_RAFT_QUORUM_H

#include "raft_core.h"

void step_advance_commit(struct step *s);
void answer_reads(struct step *s);
void step_check_quorum(struct step *s);
bool is_heard(struct raft *r, const struct raft_conf *conf);

#endif
