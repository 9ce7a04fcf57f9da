/*
 * The window at the source: from the freeze to GIVEN and TRANSFER, and all of it undone.
 */
#ifndef RAMP_SOURCE_WINDOW_H
#define RAMP_SOURCE_WINDOW_H

#include <stddef.h>

#include "move.h"

/* S_FREEZING: freezes and gives; in mode copy freezes only. A worker's call. */
void source_freeze_work(struct move *m);
#define SOURCE_MANY 8u
/* The same for up to SOURCE_MANY lazy moves, one window after the other, after one look at the programs for all;
   calls move_work_over for each. Returns how many: fewer than n where one took long. */
size_t source_freeze_many(struct move *const *moves, size_t n);
/* For one of those that are left: its window. */
void source_freeze_opened(struct move *m);
/* Undoes the freeze; keys are revoked first. A worker's call. */
void source_undo(struct move *m);
/* Records GIVEN and sends TRANSFER, or undoes all (work_rc). A worker's call; then source_given. */
void source_give(struct move *m);
/* The worker is back from the above: S_GIVEN, or another attempt, or ABORTING. */
void source_given(struct move *m);

#endif
