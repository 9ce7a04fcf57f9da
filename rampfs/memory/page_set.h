/*
 * A set of pages of one segment: a bit for each.
 *
 * Units: page numbers, counts of pages. Thread-safety: none.
 */
#ifndef RAMP_PAGE_SET_H
#define RAMP_PAGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SET_WORD 64u

struct page_set {
	uint64_t *words;
	size_t count; /* of words; pages beyond are not in the set */
};

/* Makes room for `pages` pages; those that are in the set stay in it. -ENOMEM: it is as it was. */
int page_set_fit(struct page_set *set, uint64_t pages);
/* Adds [first, first + count), for which there must be room. */
void page_set_add(struct page_set *set, uint64_t first, uint64_t count);
/* Adds all of `from`. -ENOMEM: some may be missing. */
int page_set_join(struct page_set *set, const struct page_set *from);
bool page_set_has(const struct page_set *set, uint64_t page);
uint64_t page_set_count(const struct page_set *set);
/* Finds the first run of pages in the set from `at` on. Returns its length; 0: there is none. */
uint64_t page_set_next(const struct page_set *set, uint64_t at, uint64_t *first);
/* Empties it, and keeps its room. */
void page_set_clear(struct page_set *set);
void page_set_free(struct page_set *set);

#endif
