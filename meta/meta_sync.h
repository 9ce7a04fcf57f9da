/*
 * Linearizable reads (ReadIndex, 6.4) of this node, and those that it serves as the leader. All on
 * the meta thread.
 */
#ifndef RAMP_META_META_SYNC_H
#define RAMP_META_META_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "meta.h"
#include "raft.h"

/* A linearizable read of this node (meta_sync). */
struct sync_read {
	struct sync_read *next;
	meta_done *done;
	void *arg;
	uint64_t deadline_ms;
};

struct syncs {
	struct sync_read *waiting; /* for the next round */
	struct sync_read *round;   /* asked the leader under round_ctx, or wait for round_index */
	uint64_t round_ctx, round_index, round_again_ms;
	bool round_asked, round_known;

	struct {
		uint64_t ctx; /* this node's; 0: this place is free */
		uint64_t theirs;
		ramp_node_t from;
	} served[RAFT_READS_MAX]; /* reads that this node, as the leader, serves for others */
	uint64_t next_ctx;
};

void syncs_init(struct syncs *all);
/* Takes a read over. */
void syncs_add(struct meta *meta, struct sync_read *sync);
/* Ends complete and late reads, begins a round, and asks again where no answer came. */
void syncs_tend(struct meta *meta, bool leader_changed);
/* The core has answered a read of this node or of a served one. */
void syncs_read_ready(struct meta *meta, const struct raft_read *read);
/* Node `from` asks this one, as the leader, for a read (WIRE_READ). */
void syncs_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx);
/* The leader has answered the read of this node's round (WIRE_READ_ANSWER). */
void syncs_read_answer(struct meta *meta, uint64_t ctx, uint64_t index);
/* Ends all of them with `result`. */
void syncs_fail_all(struct meta *meta, int result);

#endif
