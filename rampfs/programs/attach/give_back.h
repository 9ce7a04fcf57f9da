/*
 * What stands in the way of giving a segment's addresses back (give_back.c).
 */
#ifndef RAMP_PROGRAMS_GIVE_BACK_H
#define RAMP_PROGRAMS_GIVE_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"

struct programs;

/* Returns true where the empty file may be mapped in that range in place of the segment: the range is in
   its extent, and this node has not said that nothing lies there. */
bool give_back_allows(struct programs *p, ramp_segment_t id, uint64_t start, uint64_t end);

#endif
