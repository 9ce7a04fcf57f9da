/*
 * What the mount asks of the kernel about itself, from outside: by its mountpoint.
 */
#ifndef RAMP_MOUNT_SELF_H
#define RAMP_MOUNT_SELF_H

#include "mount_ref.h"

/* The mount's own device, without asking ourselves; 0: not to be had. Any thread. */
uint64_t mount_device(struct mount *m);
/* Has the kernel let go of every name of this mount that is not in use: inodes that nobody has open
   go with theirs, and FORGETs follow. Costs as much as names are cached. Blocks. */
void mount_drop_names(struct mount *m);

#endif
