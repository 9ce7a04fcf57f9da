/*
 * Mappings of a segment outside of its extent, in the processes that have a session (outside.c).
 */
#ifndef RAMP_PROGRAMS_OUTSIDE_H
#define RAMP_PROGRAMS_OUTSIDE_H

#include <stdint.h>

#include "base/err.h"

struct mapped_segment;
struct programs;

struct outside_run;

/* Looks into all of these processes, after this call, for files of every segment. NULL: no memory. Blocks. */
struct outside_run *outside_look(struct programs *p);
/* -EBUSY: one of them maps the segment's file `ino` outside of its extent, or can't be looked into; `err` names
   it. */
int outside_find(const struct outside_run *run, const struct mapped_segment *mseg, uint64_t ino,
		 struct ramp_err *err);
void outside_put(struct outside_run *run); /* may be NULL */

#endif
