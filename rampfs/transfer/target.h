/*
 * The target's end from TRANSFER on.
 */
#ifndef RAMP_TARGET_H
#define RAMP_TARGET_H

#include "move.h"

void target_look(struct move *m);
void target_tick(struct move *m);
/* The pull says that it is over; that many pages are lost. */
void target_pulled(struct move *m, uint64_t lost);
/* Takes up a segment whose record is TAKEN. Takes the reference `seg`. */
void target_take_up(struct transfers *t, struct seg *seg, const struct record *record);
void target_listen(struct transfers *t);

#endif
