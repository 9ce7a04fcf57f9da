/*
 * Elections: campaigns of this node, and its votes for others (3.4, 3.6.1, 3.10, 4.2.3, 9.6).
 */
#ifndef RAMP_META_RAFT_ELECT_H
#define RAMP_META_RAFT_ELECT_H

#include "raft_core.h"

void step_campaign(struct raft_ctx *s);
void step_count_votes(struct raft_ctx *s);
bool raft_knows_leader(const struct raft *r);
void step_prevote(struct raft_ctx *s, const struct raft_message *m);
void step_prevote_answer(struct raft_ctx *s, const struct raft_message *m);
void step_vote(struct raft_ctx *s, const struct raft_message *m);
void step_vote_answer(struct raft_ctx *s, const struct raft_message *m);
void step_timeout_now(struct raft_ctx *s, const struct raft_message *m);

#endif
