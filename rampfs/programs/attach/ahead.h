/*
 * Attaching a segment that is on its way here (ahead.c).
 */
#ifndef RAMP_PROGRAMS_AHEAD_H
#define RAMP_PROGRAMS_AHEAD_H

#include "attach.h"

/* Maps the empty file in the range, as if the segment had been here and had left: programs_back then
   puts it in its place. -EAGAIN: it is here by now. Other errors as of attach_map. On a worker. */
int ahead_map(struct programs *p, struct mapped_segment *mseg, struct client *client,
	      const struct attach_range *wish);

#endif
