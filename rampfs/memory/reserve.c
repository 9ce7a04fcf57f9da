/*
 * Reserving the memory of a segment before it comes.
 *
 * Happy path: the source lists its data ranges (populated.c). The target sets the size and takes the
 * same ranges: mostly populated blocks of 2 MiB with fallocate(2), which makes them huge, others page
 * by page. A placeholder file holds the slack, for pages that are populated after the list was made.
 * The huge pages are cleared later, in the background, and blocks that arrived in small pages are
 * collapsed when all is there (collapse.c).
 *
 * How it fails: if there is no room, all that was taken is given back at once, -ENOSPC. A killed
 * daemon leaves a reservation without a record, which store_open removes; the slack goes with it. For
 * a segment whose record was TAKEN, the next daemon takes a slack again.
 */
#include "reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/page.h"
#include "mapping.h"
#include "pages.h"
#include "seg_core.h"
#include "seg_file.h"

#define HUGE_WORTH	(RAMP_HUGE_BYTES / 4 * 3) /* bytes that make a huge page worthwhile */
#define TAKE_MAX	(16 * RAMP_HUGE_BYTES)	  /* taken by one call */
#define SLACK_MIN_BYTES (UINT64_C(2) << 20)
#define SLACK_MAX_BYTES (UINT64_C(256) << 20)

/* ---- the slack ------------------------------------------------------------------------------- */

static int reserve_take(int fd, uint64_t from, uint64_t to)
{
	while (to > from && fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)))
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Takes it in a file without a name: it goes with its descriptor, in whatever way the daemon ends. */
static int take_slack(struct seg *seg, uint64_t bytes)
{
	int fd, rc;

	if (bytes == 0)
		return 0;
	fd = openat(seg->store->dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = reserve_take(fd, 0, bytes);
	if (rc) {
		close(fd);
		return rc;
	}
	pthread_mutex_lock(&seg->lock);
	seg->slack_fd = fd;
	seg->slack_bytes = bytes;
	pthread_mutex_unlock(&seg->lock);
	return 0;
}

uint64_t reserve_slack_for(uint64_t populated_bytes)
{
	uint64_t slack = populated_bytes / 16;

	if (slack < SLACK_MIN_BYTES)
		return SLACK_MIN_BYTES;
	return slack > SLACK_MAX_BYTES ? SLACK_MAX_BYTES : slack;
}

void reserve_take_slack_again(struct seg *seg)
{
	uint64_t bytes = pages_missing(seg) * RAMP_PAGE_BYTES, slack;
	struct stat st;
	bool has;

	pthread_mutex_lock(&seg->lock);
	has = seg->slack_fd >= 0;
	pthread_mutex_unlock(&seg->lock);
	if (has || fstat(seg_fd(seg), &st))
		return;
	slack = reserve_slack_for((uint64_t)st.st_blocks * 512);
	if (bytes > slack)
		bytes = slack;
	while (take_slack(seg, bytes) == -ENOSPC)
		bytes = page_down(bytes / 2);
}

void reserve_keep(struct seg *seg)
{
	struct state_header *state;

	pthread_mutex_lock(&seg->lock);
	state = atomic_load(&seg->state); /* NULL: at rest, and then no list is untrue */
	if (state && atomic_load(&state->unlisted))
		atomic_store(&state->unlisted, UNLISTED_KEPT);
	pthread_mutex_unlock(&seg->lock);
}

void reserve_give_back(struct seg *seg, uint64_t first, uint64_t count)
{
	/* A hole punched before reserve_keep returns is filled by the fallocate that comes after it. */
	pthread_mutex_lock(&seg->lock);
	/* If this fails, the room goes with the segment. */
	if (atomic_load(&seg->state->unlisted) != UNLISTED_KEPT && seg_direct_begin(seg)) {
		(void)fallocate(seg_fd(seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)(first * RAMP_PAGE_BYTES), (off_t)(count * RAMP_PAGE_BYTES));
		seg_direct_end(seg);
	}
	pthread_mutex_unlock(&seg->lock);
}

bool reserve_use_slack(struct seg *seg)
{
	uint64_t some;
	bool used;

	pthread_mutex_lock(&seg->lock);
	used = seg->slack_fd >= 0 && seg->slack_bytes > 0;
	if (used) {
		some = seg->slack_bytes < RAMP_HUGE_BYTES ? seg->slack_bytes : RAMP_HUGE_BYTES;
		seg->slack_bytes -= some;
		/* Can fail only by a signal; then the rest goes at the end. */
		(void)fallocate(seg->slack_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)seg->slack_bytes, (off_t)some);
	}
	/* The slack is counted by the source's pages, which may be small ones. */
	if (used && !seg->scarce) {
		seg->scarce = true;
		seg_map_small(seg);
	}
	pthread_mutex_unlock(&seg->lock);
	return used;
}

void reserve_release_slack(struct seg *seg)
{
	int fd;

	pthread_mutex_lock(&seg->lock);
	fd = seg->slack_fd;
	seg->slack_fd = -1;
	seg->scarce = false;
	pthread_mutex_unlock(&seg->lock);
	if (fd >= 0)
		close(fd);
}

/* ---- the ranges ------------------------------------------------------------------------------ */

/* A walk over ranges and blocks of 2 MiB side by side: how much the ranges cover of a block decides
   whether it becomes huge. */
struct block_walk {
	const struct data_range *ranges;
	uint32_t count, at;
	uint64_t block_start; /* bytes */
};

/* Returns the part of range number i within the block, which ends at `end`; to <= from: none. */
static void clip_range(const struct block_walk *walk, uint32_t i, uint64_t end, uint64_t *from,
		       uint64_t *to)
{
	*from = walk->ranges[i].offset;
	*to = *from + walk->ranges[i].len;
	if (*from < walk->block_start)
		*from = walk->block_start;
	if (*to > end)
		*to = end;
}

/* Finds the next 2 MiB block of which a range covers a part; *covered: how many bytes. False: none. */
static bool next_block(struct block_walk *walk, uint64_t *covered)
{
	uint64_t start, end, from, to;

	while (walk->at < walk->count &&
	       walk->ranges[walk->at].offset + walk->ranges[walk->at].len <= walk->block_start)
		walk->at++;
	if (walk->at == walk->count)
		return false;
	start = walk->ranges[walk->at].offset / RAMP_HUGE_BYTES * RAMP_HUGE_BYTES;
	if (start > walk->block_start)
		walk->block_start = start;
	end = walk->block_start + RAMP_HUGE_BYTES;
	*covered = 0;
	for (uint32_t i = walk->at; i < walk->count && walk->ranges[i].offset < end; i++) {
		clip_range(walk, i, end, &from, &to);
		*covered += to > from ? to - from : 0;
	}
	return true;
}

/*
 * Takes the parts of the ranges within one block, page by page: fallocate(2) would take aligned
 * folios around them, up to 2 MiB for one page, and so would a write(2). A mapping with
 * MADV_NOHUGEPAGE does not; its pages are cleared at once.
 */
static int take_small(uint8_t *base, const struct block_walk *walk, uint64_t size)
{
	uint64_t end = walk->block_start + RAMP_HUGE_BYTES, from, to;

	if (end > page_up(size))
		end = page_up(size);
	for (uint32_t i = walk->at; i < walk->count && walk->ranges[i].offset < end; i++) {
		clip_range(walk, i, end, &from, &to);
		if (to > from && madvise(base + from, to - from, MADV_POPULATE_WRITE))
			return errno == EFAULT ? -ENOSPC : -errno;
	}
	return 0;
}

/*
 * Takes all ranges. `base`: the file, mapped for small pages. Adjacent huge blocks are taken at once,
 * since each call costs as much as half a huge page; but not so many that a signal undoes much. The last
 * block of a file is taken at once as well, also where it is less than a huge page, if the ranges cover all
 * of it: the kernel takes folios that are no longer than the file (huge=within_size), and need not clear
 * them now.
 */
static int take_ranges(struct seg *seg, uint8_t *base, const struct data_range *ranges,
		       uint32_t count, uint64_t size)
{
	struct block_walk walk = {.ranges = ranges, .count = count};
	uint64_t covered, end, huge_from = 0, huge_to = 0; /* not taken yet */
	bool whole;
	int rc = 0;

	for (; !rc && next_block(&walk, &covered); walk.block_start += RAMP_HUGE_BYTES) {
		end = walk.block_start + RAMP_HUGE_BYTES;
		if (end > size)
			end = page_up(size);
		whole = covered == end - walk.block_start;
		if (seg_small(seg) || (!whole && (covered < HUGE_WORTH || end % RAMP_HUGE_BYTES))) {
			rc = take_small(base, &walk, size);
			continue;
		}
		if (walk.block_start != huge_to || huge_to - huge_from >= TAKE_MAX) {
			rc = reserve_take(seg_fd(seg), huge_from, huge_to);
			huge_from = walk.block_start;
		}
		huge_to = end;
	}
	return rc ? rc : reserve_take(seg_fd(seg), huge_from, huge_to);
}

static int take_file(struct seg *seg, const struct data_range *ranges, uint32_t count,
		     uint64_t size)
{
	void *base;
	int rc;

	if (ftruncate(seg_fd(seg), 0) || ftruncate(seg_fd(seg), (off_t)size))
		return -errno;
	if (size == 0 || count == 0)
		return 0;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, seg_fd(seg), 0);
	if (base == MAP_FAILED)
		return -errno;
	rc = madvise(base, size, MADV_NOHUGEPAGE) ? -errno
						  : take_ranges(seg, base, ranges, count, size);
	munmap(base, size);
	return rc;
}

int reserve_memory(struct seg *seg, uint64_t size_bytes, const struct data_range *ranges,
		   uint32_t count, uint64_t slack_bytes, struct ramp_err *err)
{
	int rc;

	for (uint32_t i = 0; i < count; i++)
		if (ranges[i].offset % RAMP_PAGE_BYTES || ranges[i].len == 0 ||
		    ranges[i].len > INT64_MAX || ranges[i].offset > INT64_MAX - ranges[i].len ||
		    (i && ranges[i].offset < ranges[i - 1].offset + ranges[i - 1].len))
			return ramp_err_set(err, EINVAL, "the list of ranges is not in order");
	if (size_bytes > INT64_MAX)
		return ramp_err_set(err, EFBIG, "a file can't be that large");
	reserve_release_slack(seg);
	rc = take_file(seg, ranges, count, size_bytes);
	if (!rc)
		rc = take_slack(seg, slack_bytes);
	if (!rc)
		return 0;
	if (ftruncate(seg_fd(seg), 0))
		return ramp_err_sys(err, errno, "segment %" PRIu64, seg->id);
	return ramp_err_sys(err, -rc, "no room for segment %" PRIu64, seg->id);
}
