/*
 * Mode precopy at the target (target_rounds.c).
 */
#ifndef RAMP_TARGET_ROUNDS_H
#define RAMP_TARGET_ROUNDS_H

#include "move.h"

/* T_ROUNDS: the pull of a round has ended; that many pages are lost. */
void target_rounds_pulled(struct move *m);
void target_rounds_tick(struct move *m);
/* T_ROUNDS: TRANSFER has come. Whether it is to come again, since not all is known that it counts, or a
   worker has the move. */
bool target_rounds_awaits(const struct move *m, const struct msg_transfer *tr);
/* Whether the target may take k: it is told which of its pages are old (m->target.stored). */
bool target_rounds_may_take(struct move *m, const struct msg_transfer *tr);
/* Makes those pages REMOTE, and the file as long as m->size. 0, or the errno of work_err. The thread
   that has the move. */
int target_rounds_mark(struct move *m);
void target_rounds_listen(struct transfers *t);

#endif
