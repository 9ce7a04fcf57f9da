/*
 * A segment that is closed to stores while loads continue (close_stores.c).
 */
#ifndef RAMP_PROGRAMS_CLOSE_STORES_H
#define RAMP_PROGRAMS_CLOSE_STORES_H

#include <stdint.h>

#include "base/err.h"

struct mapped_segment;
struct programs;

/* Of a segment that is closed: has a mapping without entries, registered, made beside each attachment, so
   that the window is short. What can't be made now is tried in the window. change is held. */
int close_stores_prepare(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err);
/* Of one that was closed and is FROZEN: puts these in place, so that loads wait, too. change is held. */
int close_stores_replace(struct programs *p, struct mapped_segment *mseg, uint64_t until_ms,
			 struct ramp_err *err);

#endif
