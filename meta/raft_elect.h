/*
 * Elections: campaigns of this node, and its votes for others (3.4, 3.6.1, 3.10, 4.2.3, 9.6).
 */
#ifndef RAMP_META_RAFT_ELECT_H
#define RAMP_META_RAFT_ELECT_H

#include "raft_core.h"

void become_precandidate(struct step *s);
void count_votes(struct step *s);
bool content(const struct raft *r);
void on_prevote(struct step *s, const struct raft_message *m);
void on_prevote_answer(struct step *s, const struct raft_message *m);
void on_vote(struct step *s, const struct raft_message *m);
void on_vote_answer(struct step *s, const struct raft_message *m);
void on_timeout_now(struct step *s, const struct raft_message *m);

#endif
