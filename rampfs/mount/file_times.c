/*
 * Times for a segment's file.
 */
#include "file_times.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"

static void give_times(struct seg *seg, const struct timespec times[2])
{
	int rc = seg_set_times(seg, times);

	if (rc)
		log_debug("segment %llu: times: %s", (unsigned long long)seg_id(seg),
			  strerror(-rc));
}

/* Times for a file whose lock a program may hold. Times given meanwhile are in `next`. */
struct file_times {
	struct mount *mount; /* a reference */
	struct file_times **slot;
	const bool *closed;
	ramp_segment_t id;
	uid_t owner;
	struct timespec times[2], next[2];
	struct timespec row[2]; /* to be noted once the file has them; 0, 0: none */
	bool again;
};

static void file_times_work(void *arg)
{
	struct file_times *ft = arg;
	struct mount *m = ft->mount;
	struct seg *seg;

	if (!mount_work_enter(m))
		return;
	seg = store_find(m->config.store, ft->id);
	if (seg) {
		give_times(seg, ft->times);
		seg_touch(seg); /* no hint was proposed meanwhile */
		seg_put(seg);
	}
	mount_work_leave(m);
}

static void file_times_set(void *arg);

static void file_times_begin(struct file_times *ft)
{
	memcpy(ft->times, ft->next, sizeof(ft->times));
	ft->next[0].tv_nsec = ft->next[1].tv_nsec = UTIME_OMIT;
	ft->again = false;
	loop_work_of(ft->mount->config.loop, ft->owner, file_times_work, file_times_set, ft);
}

static void file_times_note_row(const struct file_times *ft)
{
	struct seg *seg = store_find(ft->mount->config.store, ft->id);
	const struct timespec row[2] = {ft->row[0], ft->row[1]};

	if (!seg)
		return;
	if (row[0].tv_sec || row[0].tv_nsec || row[1].tv_sec || row[1].tv_nsec)
		seg_note_row(seg, row);
	seg_put(seg);
}

static void file_times_set(void *arg)
{
	struct file_times *ft = arg;
	struct mount *m = ft->mount;

	if (ft->again && !*ft->closed) {
		file_times_begin(ft);
		return;
	}
	*ft->slot = NULL;
	if (!*ft->closed) /* else the store may be closed, too */
		file_times_note_row(ft);
	free(ft);
	mount_put(m);
}

static void file_times_add(struct file_times *ft, const struct timespec times[2])
{
	ft->again = true;
	for (size_t i = 0; i < 2; i++)
		if (times[i].tv_nsec != UTIME_OMIT)
			ft->next[i] = times[i];
}

static struct file_times *file_times_new(struct mount *m, struct file_times **slot,
					 const bool *closed, const struct segment_row *row)
{
	struct file_times *ft = calloc(1, sizeof(*ft));

	if (!ft)
		return NULL;
	*ft = (struct file_times){.mount = mount_get(m),
				  .slot = slot,
				  .closed = closed,
				  .id = row->id,
				  .owner = row->uid};
	ft->next[0].tv_nsec = ft->next[1].tv_nsec = UTIME_OMIT;
	return ft;
}

void file_times_give(struct mount *m, struct file_times **slot, const bool *closed, struct seg *seg,
		     const struct segment_row *row, const struct timespec times[2])
{
	if (*slot) {
		file_times_add(*slot, times);
	} else if (seg_direct_begin(seg)) {
		give_times(seg, times);
		seg_direct_end(seg);
	} else {
		*slot = file_times_new(m, slot, closed, row);
		if (!*slot)
			return; /* the file's own times stay, and become the row's */
		file_times_add(*slot, times);
		file_times_begin(*slot);
	}
}

void file_times_note(struct file_times *ft, const struct timespec row[2])
{
	memcpy(ft->row, row, sizeof(ft->row));
}
