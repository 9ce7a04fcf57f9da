/*
 * The command by which a node tells the tables of a segment whose commits were lost with the old
 * cluster (recovery.h).
 */
#ifndef RAMP_META_FSM_RECOVERED_H
#define RAMP_META_FSM_RECOVERED_H

#include "fsm_core.h"

/* Returns the command's result; -EIO only where the journal is dead. */
int fsm_recovered(struct apply *a);

#endif
