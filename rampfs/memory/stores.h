/*
 * Which pages of a segment the daemon itself stores into (write, truncate, punched holes), while they
 * are watched: a pre-copy sends them again.
 *
 * Units: bytes. Thread-safety: any thread.
 */
#ifndef RAMP_MEMORY_STORES_H
#define RAMP_MEMORY_STORES_H

#include <stdint.h>

#include "page_set.h"

struct seg;

/* Begins to note stores. */
void stores_watch(struct seg *seg);
/* Notes a store that is done: a page that is noted before could be read in between, and be old. Called
   inside the gate. Costs nothing while nothing is watched. */
void stores_note(struct seg *seg, uint64_t offset, uint64_t len);
/* Adds the pages that were noted since the last call, and forgets them. -ENOMEM: some could not be
   noted or added; then all of the segment counts as stored into. */
int stores_take(struct seg *seg, struct page_set *into);
void stores_unwatch(struct seg *seg);
/* Another process has changed the file by itself, at a place that is not known: the next look takes all of it. */
void stores_lose(struct seg *seg);

#endif
