/*
 * One node: the Raft core, its journal and the state machine, moved by explicit calls.
 *
 * meta.c gives it a thread, a queue and a network; the simulator gives it a schedule. No clock
 * and no threads here. A turn:
 *
 *	replica_step()		any number of events
 *	replica_send_early()	what may overlap with the disk
 *	replica_commit()	the one transaction (if there is something to write)
 *	replica_finish()	the other messages, results, reads; PERSISTED. True: there is more
 *				to write or send, so do another turn at once
 *
 * Dropping the replica (replica_close) between any two of these and opening it again is a crash
 * at that point; replica_close never commits.
 *
 * Hooks run inside these calls, must not call back into the replica, and borrow what they get.
 */
#ifndef RAMP_META_REPLICA_H
#define RAMP_META_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "fsm.h"
#include "journal.h"
#include "raft.h"

struct replica;

struct replica_hooks {
	void (*send)(void *arg, const struct raft_message *m); /* snapshots: bytes are filled */
	/* In replica_finish, after the commit, in the order of the log. */
	void (*applied)(void *arg, uint64_t index, const struct fsm_result *result);
	/* The tables were replaced by a snapshot of `index`: anything may have changed. */
	void (*restored)(void *arg, uint64_t index);
	void (*read_ready)(void *arg, const struct raft_read *read);
	/* After the commit: the journal is an old copy (raft.h, amnesia). NULL: it is fatal. */
	void (*amnesia)(void *arg);
	void *arg;
};

struct replica_config {
	struct journal_config journal;
	struct raft_options raft; /* self is taken from the journal; 0: defaults below */
	struct replica_hooks hooks;
};
#define REPLICA_HEARTBEAT_MS	100
#define REPLICA_ELECTION_MS	500
#define REPLICA_LOG_CAPACITY	16384
#define REPLICA_COMPACT_ENTRIES 8192
#define REPLICA_COMPACT_KEEP	2048
#define REPLICA_INFLIGHT_BYTES	(1u << 20)

int replica_open(const struct replica_config *config, uint64_t now_ms, struct replica **out,
		 struct ramp_err *err);
void replica_close(struct replica *p);

/* As raft_step. On the leader a step also proposes the configuration that the tables want. */
int replica_step(struct replica *p, const struct raft_event *event);
void replica_send_early(struct replica *p);
int replica_commit(struct replica *p); /* -EIO: the journal is dead: close */
bool replica_finish(struct replica *p, uint64_t now_ms);

const struct raft *replica_raft(const struct replica *p);
struct journal *replica_journal(struct replica *p);

struct replica_counts {
	uint64_t commits, snapshots_sent, snapshots_taken;
	uint64_t staged_bytes; /* now, in memory: of a snapshot that is coming in */
};
void replica_counts(const struct replica *p, struct replica_counts *counts);

#endif
