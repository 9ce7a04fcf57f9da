/*
 * Unlinked segments, from the end of their name until their memory is free. Control loop, except
 * where noted.
 */
#ifndef RAMP_ORPHANS_H
#define RAMP_ORPHANS_H

#include "mount_ref.h"

struct orphans;

/* Callbacks of attr_sync.c. Control loop. */
struct orphans_ops {
	/* Has orphans_retry called in `ms` at the latest. */
	void (*wake_in)(struct mount *m, uint64_t ms);
	/* Looks at the row of a segment that the kernel has forgotten and that is no orphan. */
	void (*look_at_row)(struct mount *m, ramp_segment_t id);
};

/* Makes m->orphans. -ENOMEM. */
int orphans_open(struct mount *m, const struct orphans_ops *ops);
/* Begins nothing any more. */
void orphans_close(struct mount *m);
void orphans_free(struct mount *m); /* with the mount's last reference */

/* Adds a segment whose row is an orphan or gone: it is tried until its memory is free. */
void orphan_add(struct mount *m, ramp_segment_t id);
/* Tries those that are due. */
void orphans_retry(struct mount *m);

/* Returns whether a change of a row of ours without bytes is worth a look: an unlinked segment of
   that number has gone from here in this daemon's life, or one that shares its bit. Any thread. */
bool orphan_was_removed(struct mount *m, ramp_segment_t id);
/* Counts the memory of an unlinked segment as going (store.h), if the segment is here. Any
   thread. */
void orphan_goes(struct mount *m, ramp_segment_t id);
/* Takes note that the kernel has forgotten an inode, or that a segment was unlinked. Any thread. */
void orphan_forgotten(struct mount *m, ramp_segment_t id);

#endif
