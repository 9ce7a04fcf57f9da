/*
 * The pager thread: page faults and the waitlists.
 */
#ifndef RAMP_PAGER_H
#define RAMP_PAGER_H

#include "pull_core.h"

int pager_open(struct pull *pull, struct ramp_err *err);
/* pull->stop is set: takes no page fault any more, and returns when its thread has ended. */
void pager_join(struct pull *pull);
void pager_close(struct pull *pull);
void pager_free(struct pull *pull);

#endif
