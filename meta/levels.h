/*
 * Raising the level of the rules (meta.h, META_LEVEL_KNOWN). All on the meta thread.
 *
 * While the tables' level is below the one that a node knows, it says again and again to the leader
 * how far its program goes. A leader that has heard so lately from every member proposes the highest
 * level that all of them know. A member that is down or runs an older program holds the level where
 * it is, but not one that was never up, or is fenced, and is silent. One that comes later with an
 * older program stops by itself (replica.c).
 */
#ifndef RAMP_META_LEVELS_H
#define RAMP_META_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

#include "fsm.h"
#include "meta.h"
#include "raft_conf.h"

struct levels {
	uint64_t again_ms;
	uint64_t now; /* of the tables, where `read` */
	bool read;
	bool proposing;
	uint64_t leads_since_ms; /* where this node leads */

	struct level_word {
		ramp_node_t node; /* 0: this place is free */
		uint64_t level, until_ms;
		uint64_t heard_ms; /* when its last message of any kind came */
	} of[RAFT_NODES_MAX];
};

/* Says this node's level, or, as the leader, proposes a higher one. */
void levels_tend(struct meta *meta, bool leader_changed);
/* A message has come from this node. */
void levels_heard(struct meta *meta, ramp_node_t from);
/* Node `from` says that it knows levels up to this one (WIRE_LEVEL). */
void levels_said(struct meta *meta, ramp_node_t from, uint64_t level);
/* The tables were changed by this command, or (NULL) by a snapshot. */
void levels_applied(struct meta *meta, const struct fsm_result *result);

#endif
