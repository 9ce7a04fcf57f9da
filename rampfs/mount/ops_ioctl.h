/*
 * Handler of the ioctls (base/ioc.h).
 */
#ifndef RAMP_OPS_IOCTL_H
#define RAMP_OPS_IOCTL_H

#include "libfuse.h"

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_bufsz,
	      size_t out_bufsz);

#endif
