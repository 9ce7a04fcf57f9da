/*
 * The target's reservation: CONNECT, room for the segment, ACCEPT, and giving it up.
 */
#ifndef RAMP_TARGET_RESERVE_H
#define RAMP_TARGET_RESERVE_H

#include "move.h"

/* True where nothing of it is recorded: it may be dropped at any time (R2). */
bool target_is_reserved(const struct move *m);
/* Drops the segment here; R2: k is never taken from here on. */
void target_drop(struct move *m);
/* T_DROPPING: tries again. */
void target_drop_again(struct move *m);
/* Drops it where it is a prefill. */
void target_drop_prefill(struct move *m);
/* Whether enough of the store is free beside prefills. */
bool target_may_keep_prefill(struct transfers *t);
/* The daemon ends: drops a segment that is only reserved, which would hold its room until the next
   daemon. */
void target_release(struct move *m);
/* The source hung up; `over`: it is connected again as another incarnation. */
void target_source_away(struct move *m, bool over);
/* T_RESERVED: the row or the timer may call for a drop. */
void target_reserved_look(struct move *m);
void target_reserved_tick(struct move *m);
/* R2: answers TRANSFER(k) or KEYS(k) where k is not reserved: TAKEN where it was taken, else
   REFUSED, for ever. */
void target_answer(struct transfers *t, ramp_node_t from, const struct msg_transfer *tr);
void target_reserve_listen(struct transfers *t);

#endif
