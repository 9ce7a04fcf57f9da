/*
 * Requests that take the lock of a segment's file, where a program may hold it (seg_hand_out).
 *
 * Such a program can block them for as long as it likes. So neither a fuse thread nor the park
 * thread carries them out but a worker, in the share of the segment's owner (loop_work_of), and one
 * at a time of a segment. The others wait in the park, where a signal reaches them. No signal
 * reaches a request once it has been given to a worker, also while all threads of that share are
 * blocked.
 *
 * Requests that take no such lock (reads) do not come here, and requests to a segment that no
 * program has are carried out at once.
 */
#ifndef RAMP_OFFLOAD_H
#define RAMP_OFFLOAD_H

#include "request.h"

/* Why the thread may block on the lock: no program can hold it, or the thread is a worker. */
enum offload_how { OFFLOAD_DIRECT = 1, OFFLOAD_WORKER };

/* Asks to take the lock, in a request's step. Returns an enum offload_how for offload_end, or
   -EAGAIN: not on this thread (r->needs_worker is set). `long_one`: it takes long, and so is never
   for a thread that others wait for. */
int offload_begin(struct parked_request *r, struct seg *seg, bool long_one);
void offload_end(struct seg *seg, int how);

/* Hands over a request on the heap that got -EAGAIN, with its step set: a worker runs the step now,
   or the request is parked until one can, or until another thing that it waits for has changed. */
void offload_wait(struct parked_request *r, ramp_segment_t id);
/* The same from inside the step, where request_judge returns PARK_WAIT: returns the step's
   verdict. */
enum park_verdict offload_later(struct parked_request *r);

int offload_open(struct mount *m);   /* for mount_open: 0 or -ENOMEM */
void offload_close(struct mount *m); /* with the last reference */

#endif
