#include "table.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "sys.h"

/* How long to wait for agents to put segments in their place, and for the table's lock. */
#define SWAP_PATIENCE_MS 10000
#define LOCK_PATIENCE_MS 1000

struct mapping_table table;

int table_add(const struct range *range)
{
	int rc = ranges_add(&table.ranges, range);

	if (rc)
		return rc;
	table.pending |= range->flags & RANGE_PENDING;
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
	rc = sys_mprotect(range->addr, range->len, prot);
	if (rc == 0)
		range->prot = prot;
	return rc;
}

/* Takes one mapping off the pieces [i, last) of that session (TABLE_ANY: of all). Returns 0 or the last
   negative errno. */
static int release_pieces(uint32_t i, uint32_t last, int session)
{
	int rc, worst = 0;

	for (uint32_t left = last - i; left; left--) {
		struct range *r = &table.ranges.at[i];

		if (session != TABLE_ANY && r->session != session) {
			i++;
			continue;
		}
		if (r->count > 1) {
			r->count--;
			i++;
			continue;
		}
		rc = sys_munmap(r->addr, r->len);
		if (rc) {
			worst = rc;
			i++;
			continue;
		}
		ranges_remove(&table.ranges, i);
	}
	return worst;
}

int table_release_of(uint64_t start, uint64_t end, uint8_t session)
{
	uint32_t i, last;
	int rc = ranges_isolate(&table.ranges, start, end, &i, &last);

	if (rc)
		return rc;
	rc = release_pieces(i, last, session);
	ranges_join_near(&table.ranges, start, end);
	return rc;
}

int table_release(uint64_t start, uint64_t end, int (*unmap_rest)(void *addr, size_t length))
{
	uint32_t i, last;
	uint64_t gap_start, gap_end, at = start;
	int rc, worst = 0;

	rc = ranges_isolate(&table.ranges, start, end, &i, &last);
	if (rc)
		return rc;
	while (unmap_rest && ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		rc = unmap_rest((void *)(uintptr_t)gap_start, gap_end - gap_start);
		if (rc)
			worst = -errno;
		at = gap_end;
	}
	rc = release_pieces(i, last, TABLE_ANY);
	ranges_join_near(&table.ranges, start, end);
	return rc ? rc : worst;
}

/* A daemon that dies in the middle of a swap leaves it to the next daemon. */
void table_lock_settled(void)
{
	uint64_t deadline_ms = clock_ms() + SWAP_PATIENCE_MS;

	futex_lock(&table.lock);
	while (table.swaps && clock_ms() < deadline_ms) {
		futex_unlock(&table.lock);
		sys_pause_ms(1);
		futex_lock(&table.lock);
	}
}

/* A range that an agent has mapped late belongs to no attach, and has no access. */
void table_drop_pending_locked(void)
{
	for (uint32_t i = table.pending ? 0 : table.ranges.n; i < table.ranges.n;) {
		struct range *r = &table.ranges.at[i];

		if (!(r->flags & RANGE_PENDING)) {
			i++;
			continue;
		}
		sys_munmap(r->addr, r->len);
		ranges_remove(&table.ranges, i);
	}
	table.pending = false;
}

void table_drop_pending(void)
{
	futex_lock(&table.lock);
	table_drop_pending_locked();
	futex_unlock(&table.lock);
}

bool table_agent_lock(void)
{
	return futex_lock_for(&table.lock, LOCK_PATIENCE_MS);
}

void table_agent_unlock(bool locked)
{
	if (locked)
		futex_unlock(&table.lock);
}

void table_pieces(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last)
{
	if (ranges_isolate(&table.ranges, addr, addr + len, first, last))
		*first = *last = 0;
}

void table_pieces_across(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last)
{
	if (ranges_isolate(&table.ranges, addr, addr + len, first, last) == 0)
		return;
	*first = *last = ranges_first(&table.ranges, addr);
	while (*last < table.ranges.n && table.ranges.at[*last].addr < addr + len)
		++*last;
}
