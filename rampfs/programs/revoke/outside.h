/*
 * Mappings of a segment outside of its extent, in the processes that have a session (outside.c).
 */
#ifndef RAMP_PROGRAMS_OUTSIDE_H
#define RAMP_PROGRAMS_OUTSIDE_H

#include <stdint.h>

#include "base/err.h"

struct mapped_segment;
struct programs;

/* Looks into all of these processes, after this call. -EBUSY: one maps the segment's file `ino` outside
   of its extent, or can't be looked into; `err` names it. Blocks. */
int outside_look(struct programs *p, struct mapped_segment *mseg, uint64_t ino,
		 struct ramp_err *err);

#endif
