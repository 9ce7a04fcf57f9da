/*
 * Hints that are proposed to the metadata. Control loop.
 */
#ifndef RAMP_HINT_PROPOSE_H
#define RAMP_HINT_PROPOSE_H

#include "hints.h"

/* Proposes size and times of the segment's file where its row has others. For store_each_touched;
   `arg`: struct hints. Returns true if the segment has to be looked at again in the next sweep. */
bool hint_look_at_file(void *arg, struct seg *seg);

#endif
