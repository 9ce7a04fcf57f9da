/*
 * Room: what is populated here, and taking as much elsewhere before it comes.
 *
 * Happy path: the source lists its data ranges; the target sets the size and takes the same ranges,
 * mostly populated blocks of 2 MiB with fallocate(2), which makes them huge, others page by page;
 * and a placeholder file holds the slack, for pages that are populated after the list was made. The
 * huge ones are cleared later, in the background, and what arrived in small pages is collapsed when
 * all is there.
 *
 * How it fails: no room: everything taken is given back at once, -ENOSPC. A killed daemon leaves a
 * reservation without a record, which store_open removes; the slack goes with it, and of what it had
 * recorded as taken the next one takes it again.
 */
#include "reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "pages.h"
#include "seg.h"

#define HUGE_PAGES	(RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)
#define HUGE_WORTH	(RAMP_HUGE_BYTES / 4 * 3) /* bytes that make a huge page worth it */
#define TAKE_MAX	(16 * RAMP_HUGE_BYTES)	  /* that one call takes */
#define COLLAPSE_PAGES	(HUGE_PAGES / 8 * 7)
#define SLACK_MIN_BYTES (UINT64_C(2) << 20)
#define SLACK_MAX_BYTES (UINT64_C(256) << 20)

static uint64_t round_up(uint64_t v, uint64_t unit)
{
	return (v + unit - 1) / unit * unit;
}

/* ---- what is populated ---- */

/* Joins neighbours over gaps of up to `gap`; returns how many ranges are left. */
static uint32_t join(struct room_range *ranges, uint32_t count, uint64_t gap)
{
	uint32_t kept = 0;

	for (uint32_t i = 1; i < count; i++) {
		uint64_t end = ranges[kept].offset + ranges[kept].len;

		if (ranges[i].offset - end <= gap)
			ranges[kept].len = ranges[i].offset + ranges[i].len - ranges[kept].offset;
		else
			ranges[++kept] = ranges[i];
	}
	return kept + 1;
}

/* Adds one range; where the array is full, gaps are given up, the smallest first. */
static void add(struct room_range *ranges, uint32_t max, uint32_t *count, uint64_t *gap,
		uint64_t from, uint64_t to)
{
	while (*count == max && max > 1) {
		*count = join(ranges, *count, *gap);
		if (*count == max)
			*gap *= 2;
	}
	if (*count == max)
		ranges[0].len = to - ranges[0].offset;
	else
		ranges[(*count)++] = (struct room_range){from, to - from};
}

/* A walk over a file's data. The segment is mapped for it where its file's lock may be kept. */
struct walk {
	struct seg *seg;
	uint8_t *base; /* NULL: not mapped (yet) */
	uint64_t mapped;
	bool unmap;
};

static void walk_end(struct walk *walk)
{
	if (walk->unmap)
		seg_unmap(walk->seg);
}

/* Behind the first data nothing is looked at where that is beyond `to`. */
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

static int look_run(struct walk *walk, uint64_t from, uint64_t to, uint64_t *data, uint64_t *hole)
{
	uint64_t at = from / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES, size = seg_size(walk->seg);
	struct room_range run;
	bool found = false;
	int rc;

	if (!walk->base) {
		rc = seg_map(walk->seg, &walk->base, &walk->mapped, NULL);
		if (rc)
			return rc;
		walk->unmap = true;
	}
	/* What has grown since came after the walk began. */
	if (size > walk->mapped)
		size = walk->mapped;
	if (to > size)
		to = size;
	if (from >= to)
		return -ENXIO;
	while (at < to) {
		rc = room_look(walk->seg, walk->base, at, to, UINT64_MAX, &run);
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

/* The next run of data in [from, to), by the bytes, at least as far as `to`; -ENXIO: there is none. */
static int next_run(struct walk *walk, uint64_t from, uint64_t to, uint64_t *data, uint64_t *hole)
{
	int rc;

	if (!seg_direct_begin(walk->seg))
		return look_run(walk, from, to, data, hole);
	rc = seek_run(walk->seg, from, to, data, hole);
	seg_direct_end(walk->seg);
	return rc;
}

int room_populated(struct seg *seg, struct room_range *ranges, uint32_t max, uint32_t *count,
		   uint64_t *populated_bytes, struct ramp_err *err)
{
	uint64_t gap = RAMP_PAGE_BYTES, seen_bytes = 0, data = 0, hole = 0;
	struct walk walk = {.seg = seg};
	struct stat st;
	int rc;

	*count = 0;
	if (max == 0)
		return ramp_err_set(err, EINVAL, "room for no range at all");
	while (!(rc = next_run(&walk, hole, UINT64_MAX, &data, &hole))) {
		add(ranges, max, count, &gap, data, round_up(hole, RAMP_PAGE_BYTES));
		seen_bytes += round_up(hole, RAMP_PAGE_BYTES) - data;
	}
	walk_end(&walk);
	if (rc == -ENXIO) /* behind the last data */
		rc = fstat(seg_fd(seg), &st) ? -errno : 0;
	if (rc)
		return ramp_err_sys(err, -rc, "looking for the data of segment %llu",
				    (unsigned long long)seg->id);
	*populated_bytes = (uint64_t)st.st_blocks * 512;
	/* Allocated and never touched is a hole to SEEK_DATA, and a store into it changes no block
	   count: nobody would see that the list is not true any more. So is a lost page, which
	   would be zeros elsewhere; one that is just being written over may be lost again. */
	if (*populated_bytes > seen_bytes || pages_missing(seg))
		seg_layout_cut(seg);
	return 0;
}

/* Adds to *bytes what is data in [from, to), until there is more than `enough` of it. */
static int count_data(struct walk *walk, uint64_t from, uint64_t to, uint64_t enough,
		      uint64_t *bytes)
{
	uint64_t data = 0, hole = 0;
	int rc;

	while (from < to && *bytes <= enough) {
		rc = next_run(walk, from, to, &data, &hole);
		if (rc)
			return rc == -ENXIO ? 0 : rc;
		from = round_up(hole, RAMP_PAGE_BYTES);
		*bytes += (from < to ? from : to) - data;
	}
	return 0;
}

int room_unlisted(struct seg *seg, const struct room_range *ranges, uint32_t count, uint64_t enough,
		  uint64_t *bytes, struct ramp_err *err)
{
	struct walk walk = {.seg = seg};
	uint64_t from = 0;
	int rc = 0;

	*bytes = 0;
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = count_data(&walk, from, ranges[i].offset, enough, bytes);
		from = ranges[i].offset + ranges[i].len;
	}
	if (!rc)
		rc = count_data(&walk, from, INT64_MAX, enough, bytes);
	walk_end(&walk);
	return rc ? ramp_err_sys(err, -rc, "looking for the new data of segment %llu",
				 (unsigned long long)seg->id)
		  : 0;
}

/* ---- taking room ---- */

static int take(int fd, uint64_t from, uint64_t to)
{
	while (to > from && fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)))
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* In a file without a name: it goes with its descriptor, however the daemon ends. */
static int take_slack(struct seg *seg, uint64_t bytes)
{
	int fd, rc;

	if (bytes == 0)
		return 0;
	fd = openat(seg->store->dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = take(fd, 0, bytes);
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

uint64_t room_slack_for(uint64_t populated_bytes)
{
	uint64_t slack = populated_bytes / 16;

	if (slack < SLACK_MIN_BYTES)
		return SLACK_MIN_BYTES;
	return slack > SLACK_MAX_BYTES ? SLACK_MAX_BYTES : slack;
}

void room_take_slack_again(struct seg *seg)
{
	uint64_t bytes = pages_missing(seg) * RAMP_PAGE_BYTES, slack;
	struct stat st;
	bool has;

	pthread_mutex_lock(&seg->lock);
	has = seg->slack_fd >= 0;
	pthread_mutex_unlock(&seg->lock);
	if (has || fstat(seg_fd(seg), &st))
		return;
	slack = room_slack_for((uint64_t)st.st_blocks * 512);
	if (bytes > slack)
		bytes = slack;
	while (take_slack(seg, bytes) == -ENOSPC)
		bytes = bytes / 2 / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
}

void room_keep(struct seg *seg)
{
	struct state_header *state;

	pthread_mutex_lock(&seg->lock);
	state = atomic_load(&seg->state); /* NULL: at rest, and then no list is untrue */
	if (state && atomic_load(&state->unlisted))
		atomic_store(&state->unlisted, UNLISTED_KEPT);
	pthread_mutex_unlock(&seg->lock);
}

void room_give_back(struct seg *seg, uint64_t first, uint64_t count)
{
	/* What is cut before room_keep returns is filled by the fallocate that comes after it. */
	pthread_mutex_lock(&seg->lock);
	/* Where that fails the room goes with the segment. */
	if (atomic_load(&seg->state->unlisted) != UNLISTED_KEPT && seg_direct_begin(seg)) {
		(void)fallocate(seg_fd(seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)(first * RAMP_PAGE_BYTES), (off_t)(count * RAMP_PAGE_BYTES));
		seg_direct_end(seg);
	}
	pthread_mutex_unlock(&seg->lock);
}

bool room_use_slack(struct seg *seg)
{
	uint64_t some;
	bool used;

	pthread_mutex_lock(&seg->lock);
	used = seg->slack_fd >= 0 && seg->slack_bytes > 0;
	if (used) {
		some = seg->slack_bytes < RAMP_HUGE_BYTES ? seg->slack_bytes : RAMP_HUGE_BYTES;
		seg->slack_bytes -= some;
		/* Can't fail but by a signal, and then what is left goes at the end. */
		(void)fallocate(seg->slack_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)seg->slack_bytes, (off_t)some);
	}
	/* It is counted in what the source has: a page there may be a small one. */
	if (used && !seg->scarce) {
		seg->scarce = true;
		seg_map_small(seg);
	}
	pthread_mutex_unlock(&seg->lock);
	return used;
}

void room_release_slack(struct seg *seg)
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

/* What the ranges cover of each 2 MiB of the file decides whether it is to be huge: a walk over
   ranges and blocks side by side. */
struct block_walk {
	const struct room_range *ranges;
	uint32_t count, at;
	uint64_t block_start; /* bytes */
};

/* The next 2 MiB block of which a range covers something; *covered: how much. False: no more. */
static bool next_block(struct block_walk *walk, uint64_t *covered)
{
	uint64_t start, end;

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
		uint64_t from = walk->ranges[i].offset;
		uint64_t to = from + walk->ranges[i].len;

		if (from < walk->block_start)
			from = walk->block_start;
		if (to > end)
			to = end;
		*covered += to > from ? to - from : 0;
	}
	return true;
}

/*
 * The parts of the ranges within one block, page by page: fallocate(2) would take aligned folios
 * around them, up to 2 MiB for one page, and so would a write(2). A mapping with MADV_NOHUGEPAGE
 * does not; its pages are cleared at once.
 */
static int take_small(uint8_t *base, const struct block_walk *walk, uint64_t size)
{
	uint64_t end = walk->block_start + RAMP_HUGE_BYTES;

	if (end > round_up(size, RAMP_PAGE_BYTES))
		end = round_up(size, RAMP_PAGE_BYTES);
	for (uint32_t i = walk->at; i < walk->count && walk->ranges[i].offset < end; i++) {
		uint64_t from = walk->ranges[i].offset;
		uint64_t to = from + walk->ranges[i].len;

		if (from < walk->block_start)
			from = walk->block_start;
		if (to > end)
			to = end;
		if (to > from && madvise(base + from, to - from, MADV_POPULATE_WRITE))
			return errno == EFAULT ? -ENOSPC : -errno;
	}
	return 0;
}

/*
 * `base`: the file, mapped for small pages. Huge blocks side by side are taken at once, since each
 * call costs as much as half a huge page; but not so many that a signal undoes much.
 */
static int take_ranges(struct seg *seg, uint8_t *base, const struct room_range *ranges,
		       uint32_t count, uint64_t size)
{
	struct block_walk walk = {.ranges = ranges, .count = count};
	uint64_t covered, end, huge_from = 0, huge_to = 0; /* those not taken yet */
	int rc = 0;

	for (; !rc && next_block(&walk, &covered); walk.block_start += RAMP_HUGE_BYTES) {
		end = walk.block_start + RAMP_HUGE_BYTES;
		if (covered < HUGE_WORTH || end > size || seg_small(seg)) {
			rc = take_small(base, &walk, size);
			continue;
		}
		if (walk.block_start != huge_to || huge_to - huge_from >= TAKE_MAX) {
			rc = take(seg_fd(seg), huge_from, huge_to);
			huge_from = walk.block_start;
		}
		huge_to = end;
	}
	return rc ? rc : take(seg_fd(seg), huge_from, huge_to);
}

static int take_file(struct seg *seg, const struct room_range *ranges, uint32_t count,
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

int room_reserve(struct seg *seg, uint64_t size_bytes, const struct room_range *ranges,
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
	room_release_slack(seg);
	rc = take_file(seg, ranges, count, size_bytes);
	if (!rc)
		rc = take_slack(seg, slack_bytes);
	if (!rc)
		return 0;
	if (ftruncate(seg_fd(seg), 0))
		return ramp_err_sys(err, errno, "segment %llu", (unsigned long long)seg->id);
	return ramp_err_sys(err, -rc, "no room for segment %llu", (unsigned long long)seg->id);
}

/* ---- collapsing ---- */

/* Nearly full: what it lacks costs less than what a huge page saves. */
static bool nearly_full(uint8_t *at)
{
	uint8_t resident[HUGE_PAGES];
	uint32_t pages = 0;

	if (mincore(at, RAMP_HUGE_BYTES, resident))
		return false;
	for (uint32_t i = 0; i < HUGE_PAGES; i++)
		pages += resident[i] & 1;
	return pages >= COLLAPSE_PAGES;
}

/* What leaves, or is removed, is to be freed when it has, and must not grow before. */
static bool may_collapse(struct seg *seg, const atomic_bool *stop)
{
	return !atomic_load(stop) && !seg_leaving(seg) && !seg_removed(seg);
}

/* By a mapping of its own: one of the whole segment that takes huge pages khugepaged would go
   through, which has another opinion of what is nearly full; and seg_map's keeps the holes. */
static void collapse(struct seg *seg, uint64_t block)
{
	void *at = mapping_of_file(seg, PROT_READ, block, RAMP_HUGE_BYTES);

	if (at == MAP_FAILED)
		return;
	madvise(at, RAMP_HUGE_BYTES, MADV_COLLAPSE);
	munmap(at, RAMP_HUGE_BYTES);
}

void room_collapse(struct seg *seg, const atomic_bool *stop)
{
	uint64_t block = 0, size = seg_size(seg), data = 0, hole = 0;
	struct walk walk = {.seg = seg, .mapped = size};
	uint8_t *base;

	if (seg_small(seg) || size < RAMP_HUGE_BYTES)
		return;
	base = mapping_of_file(seg, PROT_READ, 0, size);
	if (base == MAP_FAILED)
		return;
	mapping_want_small(base, size);
	walk.base = base;
	while (may_collapse(seg, stop) && !next_run(&walk, hole, UINT64_MAX, &data, &hole)) {
		if (hole <= data)
			break;
		data = data / RAMP_HUGE_BYTES * RAMP_HUGE_BYTES;
		if (data > block)
			block = data;
		for (; block < hole && block + RAMP_HUGE_BYTES <= size && may_collapse(seg, stop);
		     block += RAMP_HUGE_BYTES)
			if (nearly_full(base + block))
				collapse(seg, block);
	}
	munmap(base, size);
}

/* ---- data and holes as the source has them ----
 *
 * First which pages are missing, then what the file has: a page that arrives in between is in both.
 * The other way round it would be in neither.
 */

int64_t room_seek_data(struct seg *seg, uint64_t offset)
{
	uint64_t size = seg_size(seg), page, start;
	int64_t data;

	if (offset >= size)
		return -ENXIO;
	page = pages_next_missing(seg, offset / RAMP_PAGE_BYTES);
	data = lseek(seg_fd(seg), (off_t)offset, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return -errno;
	if (page < round_up(size, RAMP_PAGE_BYTES) / RAMP_PAGE_BYTES) {
		start = page * RAMP_PAGE_BYTES;
		if (start < offset)
			start = offset;
		if (data < 0 || start < (uint64_t)data)
			data = (int64_t)start;
	}
	return data < 0 ? -ENXIO : data;
}

int64_t room_seek_hole(struct seg *seg, uint64_t offset)
{
	uint64_t size = seg_size(seg), at = offset, run, missing;
	enum page_state state;
	int64_t hole;

	if (offset >= size)
		return -ENXIO;
	while (at < size) {
		run = pages_run(seg, at / RAMP_PAGE_BYTES, size / RAMP_PAGE_BYTES + 1, &state);
		if (state != PAGE_LOCAL) {
			at = (at / RAMP_PAGE_BYTES + run) * RAMP_PAGE_BYTES;
			continue;
		}
		missing = pages_next_missing(seg, at / RAMP_PAGE_BYTES);
		hole = lseek(seg_fd(seg), (off_t)at, SEEK_HOLE);
		if (hole < 0)
			return errno == ENXIO ? (int64_t)size : -errno;
		if (missing == UINT64_MAX || (uint64_t)hole < missing * RAMP_PAGE_BYTES)
			return hole;
		at = missing * RAMP_PAGE_BYTES;
	}
	return (int64_t)size;
}
