/*
 * Huge pages for segments whose pages came as small ones.
 */
#ifndef RAMP_COLLAPSE_H
#define RAMP_COLLAPSE_H

#include "transfer_core.h"

/* Queues a settled segment. */
/* Returns whether that segment waits for it, or is at it. */
bool collapse_is_due(const struct transfers *t, ramp_segment_t id);
void collapse_begin(struct transfers *t, ramp_segment_t id);
/* Empties the queue; after the last worker is back. */
void collapses_close(struct transfers *t);

#endif
