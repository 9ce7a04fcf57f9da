/*
 * The keeper's loop.
 */
#ifndef RAMP_KEEPER_LOOP_H
#define RAMP_KEEPER_LOOP_H

#include "keeper_state.h"

/* Runs until the mount is gone and the daemon has ended, or fails before any daemon served. */
int keeper_loop(struct keeper *k, struct ramp_err *err);
/* Tells config->ready_fd how the start went ("" or the error), and closes it. */
void keeper_tell_ready(const struct keeper_config *config, const char *text);
/* Unmounts and closes what the keeper holds, but for the lock. */
void keeper_let_go(struct keeper *k);

#endif
