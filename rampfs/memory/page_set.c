/*
 * A set of pages of one segment.
 */
#include "page_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int page_set_fit(struct page_set *set, uint64_t pages)
{
	size_t count = (size_t)(pages / PAGE_SET_WORD + (pages % PAGE_SET_WORD != 0));
	uint64_t *words;

	if (count <= set->count)
		return 0;
	words = reallocarray(set->words, count, sizeof(*words));
	if (!words)
		return -ENOMEM;
	memset(words + set->count, 0, (count - set->count) * sizeof(*words));
	set->words = words;
	set->count = count;
	return 0;
}

static uint64_t bits_from(uint64_t first, uint64_t count)
{
	uint64_t bits = count < PAGE_SET_WORD ? (UINT64_C(1) << count) - 1 : UINT64_MAX;

	return bits << first;
}

void page_set_add(struct page_set *set, uint64_t first, uint64_t count)
{
	while (count) {
		uint64_t at = first % PAGE_SET_WORD;
		uint64_t some = PAGE_SET_WORD - at < count ? PAGE_SET_WORD - at : count;

		set->words[first / PAGE_SET_WORD] |= bits_from(at, some);
		first += some;
		count -= some;
	}
}

int page_set_join(struct page_set *set, const struct page_set *from)
{
	if (page_set_fit(set, (uint64_t)from->count * PAGE_SET_WORD))
		return -ENOMEM;
	for (size_t i = 0; i < from->count; i++)
		set->words[i] |= from->words[i];
	return 0;
}

bool page_set_has(const struct page_set *set, uint64_t page)
{
	return page / PAGE_SET_WORD < set->count &&
	       set->words[page / PAGE_SET_WORD] >> page % PAGE_SET_WORD & 1;
}

uint64_t page_set_count(const struct page_set *set)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < set->count; i++)
		pages += (uint64_t)__builtin_popcountll(set->words[i]);
	return pages;
}

/* Returns the first page from `at` on that is in the set (`in`) or is not; the end: there is none. */
static uint64_t find_bit(const struct page_set *set, uint64_t at, bool in)
{
	uint64_t end = (uint64_t)set->count * PAGE_SET_WORD, word;

	while (at < end) {
		word = in ? set->words[at / PAGE_SET_WORD] : ~set->words[at / PAGE_SET_WORD];
		word >>= at % PAGE_SET_WORD;
		if (word)
			return at + (uint64_t)__builtin_ctzll(word);
		at += PAGE_SET_WORD - at % PAGE_SET_WORD;
	}
	return end;
}

uint64_t page_set_next(const struct page_set *set, uint64_t at, uint64_t *first)
{
	*first = find_bit(set, at, true);
	return find_bit(set, *first, false) - *first;
}

void page_set_clear(struct page_set *set)
{
	if (set->count)
		memset(set->words, 0, set->count * sizeof(*set->words));
}

void page_set_free(struct page_set *set)
{
	free(set->words);
	*set = (struct page_set){0};
}
