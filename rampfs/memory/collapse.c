/*
 * Collapsing 2 MiB blocks of small pages into huge pages.
 *
 * Happy path: a walk over the segment's data; for each block that lies in it, mincore(2) counts the
 * pages, and MADV_COLLAPSE makes a block that is nearly full huge.
 *
 * How it fails: a block that the kernel can't collapse stays as it is.
 */
#include "collapse.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/ids.h"
#include "base/kernel.h"
#include "find_data.h"
#include "mapping.h"
#include "seg_core.h"
#include "seg_file.h"

#define HUGE_PAGES     (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)
#define COLLAPSE_PAGES (HUGE_PAGES / 8 * 7)

/* Nearly full: the pages it lacks cost less than a huge page saves. */
static bool nearly_full(uint8_t *at)
{
	uint8_t resident[HUGE_PAGES];
	uint32_t pages = 0;

	if (mincore(at, RAMP_HUGE_BYTES, resident))
		return false;
	for (uint32_t i = 0; i < HUGE_PAGES; i++)
		pages += resident[i] & 1;
	return pages >= COLLAPSE_PAGES;
}

/* A segment that leaves, or is removed, will be freed, and must not grow before. */
static bool may_collapse(struct seg *seg, const atomic_bool *stop)
{
	return !atomic_load(stop) && !seg_leaving(seg) && !seg_removed(seg);
}

/* Uses a mapping of its own: through one of the whole segment that takes huge pages khugepaged would
   go, which has another notion of nearly full; and the mapping of seg_map keeps the holes. */
static bool collapse(struct seg *seg, uint64_t block)
{
	void *at = mapping_of_file(seg, PROT_READ, block, RAMP_HUGE_BYTES);
	bool huge;

	if (at == MAP_FAILED)
		return false;
	huge = madvise(at, RAMP_HUGE_BYTES, MADV_COLLAPSE) == 0;
	munmap(at, RAMP_HUGE_BYTES);
	return huge;
}

void collapse_segment(struct seg *seg, const atomic_bool *stop, collapsed_fn *fn, void *arg)
{
	uint64_t block = 0, size = seg_size(seg), data = 0, hole = 0;
	struct data_walk walk = {.seg = seg, .mapped = size};
	uint8_t *base;

	if (seg_small(seg) || size < RAMP_HUGE_BYTES)
		return;
	base = mapping_of_file(seg, PROT_READ, 0, size);
	if (base == MAP_FAILED)
		return;
	mapping_want_small(base, size);
	walk.base = base;
	while (may_collapse(seg, stop) && !data_walk_next(&walk, hole, UINT64_MAX, &data, &hole)) {
		if (hole <= data)
			break;
		data = data / RAMP_HUGE_BYTES * RAMP_HUGE_BYTES;
		if (data > block)
			block = data;
		for (; block < hole && block + RAMP_HUGE_BYTES <= size && may_collapse(seg, stop);
		     block += RAMP_HUGE_BYTES)
			if (nearly_full(base + block) && collapse(seg, block) && fn)
				fn(arg, seg, block);
	}
	munmap(base, size);
}
