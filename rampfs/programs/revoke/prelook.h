/*
 * Whether a full look at who maps a segment still holds (prelook.c).
 */
#ifndef RAMP_PROGRAMS_PRELOOK_H
#define RAMP_PROGRAMS_PRELOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mapped_segment;
struct mapping_ref;
struct programs;

/* Whether nothing has come since programs_watch that could map it outside of the arena; change is
   held, and the segment frozen. */
bool prelook_holds(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count);
/* No window comes: unregistered. change is held. */
void prelook_end(struct mapped_segment *mseg);
/* Whether the locks of those memories can be had that have it mapped: to register takes them, for
   as long as a program likes. -EBUSY with who it is. change is not held, or others would wait. */
int prelook_reach(struct mapped_segment *mseg, struct ramp_err *err);

#endif
