/*
 * The source's end from ACCEPT on: prepare, the freeze, the target's verdicts.
 */
#ifndef RAMP_SOURCE_H
#define RAMP_SOURCE_H

#include "move.h"

void source_look(struct move *m);
void source_tick(struct move *m);
/* The client of a move in steps lets it continue: it does, where it waits. */
void source_go(struct move *m);
/* Gives up before GIVEN; may answer at once, and then there is no request any more. Returns false
   where it is too late. */
bool source_cancel(struct move *m, int code, const char *text);
/* True once the record is GIVEN, or may be: a worker is at it. */
bool source_past_return(const struct move *m);
void source_listen(struct transfers *t);

#endif
