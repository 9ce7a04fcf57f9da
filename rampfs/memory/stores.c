/*
 * Which pages of a segment the daemon itself stores into.
 */
#include "stores.h"

#include <errno.h>

#include "base/page.h"
#include "seg_core.h"

void stores_watch(struct seg *seg)
{
	pthread_mutex_lock(&seg->lock);
	page_set_clear(&seg->stored);
	seg->stores_lost = false;
	seg->unknown_cuts = atomic_load(&seg->store->layouts_lost);
	atomic_store(&seg->stores_watched, true);
	pthread_mutex_unlock(&seg->lock);
}

void stores_note(struct seg *seg, uint64_t offset, uint64_t len)
{
	uint64_t first = offset / RAMP_PAGE_BYTES;

	if (!len || !atomic_load(&seg->stores_watched))
		return;
	pthread_mutex_lock(&seg->lock);
	/* Without memory the pages are not known; the next look takes all for stored into. */
	if (!atomic_load(&seg->stores_watched) ||
	    page_set_fit(&seg->stored, page_count(offset + len)))
		seg->stores_lost = true;
	else
		page_set_add(&seg->stored, first, page_count(offset + len) - first);
	pthread_mutex_unlock(&seg->lock);
}

int stores_take(struct seg *seg, struct page_set *into)
{
	uint64_t unknown = atomic_load(&seg->store->layouts_lost);
	int rc;

	pthread_mutex_lock(&seg->lock);
	seg->stores_lost |= unknown != seg->unknown_cuts || seg->layout_unseen;
	seg->unknown_cuts = unknown;
	rc = seg->stores_lost ? -ENOMEM : page_set_join(into, &seg->stored);
	seg->stores_lost = false;
	page_set_clear(&seg->stored);
	pthread_mutex_unlock(&seg->lock);
	return rc;
}

void stores_lose(struct seg *seg)
{
	pthread_mutex_lock(&seg->lock);
	seg->stores_lost = true;
	pthread_mutex_unlock(&seg->lock);
}

void stores_unwatch(struct seg *seg)
{
	pthread_mutex_lock(&seg->lock);
	atomic_store(&seg->stores_watched, false);
	page_set_free(&seg->stored);
	pthread_mutex_unlock(&seg->lock);
}
