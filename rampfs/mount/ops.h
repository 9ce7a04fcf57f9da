/*
 * The table of handlers; they are declared in ops_*.h.
 */
#ifndef RAMP_OPS_H
#define RAMP_OPS_H

#include "libfuse.h"

extern const struct fuse_lowlevel_ops mount_ops;

#endif
