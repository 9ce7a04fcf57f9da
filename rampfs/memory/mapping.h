/*
 * The daemon's mapping of a segment, and whether its pages are small or huge. Any thread.
 */
#ifndef RAMP_MEMORY_MAPPING_H
#define RAMP_MEMORY_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct seg;
struct store;

/*
 * Maps [0, size rounded up to pages): made at the first call and grown as the file grows. No thread
 * handles page faults in it, and while it exists khugepaged fills none of the segment's holes.
 * Touch only pages that are LOCAL and populated: a load from a hole allocates a page, and one
 * beyond the end is SIGBUS. Counted: one seg_unmap for each seg_map; a base stays valid until the
 * last seg_unmap.
 */
int seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err);
void seg_unmap(struct seg *seg);

/* user.ramp.pages=small: the daemon makes no huge pages, where scattered stores would take 2 MiB
   each. Kept beside the bytes; existing mappings are changed, too. */
void seg_set_small(struct seg *seg, bool small);
bool seg_small(struct seg *seg);
/* Called before a write(2) or fallocate(2) there: takes the pages one by one if the segment is to
   have small ones, since the kernel would take 2 MiB around a hole. Best effort: without enough
   room nothing is taken, and the write itself finds that out. */
void seg_take_small(struct seg *seg, uint64_t offset, uint64_t len);

/* ---- for this folder alone ----------------------------------------------------------------- */

void guard_open(struct store *store);
void guard_close(struct store *store);
void seg_map_small(struct seg *seg); /* no huge pages in its mappings; seg->lock is held */
/* As mmap(2), without a guard, and not an access that the file's atime shows. */
void *mapping_of_file(struct seg *seg, int prot, uint64_t from, uint64_t len);
void mapping_want_small(void *base, uint64_t len); /* it takes no huge pages */
void mapping_drop_all(struct seg *seg);		   /* no thread uses them */

#endif
