/*
 * Handler of readdir.
 */
#ifndef RAMP_OPS_READDIR_H
#define RAMP_OPS_READDIR_H

#include "libfuse.h"

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

#endif
