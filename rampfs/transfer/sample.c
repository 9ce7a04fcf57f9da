/*
 * How much of each huge page programs store into.
 *
 * A store into an armed huge page makes 512 pages count, one of them stored into or all. A pre-copy splits such pages, and
 * sends 4 KiB for each store from then on: what the first look counts says little of that. So mode auto splits some of those
 * that were stored into, watches for a while longer, and takes the others to be like them: those of the sample that are
 * stored into again tell how many pages count in one that is.
 *
 * Only those count, since another look finds other huge pages, too. A program that goes through its memory comes back to few
 * of the sample, and these may be unlike the rest: then what was found counts as it is.
 *
 * How it fails: by what was found, which is too much rather than too little. Split pages are made whole when
 * the watch ends.
 */
#include "sample.h"

#include <errno.h>

#include "base/ids.h"
#include "base/page.h"
#include "memory/page_set.h"

#include "rounds.h"

#define SAMPLE	   32u /* huge pages: each costs its program half a millisecond at most */
#define SAMPLE_OF  8u  /* of which a part as small must be stored into again */
#define HUGE_PAGES (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)

/* Chooses some, evenly: their first pages, and `whole` all their pages. */
static int sample_choose(const struct page_set *huge, struct page_set *first_pages,
			 struct page_set *whole)
{
	uint64_t every = (page_set_count(huge) + SAMPLE - 1) / SAMPLE, at = 0, first, n = 0;

	for (; page_set_next(huge, at, &first); at = first + 1) {
		if (n++ % every)
			continue;
		if (page_set_fit(first_pages, first + 1) || page_set_fit(whole, first + HUGE_PAGES))
			return -ENOMEM;
		page_set_add(first_pages, first, 1);
		page_set_add(whole, first, HUGE_PAGES);
	}
	return 0;
}

int sample_take(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	struct page_set huge = {0}, whole = {0};
	int rc = programs_huge(m->t->programs, m->seg, &r->stored, &huge);

	page_set_clear(&r->sample);
	if (rc || sample_choose(&huge, &r->sample, &whole))
		rc = ramp_err_sys(&m->work_err, ENOMEM, "watching stores");
	if (rc || !programs_split(m->t->programs, m->seg, NULL, &whole))
		page_set_clear(&r->sample);
	page_set_free(&huge);
	page_set_free(&whole);
	return rc;
}

/* Counts those of the set in the huge page that begins there. */
static uint64_t sample_count(const struct page_set *set, uint64_t begin)
{
	uint64_t at = begin, end = begin + HUGE_PAGES, first, run, n = 0;

	for (; (run = page_set_next(set, at, &first)) && first < end; at = first + run)
		n += first + run < end ? run : end - first;
	return n;
}

uint64_t sample_pages(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	uint64_t found = rounds_left(m), at = 0, first, again = 0, pages = 0, n, whole;
	struct page_set huge = {0};

	for (; page_set_next(&r->sample, at, &first); at = first + 1) {
		n = sample_count(&r->stored, first);
		again += n != 0;
		pages += n;
	}
	if (again && again * SAMPLE_OF >= page_set_count(&r->sample) &&
	    !programs_huge(m->t->programs, m->seg, &r->stored, &huge)) {
		n = page_set_count(&huge);
		whole = n * HUGE_PAGES;
		found = (found > whole ? found - whole : 0) + n * pages / again;
		r->thin = true;
	}
	page_set_free(&huge);
	return found;
}
