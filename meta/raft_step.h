/*
 * Between the files of the Raft core: raft.c (states, elections, events), raft_follow.c (a
 * follower's log), raft_lead.c (what a leader sends, hears and is asked). Nobody else includes it.
 */
#ifndef RAMP_META_RAFT_STEP_H
#define RAMP_META_RAFT_STEP_H

#include "raft_log.h"

/* One event on its way through the core. */
struct step {
	struct raft *r;
	struct raft_actions *a;
	uint64_t now_ms;
};

/* raft.c */
bool raft_is_voter(const struct raft *r, ramp_node_t node);
uint32_t raft_majority(const struct raft *r);
struct raft_peer *raft_find_peer(struct raft *r, ramp_node_t node);
void raft_drop_snapshot(struct raft_peer *p);
void raft_refresh_conf(struct raft *r); /* the log's configuration may have changed */
void step_election_clock(struct step *s);
/* A new message in the actions, filled with from, to and term; NULL: memory ran out. */
struct raft_message *step_message(struct step *s, enum raft_message_type type, ramp_node_t to);
void step_answer_read(struct step *s, const struct raft_read *read, int result);
/* The journal's log is the core's from `from` on. */
void step_log_changed(struct step *s, uint64_t from);
/* Everything up to index is committed; no news where it was known. */
void step_commit(struct step *s, uint64_t index);
void step_follow(struct step *s, uint64_t term, ramp_node_t leader); /* the door to FOLLOWER */
void step_append_own(struct step *s, const struct raft_entry *e);

/* raft_follow.c */
void step_append(struct step *s, const struct raft_message *m);
void step_snapshot(struct step *s, const struct raft_message *m);

/* raft_lead.c */
int step_flush(struct step *s);
int step_heartbeat(struct step *s);
void step_check_quorum(struct step *s);
void step_advance_commit(struct step *s);
void step_append_answer(struct step *s, const struct raft_message *m);
void step_snapshot_answer(struct step *s, const struct raft_message *m);
int step_propose(struct step *s, const struct raft_entry *entry);
int step_read(struct step *s, uint64_t ctx);
int step_transfer(struct step *s, ramp_node_t to);
int step_snapshot_ready(struct step *s, const struct raft_event *ev);
int step_snapshot_lost(struct step *s, ramp_node_t node);
int step_peer(struct step *s, ramp_node_t node);
/* Shortens the log; entries up to `applied` are durably applied. */
void step_compact(struct step *s, uint64_t applied);

#endif
