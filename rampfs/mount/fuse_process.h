/*
 * One request: from /dev/fuse's bytes to libfuse, and INIT, which outlives the daemon.
 */
#ifndef RAMP_FUSE_PROCESS_H
#define RAMP_FUSE_PROCESS_H

#include "libfuse.h"
#include "mount_ref.h"

/* Makes libfuse's session: m->session. */
int fuse_process_open(struct mount *m, struct ramp_err *err);
/* Feeds libfuse the INIT that was saved; its reply goes nowhere. */
int fuse_process_saved_init(struct mount *m, struct ramp_err *err);
/* Carries out one request, as it was read. */
void fuse_process(struct mount *m, const struct fuse_buf *buf);

#endif
