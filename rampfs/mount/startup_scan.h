/*
 * The first look at all that the store and the tables hold. Control loop.
 */
#ifndef RAMP_STARTUP_SCAN_H
#define RAMP_STARTUP_SCAN_H

#include "mount_ref.h"

/* Zeroed at first. */
struct startup_scan {
	struct mount *mount;
	ramp_segment_t *first; /* what the store held at the start, until it has been looked at */
	size_t n_first, at_first;
	ramp_segment_t first_row;
	bool begun, over;
	uint32_t restored; /* snapshots that it is also for */
};

/* Looks at some. True: that was all. Not called again then, but after startup_scan_again. */
bool startup_scan_step(struct startup_scan *scan);
/* The tables were replaced, and told of no row: begins again. */
void startup_scan_again(struct startup_scan *scan);
void startup_scan_free(struct startup_scan *scan);

#endif
