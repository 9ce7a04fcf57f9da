/*
 * Where a file has data, also without its lock.
 *
 * lseek(SEEK_DATA) takes the lock of the inode, which a program that has a writable descriptor of the
 * file can hold for as long as it likes (seg_hand_out). mincore(2) takes no lock and says the same:
 * on tmpfs a page is data if the page cache has it and it is up to date; a page that fallocate(2)
 * reserved is not. It looks at page after page. So after some pages without data, cachestat(2), which
 * skips pages that are not there, finds the end of the hole. (It counts reserved pages, too, so it
 * can't say more.)
 *
 * If the file is cut meanwhile, no data is found there: neither call touches the pages.
 *
 * How it fails: without cachestat (before Linux 6.5, or under a filter that does not know it) a hole
 * is reported in more pieces.
 */
#include "find_data.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/page.h"
#include "mapping.h"
#include "seg_file.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* on every architecture but alpha */
#endif

#define FIRST_PAGES 16u	  /* by the first mincore(2), then four times as many, and so on */
#define STEP_PAGES  2048u /* up to here: 0.1 ms */
#define LOOK_PAGES  (4 * STEP_PAGES) /* in all: half a millisecond */
/* By one cachestat(2): at first, and at most, which takes a quarter of a millisecond where all pages
   are there. */
#define NEAR_BYTES (UINT64_C(256) << 10)
#define FAR_BYTES  (UINT64_C(32) << 20)
#define SKIPS_MAX  1024u /* a millisecond, 32 GiB */

/* As in <linux/mman.h>, which may be older than the kernel. */
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

/* Returns how far from `at` on there is not even a reserved page, exact to NEAR_BYTES: by larger and
   larger steps (at most SKIPS_MAX), and then, after one that was too large, by smaller ones. */
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

/* Returns how many pages from the first on are all data, or all not. */
static uint64_t same(const uint8_t *there, uint64_t count, bool data)
{
	uint64_t n = 0;

	while (n < count && (there[n] & 1) == data)
		n++;
	return n;
}

int find_data_run(struct seg *seg, uint8_t *base, uint64_t from, uint64_t to, uint64_t enough,
		  struct data_range *run)
{
	uint64_t left = LOOK_PAGES, step = FIRST_PAGES, at = from, n, empty, full;
	uint8_t there[STEP_PAGES];

	*run = (struct data_range){.offset = from};
	to = page_up(to);
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

/* ---- a walk ---------------------------------------------------------------------------------- */

void data_walk_end(struct data_walk *walk)
{
	if (walk->unmap)
		seg_unmap(walk->seg);
}

/* As data_walk_next, by lseek(2). Does not look for the end of data that begins beyond `to`. */
static int seek_run(struct seg *seg, uint64_t from, uint64_t to, uint64_t *data, uint64_t *hole)
{
	int64_t at = lseek(seg_fd(seg), (off_t)from, SEEK_DATA);

	if (at < 0)
		return -errno;
	if ((uint64_t)at >= to)
		return -ENXIO;
	*data = (uint64_t)at;
	at = lseek(seg_fd(seg), at, SEEK_HOLE);
	if (at < 0)
		return -errno;
	*hole = (uint64_t)at;
	return 0;
}

/* As data_walk_next, by find_data_run. */
static int look_run(struct data_walk *walk, uint64_t from, uint64_t to, uint64_t *data,
		    uint64_t *hole)
{
	uint64_t at = page_down(from), size = seg_size(walk->seg);
	struct data_range run;
	bool found = false;
	int rc;

	if (!walk->base) {
		rc = seg_map(walk->seg, &walk->base, &walk->mapped, NULL);
		if (rc)
			return rc;
		walk->unmap = true;
	}
	/* The file may have grown since the walk began. */
	if (size > walk->mapped)
		size = walk->mapped;
	if (to > size)
		to = size;
	if (from >= to)
		return -ENXIO;
	while (at < to) {
		rc = find_data_run(walk->seg, walk->base, at, to, UINT64_MAX, &run);
		if (rc < 0)
			return rc;
		if (found && (run.len == 0 || run.offset > at))
			break;
		if (run.len && !found)
			*data = run.offset < from ? from : run.offset;
		found = found || run.len;
		at = run.offset + run.len;
		if (found && rc == 0)
			break;
	}
	*hole = at < size ? at : size;
	return found ? 0 : -ENXIO;
}

int data_walk_next(struct data_walk *walk, uint64_t from, uint64_t to, uint64_t *data,
		   uint64_t *hole)
{
	int rc;

	if (!seg_direct_begin(walk->seg))
		return look_run(walk, from, to, data, hole);
	rc = seek_run(walk->seg, from, to, data, hole);
	seg_direct_end(walk->seg);
	return rc;
}
