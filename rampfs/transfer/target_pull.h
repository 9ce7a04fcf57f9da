/*
 * The target's pull, which both T_COPYING and T_TAKEN begin.
 */
#ifndef RAMP_TARGET_PULL_H
#define RAMP_TARGET_PULL_H

#include "move.h"

/* Makes every page REMOTE, with the size that KEYS or TRANSFER names: CONNECT's list is not true
   any more. A worker's call. */
int target_widen(struct move *m);
/* Marks the pages beyond the end as arrived: the source has none. */
void target_forget_tail(struct seg *seg, uint64_t pages);
/* Begins the pull; page faults are answered from here on. A worker's call. */
int target_begin_pull(struct move *m);
/* Asks for all pages, now or as soon as the pull has begun. */
void target_prefetch(struct move *m);
/* Sends PULLED: how far the pull is. */
void target_send_pulled(struct move *m);

#endif
