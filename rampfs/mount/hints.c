/*
 * Sizes and times in the metadata, and their way from there to the owner's file.
 */
#include "hints.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inode.h"

#define LOOK_BUCKETS 1024 /* the number looked through in each sweep */

struct hint *hint_find(struct hints *hints, ramp_segment_t id)
{
	struct hint *h;

	LIST_FOREACH (h, &hints->by_id[id % HINT_BUCKETS], link)
		if (h->id == id)
			return h;
	return NULL;
}

static void note_row(struct hints *hints, struct hint *h, const struct segment_row *row)
{
	h->ours = row->node == hints->mount->self && row->phase != SEGMENT_MOVING;
	h->size = row->size;
	h->atime = row->atime;
	h->mtime = row->mtime;
	h->ctime = row->ctime;
	h->news[0] = h->news[1] = false;
}

static struct hint *make_hint(struct hints *hints, const struct segment_row *row)
{
	struct hint *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->id = row->id;
	note_row(hints, h, row);
	LIST_INSERT_HEAD(&hints->by_id[h->id % HINT_BUCKETS], h, link);
	return h;
}

static bool is_here(struct hints *hints, ramp_segment_t id)
{
	struct seg *seg = store_find(hints->mount->config.store, id);
	bool here = seg && inode_is_local(seg);

	if (seg)
		seg_put(seg);
	return here;
}

void hints_forget(struct hints *hints)
{
	struct hint *h, *next;

	for (size_t i = 0; i < LOOK_BUCKETS; i++) {
		struct hint_bucket *bucket = &hints->by_id[hints->next_bucket++ % HINT_BUCKETS];

		for (h = LIST_FIRST(bucket); h; h = next) {
			next = LIST_NEXT(h, link);
			if (h->in_flight || h->setting || is_here(hints, h->id))
				continue;
			LIST_REMOVE(h, link);
			free(h);
		}
	}
}

static void times_of(const struct segment_row *row, struct timespec times[2])
{
	times[0] = (struct timespec){.tv_sec = row->atime.sec, .tv_nsec = row->atime.nsec};
	times[1] = (struct timespec){.tv_sec = row->mtime.sec, .tv_nsec = row->mtime.nsec};
}

static void take_times(struct hints *hints, struct hint *h, struct seg *seg,
		       const struct segment_row *row, bool atime, bool mtime)
{
	struct timespec times[2];

	times_of(row, times);
	if (!atime)
		times[0].tv_nsec = UTIME_OMIT;
	if (!mtime)
		times[1].tv_nsec = UTIME_OMIT;
	file_times_give(hints->mount, &h->setting, &hints->closed, seg, row, times);
}

/* A segment that is another node's now, and left pages of unshimmed MAP_PRIVATE mappings and exec
   in the page cache. A worker drops them, since the kernel may wait for a page that is being
   read. */
struct left {
	struct mount *mount;
	ramp_segment_t id;
};

static void drop_cache(void *arg)
{
	struct left *left = arg;

	if (!mount_work_enter(left->mount))
		return;
	fuse_lowlevel_notify_inval_inode(left->mount->session, left->id, 0, 0);
	mount_work_leave(left->mount);
}

static void cache_dropped(void *arg)
{
	struct left *left = arg;

	mount_put(left->mount);
	free(left);
}

static void drop_page_cache(struct mount *m, ramp_segment_t id)
{
	struct left *left = malloc(sizeof(*left));

	if (!left)
		return; /* the pages are stale, as MAP_PRIVATE allows */
	*left = (struct left){.mount = mount_get(m), .id = id};
	loop_work(m->config.loop, drop_cache, cache_dropped, left);
}

static bool file_says(struct seg *seg, const struct segment_row *row)
{
	struct stat st;

	return seg_stat(seg, &st) == 0 && same_time(meta_time_of(st.st_atim), row->atime) &&
	       same_time(meta_time_of(st.st_mtim), row->mtime);
}

/* Makes a hint, where this daemon sees the row for the first time. Reading the note beside the file
   would open the file, so that is skipped where the file has the row's times anyway. */
static struct hint *first_hint(struct hints *hints, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = make_hint(hints, row);
	struct timespec times[2];
	struct record record;

	if (!h || file_says(seg, row))
		return h;
	times_of(row, times);
	if (seg_row_news(seg, times, h->news)) {
		record_get(seg, &record);
		h->ours = true;
		h->adopted = record.epoch; /* a segment that has come, came before this daemon */
	} else {
		h->news[0] = h->news[1] = false;
		seg_note_row(seg, times);
	}
	return h;
}

struct hint *hint_adopt(struct hints *hints, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = hint_find(hints, row->id);
	struct timespec times[2];
	struct record record;
	bool come, atime, mtime, wish;

	inode_note_owner(seg, row);
	if (!h)
		h = first_hint(hints, seg, row);
	if (!h)
		return NULL;
	times_of(row, times);
	record_get(seg, &record);
	come = record.kind == RECORD_TAKEN && row->phase == SEGMENT_PULLING &&
	       record.epoch != h->adopted;
	atime = h->news[0] || !same_time(row->atime, h->atime);
	mtime = h->news[1] || !same_time(row->mtime, h->mtime);
	wish = (atime || mtime) && !seg_hinted(seg, times);
	if (come)
		take_times(hints, h, seg, row, true, wish && mtime && h->moving == record.epoch);
	else if (wish && h->ours)
		take_times(hints, h, seg, row, atime, mtime);
	if (come)
		h->adopted = record.epoch;
	if (h->setting) /* where a daemon dies before that, the next one takes the times */
		file_times_note(h->setting, times);
	else if (come || atime || mtime)
		seg_note_row(seg, times);
	note_row(hints, h, row);
	return h;
}

/* Times in a row change only by a utimens of a user until the segment has come. */
void hint_elsewhere(struct hints *hints, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = hint_find(hints, row->id);

	if (!h || h->ours)
		drop_page_cache(hints->mount, row->id);
	if (!h && row->phase == SEGMENT_MOVING && row->dst == hints->mount->self)
		h = make_hint(hints, row);
	if (h)
		note_row(hints, h, row);
	if (h && row->phase == SEGMENT_MOVING && row->dst == hints->mount->self)
		h->moving = row->k_epoch;
	if (h && h->setting)
		file_times_note(h->setting, (struct timespec[2]){{0}});
	seg_forget_row(seg);
}

struct hints *hints_new(struct mount *m)
{
	struct hints *hints = calloc(1, sizeof(*hints));

	if (hints)
		hints->mount = m;
	return hints;
}

void hints_free(struct hints *hints)
{
	struct hint *h;

	for (size_t i = 0; i < HINT_BUCKETS; i++)
		while ((h = LIST_FIRST(&hints->by_id[i]))) {
			LIST_REMOVE(h, link);
			free(h);
		}
	free(hints);
}
