/*
 * Handlers of the extended attributes user.ramp.*
 */
#ifndef RAMP_OPS_XATTR_H
#define RAMP_OPS_XATTR_H

#include "libfuse.h"

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
