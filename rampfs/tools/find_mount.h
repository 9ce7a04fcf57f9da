/*
 * The mount of a tool that was given none, and whether a mount may be trusted.
 */
#ifndef RAMP_FIND_MOUNT_H
#define RAMP_FIND_MOUNT_H

#include <limits.h>

#include "base/ioc.h"

/* Finds the one rampfs mount of root's in this mount namespace. Returns 0, or the tool's exit
   status after a line on stderr: 1 there is none (or /proc can't be read), 2 there are several. */
int find_mount(const char *tool, char path[PATH_MAX]);

/*
 * Asks the mount in which `dir` lies for its facts, and trusts it only where root has mounted it:
 * any user's FUSE filesystem may call itself rampfs, and name a segment and a daemon that are not
 * its own. Returns 0; -ENOTTY: it is no rampfs mount; -EPERM: root has not mounted it; or another
 * negative errno.
 */
int ask_mount_info(int dir, struct ramp_ioc_info *info);

#endif
