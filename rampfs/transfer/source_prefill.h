/*
 * A prefill at the source (source_prefill.c).
 */
#ifndef RAMP_SOURCE_PREFILL_H
#define RAMP_SOURCE_PREFILL_H

#include "move_request_core.h"

/* Begins an attempt, as the row wants it. Takes the reference `seg`. */
void source_prefill_begin(struct transfers *t, const struct segment_row *row, struct seg *seg);
/* Sets the limit that the row names, or the usual one. */
void source_prefill_bound(struct move *m, const struct segment_row *row);
/* Hook: the target has read a round. */
void source_prefill_read(struct move *m);
/* S_RESTING. */
void source_prefill_tick(struct move *m);
/* Lets the request join the prefill, which is one no more. False: it wants another move. */
bool source_prefill_join(struct move *m, struct move_request *req);
/* Answers the request that has joined: it is a prefill again. False: there is none, or it is too late. */
bool source_prefill_leave(struct move *m, int code, const char *text);

#endif
