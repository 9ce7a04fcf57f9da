/*
 * Is this node's journal an old copy of itself?
 */
#ifndef RAMP_META_AMNESIA_H
#define RAMP_META_AMNESIA_H

#include <stdint.h>

#include "base/wire.h"
#include "meta.h"
#include "raft_conf.h"

struct amnesia {
	struct {
		ramp_node_t node; /* 0: this place is free */
		uint64_t index;	  /* committed, and acknowledged to this node while it led */
	} acked[RAFT_NODES_MAX];
};

void amnesia_note_acked(struct meta *meta); /* after turns */
void amnesia_tell_life(struct meta *meta, ramp_node_t to);
void amnesia_life(struct meta *meta, struct wire_r *body);
void amnesia_acked(struct meta *meta, uint64_t instance, uint64_t index);
void amnesia_found(struct meta *meta); /* the core has found an old copy */

#endif
