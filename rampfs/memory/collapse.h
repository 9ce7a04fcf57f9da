/*
 * Huge pages for a segment that has arrived in small ones.
 */
#ifndef RAMP_MEMORY_COLLAPSE_H
#define RAMP_MEMORY_COLLAPSE_H

#include <stdatomic.h>
#include <stdint.h>

struct seg;

/* The 2 MiB of the segment that begin at `offset` are one huge page of the file. */
typedef void collapsed_fn(void *arg, struct seg *seg, uint64_t offset);

/* Collapses, by MADV_COLLAPSE, each 2 MiB block that is nearly full; called after the last page.
   Blocks, up to a second a GiB; once *stop is set or the segment is leaving, no longer than one
   block takes. Calls `fn`, unless it is NULL, for each block that is huge then. */
void collapse_segment(struct seg *seg, const atomic_bool *stop, collapsed_fn *fn, void *arg);

#endif
