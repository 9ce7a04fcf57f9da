#include "found.h"

#include <errno.h>
#include <stdlib.h>

int found_note(struct found_list *list, pid_t pid, uint64_t ino, uint64_t start, uint64_t end)
{
	struct found *last = list->n ? &list->at[list->n - 1] : NULL;

	if (last && last->pid == pid && last->ino == ino) {
		last->start = start < last->start ? start : last->start;
		last->end = end > last->end ? end : last->end;
		return 0;
	}
	if (!list->at || list->n == list->cap) {
		size_t cap = list->cap ? 2 * list->cap : 16;
		struct found *more = reallocarray(list->at, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		list->at = more;
		list->cap = cap;
	}
	list->at[list->n++] = (struct found){ino, pid, start, end};
	return 0;
}

static int by_file(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->start > y->start) - (x->start < y->start);
}

/* Of one process's mappings of one file there may have been others in between. */
void found_join(struct found_list *list)
{
	size_t kept = 0;

	if (!list->n)
		return;
	qsort(list->at, list->n, sizeof(*list->at), by_file);
	for (size_t i = 1; i < list->n; i++) {
		struct found *last = &list->at[kept], *more = &list->at[i];

		if (last->ino != more->ino || last->pid != more->pid)
			list->at[++kept] = *more;
		else if (more->end > last->end)
			last->end = more->end;
	}
	list->n = kept + 1;
}

size_t found_first(const struct found_list *list, uint64_t ino)
{
	size_t lo = 0, hi = list->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (list->at[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void found_free(struct found_list *list)
{
	free(list->at);
	*list = (struct found_list){0};
}
