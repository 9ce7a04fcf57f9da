/*
 * A range of a segment whose bytes are replaced: its pages need no pulling, but for its edges.
 */
#ifndef RAMP_CUT_H
#define RAMP_CUT_H

#include "mount_ref.h"

static inline uint64_t first_page(uint64_t offset)
{
	return offset / RAMP_PAGE_BYTES;
}

static inline uint64_t count_pages(uint64_t offset, uint64_t len)
{
	return len ? first_page(offset + len - 1) - first_page(offset) + 1 : 0;
}

/* A range that a write, a truncate or a punched hole replaces. */
struct cut {
	struct pull *pull; /* NULL: all its pages are LOCAL */
	struct seg *seg;
	uint64_t offset, len;
};

/* Prepares the range before its bytes are replaced: 0, -EAGAIN where an edge has to be pulled
   first, or -errno. */
int cut_begin(struct cut *cut, struct mount *m, struct seg *seg, uint64_t offset, uint64_t len);
/* Ends it: bytes [offset, offset + done) have been replaced. */
void cut_end(struct cut *cut, uint64_t done);

#endif
