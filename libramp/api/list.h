/*
 * The table of all segments that the daemon shows (.ramp/segments).
 *
 * Any thread may call these functions: each call reads the table.
 */
#ifndef RAMP_API_LIST_H
#define RAMP_API_LIST_H

#include "handle.h"

/* Finds the segment of that number; id 0: one of that name, on any node. 0; -ENOENT; or another negative errno than
   -EAGAIN, where the table can't be read (-EIO: no text of it was of one moment). */
int list_find(struct ramp_cluster *ramp, uint64_t id, const char *name, struct ramp_info *out);
/* Finds the segment of that number. -EAGAIN: its row, in `out`, is not of a later epoch. */
int list_find_later(struct ramp_cluster *ramp, uint64_t id, uint64_t epoch, struct ramp_info *out);

/* Fills what that column says of the segment; "" where the daemon has no such column. 0; -ENOENT; or
   another negative errno. */
int list_column(const struct ramp_cluster *ramp, uint64_t id, const char *column, char *out,
		size_t len);

#endif
