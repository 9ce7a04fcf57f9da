/*
 * Times for a segment's file. Where a program may hold up its lock a worker gives them to it.
 */
#ifndef RAMP_FILE_TIMES_H
#define RAMP_FILE_TIMES_H

#include "mount_ref.h"

/* Times that a worker gives to a file. */
struct file_times;

/*
 * Gives `times` (UTIME_OMIT: that one stays) to the file of the row's segment. At once where nothing
 * holds its lock up; else a worker does, and *slot, which must stay where it is, is not NULL until
 * it has. What is given meanwhile is that worker's next. Without memory the file's own times stay.
 * `closed`: the caller's, set when the store may be closed. Control loop.
 */
void file_times_give(struct mount *m, struct file_times **slot, const bool *closed, struct seg *seg,
		     const struct segment_row *row, const struct timespec times[2]);
/* The row's times, to be noted beside the file (seg_note_row) once the file has its own; 0, 0:
   nothing is. */
void file_times_note(struct file_times *ft, const struct timespec row[2]);

#endif
