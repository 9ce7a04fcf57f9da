/*
 * The window at the source: from the freeze to GIVEN and TRANSFER, and all of it undone.
 */
#ifndef RAMP_SOURCE_WINDOW_H
#define RAMP_SOURCE_WINDOW_H

#include "move.h"

/* S_FREEZING: freezes and gives; in mode copy freezes only. A worker's call. */
void source_freeze_work(struct move *m);
/* Undoes the freeze; keys are revoked first. A worker's call. */
void source_undo(struct move *m);
/* Records GIVEN and sends TRANSFER, or undoes all (work_rc). A worker's call; then source_given. */
void source_give(struct move *m);
/* The worker is back from the above: S_GIVEN, or another attempt, or ABORTING. */
void source_given(struct move *m);

#endif
