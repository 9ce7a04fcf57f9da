/*
 * The list of the populated pages of a segment, which CONNECT carries. Workers' calls.
 */
#ifndef RAMP_SOURCE_LIST_H
#define RAMP_SOURCE_LIST_H

#include "move.h"

/* Fills in the move's size, ranges and slack. work_rc and work_err say how it went. */
void source_list_make(struct move *m);
/* Frozen, no program has access: is the list still true? Sets m->unchanged. -ENOSPC: the segment
   has grown past the slack that the target took. */
int source_list_compare(struct move *m);

#endif
