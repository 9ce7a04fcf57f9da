/*
 * The pool of threads that read /dev/fuse.
 */
#ifndef RAMP_FUSE_LOOP_H
#define RAMP_FUSE_LOOP_H

#include "mount_ref.h"

/* Makes the session and the threads' buffers. */
int fuse_loop_open(struct mount *m, struct ramp_err *err);
/* Takes over what a dead daemon left, and starts the threads. */
int fuse_loop_start(struct mount *m, struct ramp_err *err);
void fuse_loop_stop(struct mount *m);

#endif
