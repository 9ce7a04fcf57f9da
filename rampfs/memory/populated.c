/*
 * The list of a segment's data ranges, and data and holes in the sense of the source.
 *
 * Happy path: a walk over the file's data (find_data.c). If the list is full, neighbours are joined.
 *
 * How it fails: data that no list can tell from holes makes the list untrue: seg_layout_cut.
 */
#include "populated.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/page.h"
#include "find_data.h"
#include "layout.h"
#include "pages.h"
#include "seg_core.h"
#include "seg_file.h"

/* Joins neighbours over gaps of up to `gap`; returns how many ranges remain. */
static uint32_t ranges_join(struct data_range *ranges, uint32_t count, uint64_t gap)
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

/* Adds one range; if the array is full, joins ranges over gaps, the smallest first. */
static void ranges_add(struct data_range *ranges, uint32_t max, uint32_t *count, uint64_t *gap,
		       uint64_t from, uint64_t to)
{
	while (*count == max && max > 1) {
		*count = ranges_join(ranges, *count, *gap);
		if (*count == max)
			*gap *= 2;
	}
	if (*count == max)
		ranges[0].len = to - ranges[0].offset;
	else
		ranges[(*count)++] = (struct data_range){from, to - from};
}

int populated_list(struct seg *seg, struct data_range *ranges, uint32_t max, uint32_t *count,
		   uint64_t *populated_bytes, struct ramp_err *err)
{
	uint64_t gap = RAMP_PAGE_BYTES, seen_bytes = 0, data = 0, hole = 0;
	struct data_walk walk = {.seg = seg};
	struct stat st;
	int rc;

	*count = 0;
	if (max == 0)
		return ramp_err_set(err, EINVAL, "room for no range at all");
	while (!(rc = data_walk_next(&walk, hole, UINT64_MAX, &data, &hole))) {
		ranges_add(ranges, max, count, &gap, data, page_up(hole));
		seen_bytes += page_up(hole) - data;
	}
	data_walk_end(&walk);
	if (rc == -ENXIO) /* there is no more data */
		rc = fstat(seg_fd(seg), &st) ? -errno : 0;
	if (rc)
		return ramp_err_sys(err, -rc, "looking for the data of segment %" PRIu64, seg->id);
	*populated_bytes = (uint64_t)st.st_blocks * 512;
	/* A page allocated and never touched is a hole to SEEK_DATA, and a store into it does not
	   change the count of blocks: the list would become untrue unnoticed. The same is true of a
	   lost page, which would be zeros elsewhere; one that is just being written over may be
	   lost again. */
	if (*populated_bytes > seen_bytes || pages_missing(seg))
		seg_layout_cut(seg);
	return 0;
}

/* Adds to *bytes the data in [from, to), until there is more than `enough` of it. */
static int count_data(struct data_walk *walk, uint64_t from, uint64_t to, uint64_t enough,
		      uint64_t *bytes)
{
	uint64_t data = 0, hole = 0;
	int rc;

	while (from < to && *bytes <= enough) {
		rc = data_walk_next(walk, from, to, &data, &hole);
		if (rc)
			return rc == -ENXIO ? 0 : rc;
		from = page_up(hole);
		*bytes += (from < to ? from : to) - data;
	}
	return 0;
}

int populated_unlisted(struct seg *seg, const struct data_range *ranges, uint32_t count,
		       uint64_t enough, uint64_t *bytes, struct ramp_err *err)
{
	struct data_walk walk = {.seg = seg};
	uint64_t from = 0;
	int rc = 0;

	*bytes = 0;
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = count_data(&walk, from, ranges[i].offset, enough, bytes);
		from = ranges[i].offset + ranges[i].len;
	}
	if (!rc)
		rc = count_data(&walk, from, INT64_MAX, enough, bytes);
	data_walk_end(&walk);
	return rc ? ramp_err_sys(err, -rc, "looking for the new data of segment %" PRIu64, seg->id)
		  : 0;
}

/* A page that is LOCAL stays LOCAL, so its state is looked at first. */
int room_next_run(struct seg *seg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	uint64_t page = page_count(from), end = page_count(seg_size(seg)), hole = 0, to = 0, run;
	struct data_walk walk = {.seg = seg};
	enum page_state state;
	int rc = -ENXIO;

	for (; rc == -ENXIO && page < end; page += run) {
		run = pages_run(seg, page, end - page, &state);
		to = (page + run) * RAMP_PAGE_BYTES;
		if (state == PAGE_LOCAL)
			rc = data_walk_next(&walk, page * RAMP_PAGE_BYTES, to, offset, &hole);
		if (!rc && page_up(hole) <= *offset)
			rc = -ENXIO; /* it was cut between the two looks */
	}
	data_walk_end(&walk);
	if (rc)
		return rc == -ENXIO ? 0 : rc;
	hole = page_up(hole);
	*len = (hole < to ? hole : to) - *offset;
	return 1;
}

/* ---- data and holes as the source has them --------------------------------------------------- */

/*
 * Both functions first look which pages are missing, then where the file has data: a page that
 * arrives in between is in both. The other way round it would be in neither.
 */

int64_t populated_seek_data(struct seg *seg, uint64_t offset)
{
	uint64_t size = seg_size(seg), page, start;
	int64_t data;

	if (offset >= size)
		return -ENXIO;
	page = pages_next_missing(seg, offset / RAMP_PAGE_BYTES);
	data = lseek(seg_fd(seg), (off_t)offset, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return -errno;
	if (page < page_count(size)) {
		start = page * RAMP_PAGE_BYTES;
		if (start < offset)
			start = offset;
		if (data < 0 || start < (uint64_t)data)
			data = (int64_t)start;
	}
	return data < 0 ? -ENXIO : data;
}

int64_t populated_seek_hole(struct seg *seg, uint64_t offset)
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
