/*
 * Which mount a tool means that was told none, and whether it is one to be asked.
 */
#ifndef RAMP_FIND_MOUNT_H
#define RAMP_FIND_MOUNT_H

#include <limits.h>

#include "base/ioc.h"

/* The one rampfs mount of root's in this mount namespace. 0, or the tool's exit status after a line on
   stderr: 1 there is none (or /proc can't be read), 2 there are several. */
int find_mount(const char *tool, char path[PATH_MAX]);

/*
 * What the mount says of itself that `dir` lies in, where root has mounted it: any user's FUSE
 * filesystem may call itself rampfs, and name a segment and a daemon that are none of its own.
 * 0; -ENOTTY: it is no rampfs mount; -EPERM: one that root has not made; or another negative errno.
 */
int ask_mount_info(int dir, struct ramp_ioc_info *info);

#endif
