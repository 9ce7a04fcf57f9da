/*
 * The reservation of memory for a segment that comes: a promise given in ACCEPT is kept.
 *
 * reserve_memory takes, before ACCEPT, as much as the source has populated, and a slack. Huge pages
 * are not cleared yet: a store of a whole huge page (pull/bounce.c) makes that unnecessary.
 */
#ifndef RAMP_MEMORY_RESERVE_H
#define RAMP_MEMORY_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "collapse.h"
#include "find_data.h"
#include "populated.h"

struct seg;

/*
 * Sets the file's size, and takes the ranges and `slack_bytes` from the store's free space. -ENOSPC:
 * nothing is kept, and the file is empty. A 2 MiB block of which `ranges` cover three quarters is
 * made huge; the rest of such a block is REMOTE nowhere, so it stays zero. Other blocks get small
 * pages. Blocks: call it from a worker.
 */
int reserve_memory(struct seg *seg, uint64_t size_bytes, const struct data_range *ranges,
		   uint32_t count, uint64_t slack_bytes, struct ramp_err *err);
/* How much a source that has populated that many bytes may grow while it is moved. */
uint64_t reserve_slack_for(uint64_t populated_bytes);
/* Takes a slack again where there is none, since it went with a daemon before this one: as much as
   there is room for, and not more than is missing. */
void reserve_take_slack_again(struct seg *seg);
/* Called before room is taken by fallocate(2), for holes too: from now on none is given back until
   every page is LOCAL. */
void reserve_keep(struct seg *seg);
/* Gives back pages that a list named and that the source does not have any more. They must be the
   caller's (IN_FLIGHT). Does nothing after reserve_keep, nor where seg_handed_out: the kernel has no way to
   give a page back without the file's lock, and the room goes with the segment. */
void reserve_give_back(struct seg *seg, uint64_t first, uint64_t count);
/* Gives back the slack: the pages it was for can't come any more, or have come. The slack is a
   placeholder, a file without a name in the store, so that the kernel keeps the promise. */
void reserve_release_slack(struct seg *seg);
/* Called when the store had no room for a page that comes: gives back some of the slack, which is
   for pages that no range named. False: none is left. */
bool reserve_use_slack(struct seg *seg);

#endif
