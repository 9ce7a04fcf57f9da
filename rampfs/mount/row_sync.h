/*
 * A segment's row has changed. Control loop.
 */
#ifndef RAMP_ROW_SYNC_H
#define RAMP_ROW_SYNC_H

#include "mount_ref.h"

/* Does at the segment's file what its row says: attributes of other nodes, the end of its name. */
void row_sync(struct mount *m, ramp_segment_t id);

#endif
