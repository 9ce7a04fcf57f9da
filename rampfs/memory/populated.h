/*
 * What of a segment is populated: the list that a source sends, and data and holes for lseek(2).
 */
#ifndef RAMP_MEMORY_POPULATED_H
#define RAMP_MEMORY_POPULATED_H

#include <stdint.h>

#include "base/err.h"
#include "find_data.h"

/*
 * Lists the data of the file: at most `max` ranges, in order. Where there are more, neighbours are
 * joined, over the smallest gaps first (a joined hole is sent as a hole when it is pulled).
 * *populated_bytes: of st_blocks. Where more is allocated than is data (fallocated, never touched),
 * or pages are lost, the layout counts as changed since seg_note_layout: neither could be told from
 * holes. Blocks: call it from a worker.
 */
int populated_list(struct seg *seg, struct data_range *ranges, uint32_t max, uint32_t *count,
		   uint64_t *populated_bytes, struct ramp_err *err);
/* Counts the populated bytes outside of `ranges` (of populated_list), no further than to a little
   above `enough`. Looks only between the ranges. */
int populated_unlisted(struct seg *seg, const struct data_range *ranges, uint32_t count,
		       uint64_t enough, uint64_t *bytes, struct ramp_err *err);

/* Finds the first run of pages at or behind byte `from` that have data in the file and are LOCAL. 1:
   [*offset, *offset + *len), page-aligned; the last page may be a part of one in the file. 0: there
   is none; or a negative errno. Exact for as long as no program cuts the file. Loads no byte of it.
   Blocks: call it from a worker. */
int room_next_run(struct seg *seg, uint64_t from, uint64_t *offset, uint64_t *len);

/* The next byte >= offset that is data in the sense of the source, as lseek(SEEK_DATA); -ENXIO. */
int64_t populated_seek_data(struct seg *seg, uint64_t offset);
int64_t populated_seek_hole(struct seg *seg, uint64_t offset);

#endif
