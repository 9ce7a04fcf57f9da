#include "ranges.h"

#include <errno.h>
#include <string.h>

static uint64_t range_end(const struct range *r)
{
	return r->addr + r->len;
}

uint32_t ranges_first(const struct ranges *t, uint64_t addr)
{
	uint32_t low = 0, high = t->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (range_end(&t->at[mid]) > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static void insert(struct ranges *t, uint32_t index, const struct range *range)
{
	memmove(&t->at[index + 1], &t->at[index], (t->n - index) * sizeof(t->at[0]));
	t->at[index] = *range;
	t->n++;
}

int ranges_add(struct ranges *t, const struct range *range)
{
	uint32_t index = ranges_first(t, range->addr);

	if (index < t->n && t->at[index].addr < range_end(range))
		return -EEXIST;
	if (t->n == RANGES_MAX)
		return -ENOMEM;
	insert(t, index, range);
	return 0;
}

static bool cuts(const struct ranges *t, uint64_t at)
{
	uint32_t index = ranges_first(t, at);

	return index < t->n && t->at[index].addr < at;
}

/* Cuts the range in which `at` lies in two. Returns the index of the first range that starts at or
   after `at`. */
static uint32_t cut(struct ranges *t, uint64_t at)
{
	uint32_t index = ranges_first(t, at);
	struct range tail;

	if (index == t->n || t->at[index].addr >= at)
		return index;
	tail = t->at[index];
	tail.len = range_end(&tail) - at;
	tail.addr = at;
	t->at[index].len = at - t->at[index].addr;
	insert(t, index + 1, &tail);
	return index + 1;
}

int ranges_isolate(struct ranges *t, uint64_t start, uint64_t end, uint32_t *first, uint32_t *last)
{
	uint32_t more = (uint32_t)cuts(t, start) + (uint32_t)cuts(t, end);

	if (RANGES_MAX - t->n < more)
		return -ENOMEM;
	*first = cut(t, start);
	*last = cut(t, end);
	return 0;
}

void ranges_remove(struct ranges *t, uint32_t index)
{
	t->n--;
	memmove(&t->at[index], &t->at[index + 1], (t->n - index) * sizeof(t->at[0]));
}

void ranges_remove_session(struct ranges *t, uint8_t session)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < t->n; i++)
		if (t->at[i].session != session)
			t->at[kept++] = t->at[i];
	t->n = kept;
}

bool ranges_gap(const struct ranges *t, uint64_t start, uint64_t end, uint64_t *gap_start,
		uint64_t *gap_end)
{
	uint32_t index = ranges_first(t, start);

	while (index < t->n && t->at[index].addr <= start)
		start = range_end(&t->at[index++]);
	if (start >= end)
		return false;
	*gap_start = start;
	*gap_end = index < t->n && t->at[index].addr < end ? t->at[index].addr : end;
	return true;
}

const struct range *ranges_of(const struct ranges *t, uint8_t session, uint64_t segment)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->at[i].segment == segment && t->at[i].session == session)
			return &t->at[i];
	return NULL;
}

static bool alike(const struct range *a, const struct range *b)
{
	return range_end(a) == b->addr && a->segment == b->segment && a->extent == b->extent &&
	       a->count == b->count && a->prot == b->prot && a->session == b->session &&
	       a->flags == b->flags;
}

/* Joins those of [first, last) with each other. */
static void join(struct ranges *t, uint32_t first, uint32_t last)
{
	uint32_t kept = first;

	if (first >= last)
		return;
	for (uint32_t i = first + 1; i < last; i++) {
		if (alike(&t->at[kept], &t->at[i]))
			t->at[kept].len += t->at[i].len;
		else if (++kept != i)
			t->at[kept] = t->at[i];
	}
	kept++;
	if (kept == last)
		return;
	memmove(&t->at[kept], &t->at[last], (t->n - last) * sizeof(t->at[0]));
	t->n -= last - kept;
}

void ranges_join(struct ranges *t)
{
	join(t, 0, t->n);
}

void ranges_join_near(struct ranges *t, uint64_t start, uint64_t end)
{
	uint32_t first = ranges_first(t, start), last = first;

	first -= first > 0;
	while (last < t->n && t->at[last].addr < end)
		last++;
	join(t, first, last < t->n ? last + 1 : last);
}
