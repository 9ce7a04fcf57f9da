/*
 * Huge pages for segments whose pages came as small ones.
 *
 * Happy path: a segment that is settled here is queued. A worker takes the first and makes huge
 * pages of it. Its move has ended by then, so the segment may move on at once. One at a time, since
 * it takes a worker long.
 *
 * How it fails: without memory for its place in the queue a segment stays as it is: huge pages are
 * optional. A segment that leaves, and a daemon that ends, wait no longer than one huge page takes.
 */
#include "collapse.h"

#include <stdlib.h>

#include "memory/reserve.h"

struct collapse {
	STAILQ_ENTRY(collapse) link; /* of transfers.collapses */
	struct transfers *t;
	ramp_segment_t id; /* no reference: it would keep the bytes of a segment that has left */
};

static void collapse_next(struct transfers *t);

/* Programs that have touched it while it was pulled have small entries. */
static void collapsed(void *arg, struct seg *seg, uint64_t offset)
{
	programs_map_huge(arg, seg, offset);
}

static void collapse_work(void *arg)
{
	struct collapse *c = arg;
	struct seg *seg = store_find(c->t->store, c->id);
	struct record record;

	if (!seg)
		return;
	record_get(seg, &record);
	if (record.kind == RECORD_OWNED) /* else it has left, and may be coming back */
		collapse_segment(seg, &c->t->collapse_stop, collapsed, c->t->programs);
	seg_put(seg);
}

static void collapse_free(struct collapse *c)
{
	STAILQ_REMOVE_HEAD(&c->t->collapses, link);
	free(c);
}

static void collapse_done(void *arg)
{
	struct collapse *c = arg;
	struct transfers *t = c->t;

	t->jobs--;
	collapse_free(c);
	collapse_next(t);
}

static void collapse_next(struct transfers *t)
{
	if (STAILQ_EMPTY(&t->collapses) || t->closing)
		return;
	t->jobs++;
	loop_work(t->loop, collapse_work, collapse_done, STAILQ_FIRST(&t->collapses));
}

void collapse_begin(struct transfers *t, ramp_segment_t id)
{
	struct collapse *c = calloc(1, sizeof(*c));
	bool first = STAILQ_EMPTY(&t->collapses);

	if (!c)
		return;
	c->t = t;
	c->id = id;
	STAILQ_INSERT_TAIL(&t->collapses, c, link);
	if (first)
		collapse_next(t);
}

bool collapse_is_due(const struct transfers *t, ramp_segment_t id)
{
	const struct collapse *c;

	STAILQ_FOREACH (c, &t->collapses, link)
		if (c->id == id)
			return true;
	return false;
}

void collapses_close(struct transfers *t)
{
	while (!STAILQ_EMPTY(&t->collapses))
		/* The analyzer does not see that the one before was taken out.
		   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		collapse_free(STAILQ_FIRST(&t->collapses));
}
