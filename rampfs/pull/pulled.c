/*
 * Segments that are being pulled. An entry has five marks, each set once:
 *
 *   ENDED         [pull_end]             the pull ends before its time
 *   SOURCE_OVER   [pulled_source_over, pull_watch_lost]
 *                                        that incarnation of the source is proved gone
 *   GIVEN_UP      [pull_give_up]         a program gives up the pages that have not come
 *   released      [pulled_release]       ENDED, SOURCE_OVER or GIVEN_UP, by each thread: it has no
 *                                        read of it any more
 *   FINISHED      [finish_pull, pull_watch_lost]
 *                                        `finished` was called: every page was LOCAL or LOST
 *
 * Happy path: pull_begin makes an entry and registers the segment's attachments. The pager and the
 * prefetch thread find it in the list and bring its pages. The last page makes pulled_check_end wake
 * the prefetch thread, which unregisters the attachments, calls `finished` and removes the entry.
 *
 * How it fails: an entry that is ENDED, SOURCE_OVER or GIVEN_UP is released by all threads, each when it
 * has no read of it any more. Only then pull_end returns, and only then missing pages become LOST (or
 * holes: give_up.c): a read that lands late must not write over what a program wrote into such a page.
 */
#include "pulled.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "memory/reserve.h"

#define NO_ROOM_MS 1000u /* how long a store that was full is taken to be full */

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
	limits_close(&pulled->limits);
	waitlist_destroy(&pulled->waitlist);
	claim_slot_destroy(&pulled->claim);
	pulled_unmap(pulled);
	seg_put(pulled->seg);
	trace_put(pulled->source.trace);
	munmap(pulled, sizeof(*pulled));
}

struct pulled *pulled_new(struct pull *pull, struct seg *seg, const struct pull_source *source,
			  struct ramp_err *err)
{
	/* Not from the heap: most of it is the waitlist. Few segments have a long one, and memory
	   that is never touched is not taken here. */
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
	if (limits_open(&pulled->limits, pull, source)) {
		seg_unmap(seg);
		munmap(pulled, sizeof(*pulled));
		ramp_err_set(err, ENOMEM, "no memory to pull a segment");
		return NULL;
	}
	pulled->pull = pull;
	pulled->seg = seg_get(seg);
	pulled->source = *source;
	trace_get(source->trace);
	pulled->pages_all = pulled->mapped / RAMP_PAGE_BYTES;
	pulled->pages_to_come = pulled->trim_missing = pages_missing(seg);
	pulled->began_us = pull_now_us();
	atomic_init(&pulled->refs, 1);
	claim_slot_init(&pulled->claim);
	waitlist_init(&pulled->waitlist);
	return pulled;
}

/* ---- the list ---- */

struct pulled *pulled_find_locked(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled;

	TAILQ_FOREACH (pulled, &pull->entries, entry)
		if (seg_id(pulled->seg) == id)
			return pulled;
	return NULL;
}

struct pulled *pulled_find(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled;

	pthread_mutex_lock(&pull->lock);
	pulled = pulled_find_locked(pull, id);
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

/* An entry that was removed has no next one: the walk ends early, and since both threads are woken
   by the removal, the next walk follows. */
struct pulled *pulled_next(struct pull *pull, struct pulled *last)
{
	struct pulled *pulled;

	pthread_mutex_lock(&pull->lock);
	pulled = last ? TAILQ_NEXT(last, entry) : TAILQ_FIRST(&pull->entries);
	if (pulled)
		pulled_get(pulled);
	pthread_mutex_unlock(&pull->lock);
	pulled_put(last);
	return pulled;
}

struct pulled *pulled_behind(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled;

	pthread_mutex_lock(&pull->lock);
	pulled = pulled_find_locked(pull, id);
	pulled = pulled ? TAILQ_NEXT(pulled, entry) : NULL;
	if (!pulled)
		pulled = TAILQ_FIRST(&pull->entries);
	if (pulled)
		pulled_get(pulled);
	pthread_mutex_unlock(&pull->lock);
	return pulled;
}

int pulled_insert(struct pull *pull, struct pulled *pulled, struct ramp_err *err)
{
	struct pulled *there = pulled_find_locked(pull, seg_id(pulled->seg));

	if (there && tp_key_equal(&there->source.key, &pulled->source.key))
		return -EALREADY;
	if (there)
		return ramp_err_set(err, EBUSY,
				    "segment %" PRIu64 " is being pulled in another attempt",
				    seg_id(pulled->seg));
	TAILQ_INSERT_TAIL(&pull->entries, pulled, entry);
	return 0;
}

void pulled_remove(struct pulled *pulled)
{
	struct pull *pull = pulled->pull;
	bool there;

	pthread_mutex_lock(&pull->lock);
	there = pulled_find_locked(pull, seg_id(pulled->seg)) == pulled;
	if (there) {
		TAILQ_REMOVE(&pull->entries, pulled, entry);
		pulled->entry.tqe_next = NULL;
		/* Threads that find entries in the list release it no more. */
		pthread_cond_broadcast(&pull->released);
	}
	pthread_mutex_unlock(&pull->lock);
	if (there)
		pulled_put(pulled);
	pull_wake_all(pull);
}

/* ---- state ---- */

bool pulled_is(struct pulled *pulled, enum pulled_mark mark)
{
	return atomic_load(&pulled->marks[mark]);
}

/* The one door to a mark. */
bool pulled_set(struct pulled *pulled, enum pulled_mark mark)
{
	static const char *const names[] = {
		[PULLED_ENDED] = "ENDED",
		[PULLED_SOURCE_OVER] = "SOURCE_OVER",
		[PULLED_GIVEN_UP] = "GIVEN_UP",
		[PULLED_FINISHED] = "FINISHED",
	};
	bool was = atomic_exchange(&pulled->marks[mark], true);

	if (!was)
		log_debug("segment %" PRIu64 ": its pull is %s", seg_id(pulled->seg), names[mark]);
	return !was;
}

bool pulled_is_alive(struct pulled *pulled)
{
	return !pulled_is(pulled, PULLED_ENDED) && !pulled_is(pulled, PULLED_SOURCE_OVER) &&
	       !pulled_is(pulled, PULLED_GIVEN_UP);
}

bool pulled_is_decided(struct pulled *pulled)
{
	return pages_missing(pulled->seg) == pages_lost(pulled->seg);
}

bool pulled_may_come(struct pulled *pulled)
{
	return !pulled_is(pulled, PULLED_FINISHED) && !pulled_is_decided(pulled);
}

bool pulled_prefetches(struct pulled *pulled)
{
	return pulled->source.prefetch || atomic_load(&pulled->prefetch_all);
}

/* Bits, as in `released`. */
static unsigned pulled_all_threads(const struct pulled *pulled)
{
	return (1u << pulled->pull->n_pullers) - 1;
}

bool pulled_is_released(struct pulled *pulled)
{
	return atomic_load(&pulled->released) == pulled_all_threads(pulled);
}

uint64_t pulled_silent_since(struct pulled *pulled)
{
	uint64_t demand = atomic_load(&pulled->silent_since_ms[PULLER_PAGER]);
	uint64_t prefetch = atomic_load(&pulled->silent_since_ms[PULLER_PREFETCH]);

	if (demand && prefetch)
		return demand < prefetch ? demand : prefetch;
	return demand ? demand : prefetch;
}

struct claim_request pulled_claim_request(struct pulled *pulled)
{
	return claim_request_at(&pulled->claim, pull_now_ms());
}

/* ---- changes ---- */

bool pulled_no_room(struct pulled *pulled)
{
	if (reserve_use_slack(pulled->seg))
		return false;
	atomic_store(&pulled->no_room_ms, pull_now_ms() + NO_ROOM_MS);
	return true;
}

void pulled_given_back(struct pulled *pulled)
{
	if (pulled_prefetches(pulled))
		pull_wake_prefetch(pulled->pull);
}

void pulled_check_end(struct pulled *pulled)
{
	if (pulled_is_decided(pulled))
		pull_wake_prefetch(pulled->pull);
}

void pulled_release(struct pulled *pulled, int which)
{
	struct pull *pull = pulled->pull;
	const unsigned all = pulled_all_threads(pulled), bit = 1u << which;
	unsigned before;

	if (pulled_is_alive(pulled)) {
		log_error("segment %" PRIu64 ": its pull is released, and not over",
			  seg_id(pulled->seg));
		abort();
	}
	before = atomic_fetch_or(&pulled->released, bit);
	if ((before | bit) != all || before == all)
		return;
	log_debug("segment %" PRIu64 ": its pull is released", seg_id(pulled->seg));
	if (pulled_is(pulled, PULLED_SOURCE_OVER) && !pulled_is(pulled, PULLED_GIVEN_UP) &&
	    !pulled_is(pulled, PULLED_ENDED)) {
		pages_lose_all(pulled->seg);
		pulled_check_end(pulled);
		pull_wake_pager(pull); /* page faults that wait are of lost pages now */
	}
	pthread_mutex_lock(&pull->lock);
	pthread_cond_broadcast(&pull->released);
	pthread_mutex_unlock(&pull->lock);
}

void pulled_set_released(struct pulled *pulled)
{
	atomic_store(&pulled->released, pulled_all_threads(pulled));
}

void pulled_prefetch_all(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return;
	atomic_store(&pulled->prefetch_all, true);
	pull_wake_all(pull);
	pulled_put(pulled);
}

void pulled_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation)
{
	struct pulled *pulled;
	bool any = false;

	pthread_mutex_lock(&pull->lock);
	TAILQ_FOREACH (pulled, &pull->entries, entry)
		if (pulled->source.node == node && pulled->source.incarnation == incarnation &&
		    pulled_set(pulled, PULLED_SOURCE_OVER))
			any = true;
	pthread_mutex_unlock(&pull->lock);
	if (any) {
		log_warn("pulling from node %u: that incarnation of it is over", node);
		pull_wake_all(pull);
	}
}
