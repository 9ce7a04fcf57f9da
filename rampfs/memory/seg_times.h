/*
 * Times of a segment that are kept beside its bytes: a held mtime, hints, and the row's times.
 * Times that int64_t nanoseconds can't express become the nearest that they can.
 */
#ifndef RAMP_MEMORY_SEG_TIMES_H
#define RAMP_MEMORY_SEG_TIMES_H

#include <stdbool.h>
#include <time.h>

struct seg;

/*
 * The time of the last write of a segment whose pages are still coming: the daemon's own stores
 * would change the file's st_mtime. It is held beside the bytes from seg_hold_mtime (which gets the
 * source's) until seg_release_mtime gives it to the file, when no more pages come. Any thread.
 */
void seg_hold_mtime(struct seg *seg, struct timespec mtime);
void seg_release_mtime(struct seg *seg);
/* futimens(2), also of the mtime held. 0 or -errno. */
int seg_set_times(struct seg *seg, const struct timespec times[2]);
/* Called before a user's write, truncate, fallocate or punched hole. */
void seg_note_write(struct seg *seg);

/*
 * The times that this daemon or one before it proposed to the metadata as hints. They may still
 * come back as a change of the row, which is then no user's request. Kept beside the bytes. For the
 * control loop.
 */
void seg_note_hint(struct seg *seg, const struct timespec times[2]); /* before it is proposed */
bool seg_hinted(struct seg *seg, const struct timespec times[2]);
void seg_forget_hints(struct seg *seg); /* a later hint is decided, so all of them are */

/*
 * The times that the row had when it was last looked at. If the row differs later, that is a
 * user's request or a hint. Kept beside the bytes. For the control loop.
 */
void seg_note_row(struct seg *seg, const struct timespec times[2]);
void seg_forget_row(struct seg *seg);
/* Sets news[i] where atime (0) or mtime (1) differs. False: none were noted. */
bool seg_row_news(struct seg *seg, const struct timespec times[2], bool news[2]);

#endif
