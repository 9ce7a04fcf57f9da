/*
 * Processes whose devices may store into a segment's pages behind the page tables (pins.c).
 */
#ifndef RAMP_PROGRAMS_PINS_H
#define RAMP_PROGRAMS_PINS_H

#include "base/err.h"

struct mapped_segment;

/* -EBUSY, with the process and what it has open, where a process that has the segment mapped may have
   pages of it pinned. change is not held. Blocks. */
int pins_look(struct mapped_segment *mseg, struct ramp_err *err);

#endif
