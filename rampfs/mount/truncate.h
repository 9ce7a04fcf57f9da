/*
 * A segment's new size.
 */
#ifndef RAMP_TRUNCATE_H
#define RAMP_TRUNCATE_H

#include "request.h"

/* Sets the size, at the owner: 0, -EAGAIN (*gate: from the gate; else it needs a worker
   (offload.h), or pages), or the errors of an open. */
int truncate_segment(struct parked_request *r, ramp_segment_t id, uint64_t size, bool *gate);

#endif
