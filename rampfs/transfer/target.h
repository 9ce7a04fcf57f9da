/*
 * The target's end from TRANSFER on.
 */
#ifndef RAMP_TARGET_H
#define RAMP_TARGET_H

#include "move.h"

void target_look(struct move *m);
void target_tick(struct move *m);
/* The pull says that it is over; what it has brought. */
void target_pulled(struct move *m, const struct pull_figures *pulled);
/* Takes up a segment whose record is TAKEN. Takes the reference `seg`. */
void target_take_up(struct transfers *t, struct seg *seg, const struct record *record);
void target_listen(struct transfers *t);

#endif
