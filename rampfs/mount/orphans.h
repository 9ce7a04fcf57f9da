/*
 * Unlinked segments, from when their name has gone until their memory is free. Control loop, but for
 * what says otherwise.
 */
#ifndef RAMP_ORPHANS_H
#define RAMP_ORPHANS_H

#include "mount_ref.h"

struct orphans;

/* What the upper file does for them. Control loop. */
struct orphans_ops {
	/* orphans_retry is called in `ms` at the latest. */
	void (*wake_in)(struct mount *m, uint64_t ms);
	/* The kernel has forgotten a segment that is no orphan: its row is looked at. */
	void (*look_at_row)(struct mount *m, ramp_segment_t id);
};

/* Makes m->orphans. -ENOMEM. */
int orphans_open(struct mount *m, const struct orphans_ops *ops);
/* Nothing is begun any more. */
void orphans_close(struct mount *m);
void orphans_free(struct mount *m); /* with the mount's last reference */

/* The segment's row is an orphan or gone: it is looked at until its memory is free. */
void orphan_add(struct mount *m, ramp_segment_t id);
/* Looks at those that are due. */
void orphans_retry(struct mount *m);

/* Whether a change of a row of ours without bytes is worth a look: an unlinked segment of that
   number has gone from here in this daemon's life, or one that shares its bit. Any thread. */
bool orphan_was_removed(struct mount *m, ramp_segment_t id);
/* A segment was unlinked: its memory is counted as going (store.h), where it is. Any thread. */
void orphan_goes(struct mount *m, ramp_segment_t id);
/* The kernel has forgotten an inode; a segment was unlinked. Any thread. */
void orphan_forgotten(struct mount *m, ramp_segment_t id);

#endif
