/*
 * The extent of a segment that is to be attached (extent.c). On a worker; extent_find may wait, with a
 * bound.
 */
#ifndef RAMP_PROGRAMS_EXTENT_H
#define RAMP_PROGRAMS_EXTENT_H

#include <stdbool.h>

#include "base/err.h"
#include "base/ids.h"

struct attach_range;
struct mapped_segment;
struct programs;
struct seg;
struct segment_row;

/* Says that the segment is not here. Returns the error. */
int extent_not_here(struct programs *p, ramp_segment_t id, struct ramp_err *err);
/* Says that it is being moved for longer than an attach waits. Returns the error. */
int extent_is_moved_long(struct ramp_err *err);
/* Returns whether this node serves by a record that is newer than the row. */
bool extent_row_is_behind(struct seg *seg, const struct segment_row *row);
/* Finds the segment's extent, or has one given, and calls extent_use. */
int extent_find(struct programs *p, struct mapped_segment *mseg, struct seg *seg,
		struct attach_range *wish, struct segment_row *row, struct ramp_err *err);
/* Sets the range's address by the row, and checks that it fits. */
int extent_use(struct attach_range *wish, const struct segment_row *row, struct ramp_err *err);
/* Makes the row's extent the one where the segment's mappings are looked for. */
void extent_note(struct mapped_segment *mseg, const struct segment_row *row);

#endif
