/*
 * What happens behind the requests' back: hints of size and times for the metadata, attributes that
 * other nodes changed, and unlinked segments that nobody uses any more.
 */
#ifndef RAMP_SWEEP_H
#define RAMP_SWEEP_H

#include "mount_ref.h"

/* Control thread. */
int sweep_open(struct mount *m, struct ramp_err *err);
void sweep_close(struct mount *m);
void sweep_free(struct mount *m); /* with the mount's last reference */
/* The mount is about to end: proposes what is left to say, and calls fn(arg) when it has been
   answered, or after SWEEP_FINISH_MS. Control loop. */
#define SWEEP_FINISH_MS 500
void sweep_finish(struct mount *m, loop_fn *fn, void *arg);
/* A row changed. Control loop. */
void sweep_row(struct mount *m, ramp_segment_t id);
/* Any may have: each segment's is looked at, in the next sweeps. One less of mount.rows_posted when
   that is over. Control loop. */
void sweep_all(struct mount *m);
/* Whether a change of a row of ours without bytes is worth a look: an unlinked segment of that
   number has gone from here in this daemon's life, or one that shares its bit. Any thread. */
bool sweep_removed(struct mount *m, ramp_segment_t id);
/* A segment was unlinked: its memory is counted as going (store.h), where it is. Any thread. */
void sweep_goes(struct mount *m, ramp_segment_t id);
/* The kernel has forgotten an inode; a segment was unlinked. Any thread. */
void sweep_forgotten(struct mount *m, ramp_segment_t id);

#endif
