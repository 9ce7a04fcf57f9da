/*
 * The control loop: one thread that runs libuv, and the two ways in and out of it.
 *
 * What runs on it never blocks, never writes SQLite, never touches a page of a segment. What
 * blocks goes through loop_work to libuv's pool of threads.
 */
#ifndef RAMP_LOOP_H
#define RAMP_LOOP_H

#include <uv.h>

#include "err.h"

struct loop;

/* Makes a loop; nothing runs until loop_run. */
int loop_open(struct loop **out, struct ramp_err *err);
/* Runs on the calling thread until loop_stop. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop); /* any thread */
/* Closes every handle that is still open, runs what is still posted, waits for workers, frees. */
void loop_close(struct loop *loop);
uv_loop_t *loop_uv(struct loop *loop); /* for handles of one's own; control thread only */

typedef void loop_fn(void *arg);

/* Runs fn(arg) on the control loop, in the order of the calls. Any thread; never blocks. */
void loop_post(struct loop *loop, loop_fn *fn, void *arg);

/* Runs work(arg) on a pool thread, then done(arg) on the control loop. Any thread. */
void loop_work(struct loop *loop, loop_fn *work, loop_fn *done, void *arg);

#endif
