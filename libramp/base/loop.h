/*
 * The control loop: one thread that runs libuv, and the two ways in and out of it.
 *
 * A function on it never blocks, never writes SQLite, never touches a page of a segment. Work that
 * blocks goes through loop_work to a pool of threads. No handle of the loop is a uv_async_t, and
 * nothing uses libuv's own pool (uv_queue_work, uv_getaddrinfo, uv_fs_*): loop.c says why.
 */
#ifndef RAMP_LOOP_H
#define RAMP_LOOP_H

#include <sys/types.h>
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
uv_loop_t *loop_uv(struct loop *loop); /* for the caller's handles; control thread only */

typedef void loop_fn(void *arg);

/* Runs fn(arg) on the control loop, in the order of the calls. Any thread; never blocks. */
void loop_post(struct loop *loop, loop_fn *fn, void *arg);

/* Runs work(arg) on a pool thread, then done(arg) on the control loop. Any thread. */
void loop_work(struct loop *loop, loop_fn *work, loop_fn *done, void *arg);
/* The same for work that this user may block for as long as it likes: it runs in the user's share of
   the threads (fair_queue.h). loop_work counts as root's. */
void loop_work_of(struct loop *loop, uid_t uid, loop_fn *work, loop_fn *done, void *arg);
/* The same as loop_work for work that takes seconds by itself: half of the threads are never busy
   with it. */
void loop_work_slow(struct loop *loop, loop_fn *work, loop_fn *done, void *arg);

/*
 * Gives the control thread real-time priority for `ms`, for the steps of a move that programs
 * wait for; never for longer than half a second at a time, and not soon again if it has computed
 * for half of that. Control thread only; does nothing where a cgroup denies it.
 */
void loop_rt_boost(struct loop *loop, unsigned int ms);

/* Replaces uv_async_t: fn(arg) runs on the control loop once for all the sends before. */
struct loop_wake {
	uv_poll_t poll;
	int fd;
	loop_fn *fn, *closed;
	void *arg;
};
int loop_wake_open(struct loop *loop, struct loop_wake *wake, loop_fn *fn, void *arg,
		   struct ramp_err *err);
void loop_wake_send(struct loop_wake *wake); /* any thread; never blocks */
/* Control thread; `wake` must exist until closed(arg) is called. `closed` may be NULL. */
void loop_wake_close(struct loop_wake *wake, loop_fn *closed);

#endif
