/*
 * Linearizable reads (ReadIndex, 6.4) of this node, and those that it serves as the leader.
 */
#ifndef RAMP_META_META_SYNC_H
#define RAMP_META_META_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "meta.h"
#include "raft.h"

/* A linearizable read of this node. */
struct sync_read {
	struct sync_read *next;
	meta_done *done;
	void *arg;
	uint64_t deadline_ms;
};

/* All of it belongs to the meta thread. */
struct syncs {
	struct sync_read *waiting; /* for the next round */
	struct sync_read *round;   /* asked the leader under round_ctx, or wait for round_index */
	uint64_t round_ctx, round_index, round_again_ms;
	bool round_asked, round_known;

	struct {
		uint64_t ctx; /* ours; 0: this place is free */
		uint64_t theirs;
		ramp_node_t from;
	} served[RAFT_READS_MAX]; /* reads that this node, as leader, does for others */
	uint64_t next_ctx;
};

void syncs_init(struct syncs *all);
void syncs_add(struct meta *meta, struct sync_read *sync);
void syncs_tend(struct meta *meta, bool leader_changed);
void syncs_read_ready(struct meta *meta, const struct raft_read *read);
void syncs_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx);
void syncs_read_answer(struct meta *meta, uint64_t ctx, uint64_t index);
void syncs_fail_all(struct meta *meta, int result);

#endif
