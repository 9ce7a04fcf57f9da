/*
 * The proposals of this node, on their way to the leader and back.
 */
#ifndef RAMP_META_PROPOSALS_H
#define RAMP_META_PROPOSALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsm.h"
#include "meta.h"

/* A proposal of this node. */
struct meta_proposal {
	struct meta_proposal *next;
	struct meta_command command;
	meta_done *done;
	void *arg;
	uint64_t number; /* of this life; 0: waits for the window */
	uint64_t deadline_ms, again_ms;
	uint32_t pause_ms; /* until the next copy */
	bool sent;	   /* a leader may have it */
	bool applied;	   /* reply is the result; waits for the configuration (MEMBER_*) */
	struct meta_reply reply;
};

/* All of it belongs to the meta thread, but `held`. */
struct proposals {
	atomic_bool held;			      /* meta_hold */
	struct meta_proposal *open, **open_end;	      /* numbered, in order */
	struct meta_proposal *waiting, **waiting_end; /* outside of the window */
	uint64_t next_number;
};

void proposals_init(struct proposals *all);
void proposals_add(struct meta *meta, struct meta_proposal *p); /* takes it */
void proposals_tend(struct meta *meta, bool leader_changed);	/* sends, repeats, gives up */
void proposals_forwarded(struct meta *meta, ramp_node_t from, bool is_another, const uint8_t *bytes,
			 size_t len);
void proposals_applied(struct meta *meta, const struct fsm_result *result);
void proposals_restored(struct meta *meta); /* the tables were replaced */
void proposals_fail_all(struct meta *meta, int result);

#endif
