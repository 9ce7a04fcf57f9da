/*
 * A segment that is made with its size and its addresses in one commit.
 *
 * Any thread may call these functions; they share nothing.
 */
#ifndef RAMP_API_ALLOC_H
#define RAMP_API_ALLOC_H

#include <stdbool.h>

#include "handle.h"

/* Checks that what->size is no more than this node has (dir: its directory), and the addresses no
   more than the arena has. 0 or a negative errno; ramp_error() is set. */
int alloc_check(const struct ramp_cluster *ramp, int dir, const struct ramp_alloc *what);
/* Returns how large an extent is asked for; 0: none, the cluster chooses. */
uint64_t alloc_extent(const struct ramp_alloc *what);
/* Returns whether alloc_at_once gives it the mode that is asked for: it may be opened by its owner then. Else
   it is 0600, and the caller changes that once it has it open. */
bool alloc_has_mode(const struct ramp_alloc *what);
/* Makes it. -EOPNOTSUPP: the daemon, or that of another node, is of an older version. */
int alloc_at_once(int dir, const struct ramp_alloc *what);
/* Sets ramp_error() for a result of making one, and returns it. */
int alloc_error(const struct ramp_alloc *what, int rc);

#endif
