/*
 * libfuse's header, with the version that this program is written for.
 */
#ifndef RAMP_LIBFUSE_H
#define RAMP_LIBFUSE_H

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#endif
