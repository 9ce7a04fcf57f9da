/*
 * Times for a segment's file. Where a program may hold its lock a worker sets them.
 */
#ifndef RAMP_FILE_TIMES_H
#define RAMP_FILE_TIMES_H

#include "mount_ref.h"

/* Times that a worker is giving to a file. */
struct file_times;

/*
 * Gives `times` (UTIME_OMIT: that one stays) to the file of the row's segment: at once where no
 * program can hold its lock; else a worker does, and *slot is not NULL until it has. The slot must
 * not move meanwhile. Times given meanwhile are set by the same worker afterwards. Without memory
 * the file's own times stay. `closed`: a flag of the caller, set when the store may be closed.
 * Control loop.
 */
void file_times_give(struct mount *m, struct file_times **slot, const bool *closed, struct seg *seg,
		     const struct segment_row *row, const struct timespec times[2]);
/* Sets the row's times, which are noted beside the file (seg_note_row) once it has its own; 0, 0:
   none. */
void file_times_note(struct file_times *ft, const struct timespec row[2]);

#endif
