/*
 * Handlers of attributes and statfs.
 */
#ifndef RAMP_OPS_ATTR_H
#define RAMP_OPS_ATTR_H

#include "libfuse.h"

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

#endif
