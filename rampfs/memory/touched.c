/*
 * The list of segments that were touched.
 *
 * Happy path: a segment that a thread takes, enters or opens is put in a list (seg_touch, in
 * seg_core.c), with a reference. store_each_touched moves the whole list to a second one and works
 * on that; a segment touched meanwhile is in the first again.
 */
#include "touched.h"

#include "seg.h"
#include "seg_core.h"

/* touched_lock is held. The list's reference becomes the caller's. */
static void take_off(struct seg *seg)
{
	LIST_REMOVE(seg, link);
	atomic_store(&seg->touched, false);
}

void seg_untouch(struct seg *seg)
{
	struct store *store = seg->store;
	bool was;

	pthread_mutex_lock(&store->touched_lock);
	was = atomic_load(&seg->touched);
	if (was)
		take_off(seg);
	pthread_mutex_unlock(&store->touched_lock);
	if (was)
		seg_put(seg);
}

static struct seg *next_touched(struct store *store)
{
	struct seg *seg;

	pthread_mutex_lock(&store->touched_lock);
	seg = LIST_FIRST(&store->looked_at);
	if (seg)
		take_off(seg);
	pthread_mutex_unlock(&store->touched_lock);
	return seg;
}

/* Segments touched from here on go to the other list; this one was empty. */
static void begin_look(struct store *store)
{
	struct seg *seg;

	pthread_mutex_lock(&store->touched_lock);
	while ((seg = LIST_FIRST(&store->touched))) {
		LIST_REMOVE(seg, link);
		LIST_INSERT_HEAD(&store->looked_at, seg, link);
	}
	pthread_mutex_unlock(&store->touched_lock);
}

void store_each_touched(struct store *store, bool (*fn)(void *arg, struct seg *seg), void *arg)
{
	struct seg *seg;

	begin_look(store);
	while ((seg = next_touched(store))) {
		if (fn(arg, seg) || atomic_load(&seg->refs) > 2 || seg_passed(seg))
			seg_touch(seg);
		seg_put(seg);
	}
}

void touched_close(struct store *store)
{
	struct seg *seg;

	begin_look(store);
	while ((seg = next_touched(store)))
		seg_put(seg);
}
