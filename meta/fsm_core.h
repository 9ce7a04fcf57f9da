/*
 * The state machine's ground: one command on its way through the rules, and what the rules of more
 * than one file use.
 */
#ifndef RAMP_META_FSM_CORE_H
#define RAMP_META_FSM_CORE_H

#include "fsm.h"

/* One command on its way through the rules. */
struct apply {
	struct journal *j;
	const struct meta_command *c;
	struct fsm_result *res;
};

int fsm_changed(struct apply *a, ramp_segment_t id, int rc);
void fsm_reply(struct apply *a, const struct segment_row *row);
void fsm_reply_extent(struct apply *a, const struct segment_row *row);
int fsm_put(struct apply *a, const struct segment_row *row);
/* 1: a newer incarnation of the node came, or a fence names this one (R1). 0: not; -EIO. */
int fsm_is_over(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
int fsm_is_current(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
int fsm_name_free(struct journal *j, ramp_node_t node, const char *name);
/* The one door of the phases: aborts where the drawing of fsm.h has no such arrow. */
void fsm_go(struct segment_row *row, enum segment_phase to);
int fsm_drop(struct apply *a, struct segment_row *row);

#endif
