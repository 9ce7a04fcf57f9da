/*
 * A replica as its own files see it: replica.c, replica_snapshot.c, replica_core.c.
 */
#ifndef RAMP_META_REPLICA_CORE_H
#define RAMP_META_REPLICA_CORE_H

#include "replica.h"

/* The bytes of an incoming snapshot. */
struct staging {
	uint8_t *bytes;
	size_t len, cap;
};

/* A snapshot on its way to another node. */
struct outgoing {
	ramp_node_t node; /* 0: this place is free */
	bool wanted;	  /* the dump is still to be opened */
	bool lost;	  /* the dump can't give the piece that the core asks for */
	bool given;	  /* to its end */
	struct journal_dump *dump;
	uint64_t offset, since_ms; /* of the last piece, and when it was first given */
	uint64_t rests_until_ms;   /* idle, so closed until then; 0: not so */
};

struct replica {
	struct replica_config config;
	struct raft raft;
	struct raft_actions actions;
	struct journal *journal;
	struct replica_counts counts;
	struct staging incoming, complete; /* complete: this turn installs it */
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

/* Ends the replica's work: reports the text, once, through config.journal.fatal. Returns -EIO. */
int replica_fail(struct replica *p, const char *text);
/* Steps the core and logs a change of its state, since the core itself does no I/O. Returns the
   event's result (raft.h). */
int replica_raft_step(struct replica *p, const struct raft_event *event);

#endif
