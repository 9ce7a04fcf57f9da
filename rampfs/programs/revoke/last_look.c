/*
 * The last look at page tables, within the window.
 *
 * A page is clean only where an entry, or a marker, is there and is not WRITTEN (watch.c). To ask for that is slow: the
 * kernel finds out of each page what it is, 3.2 ms for a GiB of small pages. It has a short way for one question, which pages
 * are WRITTEN: it reads nothing but the entries, and calls those WRITTEN, too, that are not there. But where there
 * is no page table at all for 2 MiB, some kernels say nothing (before the summer of 2026).
 *
 * So the short way comes first. Then one page of each 2 MiB, of those that it has not named, must be clean by the long way:
 * there is a page table. It was there before, too, since only a look that arms makes such an entry, and there is none meanwhile. Last,
 * all must be mapped: the kernel names nothing where nothing is.
 *
 * Huge pages are looked at the long way, since there are few: 0.06 ms for a GiB.
 */
#include "last_look.h"

#include <errno.h>
#include <stdbool.h>

#include "base/ids.h"
#include "base/kernel.h"
#include "base/page.h"

#define SAMPLES 8u /* of a mapping, to tell which way is the faster one */

static const struct kernel_page_kind clean = {.none = KERNEL_PAGE_WRITTEN,
					      .any = KERNEL_PAGE_PRESENT | KERNEL_PAGE_SWAPPED};

struct last_look {
	const struct mappings *mappings;
	struct page_set *stored;
	uint64_t start, end, page;
	uint64_t at;	  /* up to here it is known */
	uint64_t checked; /* the 2 MiB before that address have a page table, or count */
	int rc;		  /* why it can't be told */
};

static void last_add(const struct last_look *look, uint64_t from, uint64_t to)
{
	if (from < to)
		page_set_add(look->stored, look->page + (from - look->start) / RAMP_PAGE_BYTES,
			     (to - from) / RAMP_PAGE_BYTES);
}

/* ---- the short way ---------------------------------------------------------------------------- */

/* Checks the page at `at`, for all of its 2 MiB. */
static void check_table(struct last_look *look, uint64_t at)
{
	uint64_t from = at - at % RAMP_HUGE_BYTES, to = from + RAMP_HUGE_BYTES;
	int rc =
		kernel_pagemap_find(look->mappings->pagemap, at, at + RAMP_PAGE_BYTES, clean, NULL);

	look->checked = to;
	if (rc < 0)
		look->rc = rc;
	else if (rc == 0)
		last_add(look, from > look->start ? from : look->start,
			 to < look->end ? to : look->end);
}

/* The kernel has not named those up to `to`. */
static void not_written(struct last_look *look, uint64_t to)
{
	uint64_t at = look->at > look->checked ? look->at : look->checked;

	for (; at < to && !look->rc; at = look->checked)
		check_table(look, at);
}

static void on_last_written(void *arg, uint64_t start, uint64_t end)
{
	struct last_look *look = arg;

	not_written(look, start);
	last_add(look, start, end);
	look->at = end;
}

static int short_way(struct mappings *mappings, struct last_look *look)
{
	const struct kernel_page_kind written = {.all = KERNEL_PAGE_WRITTEN};
	struct address_range gap;
	int rc = kernel_pagemap_each(mappings->pagemap, look->start, look->end, written, false,
				     on_last_written, look);

	if (!rc) {
		not_written(look, look->end);
		rc = look->rc;
	}
	if (!rc)
		rc = mappings_gap(mappings, look->start, look->end, &gap);
	return rc > 0 ? -EFAULT : rc;
}

/* ---- the long way ----------------------------------------------------------------------------- */

static void on_last_clean(void *arg, uint64_t start, uint64_t end)
{
	struct last_look *look = arg;

	last_add(look, look->at, start);
	if (end > look->at)
		look->at = end;
}

static int long_way(const struct mappings *mappings, struct last_look *look)
{
	int rc = kernel_pagemap_each(mappings->pagemap, look->start, look->end, clean, false,
				     on_last_clean, look);

	last_add(look, look->at, look->end);
	return rc;
}

/* Whether there are huge pages alone, by some of them. */
static bool is_huge_there(const struct mappings *mappings, uint64_t start, uint64_t end)
{
	const struct kernel_page_kind huge = {.all = KERNEL_PAGE_PRESENT | KERNEL_PAGE_HUGE};
	uint64_t pages = (end - start) / RAMP_PAGE_BYTES;

	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint64_t at = start + pages * i / SAMPLES * RAMP_PAGE_BYTES;

		if (kernel_pagemap_find(mappings->pagemap, at, at + RAMP_PAGE_BYTES, huge, NULL) !=
		    1)
			return false;
	}
	return true;
}

int last_look(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t page,
	      struct page_set *stored)
{
	struct last_look look = {mappings, stored, start, end, page, start, start, 0};

	if (start >= end)
		return 0;
	return is_huge_there(mappings, start, end) ? long_way(mappings, &look)
						   : short_way(mappings, &look);
}
