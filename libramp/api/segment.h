/*
 * A segment that is mapped, for the files of the API.
 */
#ifndef RAMP_API_SEGMENT_H
#define RAMP_API_SEGMENT_H

#include "handle.h"

struct ramp_segment {
	struct ramp_cluster *ramp;
	int fd; /* open for as long as it is mapped here */
	uint64_t id, extent;
	void *data;
	struct steps *steps; /* steps.c's; NULL: it is not connected */
};

#endif
