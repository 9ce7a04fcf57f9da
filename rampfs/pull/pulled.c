/*
 * Segments that are being pulled.
 *
 * Happy path: pull_begin makes an entry and registers the segment's attachments; the pager and the
 * prefetch thread find it in the list and bring its pages; the last one makes pulled_look wake the
 * prefetch thread, which unregisters the attachments, calls `finished` and takes the entry out.
 *
 * How it fails: an entry that is ended, or whose source is over, is released by both threads, each
 * when it has no read of it any more. Only then pull_end returns, and only then what is missing
 * becomes LOST: a read that lands late must not write over what somebody wrote into a lost page.
 */
#include <errno.h>
#include <limits.h>
#include <sys/mman.h>

#include "base/log.h"
#include "memory/reserve.h"
#include "pull_impl.h"

struct pulled *pulled_get(struct pulled *pulled)
{
	atomic_fetch_add(&pulled->refs, 1);
	return pulled;
}

void pulled_unmap(struct pulled *pulled)
{
	if (pulled->base)
		seg_unmap(pulled->seg);
	pulled->base = NULL;
	pulled->mapped = 0;
	for (; pulled->far_maps; pulled->far_maps--)
		seg_unmap(pulled->seg);
	pulled->far_mapped = 0;
}

void pulled_put(struct pulled *pulled)
{
	struct pull *pull = pulled ? pulled->pull : NULL;
	unsigned left = pulled ? atomic_fetch_sub(&pulled->refs, 1) - 1 : UINT_MAX;

	if (left == 1) {
		/* pull_end may wait for that; the entry may be gone already. */
		pthread_mutex_lock(&pull->lock);
		pthread_cond_broadcast(&pull->released);
		pthread_mutex_unlock(&pull->lock);
	}
	if (left)
		return;
	for (uint32_t i = 0; i < pulled->n_wants; i++)
		waiter_put(&pulled->wants[i].waiter);
	pulled_unmap(pulled);
	seg_put(pulled->seg);
	trace_put(pulled->source.trace);
	pthread_mutex_destroy(&pulled->lock);
	munmap(pulled, sizeof(*pulled));
}

/* pull->lock is held. */
struct pulled *pulled_at(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled;

	TAILQ_FOREACH (pulled, &pull->entries, link)
		if (seg_id(pulled->seg) == id)
			return pulled;
	return NULL;
}

struct pulled *pulled_find(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled;

	pthread_mutex_lock(&pull->lock);
	pulled = pulled_at(pull, id);
	if (pulled)
		pulled_get(pulled);
	pthread_mutex_unlock(&pull->lock);
	return pulled;
}

struct pulled *pulled_of(struct pull *pull, const struct seg *seg)
{
	struct pulled *pulled = pulled_find(pull, seg_id(seg));

	if (pulled && pulled->seg != seg) {
		pulled_put(pulled);
		pulled = NULL;
	}
	return pulled;
}

/* An entry that has been taken out points to nowhere: the walk ends early, and since both threads
   are woken then, the next one follows. */
struct pulled *pulled_next(struct pull *pull, struct pulled *last)
{
	struct pulled *pulled;

	pthread_mutex_lock(&pull->lock);
	pulled = last ? TAILQ_NEXT(last, link) : TAILQ_FIRST(&pull->entries);
	if (pulled)
		pulled_get(pulled);
	pthread_mutex_unlock(&pull->lock);
	pulled_put(last);
	return pulled;
}

bool pulled_alive(struct pulled *pulled)
{
	return !atomic_load(&pulled->ended) && !atomic_load(&pulled->over);
}

bool pulled_undecided(struct pulled *pulled)
{
	return !atomic_load(&pulled->told) && pages_missing(pulled->seg) != pages_lost(pulled->seg);
}

bool pulled_prefetches(struct pulled *pulled)
{
	return pulled->source.prefetch || atomic_load(&pulled->hurry);
}

/* Since when the source has been silent; 0: it answers, or nobody asks it. */
uint64_t pulled_silent_since(struct pulled *pulled)
{
	uint64_t demand = atomic_load(&pulled->silent_since_ms[PULLER_PAGER - 1]);
	uint64_t prefetch = atomic_load(&pulled->silent_since_ms[PULLER_PREFETCH - 1]);

	if (demand && prefetch)
		return demand < prefetch ? demand : prefetch;
	return demand ? demand : prefetch;
}

static bool all_decided(struct pulled *pulled)
{
	return pages_missing(pulled->seg) == pages_lost(pulled->seg);
}

bool pulled_no_room(struct pulled *pulled)
{
	if (room_use_slack(pulled->seg))
		return false;
	atomic_store(&pulled->no_room_ms, pull_now_ms() + NO_ROOM_MS);
	return true;
}

void pulled_again(struct pulled *pulled)
{
	if (pulled_prefetches(pulled))
		puller_wake(&pulled->pull->prefetch);
}

void pulled_look(struct pulled *pulled)
{
	if (all_decided(pulled))
		puller_wake(&pulled->pull->prefetch);
}

void pulled_release(struct pulled *pulled, int which)
{
	struct pull *pull = pulled->pull;
	unsigned before = atomic_fetch_or(&pulled->released, (unsigned)which);

	if ((before | (unsigned)which) != PULLER_BOTH || before == PULLER_BOTH)
		return;
	if (atomic_load(&pulled->over) && !atomic_load(&pulled->ended)) {
		pages_lose_all(pulled->seg);
		pulled_look(pulled);
		puller_wake(&pull->pager); /* page faults that wait are of lost pages now */
	}
	pthread_mutex_lock(&pull->lock);
	pthread_cond_broadcast(&pull->released);
	pthread_mutex_unlock(&pull->lock);
}

struct pulled *pulled_new(struct pull *pull, struct seg *seg, const struct pull_source *source,
			  struct ramp_err *err)
{
	/* Not from the heap: most of it is the wants, which few segments have many of, and what is
	   never touched takes no memory here. */
	struct pulled *pulled = mmap(NULL, sizeof(*pulled), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pulled == MAP_FAILED) {
		ramp_err_set(err, ENOMEM, "no memory to pull a segment");
		return NULL;
	}
	if (seg_map(seg, &pulled->base, &pulled->mapped, err)) {
		munmap(pulled, sizeof(*pulled));
		return NULL;
	}
	pulled->pull = pull;
	pulled->seg = seg_get(seg);
	pulled->source = *source;
	trace_get(source->trace);
	pulled->pages_all = pulled->mapped / RAMP_PAGE_BYTES;
	pulled->began_us = pull_now_us();
	atomic_init(&pulled->refs, 1);
	pthread_mutex_init(&pulled->lock, NULL);
	return pulled;
}

/* pull->lock is held. */
int pulled_insert(struct pull *pull, struct pulled *pulled, struct ramp_err *err)
{
	struct pulled *there = pulled_at(pull, seg_id(pulled->seg));

	if (there && tp_key_equal(&there->source.key, &pulled->source.key))
		return -EALREADY;
	if (there)
		return ramp_err_set(err, EBUSY, "segment %llu is being pulled in another attempt",
				    (unsigned long long)seg_id(pulled->seg));
	TAILQ_INSERT_TAIL(&pull->entries, pulled, link);
	return 0;
}

void pulled_take_out(struct pulled *pulled)
{
	struct pull *pull = pulled->pull;
	bool there;

	pthread_mutex_lock(&pull->lock);
	there = pulled_at(pull, seg_id(pulled->seg)) == pulled;
	if (there) {
		TAILQ_REMOVE(&pull->entries, pulled, link);
		pulled->link.tqe_next = NULL;
	}
	pthread_mutex_unlock(&pull->lock);
	if (there)
		pulled_put(pulled);
	pull_wake_both(pull);
}

void pull_hurry(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return;
	atomic_store(&pulled->hurry, true);
	puller_wake(&pull->prefetch);
	pulled_put(pulled);
}

void pull_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation)
{
	struct pulled *pulled;
	bool any = false;

	pthread_mutex_lock(&pull->lock);
	TAILQ_FOREACH (pulled, &pull->entries, link)
		if (pulled->source.node == node && pulled->source.incarnation == incarnation &&
		    !atomic_exchange(&pulled->over, true))
			any = true;
	pthread_mutex_unlock(&pull->lock);
	if (any) {
		log_warn("pulling from node %u: that incarnation of it is over", node);
		pull_wake_both(pull);
	}
}
