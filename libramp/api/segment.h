/*
 * A segment that is mapped, for the files of the API.
 *
 * Its members are written before it is handed out, and not after; but `steps` is protected by a lock of steps.c.
 */
#ifndef RAMP_API_SEGMENT_H
#define RAMP_API_SEGMENT_H

#include "handle.h"

struct ramp_segment {
	struct ramp_cluster *ramp;
	int fd; /* open for as long as it is mapped here */
	uint64_t id, extent;
	uint64_t
		came_in; /* the epoch of the attempt that brought it, whose commit the tables may not
			     show before ramp->listed_by_ms; 0: they do */
	void *data;
	uint8_t session;	    /* of its mapping: core_calls.h */
	struct stepped_move *steps; /* steps.c's; NULL: it is not connected */
};

/* Maps a segment for loads and stores that is on its way here from that directory, where it has that
   name. Returns 0 or a negative errno. */
int segment_map_ahead(struct ramp_cluster *ramp, const char *node, const char *name, uint64_t id,
		      struct ramp_segment **out);

#endif
