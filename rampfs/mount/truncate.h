/*
 * A segment's new size.
 */
#ifndef RAMP_TRUNCATE_H
#define RAMP_TRUNCATE_H

#include "request.h"

/* Sets the size, at the owner: 0, -EAGAIN (*gate: it was the gate; else spare.h, or pages), or what
   open would say. */
int truncate_segment(struct parked_request *r, ramp_segment_t id, uint64_t size, bool *gate);

#endif
