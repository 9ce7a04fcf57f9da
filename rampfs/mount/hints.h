/*
 * Sizes and times between a row of the metadata and the owner's file. Control loop.
 */
#ifndef RAMP_HINTS_H
#define RAMP_HINTS_H

#include <sys/queue.h>

#include "file_times.h"
#include "mount_ref.h"

#define HINT_BUCKETS 65536 /* memory comes page by page, with the first hint in a page */

struct hint {
	LIST_ENTRY(hint) link;
	ramp_segment_t id;
	bool ours;	  /* the row says that this node owns it */
	uint64_t adopted; /* epoch of the migration whose times it has taken */
	uint64_t moving;  /* epoch of the migration on its way here when the row was noted */
	bool in_flight;	  /* a proposal is on its way */
	struct file_times *setting;    /* times that a worker is giving to the file; NULL: none */
	bool news[2];		       /* whether its atime, mtime differ from the noted ones */
	uint64_t size;		       /* as the row has it */
	struct meta_time atime, mtime; /* as the row has them */
	struct meta_time ctime;	       /* as the row has it */
};
LIST_HEAD(hint_bucket, hint);

/* Lives as long as the mount, to which everything in flight holds a reference. */
struct hints {
	struct mount *mount;
	bool closed; /* the store may be closed, too */
	struct hint_bucket by_id[HINT_BUCKETS];
	uint32_t in_flight;
	uint32_t next_bucket; /* the next to be looked through by hints_forget */
};

static inline bool same_time(struct meta_time a, struct meta_time b)
{
	return a.sec == b.sec && a.nsec == b.nsec;
}

static inline struct meta_time meta_time_of(struct timespec t)
{
	return (struct meta_time){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

struct hints *hints_new(struct mount *m); /* NULL: no memory */
void hints_free(struct hints *hints);

struct hint *hint_find(struct hints *hints, ramp_segment_t id);
/* Takes over the row of a segment that is here and ours: owner, mode and new times. NULL: no
   memory. */
struct hint *hint_adopt(struct hints *hints, struct seg *seg, const struct segment_row *row);
/* Takes note of the row of a segment that is another node's: it has left, or is about to come. */
void hint_elsewhere(struct hints *hints, struct seg *seg, const struct segment_row *row);
/* Frees some hints of segments that are not here any more. */
void hints_forget(struct hints *hints);

#endif
