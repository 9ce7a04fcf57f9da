/*
 * Segments that a receiver has mapped before they are here (ahead.c).
 *
 * A struct ahead is protected by its watch's lock.
 */
#ifndef RAMP_API_AHEAD_H
#define RAMP_API_AHEAD_H

#include <stdbool.h>

#include "base/session.h"
#include "handle.h"

#define AHEAD_MAX 8 /* of one watch */

struct ahead {
	struct ramp_segment *segments[AHEAD_MAX]; /* a ring; NULL: none */
	unsigned next;
};

/* Maps what COMING tells of. Where that can't be done it is mapped when it has arrived. */
void ahead_map(struct ahead *ahead, struct ramp_cluster *ramp, const struct session_msg *coming);
bool ahead_has(const struct ahead *ahead, uint64_t id);
/* Takes the segment of that number out; NULL: it was not mapped ahead. */
struct ramp_segment *ahead_take(struct ahead *ahead, uint64_t id);
/* Puts all that did not come. */
void ahead_free(struct ahead *ahead);

#endif
