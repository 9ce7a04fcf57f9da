/*
 * The Raft core's ground: what the files of its rules share. It has no rule of its own but the door
 * of the states and what every change of them implies.
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
struct raft_peer *raft_find_peer(struct raft *r, ramp_node_t node); /* NULL: no such peer */
/* Forgets the snapshot that was on its way to the peer. */
void raft_drop_snapshot(struct raft_peer *p);
/* Makes the peers again from the configuration in force, with nothing known of them. */
void raft_reset_peers(struct raft *r);
/* Derives the configuration again, and the peers from it: the log's may have changed. */
void raft_refresh_conf(struct raft *r);

/* Sets the state: the one door. Aborts where the drawing of raft.h has no such arrow. */
void raft_go(struct raft *r, enum raft_state to);
/* Becomes a follower of `leader` (0: none known) in `term`. */
void step_follow(struct raft_ctx *s, uint64_t term, ramp_node_t leader);

/* Draws a new election time-out, in [election_ms, 2 * election_ms). */
void step_election_clock(struct raft_ctx *s);
/* Returns a new message in the actions, filled with from, to and term; NULL: memory ran out. */
struct raft_message *step_new_message(struct raft_ctx *s, enum raft_message_type type,
				      ramp_node_t to);
/* Puts a read's answer into the actions. */
void step_end_read(struct raft_ctx *s, const struct raft_read *read, int result);
/* Notes that the journal's log must be the core's from `from` on. */
void step_log_changed(struct raft_ctx *s, uint64_t from);
/* Commits all entries up to index, and hands them to the driver. Does nothing where they were. */
void step_commit(struct raft_ctx *s, uint64_t index);
/* Appends an entry of this leader's; the caller has checked that there is room. */
void step_append_own(struct raft_ctx *s, const struct raft_entry *e);

#endif
