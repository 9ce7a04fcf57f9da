/*
 * The Raft core's ground: what all of its rules use. It knows no rule but what every message and
 * every change of state has in common.
 */
#ifndef RAMP_META_RAFT_CORE_H
#define RAMP_META_RAFT_CORE_H

#include "raft.h"

/* One event on its way through the core. */
struct raft_ctx {
	struct raft *r;
	struct raft_actions *a;
	uint64_t now_ms;
};

bool raft_is_voter(const struct raft *r, ramp_node_t node);
uint32_t raft_majority(const struct raft *r);
struct raft_peer *raft_find_peer(struct raft *r, ramp_node_t node);
void raft_drop_snapshot(struct raft_peer *p);
/* The one door of the states: aborts where the drawing of raft.h has no such arrow. */
void raft_go(struct raft *r, enum raft_state to);
void raft_reset_peers(struct raft *r);
void raft_refresh_conf(struct raft *r); /* the log's configuration may have changed */
void step_election_clock(struct raft_ctx *s);
/* A new message in the actions, filled with from, to and term; NULL: memory ran out. */
struct raft_message *step_new_message(struct raft_ctx *s, enum raft_message_type type,
				      ramp_node_t to);
void step_end_read(struct raft_ctx *s, const struct raft_read *read, int result);
/* The journal's log is the core's from `from` on. */
void step_log_changed(struct raft_ctx *s, uint64_t from);
/* Everything up to index is committed; no news where it was known. */
void step_commit(struct raft_ctx *s, uint64_t index);
void step_follow(struct raft_ctx *s, uint64_t term, ramp_node_t leader); /* the door to FOLLOWER */
void step_append_own(struct raft_ctx *s, const struct raft_entry *e);

#endif
