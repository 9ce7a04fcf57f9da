/*
 * The first look at all segments of the store and all rows. Control loop.
 */
#ifndef RAMP_STARTUP_SCAN_H
#define RAMP_STARTUP_SCAN_H

#include "mount_ref.h"

/* Zeroed at first. */
struct startup_scan {
	struct mount *mount;
	ramp_segment_t
		*first; /* the store's segments at the start, until they have been looked at */
	size_t n_first, at_first;
	ramp_segment_t first_row;
	bool begun, over;
	uint32_t restored; /* snapshots whose rows it also looks at */
};

/* Looks at some. Returns true when all have been looked at; not called again then, except after
   startup_scan_again. */
bool startup_scan_step(struct startup_scan *scan);
/* Begins again: a snapshot has replaced the tables, and reported no single row. */
void startup_scan_again(struct startup_scan *scan);
void startup_scan_free(struct startup_scan *scan);

#endif
