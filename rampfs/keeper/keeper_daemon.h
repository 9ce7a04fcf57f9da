/*
 * The keeper's daemon: started, watched, and started again when it dies.
 */
#ifndef RAMP_KEEPER_DAEMON_H
#define RAMP_KEEPER_DAEMON_H

#include "keeper_state.h"

/* Starts a daemon. Where one has served before, a failure is logged and the start is tried again
   later; else it is an error. */
int keeper_start_daemon(struct keeper *k, struct ramp_err *err);
/* Opens k->pidfd of the running process k->pid. -ESRCH: it has ended. */
int keeper_watch_daemon(struct keeper *k, bool child);
/* Handles the end of the daemon: returns 0, and the next start is due, or the error with which the
   keeper ends. */
int keeper_daemon_died(struct keeper *k, struct ramp_err *err);
/* Sends KEEPER_SAY_*; a failure is logged. */
void keeper_say(struct keeper *k, char what);

#endif
