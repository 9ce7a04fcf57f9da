/*
 * The cluster's settings, which an operator may change (META_SET).
 */
#ifndef RAMP_META_FSM_SETTINGS_H
#define RAMP_META_FSM_SETTINGS_H

#include "fsm_core.h"

int fsm_set(struct apply *a);

/* Reads how much of the arena each user's segments may have. Returns 0 or -EIO. */
int fsm_arena_user_max(struct journal *j, uint64_t *bytes);

#endif
