/*
 * The source's end while it waits for its client, after a step of a move that is made in steps.
 */
#ifndef RAMP_SOURCE_HOLD_H
#define RAMP_SOURCE_HOLD_H

#include "move.h"

/* Returns whether the move may continue to that step; one that is not made in steps may always. */
bool hold_lets(const struct move *m, enum session_step step);
/* ACCEPT has come: waits in S_CONNECTED. */
void hold_connected(struct move *m);
/* The prepare is committed: waits in S_PREPARED. */
void hold_prepared(struct move *m);
/* Waits for `ms` from now on (0: the usual time), unless it is prepared. Tells the client how long it
   waits. */
void hold_extend(struct move *m, uint32_t ms);
/* Tells the client which step is reached, and for how long it may wait there. */
void hold_tell(struct move *m);
/* S_READ_AHEAD, S_QUIESCING, S_CLOSED: the same, and the time begins again. */
void hold_restart(struct move *m);
/* Whether the client has gone, or its time is over. */
bool hold_is_over(const struct move *m);
/* S_CONNECTED: true where what the target has room for is enough for the segment as it is now. */
bool hold_fits(struct move *m);
/* Gives up; source_fail has set why. */
void hold_end(struct move *m);
/* S_PREPARED: another attempt, since the target may have lost the reservation. */
void hold_again(struct move *m);
/* The row has changed, or the timer has run out, or the target is connected again. */
void hold_look(struct move *m);
void hold_tick(struct move *m);

#endif
