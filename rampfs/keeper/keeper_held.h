/*
 * The descriptors that the keeper holds for its daemons, and its own.
 */
#ifndef RAMP_KEEPER_HELD_H
#define RAMP_KEEPER_HELD_H

#include "keeper_state.h"

/* The keeper's descriptors start here, above those that a daemon is given. */
#define KEEPER_HIGH_FD 16

#define KEEPER_OOM_KEEPER "-1000"
#define KEEPER_OOM_DAEMON "-900"

/* Sets oom_score_adj of a process; a failure is logged. */
void keeper_set_oom(pid_t pid, const char *score);
/* Moves a descriptor to KEEPER_HIGH_FD or above; closes `fd` in any case. */
int keeper_move_high(int fd, int *high);
/* Makes the socket pair in which daemons leave descriptors to each other: k->fdstore. */
int keeper_make_fdstore(struct keeper *k, struct ramp_err *err);
/* Takes the signals (k->signals), and locks the keeper's memory. */
int keeper_hold(struct keeper *k, struct ramp_err *err);

#endif
