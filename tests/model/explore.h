/*
 * The exhaustive explorer: every interleaving of a small cluster within bounds, on the real core.
 *
 *	explore_node.c	states of one node and messages, each kept once; the result of an event at
 *			a node is computed once and remembered (the core is a pure function)
 *	explore.c	states of the cluster, the search, invariants, options
 */
#ifndef RAMP_EXPLORE_H
#define RAMP_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

#include "meta/raft.h"

#define NODES	    3
#define ENTRIES_MAX 16 /* indexes; the search is bounded far below */
#define EMITTED_MAX 24

/* An event with its argument: the key of a remembered result. */
enum explore_kind {
	EXPLORE_MESSAGE, /* arg: message */
	EXPLORE_ELECTION,
	EXPLORE_HEARTBEAT,
	EXPLORE_PROPOSE, /* arg: the command */
	EXPLORE_CONF,	 /* arg: which configuration */
	EXPLORE_READ,	 /* arg: index that the read must reach */
	EXPLORE_TRANSFER,
	EXPLORE_LEASE,	 /* the lease is over */
	EXPLORE_RESTART, /* arg 1: unsynced applied rows are lost */
};

struct explore_event {
	enum explore_kind kind;
	uint32_t arg;
	uint32_t crash; /* 0: no; k: the node dies after k calls (early, commit, finish, ...) */
};

/* The facts of a node's state that the search needs. */
struct explore_summary {
	enum raft_state state;
	uint64_t term, commit, snap_index, last;
	uint32_t entry[ENTRIES_MAX]; /* numbers of entries by index; 0: not in the log */
	bool lease, reading;
};

struct explore_outcome {
	uint32_t node; /* the new state; 0: the event can't happen so (refused; dies too late) */
	uint32_t n_emitted;
	uint32_t emitted[EMITTED_MAX]; /* messages */
};

struct explore_options {
	uint32_t voters;  /* the first ones; the other nodes are learners */
	uint32_t compact; /* 0: never */
	bool rounds;	  /* reads are asked: rounds matter */
};

void explore_nodes_begin(const struct explore_options *opt);
uint32_t explore_node_first(ramp_node_t id);
const struct explore_summary *explore_node(uint32_t node);
const struct raft_message *explore_message(uint32_t message);
/* Valid until the next call. */
const struct explore_outcome *explore_step(uint32_t node, struct explore_event ev);
void explore_counts(uint64_t *nodes, uint64_t *messages, uint64_t *steps);

/* explore.c: prints the events that led here and ends the process. */
_Noreturn void explore_failed(const char *text);

#endif
