/*
 * The source's end from GIVEN on.
 */
#ifndef RAMP_GIVEN_H
#define RAMP_GIVEN_H

#include "move.h"

/* Grants the target reads under the attempt's key; revokes them. Workers' calls. */
int given_grant(struct move *m);
void given_ungrant(struct move *m);
/* S_GIVEN, S_LEFT, S_ROLLED_BACK: obeys the row in the tables. */
void given_look(struct move *m);
void given_tick(struct move *m);
/* Sends TRANSFER or KEYS. Any thread that has the move. */
void given_send(struct move *m, uint8_t type);
/* Measures the window, once: the target has the segment. */
void given_window(struct move *m);
/* S_GIVEN: tells the programs that the segment has left. */
void given_leave(struct move *m);
/* S_LEFT, on demand: asks the target to pull all of it. */
void given_prefetch_all(struct move *m);
/* S_ROLLED_BACK: it is accepted. */
void given_reclaim(struct move *m);
/* True where the record is GIVEN and by the row the segment is ours again, as a daemon that has
   just started finds it. */
bool given_comes_back(struct transfers *t, const struct segment_row *row);
/* Takes up a segment whose record is GIVEN. Takes the reference `seg`. */
void given_take_up(struct transfers *t, struct seg *seg, const struct record *record);

#endif
