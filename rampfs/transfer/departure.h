/*
 * Programs that are asked before a segment leaves: between the committed prepare and the freeze.
 */
#ifndef RAMP_DEPARTURE_H
#define RAMP_DEPARTURE_H

#include "move.h"

/* In S_PREPARING or S_PREPARED: goes to S_ASKING, and calls `then` once every program that was asked has
   let go of the segment; at once where there is none, or the request forces it. */
void departure_wait(struct move *m, move_fn *then);
/* Of a move in S_ASKING: a program has answered; the time is over, or the target is connected again. */
void departure_look(struct move *m);
void departure_tick(struct move *m);
/* Gives it up; source_fail has set why. */
void departure_stop(struct move *m);

#endif
