/*
 * Room for what is coming: a promise given in ACCEPT is kept.
 *
 * room_reserve takes what the source has populated and a slack, before ACCEPT; huge pages are not
 * cleared yet: who stores a whole one at once (pull/stage.c) need not.
 */
#ifndef RAMP_ROOM_H
#define RAMP_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct seg;

struct room_range {
	uint64_t offset, len; /* bytes, page-aligned */
};

/*
 * What is populated: SEEK_DATA/SEEK_HOLE over the file, ranges in order, at most `max`; where
 * there are more, neighbours are joined over the smallest gaps that come (a joined hole travels as
 * a hole when it is pulled). *populated_bytes: of st_blocks. Where more is allocated than is data
 * (fallocated, never touched), or pages are lost, the layout counts as changed since
 * seg_note_layout: neither could be told from holes. Blocks: a worker's call.
 */
int room_populated(struct seg *seg, struct room_range *ranges, uint32_t max, uint32_t *count,
		   uint64_t *populated_bytes, struct ramp_err *err);
/* How much is populated that `ranges`, of room_populated, don't name; counted no further than to
   something above `enough`. Costs what is between the ranges. */
int room_unlisted(struct seg *seg, const struct room_range *ranges, uint32_t count, uint64_t enough,
		  uint64_t *bytes, struct ramp_err *err);
/* Sets the file's size and takes the ranges and `slack_bytes` of the store's free space (-ENOSPC:
   nothing is kept; the file is empty then). 2 MiB ranges of which `ranges` cover three quarters
   are made huge, and what they lack is REMOTE nowhere, so it stays zeros; others small. Blocks. */
int room_reserve(struct seg *seg, uint64_t size_bytes, const struct room_range *ranges,
		 uint32_t count, uint64_t slack_bytes, struct ramp_err *err);
/* What a source that has so much populated may grow by while it is being moved. */
uint64_t room_slack_for(uint64_t populated_bytes);
/* Where there is none, since it went with a daemon before this one: as much of it as there is room
   for, and not more than what is missing. */
void room_take_slack_again(struct seg *seg);
/* Somebody is about to take room by fallocate(2), for holes too: from now on none is given back until
   every page is LOCAL. */
void room_keep(struct seg *seg);
/* A list named these pages, and the source has none there any more. They must be the caller's
   (IN_FLIGHT). Does nothing after room_keep, nor where seg_handed: the kernel has no way to give a
   page back without the file's lock, and the room goes with the segment. */
void room_give_back(struct seg *seg, uint64_t first, uint64_t count);
/* The slack lies in a placeholder (a file without a name in the store, so that the kernel keeps the
   promise); gives it back (what it was for can't come any more, or is there). */
void room_release_slack(struct seg *seg);
/* The store had no room for a page that comes: gives back some of the slack, which is for those
   that no range named. False: there is none left. */
bool room_use_slack(struct seg *seg);
/* After the last page: MADV_COLLAPSE of 2 MiB ranges that are nearly full. Blocks, up to a second a
   GiB; once *stop is set or the segment is leaving, no longer than one range takes. */
void room_collapse(struct seg *seg, const atomic_bool *stop);
/*
 * As lseek(SEEK_DATA, SEEK_HOLE), and without the file's lock, which a program may keep (seg_handed):
 * by what the page cache has. *run: the first run of data in [from, to), as far as it was looked;
 * len 0: none up to its offset, which is behind `from` unless that is `to`. It looks no further than
 * some way into `enough` bytes of data, and for no longer than a millisecond or two. `base`: where
 * the file is mapped, at least up to `to`; it may have been cut since. All in bytes, `from`
 * page-aligned. 0, or 1: the run may go on behind what is said; -errno: the kernel does not say. Any
 * thread.
 */
int room_look(struct seg *seg, uint8_t *base, uint64_t from, uint64_t to, uint64_t enough,
	      struct room_range *run);
/* The next byte >= offset that is data in the source's sense, as lseek(SEEK_DATA); -ENXIO. */
int64_t room_seek_data(struct seg *seg, uint64_t offset);
int64_t room_seek_hole(struct seg *seg, uint64_t offset);

#endif
