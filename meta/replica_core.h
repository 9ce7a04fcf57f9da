/*
 * One node's Raft core, journal and state machine, as the files of the replica see them.
 */
#ifndef RAMP_META_REPLICA_CORE_H
#define RAMP_META_REPLICA_CORE_H

#include "replica.h"

/* The bytes of a snapshot that comes in. */
struct staging {
	uint8_t *bytes;
	size_t len, cap;
};

/* A snapshot that goes out. */
struct outgoing {
	ramp_node_t node; /* 0: this place is free */
	bool wanted;	  /* the dump is still to be opened */
	bool lost;	  /* it can't give what the core asks for */
	bool given;	  /* all of it */
	struct journal_dump *dump;
	uint64_t offset, since_ms; /* of the last piece, and when it was first given */
	uint64_t rests_until_ms;   /* 0: it does not rest */
};

struct replica {
	struct replica_config config;
	struct raft raft;
	struct raft_actions actions;
	struct journal *journal;
	struct replica_counts counts;
	struct staging incoming, complete; /* complete: complete, to be installed by this turn */
	struct outgoing out[RAFT_NODES_MAX];
	struct fsm_result *results; /* of this turn's entries */
	size_t n_results, cap_results;
	uint64_t first_result; /* index of results[0] */
	bool restored;	       /* this turn installed a snapshot */
	bool failed;
	bool members_differ; /* the tables may want another configuration */
	uint64_t members_due;
	uint64_t now_ms;
	enum raft_state was;
};

/* The replica can't go on: says so once through config.journal.fatal. Returns -EIO. */
int replica_fail(struct replica *p, const char *text);
/* Steps the core, and logs how its state changed: the core itself does no I/O. */
int replica_raft_step(struct replica *p, const struct raft_event *event);

#endif
