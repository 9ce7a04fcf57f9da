/*
 * Handler of create.
 */
#ifndef RAMP_OPS_CREATE_H
#define RAMP_OPS_CREATE_H

#include "libfuse.h"

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);

#endif
