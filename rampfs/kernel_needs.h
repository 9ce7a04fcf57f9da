/*
 * Whether this machine's kernel can run rampfs.
 */
#ifndef RAMP_KERNEL_NEEDS_H
#define RAMP_KERNEL_NEEDS_H

#include "base/err.h"

/* -ENOSYS before Linux 6.7, with what is missing and where a newer kernel comes from. */
int kernel_needs(struct ramp_err *err);

#endif
