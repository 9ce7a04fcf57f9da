/*
 * Background work on attributes: hints of size and times for the metadata, attributes that other
 * nodes changed, and unlinked segments that are no longer in use. Control thread.
 */
#ifndef RAMP_ATTR_SYNC_H
#define RAMP_ATTR_SYNC_H

#include "mount_ref.h"

int attr_sync_open(struct mount *m, struct ramp_err *err);
void attr_sync_close(struct mount *m);
void attr_sync_free(struct mount *m); /* with the mount's last reference */
/* Proposes the last sizes and times, since the mount is about to end, and calls fn(arg) when they
   have been answered, or after ATTR_SYNC_FINISH_MS. */
#define ATTR_SYNC_FINISH_MS 500
void attr_sync_finish(struct mount *m, loop_fn *fn, void *arg);
/* Looks at each segment's row in the next sweeps, since any may have changed. Takes one off
   mount.rows_posted when that is over. */
void attr_sync_all(struct mount *m);

#endif
