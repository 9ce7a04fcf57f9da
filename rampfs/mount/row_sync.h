/*
 * A segment's row has changed. Control loop.
 */
#ifndef RAMP_ROW_SYNC_H
#define RAMP_ROW_SYNC_H

#include "mount_ref.h"

/* Applies a segment's row to its file: attributes that other nodes changed, the end of its name. */
void row_sync(struct mount *m, ramp_segment_t id);

#endif
