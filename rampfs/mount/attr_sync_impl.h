/*
 * Shared by sweep.c and orphans.c alone. Control loop, but for what says otherwise.
 */
#ifndef RAMP_SWEEP_IMPL_H
#define RAMP_SWEEP_IMPL_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "mount_ref.h"

#define REMOVED_WORDS  1024
#define ORPHAN_BUCKETS 1024
#define HINT_BUCKETS   65536 /* a page of them is taken with the first hint in it */

struct hint {
	LIST_ENTRY(hint) link;
	ramp_segment_t id;
	bool ours;		       /* the row says that this node owns it */
	uint64_t adopted;	       /* epoch of the migration whose times it has taken */
	uint64_t moving;	       /* of the one on its way here, when the row was noted */
	bool in_flight;		       /* a proposal is on its way */
	struct setting *setting;       /* times that a worker gives to the file; NULL: none */
	bool news[2];		       /* the row's atime, mtime are not those of a former daemon */
	uint64_t size;		       /* as the row has it */
	struct meta_time atime, mtime; /* as the row has them */
	struct meta_time ctime;	       /* that, too */
};
LIST_HEAD(hints, hint);

struct orphan {
	TAILQ_ENTRY(orphan) link;
	LIST_ENTRY(orphan) by_id;
	struct sweep *sweep;
	ramp_segment_t id;
	uint64_t due_ms, retry_ms;
	bool busy;   /* a sync or a worker has it */
	bool again;  /* meanwhile the kernel forgot it */
	bool synced; /* this node's tables hold all that was committed when it became one */
	int result;  /* of the sync or the worker */
};
TAILQ_HEAD(orphans, orphan);
LIST_HEAD(orphans_by_id, orphan);

/* Lives as long as the mount, of which the timer and all that is in flight hold a reference. */
struct sweep {
	uv_timer_t timer;
	struct mount *mount;
	struct hints hints[HINT_BUCKETS]; /* by id */
	struct orphans orphans;
	struct orphans_by_id orphans_by_id[ORPHAN_BUCKETS];
	uint32_t n_orphans;			 /* atomic: forgets are cheap while there is none */
	_Atomic uint64_t removed[REMOVED_WORDS]; /* a bit for each id modulo their number */
	_Atomic uint64_t dropped_ms;		 /* when names were last dropped */
	uint32_t in_flight;
	uint32_t next_bucket;  /* to be looked through for hints of what is not here any more */
	ramp_segment_t *first; /* what the store held at the start, until it has been looked at */
	size_t n_first, at_first;
	ramp_segment_t first_row;
	bool begun, over_first; /* the first sweep */
	uint32_t restored;	/* snapshots that it is also for */
	bool closed;
	loop_fn *finish; /* called when nothing is in flight, or at finish_ms */
	void *finish_arg;
	uint64_t finish_ms;
};

/* The next sweep is in `ms` at the latest. */
void sweep_in(struct sweep *s, uint64_t ms);

/* The segment's row is an orphan or gone: it is looked at until its memory is free. */
void orphan_add(struct sweep *s, ramp_segment_t id);
/* Looks at those that are due. */
void orphans_retry(struct sweep *s);
void orphans_free(struct sweep *s);

#endif
