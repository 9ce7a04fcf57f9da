/*
 * The amnesia check: is this node's journal an old copy of itself? All on the meta thread.
 *
 * A journal that was restored from a backup has lost votes and entries without a trace. It is found
 * in three ways:
 *
 *	lives		A journal counts its lives (command.h), so the other nodes' tables may have
 *			seen a later one. A node tells each peer that connects the peer's own.
 *	hint		A leader tells each follower what it has acknowledged (raft.h, hint), which
 *			shows a copy of the same life.
 *	acked		A node that has led before tells it, too, as far as it was committed, so
 *			that a change of leader does not hide a copy that is still behind.
 *
 * An old copy is marked in its own file, and the process starts again without a vote: it catches
 * up, its segments can be moved away, and it needs --rejoin.
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

/* Notes, as the leader, what the followers have acknowledged. Called after turns. */
void amnesia_note_acked(struct meta *meta);
/* Tells a node its life and the entries that it has acknowledged (WIRE_LIFE, WIRE_ACKED). */
void amnesia_tell_life(struct meta *meta, ramp_node_t to);
/* Each takes such a message; where it proves that this journal is an old copy, the node's work ends
   (meta_fatal). */
void amnesia_life(struct meta *meta, struct wire_r *body);
void amnesia_acked(struct meta *meta, uint64_t instance, uint64_t index);
/* The core has found an old copy by a leader's hint: ends the node's work. */
void amnesia_found(struct meta *meta);

#endif
