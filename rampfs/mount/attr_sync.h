/*
 * What happens behind the requests' back: hints of size and times for the metadata, attributes that
 * other nodes changed, and unlinked segments that nobody uses any more. Control thread.
 */
#ifndef RAMP_ATTR_SYNC_H
#define RAMP_ATTR_SYNC_H

#include "mount_ref.h"

int attr_sync_open(struct mount *m, struct ramp_err *err);
void attr_sync_close(struct mount *m);
void attr_sync_free(struct mount *m); /* with the mount's last reference */
/* The mount is about to end: proposes what is left to say, and calls fn(arg) when it has been
   answered, or after ATTR_SYNC_FINISH_MS. */
#define ATTR_SYNC_FINISH_MS 500
void attr_sync_finish(struct mount *m, loop_fn *fn, void *arg);
/* Any row may have changed: each segment's is looked at, in the next sweeps. One less of
   mount.rows_posted when that is over. */
void attr_sync_all(struct mount *m);

#endif
