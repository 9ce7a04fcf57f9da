/*
 * Huge pages whose stores are watched.
 *
 * A store into an armed huge page makes 2 MiB count. That is right while it happens once: the kernel
 * tracks a huge page for a five-hundredth of what its 512 pages would cost. A program that stores
 * here and there would have the same 2 MiB sent in each round. So a huge page that was stored into in
 * two rounds running is split: UFFDIO_WRITEPROTECT takes its entry away, and leaves a marker for each page.
 *
 * Where all huge pages would be split nothing is: such a program stores faster than pages are sent. Unless it is known that
 * little of each is stored into (transfer/sample.c).
 *
 * The program pays a page fault for each page that it touches from then on. When the watch ends, and the
 * segment stays, MADV_COLLAPSE maps the huge page again, which the file has kept.
 *
 * How it fails: what can't be split, or made whole, stays as it is.
 */
#include "split.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/kernel.h"
#include "programs/attach/mapped_segment.h"

#define HUGE_PAGES (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)

struct splitting {
	const struct mapping_ref *ref;
	const struct page_set *before, *now;
	struct page_set *split;
	enum { COUNTS, LISTS, SPLITS } what;
	uint32_t all, some, done;
};

static bool split_is_whole(const struct page_set *set, uint64_t first_page)
{
	uint64_t first;

	return page_set_next(set, first_page, &first) >= HUGE_PAGES && first == first_page;
}

static void split_one(struct splitting *s, uint64_t addr, uint64_t page)
{
	s->all++;
	if ((s->before && !split_is_whole(s->before, page)) || !split_is_whole(s->now, page))
		return;
	s->some++;
	if (s->what == COUNTS || page_set_fit(s->split, page + 1) ||
	    (s->what == SPLITS &&
	     kernel_uffd_protect(s->ref->client->uffd, addr, RAMP_HUGE_BYTES, true)))
		return;
	page_set_add(s->split, page, 1);
	s->done++;
}

static void on_huge(void *arg, uint64_t start, uint64_t end)
{
	struct splitting *s = arg;

	for (; start + RAMP_HUGE_BYTES <= end; start += RAMP_HUGE_BYTES)
		split_one(s, start, (s->ref->offset + (start - s->ref->start)) / RAMP_PAGE_BYTES);
}

/* Looks for huge pages in all attachments that may be stored into. */
static void each_huge(struct splitting *s, const struct mapping_ref *refs, size_t count)
{
	const struct kernel_page_kind huge = {.all = KERNEL_PAGE_PRESENT | KERNEL_PAGE_HUGE};

	for (size_t i = 0; i < count; i++) {
		s->ref = &refs[i];
		if (refs[i].writable && !refs[i].gone)
			kernel_pagemap_each(refs[i].client->mappings.pagemap, refs[i].start,
					    refs[i].end, huge, false, on_huge, s);
	}
}

uint32_t split_huge(const struct mapping_ref *refs, size_t count, const struct page_set *before,
		    const struct page_set *now, struct page_set *split)
{
	struct splitting s = {.before = before, .now = now, .split = split, .what = COUNTS};

	each_huge(&s, refs, count);
	if (s.some == 0 || (before && s.some == s.all))
		return 0;
	s.what = SPLITS;
	each_huge(&s, refs, count);
	return s.done;
}

int split_list(const struct mapping_ref *refs, size_t count, const struct page_set *now,
	       struct page_set *huge)
{
	struct splitting s = {.now = now, .split = huge, .what = LISTS};

	each_huge(&s, refs, count);
	return s.done < s.some ? -ENOMEM : 0;
}

static void collapse_one(const struct mapping_ref *ref, uint64_t page)
{
	uint64_t offset = page * RAMP_PAGE_BYTES, len = ref->end - ref->start;
	struct iovec huge = {.iov_len = RAMP_HUGE_BYTES};

	if (offset < ref->offset || offset + RAMP_HUGE_BYTES > ref->offset + len)
		return;
	huge.iov_base = (void *)(uintptr_t)(ref->start + (offset - ref->offset));
	syscall(SYS_process_madvise, ref->client->pidfd, &huge, 1, MADV_COLLAPSE, 0);
}

void split_undo_at(const struct mapping_ref *refs, size_t count, uint64_t page)
{
	for (size_t i = 0; i < count; i++)
		if (!refs[i].gone)
			collapse_one(&refs[i], page);
}

void split_undo(const struct mapping_ref *refs, size_t count, const struct page_set *split)
{
	uint64_t at = 0, first, run;

	for (; (run = page_set_next(split, at, &first)); at = first + run)
		for (uint64_t page = first; page < first + run; page++)
			split_undo_at(refs, count, page);
}
