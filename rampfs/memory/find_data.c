/*
 * Where a file has data, without its lock.
 *
 * lseek(SEEK_DATA) takes the lock of the inode, which who has a writable descriptor of the file can
 * keep for as long as he likes (seg_hand_out). mincore(2) takes none and says the same: on tmpfs a
 * page is data where the page cache has it and it is up to date; one that fallocate(2) reserved is
 * not. It looks at page after page, so where it has seen nothing for a while cachestat(2), which
 * passes by what is not there, finds out how far that goes. (It counts what is reserved, too, so it
 * can't say more.)
 *
 * A file that is cut meanwhile has nothing there: neither touches the pages.
 *
 * How it fails: without cachestat (Linux 6.5, or a filter that does not know it) a hole is told in
 * more pieces.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reserve.h"
#include "seg.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* on every architecture but alpha */
#endif

#define FIRST_PAGES 16u		     /* looked at first, then four times as many, and so on */
#define STEP_PAGES  2048u	     /* up to here: 0.1 ms */
#define LOOK_PAGES  (4 * STEP_PAGES) /* in all: half a millisecond */
/* One cachestat(2): at first, and at most, which is a quarter of a millisecond where it is full. */
#define NEAR_BYTES (UINT64_C(256) << 10)
#define FAR_BYTES  (UINT64_C(32) << 20)
#define SKIPS_MAX  1024u /* a millisecond, 32 GiB */

/* As <linux/mman.h> has them, which may be older than the kernel. */
struct cache_range {
	uint64_t offset, len;
};
struct cache_count {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static bool nothing_there(struct seg *seg, uint64_t from, uint64_t to)
{
	const struct cache_range range = {from, to - from};
	struct cache_count count;

	return !syscall(SYS_cachestat, seg_fd(seg), &range, &count, 0u) && !count.cached &&
	       !count.evicted;
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Until where there is not even a reserved page, but for NEAR_BYTES: further and further, and then
   back to what was too far. */
static uint64_t skip_hole(struct seg *seg, uint64_t at, uint64_t to)
{
	uint64_t len = NEAR_BYTES;

	for (unsigned i = 0; at < to && i < SKIPS_MAX; i++) {
		if (!nothing_there(seg, at, min(at + len, to)))
			break;
		at = min(at + len, to);
		len = min(2 * len, FAR_BYTES);
	}
	for (len /= 2; at < to && len >= NEAR_BYTES; len /= 2)
		if (nothing_there(seg, at, min(at + len, to)))
			at = min(at + len, to);
	return at;
}

/* Pages from the first on that are all data, or all none. */
static uint64_t same(const uint8_t *there, uint64_t count, bool data)
{
	uint64_t n = 0;

	while (n < count && (there[n] & 1) == data)
		n++;
	return n;
}

int room_look(struct seg *seg, uint8_t *base, uint64_t from, uint64_t to, uint64_t enough,
	      struct room_range *run)
{
	uint64_t left = LOOK_PAGES, step = FIRST_PAGES, at = from, n, empty, full;
	uint8_t there[STEP_PAGES];

	*run = (struct room_range){.offset = from};
	to = (to + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	while (at < to && left && run->len < enough) {
		n = min(min(step, left), (to - at) / RAMP_PAGE_BYTES);
		if (mincore(base + at, n * RAMP_PAGE_BYTES, there))
			return -errno;
		empty = run->len ? 0 : same(there, n, false);
		full = same(there + empty, n - empty, true);
		run->offset += empty * RAMP_PAGE_BYTES;
		run->len += full * RAMP_PAGE_BYTES;
		if (empty + full < n)
			return 0;
		left -= n;
		step = min(4 * step, STEP_PAGES);
		if (run->len == 0)
			run->offset = skip_hole(seg, run->offset, to);
		at = run->offset + run->len;
	}
	return run->len && at < to;
}
