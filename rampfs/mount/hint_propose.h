/*
 * Hints that are proposed to the metadata. Control loop.
 */
#ifndef RAMP_HINT_PROPOSE_H
#define RAMP_HINT_PROPOSE_H

#include "hints.h"

/* For store_each_touched: proposes what the row does not say of the segment's file. `arg`: struct
   hints. True: to be looked at again in the next sweep. */
bool hint_look_at_file(void *arg, struct seg *seg);

#endif
