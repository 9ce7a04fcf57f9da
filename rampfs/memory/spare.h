/*
 * Room for the records of segments that are made while the store is full: for store.c and seg.c.
 * The store's lock is held.
 */
#ifndef RAMP_MEMORY_SPARE_H
#define RAMP_MEMORY_SPARE_H

#include <stdbool.h>
#include <stdint.h>

struct store;

/* The store's tmpfs is that much larger than its capacity. */
#define SPARE_BYTES (UINT64_C(256) << 10)

/* Opens the spare of an open directory, and fills it. Without one a full store takes no file. */
void spare_open(struct store *store);
void spare_close(struct store *store);
/* Fills it again, if it lacks something and there is room. */
void spare_fill(struct store *store);
/* Gives the room of one record back to the store, where any thread may take it. False: the spare is
   used up. */
bool spare_give(struct store *store);

#endif
