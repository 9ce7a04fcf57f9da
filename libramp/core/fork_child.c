#include "fork_child.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/ids.h"
#include "sys.h"
#include "table.h"

/* Gives a range the advice and the protection that it had in the parent. Returns false where not
   all of it is mapped. */
static bool child_give_back(const struct range *r)
{
	if (sys_madvise(r->addr, r->len, MADV_DONTFORK))
		return false;
	if (r->flags & RANGE_NOHUGE)
		sys_madvise(r->addr, r->len, MADV_NOHUGEPAGE);
	sys_mprotect(r->addr, r->len, r->prot);
	return true;
}

/* Whether nothing of it is mapped, as far as the kernel says. */
static bool is_free(uint64_t start, uint64_t len)
{
	long at =
		sys_mmap(start, len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at >= 0)
		sys_munmap(start, len);
	return at != -EEXIST;
}

/* Whether all of it is mapped. Changes nothing. */
static bool is_full(uint64_t start, uint64_t end)
{
	return !sys_msync(start, end - start, MS_ASYNC);
}

/* Takes out the parts of [start, end) that are mapped. Nothing of a segment is mapped yet, so these
   are the program's own, and stay. */
static void child_forget_replaced(uint64_t start, uint64_t end)
{
	uint64_t half = start + (end - start) / 2 / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	uint32_t first, last;

	if (is_free(start, end - start))
		return;
	if (half > start && !is_full(start, end)) {
		child_forget_replaced(start, half);
		child_forget_replaced(half, end);
		return;
	}
	/* Where the table is full, the child loses more than that. */
	if (ranges_isolate(&table.ranges, start, end, &first, &last))
		first = ranges_first(&table.ranges, start);
	while (first < table.ranges.n && table.ranges.at[first].addr < end)
		ranges_remove(&table.ranges, first);
}

/* Looks at neighbours as one. */
void fork_child_forget_replaced(void)
{
	uint64_t start, end = 0;
	uint32_t i;

	futex_lock(&table.lock);
	while ((i = ranges_first(&table.ranges, end)) < table.ranges.n) {
		start = end = table.ranges.at[i].addr;
		for (; i < table.ranges.n && table.ranges.at[i].addr == end; i++)
			end += table.ranges.at[i].len;
		child_forget_replaced(start, end);
	}
	futex_unlock(&table.lock);
}

/* Where only a part of a range is not mapped, halves it until that part is known. */
void fork_child_forget_missing(int session)
{
	uint32_t ignored;

	futex_lock(&table.lock);
	for (uint32_t i = 0; i < table.ranges.n;) {
		const struct range *r = &table.ranges.at[i];
		uint64_t pages = r->len / RAMP_PAGE_BYTES;
		uint64_t half = r->addr + pages / 2 * RAMP_PAGE_BYTES;

		if (r->session != session || child_give_back(r))
			i++;
		else if (pages == 1 || is_free(r->addr, r->len) ||
			 ranges_isolate(&table.ranges, r->addr, half, &ignored, &ignored))
			ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	futex_unlock(&table.lock);
}

void fork_child_unmap(int session)
{
	for (uint32_t i = 0; i < table.ranges.n; i++)
		if (table.ranges.at[i].session == session)
			sys_munmap(table.ranges.at[i].addr, table.ranges.at[i].len);
}

/* The daemon has not said that all is as it should be. A range may be mapped and not registered
   yet, and its missing pages would read as zeros. A range that is mapped only afterwards is pending
   (commands.c), and gets no access. */
void fork_child_forget_all(int session)
{
	futex_lock(&table.lock);
	fork_child_unmap(session);
	ranges_remove_session(&table.ranges, (uint8_t)session);
	futex_unlock(&table.lock);
}
