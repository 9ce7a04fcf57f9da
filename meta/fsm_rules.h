/*
 * Between the files of the state machine: fsm.c (segments) and fsm_members.c. Nobody else
 * includes it.
 */
#ifndef RAMP_META_FSM_RULES_H
#define RAMP_META_FSM_RULES_H

#include "fsm.h"

/* One command on its way through the rules. */
struct apply {
	struct journal *j;
	const struct meta_command *c;
	struct fsm_result *res;
};

/* 1: a newer incarnation of the node came, or a fence names this one (R1). 0: not; -EIO. */
int fsm_is_over(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);

/* Each returns the command's result; -EIO only where the journal is dead. */
int fsm_node_up(struct apply *a);
int fsm_node_fence(struct apply *a);
int fsm_member_add(struct apply *a);
int fsm_member_promote(struct apply *a);
int fsm_member_remove(struct apply *a);

#endif
