/*
 * The state machine's ground: one command on its way through the rules, and the parts of rules that
 * more than one file uses.
 *
 * Each function that returns an int returns 0 (or as noted), a command's errno, or -EIO: the
 * journal is dead.
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

/* Notes in the result that the segment's row changed. Returns rc. */
int fsm_changed(struct apply *a, ramp_segment_t id, int rc);
/* Names the row in the reply: id and epoch; the second one also its extent. */
void fsm_reply(struct apply *a, const struct segment_row *row);
void fsm_reply_extent(struct apply *a, const struct segment_row *row);
/* Writes the row of the command, and names it in the reply. */
int fsm_put(struct apply *a, const struct segment_row *row);
/* Returns 1 where a newer incarnation of the node came, or a fence names this one (R1); else 0. */
int fsm_is_over(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
/* Returns 1 where this incarnation is the node's, and not over (R1); 0: not, or no such node. */
int fsm_is_current(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
/* Returns 0 where the name is free, or -EEXIST: a segment has it, or a prepare reserved it. */
int fsm_name_free(struct journal *j, ramp_node_t node, const char *name);
/* Sets the row's phase: the one door. Aborts where the drawing of fsm.h has no such arrow. */
void fsm_go(struct segment_row *row, enum segment_phase to);
/* Takes the segment out of its directory. Its addresses remain its own until its owner reports that
   nothing maps them (FREED), or is over (R12). In PULLING it continues to be pulled (R9). */
int fsm_drop(struct apply *a, struct segment_row *row);

#endif
