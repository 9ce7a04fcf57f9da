/*
 * Bytes and pages of RAMP_PAGE_BYTES.
 */
#ifndef RAMP_PAGE_H
#define RAMP_PAGE_H

#include <stdint.h>

#include "ids.h"

/* Rounds bytes down to whole pages. */
static inline uint64_t page_down(uint64_t bytes)
{
	return bytes & ~(uint64_t)(RAMP_PAGE_BYTES - 1);
}

/* Rounds bytes up to whole pages; the caller knows that the result fits. */
static inline uint64_t page_up(uint64_t bytes)
{
	return page_down(bytes + RAMP_PAGE_BYTES - 1);
}

/* Returns how many pages that many bytes touch, from the start of a page; any number of bytes. */
static inline uint64_t page_count(uint64_t bytes)
{
	return bytes / RAMP_PAGE_BYTES + (bytes % RAMP_PAGE_BYTES != 0);
}

#endif
