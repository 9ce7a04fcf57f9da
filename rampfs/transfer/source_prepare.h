/*
 * The source's end at prepare (source_prepare.c).
 */
#ifndef RAMP_SOURCE_PREPARE_H
#define RAMP_SOURCE_PREPARE_H

#include "move.h"

/* S_CONNECTING, S_CONNECTED, S_ROUNDS: the target has room, and what it was to read ahead. */
void source_prepare(struct move *m);
/* S_PREPARING, S_PREPARED: opens the window, when programs have let go of the segment. */
void source_depart(struct move *m);

#endif
