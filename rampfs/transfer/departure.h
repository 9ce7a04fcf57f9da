/*
 * Programs that are asked before a segment leaves: between the committed prepare and the freeze; of two steps, before
 * it is closed to stores.
 */
#ifndef RAMP_DEPARTURE_H
#define RAMP_DEPARTURE_H

#include "move.h"

/* Asks the programs that were not asked yet, and tells all that it is to leave. Returns whether an answer is
   waited for: false where there is none, or the request forces it. */
bool departure_ask(struct move *m);
/* The same of those that were asked. */
bool departure_awaits(const struct move *m);
/* They have answered. */
void departure_note(struct move *m);
/* They have not, in time: source_fail, which names one. */
void departure_unanswered(struct move *m);
/* In S_PREPARING or S_PREPARED: goes to S_ASKING, and calls `then` once every program that was asked has
   let go of the segment; at once where there is none, or the request forces it. */
void departure_wait(struct move *m, move_fn *then);
/* Of a move in S_ASKING: a program has answered; the time is over, or the target is connected again. */
void departure_look(struct move *m);
void departure_tick(struct move *m);
/* Gives it up; source_fail has set why. */
void departure_stop(struct move *m);

#endif
