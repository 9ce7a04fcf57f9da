/*
 * The commands about segments that do not move.
 */
#ifndef RAMP_META_FSM_SEGMENTS_H
#define RAMP_META_FSM_SEGMENTS_H

#include "fsm_core.h"

/* One command, one function. Each returns the command's result; -EIO only where the journal is
   dead. */
int fsm_create(struct apply *a);
int fsm_unlink(struct apply *a);
int fsm_rename(struct apply *a);
int fsm_setattr(struct apply *a);
int fsm_extent(struct apply *a);
int fsm_unextent(struct apply *a);
int fsm_freed(struct apply *a);

#endif
