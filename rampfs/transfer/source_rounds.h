/*
 * Mode precopy at the source (source_rounds.c).
 */
#ifndef RAMP_SOURCE_ROUNDS_H
#define RAMP_SOURCE_ROUNDS_H

#include "move.h"

/* S_CONNECTING: the target has room. source_prepare follows, or the end. */
void source_rounds_begin(struct move *m);
/* The same from S_WEIGHING, where stores are watched already. */
void source_rounds_watched(struct move *m);
/* Notes that the target reads pages. */
void source_rounds_heard(struct move *m, uint64_t done_pages);
/* S_ROUNDS: the target has given the pre-copy up. */
void source_rounds_refused(struct move *m);
/* S_WEIGHING, S_ROUNDS: gives up; source_fail has set why. */
void source_rounds_stop(struct move *m);
void source_rounds_tick(struct move *m);

/* ---- of a prefill (source_prefill.c) --------------------------------------------------------- */

/* A worker has returned. False: the rounds are over, for what it found, or for a cancel. */
bool source_rounds_go_on(struct move *m);
/* Looks which pages were stored into: for move_work, with what follows. */
void source_rounds_look_work(struct move *m);
/* S_ROUNDS: sends the ROUND again. */
void source_rounds_ask_again(struct move *m);
/* S_ROUNDS: asks for the next round, of what the last look has found. */
void source_rounds_next(struct move *m, uint64_t pages);
void source_rounds_listen(struct transfers *t);

#endif
