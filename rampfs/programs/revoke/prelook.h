/*
 * A full look at the mappings of a segment, and whether it still holds (prelook.c).
 */
#ifndef RAMP_PROGRAMS_PRELOOK_H
#define RAMP_PROGRAMS_PRELOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mapped_segment;
struct mapping_ref;
struct prelook;
struct programs;

/* Returns true where nothing has come since programs_prelook that could map the segment outside of
   its extent. change is held, and the segment is FROZEN. */
bool prelook_holds(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count);
/* Counts the attaches, remap events and live refs so far. False: one is under way, and not over soon. change is
   held. */
bool prelook_count(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count, struct prelook *counts);
/* Unregisters what the look has registered, and gives places up: no window comes. change is held. */
void prelook_end(struct programs *p, struct mapped_segment *mseg);
/* Checks that the lock of each memory that has the segment mapped can be had: registering takes it,
   and a program may keep it for as long as it likes. -EBUSY with the process that does. change is
   not held, since other threads would wait for it. */
int prelook_reach(struct mapped_segment *mseg, struct ramp_err *err);

#endif
