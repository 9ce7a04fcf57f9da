/*
 * Bounce buffers of a thread: whole huge pages on their way into the store.
 */
#ifndef RAMP_BOUNCE_H
#define RAMP_BOUNCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"
#include "pulled.h"

#define HUGE_PAGES (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)

struct bounce {
	uint8_t *buffers; /* BOUNCE_BUFFERS of them; NULL: none yet */
	uint32_t used;	  /* bits */
};

/* True: not even a byte of the page is in memory. It is reserved and not cleared yet, or a hole. */
bool bounce_is_untouched(struct pulled *pulled, uint64_t page);
/* Returns a buffer for these pages, which are claimed. NULL: they land in place. */
uint8_t *bounce_take(struct bounce *bounce, struct pulled *pulled, uint64_t first, uint64_t count);
/* NULL: nothing. */
void bounce_put(struct bounce *bounce, const uint8_t *buffer);
/* Gives the buffers' memory back where none is in use. */
void bounce_trim(struct bounce *bounce);
/* Stores `count` pages from the buffer on. -EBUSY: a program may keep the file's lock by now
   (seg_handed_out). They land in place when they are asked for again. */
int bounce_store(struct pulled *pulled, const uint8_t *buffer, uint64_t first, uint64_t count);

#endif
