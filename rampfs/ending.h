/*
 * The end of the daemon: finishes moves and pulls, then stops the loop.
 */
#ifndef RAMP_ENDING_H
#define RAMP_ENDING_H

#include <stdint.h>

#include "base/loop.h"
#include "mount/mount.h"

struct floors;

/* Control loop. */
struct ending {
	struct floors *floors;
	uv_timer_t linger;
	/* Bytes pulled in both directions at the last look, and when that number changed or the
	   current step began. */
	uint64_t linger_seen, linger_since_ms;
};

/* Once floors->loop is open, before anything may end. The floors outlive it. */
void ending_init(struct ending *ending, struct floors *floors);
/* floors_config's ended: the mount has ended, and the loop stops when all that is under way is
   done. */
void ending_begin(void *ending, enum mount_end why);

#endif
