/*
 * Drops page-table entries before the window (drop_ahead.c).
 */
#ifndef RAMP_PROGRAMS_DROP_AHEAD_H
#define RAMP_PROGRAMS_DROP_AHEAD_H

#include <stddef.h>

struct mapped_segment;
struct mapping_ref;

/* Drops what programs have mapped by small pages, a chunk at a time: the entries that they use come
   back. Takes a second at most. */
void drop_ahead_cold(struct mapped_segment *mseg);
/* Drops everything, again and again, until little comes back meanwhile. change is held. */
void drop_ahead_last(struct mapped_segment *mseg, const struct mapping_ref *refs, size_t count);

#endif
