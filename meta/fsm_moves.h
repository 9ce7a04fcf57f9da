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

#endif
