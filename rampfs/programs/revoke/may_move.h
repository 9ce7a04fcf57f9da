/*
 * Whether a segment may be moved (may_move.c). programs.h has the rest.
 */
#ifndef RAMP_PROGRAMS_MAY_MOVE_H
#define RAMP_PROGRAMS_MAY_MOVE_H

#include "base/err.h"

struct programs;
struct seg;

/* Asks the mount. 0; -EBUSY with the process that holds the segment by FUSE passthrough. */
int may_move_ask_passthrough(struct programs *p, struct seg *seg, struct ramp_err *err);

#endif
