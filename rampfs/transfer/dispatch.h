/*
 * From a segment to the end that has it: hooks of transfer_core.h, and the state ABORTING.
 */
#ifndef RAMP_DISPATCH_H
#define RAMP_DISPATCH_H

#include "move.h"

/* move_look: takes up a record, aborts a left attempt, or looks at the move that is there. */
void dispatch_look(struct transfers *t, ramp_segment_t id);
/* A move's timer has run out, or its other end is connected again. */
void dispatch_tick(struct move *m);

#endif
