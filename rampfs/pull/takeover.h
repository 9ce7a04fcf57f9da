/*
 * Failover of a thread that a program blocks: the guard sees it, and begins another thread.
 */
#ifndef RAMP_TAKEOVER_H
#define RAMP_TAKEOVER_H

#include "pull_core.h"

/* After both pullers are open. */
int takeover_open(struct pull *pull, struct ramp_err *err);
/* After puller_join of both: no thread is begun any more. */
void takeover_join(struct pull *pull);
void takeover_close(struct pull *pull);

#endif
