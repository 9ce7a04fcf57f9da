/*
 * Which mount a tool means that was told none.
 */
#ifndef RAMP_FIND_MOUNT_H
#define RAMP_FIND_MOUNT_H

#include <limits.h>

/* The one rampfs mount of this mount namespace. 0, or the tool's exit status after a line on
   stderr: 1 there is none (or /proc can't be read), 2 there are several. */
int find_mount(const char *tool, char path[PATH_MAX]);

#endif
