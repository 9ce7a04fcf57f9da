/*
 * The proposals of this node, on their way to the leader and back. All on the meta thread.
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
	bool applied;	   /* reply is the result; MEMBER_*: waits for the configuration */
	struct meta_reply reply;
};

/* Belongs to the meta thread, except `held`. */
struct proposals {
	atomic_bool held;			      /* meta_hold */
	struct meta_proposal *open, **open_end;	      /* numbered, in order */
	struct meta_proposal *waiting, **waiting_end; /* outside of the window */
	uint64_t next_number;
};

void proposals_init(struct proposals *all);
/* Takes a proposal over. */
void proposals_add(struct meta *meta, struct meta_proposal *p);
/* Ends complete and late proposals, sends new ones, and late copies again. */
void proposals_tend(struct meta *meta, bool leader_changed);
/* Proposes, as the leader, a command that node `from` has forwarded. `is_another`: the sender is
   another instance than the one bound to its number. */
void proposals_forwarded(struct meta *meta, ramp_node_t from, bool is_another, const uint8_t *bytes,
			 size_t len);
/* An entry was applied: its result may be a proposal's. */
void proposals_applied(struct meta *meta, const struct fsm_result *result);
/* The tables were replaced: they may have results of open proposals. */
void proposals_restored(struct meta *meta);
/* Ends all of them with `result`. */
void proposals_fail_all(struct meta *meta, int result);

#endif
