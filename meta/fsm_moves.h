/*
 * The commands of a migration: PREPARE, TAKEN, SETTLED, ABORT. The phases are drawn in fsm.h.
 */
#ifndef RAMP_META_FSM_MOVES_H
#define RAMP_META_FSM_MOVES_H

#include "fsm_core.h"

/* One command, one function. Each returns the command's result; -EIO only where the journal is
   dead. */
int fsm_prepare(struct apply *a);
int fsm_taken(struct apply *a);
int fsm_settled(struct apply *a);
int fsm_abort(struct apply *a);

/* Gives the row a name that is free in the node's directory: its own, else NAME~ID. */
int fsm_name_on_return(struct journal *j, ramp_node_t node, struct segment_row *row);
/* Takes an attempt's fields out of the row. */
void fsm_end_attempt(struct segment_row *row);

#endif
