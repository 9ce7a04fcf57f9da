/*
 * Gives access to a segment back (thaw.c).
 */
#ifndef RAMP_PROGRAMS_THAW_H
#define RAMP_PROGRAMS_THAW_H

struct mapped_segment;
struct programs;

/* Of a segment that is FROZEN or CLOSED, which is OPEN then. change is held. */
void thaw(struct programs *p, struct mapped_segment *mseg);

#endif
