/*
 * Huge pages for a segment that has arrived in small ones.
 */
#ifndef RAMP_MEMORY_COLLAPSE_H
#define RAMP_MEMORY_COLLAPSE_H

#include <stdatomic.h>

struct seg;

/* Collapses, by MADV_COLLAPSE, each 2 MiB block that is nearly full; called after the last page.
   Blocks, up to a second a GiB; once *stop is set or the segment is leaving, no longer than one
   block takes. */
void collapse_segment(struct seg *seg, const atomic_bool *stop);

#endif
