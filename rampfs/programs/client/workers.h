/*
 * Worker threads for work that may wait for a program or its agent (workers.c).
 */
#ifndef RAMP_PROGRAMS_WORKERS_H
#define RAMP_PROGRAMS_WORKERS_H

#include <sys/types.h>

#include "base/err.h"

struct workers;
typedef void worker_fn(void *arg);
int workers_open(struct workers **out, struct ramp_err *err);
void workers_close(struct workers *workers); /* returns when all that was queued has run */
/* Runs fn(arg) on a worker thread, for a program of that user. Users take turns, and at most half
   of the threads run for one of them. Any thread. */
void workers_run(struct workers *workers, uid_t uid, worker_fn *fn, void *arg);
/* The same for work that the daemon itself has to do for a program of that user; it goes first.
   WORKERS_SELF: for no user. */
#define WORKERS_SELF ((uid_t)-1)
void workers_run_own(struct workers *workers, uid_t uid, worker_fn *fn, void *arg);

#endif
