/*
 * Hints that are proposed to the metadata.
 */
#include "hint_propose.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inode.h"

#define HINTS_IN_FLIGHT 128 /* of the node's 256 proposals */
#define CTIME_LATE_S	1   /* whole seconds */

struct hint_answer {
	struct hints *hints;
	ramp_segment_t id;
	int result;
};

/* Handles an accepted hint: the row has its values, or newer ones. All hints proposed before it, by
   any daemon, are decided, too. */
static void hint_decided(struct hints *hints, ramp_segment_t id)
{
	struct seg *seg = store_find(hints->mount->config.store, id);
	struct segment_row row;

	if (!seg)
		return;
	if (inode_is_local(seg) && meta_segment(hints->mount->config.meta, id, &row) == 0 &&
	    row.node == hints->mount->self)
		hint_adopt(hints, seg, &row);
	seg_forget_hints(seg);
	seg_put(seg);
}

static void on_hint_answer(void *arg)
{
	struct hint_answer *a = arg;
	struct mount *m = a->hints->mount;
	struct hint *h = hint_find(a->hints, a->id);

	a->hints->in_flight--;
	if (h)
		h->in_flight = false;
	if (!a->result && !a->hints->closed) /* else the store may be closed, too */
		hint_decided(a->hints, a->id);
	free(a);
	mount_put(m);
}

static void hint_proposed(void *arg, const struct meta_reply *reply)
{
	struct hint_answer *a = arg;

	a->result = reply->result;
	loop_post(a->hints->mount->config.loop, on_hint_answer, a);
}

static void propose_hint(struct hints *hints, struct hint *h, struct seg *seg,
			 const struct stat *st)
{
	struct mount *m = hints->mount;
	struct hint_answer *a = calloc(1, sizeof(*a));
	struct meta_command c = {.type = META_SETATTR, .id = h->id};
	struct segment_row row;
	struct timespec now;

	if (!a || meta_segment(m->config.meta, h->id, &row) || row.node != m->self) {
		free(a);
		return;
	}
	if (!same_time(row.mtime, h->mtime) || !same_time(row.atime, h->atime)) {
		hint_adopt(hints, seg, &row);
		free(a);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	c.cid = meta_own_command(m->config.meta);
	c.now = meta_time_of(now);
	c.epoch = row.epoch;
	c.attr.ctime = row.ctime;
	c.flags =
		META_SET_SIZE | META_SET_ATIME | META_SET_MTIME | META_RAISE_CTIME | META_AT_EPOCH;
	c.file_ctime = meta_time_of(st->st_ctim);
	c.attr.size = (uint64_t)st->st_size;
	c.attr.atime = meta_time_of(st->st_atim);
	c.attr.mtime = meta_time_of(st->st_mtim);
	a->hints = hints;
	a->id = h->id;
	seg_note_hint(seg, (struct timespec[2]){st->st_atim, st->st_mtim});
	h->in_flight = true;
	hints->in_flight++;
	mount_get(m);
	meta_propose(m->config.meta, &c, hint_proposed, a);
}

static bool row_says(const struct hint *h, const struct stat *st)
{
	return (uint64_t)st->st_size == h->size && same_time(meta_time_of(st->st_mtim), h->mtime) &&
	       same_time(meta_time_of(st->st_atim), h->atime) &&
	       st->st_ctim.tv_sec <= h->ctime.sec + CTIME_LATE_S;
}

bool hint_look_at_file(void *arg, struct seg *seg)
{
	struct hints *hints = arg;
	struct hint *h = hint_find(hints, seg_id(seg));
	struct segment_row row;
	struct stat st;

	if (!inode_is_local(seg))
		return false; /* when it becomes ours its row is adopted */
	if (!h) {
		if (meta_segment(hints->mount->config.meta, seg_id(seg), &row) ||
		    row.node != hints->mount->self)
			return false;
		h = hint_adopt(hints, seg, &row);
		if (!h)
			return true;
	}
	if (h->setting)
		return true;
	if (!h->ours || seg_stat(seg, &st))
		return false;
	if (row_says(h, &st))
		return false;
	if (!h->in_flight && hints->in_flight < HINTS_IN_FLIGHT)
		propose_hint(hints, h, seg, &st);
	return true; /* until the row has it */
}
