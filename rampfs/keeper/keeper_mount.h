/*
 * The keeper's mount.
 */
#ifndef RAMP_KEEPER_MOUNT_H
#define RAMP_KEEPER_MOUNT_H

#include "keeper_state.h"

/* Detaches dead mounts of our source, and one at our mountpoint. The caller holds the lock of the
   state directory, so no daemon serves a mount of it. -EBUSY: another rampfs is mounted there. */
int keeper_detach_dead(const struct keeper_config *config, struct ramp_err *err);
/* Mounts: sets k->fuse, and RAMPFS_CONNECTION in our environment. */
int keeper_make_mount(struct keeper *k, struct ramp_err *err);
/* Unmounts; a mount that is in use is detached. */
void keeper_drop_mount(struct keeper *k);

#endif
