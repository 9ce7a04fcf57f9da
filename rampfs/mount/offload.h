/*
 * Requests that take the lock of a segment's file, where a program may hold it (seg_hand_out).
 *
 * Such a program can keep them for as long as it likes. So neither a fuse thread nor the park
 * thread carries them out but a worker, in the share of the segment's owner (loop_work_of), and of
 * one segment one at a time: the others wait in the park, where a signal reaches them. None reaches
 * one whose turn it is, also while all threads of that share are kept.
 *
 * What takes no such lock (a read) does not come here, and what is done to a segment that no
 * program has is done at once.
 */
#ifndef RAMP_OFFLOAD_H
#define RAMP_OFFLOAD_H

#include "request.h"

/* How a thread may do it: at once, since nobody can hold the lock up; or since it can be spared. */
enum offload_how { OFFLOAD_DIRECT = 1, OFFLOAD_WORKER };

/* Before the lock is taken, in a request's step: an enum offload_how for offload_end, or -EAGAIN: not on
   this thread (r->needs_worker is set). `long_one`: never on a thread that others wait for. */
int offload_begin(struct parked_request *r, struct seg *seg, bool long_one);
void offload_end(struct seg *seg, int how);

/* Of a request on the heap that was told -EAGAIN, with its step set: a worker runs the step, or it
   is parked until one can, as what waits for something else is. */
void offload_wait(struct parked_request *r, ramp_segment_t id);
/* In the step, where request_judge says PARK_WAIT: the same, as the step's verdict. */
enum park_verdict offload_later(struct parked_request *r);

int offload_open(struct mount *m);   /* of a mount that is being made: 0 or -ENOMEM */
void offload_close(struct mount *m); /* of one that nobody uses any more */

#endif
