/*
 * Mode auto at the source: which mode pays (source_weigh.c).
 */
#ifndef RAMP_SOURCE_WEIGH_H
#define RAMP_SOURCE_WEIGH_H

#include "move.h"

/* S_CONNECTING: the target has room. The move continues in the mode that pays. */
void source_weigh(struct move *m);
void source_weigh_tick(struct move *m);

#endif
