/*
 * .ramp: what the node knows, as text.
 */
#ifndef RAMP_VIEW_H
#define RAMP_VIEW_H

#include "libfuse.h"
#include "mount_ref.h"

int view_open(struct mount *m, struct ramp_err *err);
void view_close(struct mount *m);
/* The fh of an open of one of .ramp's files: no two are the same, whichever daemon gave them. */
uint64_t view_fh(void);
/* Answers a read of it. The text is made when it is read from its beginning. */
void view_read(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, uint64_t offset);
void view_released(struct mount *m, uint64_t fh);

#endif
