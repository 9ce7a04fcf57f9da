/*
 * Times kept in the header beside the bytes: the mtime held, the hints proposed, those of the row.
 */
#include "seg_times.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "open_cache.h"
#include "seg_core.h"
#include "seg_file.h"

static int64_t to_ns(struct timespec t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t.tv_sec, INT64_C(1000000000), &ns) ||
	    __builtin_add_overflow(ns, (int64_t)t.tv_nsec, &ns))
		ns = t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns == HELD_NOT ? HELD_NOT + 1 : ns;
}

void seg_hold_mtime(struct seg *seg, struct timespec mtime)
{
	if (seg->state)
		atomic_store(&seg->state->mtime, to_ns(mtime));
}

/* Replaces the mtime held, only as long as one is held: if it is released meanwhile it stays so, since
   no thread would release it again. */
static void hold_still(struct seg *seg, struct timespec mtime)
{
	int64_t held = atomic_load(&seg->state->mtime);

	while (held != HELD_NOT &&
	       !atomic_compare_exchange_weak(&seg->state->mtime, &held, to_ns(mtime)))
		;
}

/* A write that comes meanwhile calls seg_note_write first, so either that is seen here, or the write
   comes after futimens. */
void seg_release_mtime(struct seg *seg)
{
	int64_t held = seg->state ? atomic_load(&seg->state->mtime) : HELD_NOT;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

	while (held != HELD_NOT) {
		times[1] = seg_from_ns(held);
		if (futimens(seg_fd(seg), times))
			log_warn("segment %" PRIu64 ": setting its time of the last write: %s",
				 seg->id, strerror(errno));
		if (atomic_compare_exchange_strong(&seg->state->mtime, &held, HELD_NOT))
			break;
	}
}

/* Sets the mtime held first, as a write does: the file's own alone could be undone by a release. */
int seg_set_times(struct seg *seg, const struct timespec times[2])
{
	struct timespec mtime = times[1];

	seg_touch(seg);
	if (mtime.tv_nsec != UTIME_OMIT && seg_holds_mtime(seg)) {
		if (mtime.tv_nsec == UTIME_NOW)
			clock_gettime(CLOCK_REALTIME, &mtime);
		hold_still(seg, mtime);
	}
	return futimens(seg_fd(seg), times) ? -errno : 0;
}

void seg_note_write(struct seg *seg)
{
	struct timespec now;

	if (!seg_holds_mtime(seg))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	hold_still(seg, now);
}

/* ---- hints and the row ----------------------------------------------------------------------- */

void seg_note_hint(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;
	int64_t *hint;

	if (seg_hinted(seg, times) || seg_wake_header(seg))
		return;
	state = seg->state;
	hint = state->hints[state->next_hint++ % SEG_HINTS];
	hint[0] = to_ns(times[0]);
	hint[1] = to_ns(times[1]);
}

bool seg_hinted(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return false;
	state = seg->state;
	for (size_t i = 0; i < SEG_HINTS; i++)
		if ((state->hints[i][0] || state->hints[i][1]) &&
		    state->hints[i][0] == to_ns(times[0]) && state->hints[i][1] == to_ns(times[1]))
			return true;
	return false;
}

void seg_forget_hints(struct seg *seg)
{
	struct state_header *state = seg->state;

	if (state)
		memset(state->hints, 0, sizeof(state->hints));
}

void seg_note_row(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return;
	state = seg->state;
	state->row[0] = to_ns(times[0]);
	state->row[1] = to_ns(times[1]);
}

bool seg_row_news(struct seg *seg, const struct timespec times[2], bool news[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return false;
	state = seg->state;
	for (size_t i = 0; i < 2; i++)
		news[i] = state->row[i] != to_ns(times[i]);
	return state->row[0] || state->row[1];
}

void seg_forget_row(struct seg *seg)
{
	struct state_header *state = seg->state;

	if (state)
		memset(state->row, 0, sizeof(state->row));
}
