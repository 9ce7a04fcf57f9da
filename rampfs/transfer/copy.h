/*
 * Mode copy at both ends.
 */
#ifndef RAMP_COPY_H
#define RAMP_COPY_H

#include "move.h"

/* S_FREEZING, frozen: the target may read. */
void copy_begin(struct move *m);
void copy_source_tick(struct move *m);
/* S_COPYING: the target has that many pages. */
void copy_heard(struct move *m, uint64_t done_pages);
/* S_COPYING: gives access back; source_fail has set why. */
void copy_stop(struct move *m);
void copy_target_tick(struct move *m);
/* T_COPYING: the pull has ended; that many pages are lost. */
void copy_pulled(struct move *m, uint64_t lost);
/* The daemon ends: undoes a freeze that is not given. */
void copy_close(struct move *m);
void copy_listen(struct transfers *t);

#endif
