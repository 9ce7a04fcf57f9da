/*
 * One node: the Raft core, its journal and the state machine, driven by explicit calls.
 *
 * meta.c gives it a thread, a queue and a network; the simulator gives it a schedule. It has no
 * clock and no threads. A turn:
 *
 *	replica_step()		any number of events
 *	replica_send_early()	the messages that may overlap with the disk
 *	replica_commit()	the one transaction (if there is something to write)
 *	replica_finish()	the other messages, results, reads; PERSISTED. True: there is more
 *				to write or send, so another turn is due at once
 *
 * Dropping the replica (replica_close) between any two of these and opening it again is a crash at
 * that point; replica_close never commits.
 *
 * Hooks run inside these calls, must not call back into the replica, and borrow their arguments.
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
	/* The tables were replaced by a snapshot of `index`: any row may have changed. */
	void (*restored)(void *arg, uint64_t index);
	void (*read_ready)(void *arg, const struct raft_read *read);
	/* After the commit: the journal is an old copy (raft.h, amnesia). NULL: that is fatal. */
	void (*amnesia)(void *arg);
	void *arg;
};

struct replica_config {
	struct journal_config journal;
	struct raft_options raft; /* self is the journal's; 0 in a field: the default below */
	struct replica_hooks hooks;
	bool only_read; /* the caller makes no turns: its log may have entries of a newer program */
};
#define REPLICA_HEARTBEAT_MS	100
#define REPLICA_ELECTION_MS	500
#define REPLICA_LOG_CAPACITY	16384
#define REPLICA_COMPACT_ENTRIES 8192
#define REPLICA_COMPACT_KEEP	2048
#define REPLICA_INFLIGHT_BYTES	(1u << 20)

/* -EOPNOTSUPP: the journal is of a newer program; -EBUSY, -EPROTO, -EIO, -ENOMEM. */
int replica_open(const struct replica_config *config, uint64_t now_ms, struct replica **out,
		 struct ramp_err *err);
void replica_close(struct replica *p);

/* Steps the core; returns what raft_step does. */
int replica_step(struct replica *p, const struct raft_event *event);
/* Proposes the configuration that the tables want, where this node leads, and sends
   AppendEntries. */
void replica_send_early(struct replica *p);
int replica_commit(struct replica *p); /* -EIO: the journal is dead: close */
bool replica_finish(struct replica *p, uint64_t now_ms);

const struct raft *replica_raft(const struct replica *p);
struct journal *replica_journal(struct replica *p);

struct replica_counts {
	uint64_t commits, snapshots_sent, snapshots_taken;
	uint64_t staged_bytes; /* in memory now, of an incoming snapshot */
};
void replica_counts(const struct replica *p, struct replica_counts *counts);

#endif
