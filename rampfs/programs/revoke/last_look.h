/*
 * The last look at page tables, which do not change any more (last_look.c).
 */
#ifndef RAMP_PROGRAMS_LAST_LOOK_H
#define RAMP_PROGRAMS_LAST_LOOK_H

#include <stdint.h>

#include "memory/page_set.h"
#include "programs/proc/mappings.h"

/* Adds the pages of [start, end) that may have been stored into since they were armed to `stored`, which has room for them;
   `page`: the segment's at `start`. -errno: it can't be told of all of them. Blocks shortly. */
int last_look(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t page,
	      struct page_set *stored);

#endif
