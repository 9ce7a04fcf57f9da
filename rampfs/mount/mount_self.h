/*
 * Requests to the kernel about our own mount, from outside: by its mountpoint.
 */
#ifndef RAMP_MOUNT_SELF_H
#define RAMP_MOUNT_SELF_H

#include "mount_ref.h"

/* Returns the mount's own device, without sending a request to ourselves; 0: unknown. Any
   thread. */
uint64_t mount_device(struct mount *m);
/* Has the kernel drop every name of this mount that is not in use. Inodes that no program has open
   go with their names, and FORGETs follow. Its cost grows with the number of cached names.
   Blocks. */
void mount_drop_names(struct mount *m);

#endif
