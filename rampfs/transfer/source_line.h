/*
 * The line in which moves of a batch wait for their windows (source_line.c).
 */
#ifndef RAMP_SOURCE_LINE_H
#define RAMP_SOURCE_LINE_H

#include "move.h"

/* S_FREEZING: has a worker take it through its window, with others of its owner; then the control loop calls
   `done`. */
void source_line_join(struct move *m, move_fn *done);

#endif
