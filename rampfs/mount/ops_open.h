/*
 * Handlers of open and release.
 */
#ifndef RAMP_OPS_OPEN_H
#define RAMP_OPS_OPEN_H

#include "libfuse.h"

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Sets the flags with which an open is answered: no second copy in the page cache, no FLUSH. */
void ops_open_flags(struct fuse_file_info *fi);

#endif
