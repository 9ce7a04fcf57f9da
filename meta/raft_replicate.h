/*
 * Replication: what a leader sends to its followers, and its handling of their answers (3.5, 5.3).
 */
#ifndef RAMP_META_RAFT_REPLICATE_H
#define RAMP_META_RAFT_REPLICATE_H

#include "raft_core.h"

/* Sends each follower what is new, as far as its flow allows. */
int step_flush(struct raft_ctx *s);
/* Begins a round, with a message to each follower. */
int step_heartbeat(struct raft_ctx *s);
/* Sends an AppendEntries from the peer's next_index on. `even_empty`: also where there is nothing
   to send. Returns true where it carries entries. */
bool step_send_append(struct raft_ctx *s, struct raft_peer *p, bool even_empty);

/* One message or event, one handler. */
void step_append_answer(struct raft_ctx *s, const struct raft_message *m);
void step_snapshot_answer(struct raft_ctx *s, const struct raft_message *m);
int step_snapshot_ready(struct raft_ctx *s, const struct raft_event *ev);
int step_snapshot_lost(struct raft_ctx *s, ramp_node_t node);
int step_peer(struct raft_ctx *s, ramp_node_t node);

#endif
