/*
 * Elections: this node's campaigns, and its votes for others (3.4, 3.6.1, 3.10, 4.2.3, 9.6).
 */
#ifndef RAMP_META_RAFT_ELECT_H
#define RAMP_META_RAFT_ELECT_H

#include "raft_core.h"

/* Begins a campaign with a pre-vote. */
void step_campaign(struct raft_ctx *s);
/* Counts the votes; with a quorum of them the campaign is won. */
void step_count_votes(struct raft_ctx *s);
/* Returns true while this node knows of a living leader: a vote would only disturb it (4.2.3). */
bool raft_knows_leader(const struct raft *r);

/* One message, one handler. */
void step_prevote(struct raft_ctx *s, const struct raft_message *m);
void step_prevote_answer(struct raft_ctx *s, const struct raft_message *m);
void step_vote(struct raft_ctx *s, const struct raft_message *m);
void step_vote_answer(struct raft_ctx *s, const struct raft_message *m);
void step_timeout_now(struct raft_ctx *s, const struct raft_message *m);

#endif
