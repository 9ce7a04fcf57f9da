/*
 * What a leader sends, and what it makes of the answers (3.5, 5.3, 10.2.1).
 */
#ifndef RAMP_META_RAFT_REPLICATE_H
#define RAMP_META_RAFT_REPLICATE_H

#include "raft_core.h"

int step_flush(struct raft_ctx *s);
int step_heartbeat(struct raft_ctx *s);
bool step_send_append(struct raft_ctx *s, struct raft_peer *p, bool even_empty);
void step_append_answer(struct raft_ctx *s, const struct raft_message *m);
void step_snapshot_answer(struct raft_ctx *s, const struct raft_message *m);
int step_snapshot_ready(struct raft_ctx *s, const struct raft_event *ev);
int step_snapshot_lost(struct raft_ctx *s, ramp_node_t node);
int step_peer(struct raft_ctx *s, ramp_node_t node);

#endif
