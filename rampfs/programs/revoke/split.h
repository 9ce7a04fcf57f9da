/*
 * Splits huge pages in the page tables of programs whose stores are watched, so that a store makes 4 KiB
 * count instead of 2 MiB; and makes them huge again (split.c).
 */
#ifndef RAMP_PROGRAMS_SPLIT_H
#define RAMP_PROGRAMS_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "memory/page_set.h"

struct mapping_ref;

/*
 * Splits and arms those huge pages of the attachments, which are watched, whose pages are all in `before`
 * and in `now`; adds them to `split`. None, where each huge page is one of those. Without `before`: those in `now`, and
 * be it each. Their written bits are lost: the caller sends what is in `now`. Returns how many were split.
 */
uint32_t split_huge(const struct mapping_ref *refs, size_t count, const struct page_set *before,
		    const struct page_set *now, struct page_set *split);
/* Adds the first pages of huge pages whose pages are all in `now` to `huge`. -ENOMEM: some may be missing. */
int split_list(const struct mapping_ref *refs, size_t count, const struct page_set *now,
	       struct page_set *huge);
/* Has those in `split` mapped by huge pages again, as far as the kernel does; the attachments are not watched any more. */
void split_undo_at(const struct mapping_ref *refs, size_t count, uint64_t page);
void split_undo(const struct mapping_ref *refs, size_t count, const struct page_set *split);

#endif
