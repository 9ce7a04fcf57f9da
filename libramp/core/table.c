#include "table.h"

#include <errno.h>
#include <sys/mman.h>

struct table table;

int table_add(const struct range *range)
{
	int rc = ranges_add(&table.ranges, range);

	if (rc)
		return rc;
	if (table.low == 0 || range->addr < table.low)
		table.low = range->addr;
	if (range->addr + range->len > table.high)
		table.high = range->addr + range->len;
	return 0;
}

bool table_near(const void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr, low = table.low;

	return low && start < table.high && len > 0 && start + len > low;
}

int table_protect(struct range *range, uint8_t prot)
{
	int rc;

	if ((prot & PROT_WRITE) && (range->flags & RANGE_READONLY))
		return -EACCES;
	rc = shim_mprotect(range->addr, range->len, prot);
	if (rc == 0)
		range->prot = prot;
	return rc;
}

int table_release(uint64_t start, uint64_t end, bool gaps_too)
{
	uint32_t i, last;
	uint64_t gap_start, gap_end, at = start;
	int rc, worst = 0;

	rc = ranges_isolate(&table.ranges, start, end, &i, &last);
	if (rc)
		return rc;
	while (gaps_too && ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		rc = shim_next.munmap((void *)(uintptr_t)gap_start, gap_end - gap_start);
		if (rc)
			worst = -errno;
		at = gap_end;
	}
	for (uint32_t left = last - i; left; left--) {
		struct range *r = &table.ranges.at[i];

		if (r->count > 1) {
			r->count--;
			i++;
			continue;
		}
		rc = shim_munmap(r->addr, r->len);
		if (rc) {
			worst = rc;
			i++;
			continue;
		}
		ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	return worst;
}
