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

/* What a write, a truncate or a punched hole replaces needs no pulling, but for its edges. */
struct cut {
	struct pull *pull; /* NULL: everything is LOCAL anyway */
	struct seg *seg;
	uint64_t offset, len;
};

/* Before the bytes are replaced: 0, or -EAGAIN: an edge has to come first; or -errno. */
int cut_begin(struct cut *cut, struct mount *m, struct seg *seg, uint64_t offset, uint64_t len);
/* Bytes [offset, offset + done) are as they should be. */
void cut_end(struct cut *cut, uint64_t done);

#endif
