/*
 * A segment that is closed to stores before its hand-over, at the source (source_close.c).
 */
#ifndef RAMP_SOURCE_CLOSE_H
#define RAMP_SOURCE_CLOSE_H

#include "move.h"

/* S_ROUNDS: nothing more is worth a round. Waits for the client, closes, or prepares, as it has asked. */
void source_rounds_enough(struct move *m);
/* The client lets it go further. */
void source_close_go(struct move *m);
/* The target has read the round that it was asked for. */
void source_close_read(struct move *m, uint32_t round);
/* It has read that many pages of it. */
void source_close_heard(struct move *m, uint64_t done_pages);
void source_close_tick(struct move *m);
/* Gives up; source_fail has set why. */
void source_close_stop(struct move *m);
/* S_QUIESCING: a program has answered, or the row has changed. */
void source_close_look(struct move *m);
/* S_WEIGHING, S_ROUNDS to S_CLOSED: the row has changed, perhaps. */
void source_rounds_look(struct move *m);
/* Nothing goes ahead any more: source_prepare, by the row that there is now. */
void source_rounds_over(struct move *m);

#endif
