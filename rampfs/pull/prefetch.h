/*
 * The prefetch threads: the rest of each segment, in the background, and the end of every pull.
 */
#ifndef RAMP_PREFETCH_H
#define RAMP_PREFETCH_H

#include "pull_core.h"

/* Opens all of them: pull->n_pullers - 1. */
int prefetch_open(struct pull *pull, struct ramp_err *err);
/* As puller_join. */
void prefetch_join(struct pull *pull);
void prefetch_close(struct pull *pull);
void prefetch_free(struct pull *pull);

#endif
