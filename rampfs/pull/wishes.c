/*
 * Orders and hints.
 *
 * Happy path: pull_order_begin puts a range into the list and wakes the first prefetch thread, which asks
 * for its pages before all others. Each time pages have come it looks whether the range is complete
 * (wishes_look), and says so by `done`. A hint is the same without `done`; the newest goes first.
 *
 * How it fails: a page that is LOST is waited for no longer, and makes the order -EIO in the end. Where the
 * source is silent an order waits, as a page fault does. A full store is -ENOSPC. A segment that this node
 * does not serve any more ends its orders and hints.
 */
#include "wishes.h"

#include <errno.h>
#include <stdlib.h>

#include "memory/pages.h"
#include "memory/record.h"
#include "pulled.h"

#define HINTS_MAX 16u /* of one segment: the oldest is forgotten */
#define LOOK_MS	  20  /* writers and other threads bring pages, too */

struct pull_order {
	TAILQ_ENTRY(pull_order) entry;
	struct pull *pull;
	struct seg *seg; /* a reference */
	uint64_t first, end;
	uint64_t from; /* each page before is LOCAL or LOST */
	/* NULL: a hint. */
	void (*done)(void *arg, int result, uint64_t lost);
	void *arg;
	bool over; /* `done` was called, and it is in no list */
};

void wishes_init(struct wishes *wishes)
{
	pthread_mutex_init(&wishes->lock, NULL);
	TAILQ_INIT(&wishes->orders);
	TAILQ_INIT(&wishes->hints);
}

/* wishes->lock is held, as for all that follow with a wish, or no thread is left. */
static void wish_take_out(struct wishes *wishes, struct pull_order *wish)
{
	TAILQ_REMOVE(wish->done ? &wishes->orders : &wishes->hints, wish, entry);
	atomic_fetch_sub(&wishes->n, 1);
	if (wish->done)
		atomic_fetch_sub(&wishes->n_orders, 1);
}

static void wish_free(struct pull_order *wish)
{
	seg_put(wish->seg);
	free(wish);
}

static void drop_hint(struct wishes *wishes, struct pull_order *hint)
{
	wish_take_out(wishes, hint);
	wish_free(hint);
}

void wishes_destroy(struct wishes *wishes)
{
	struct pull_order *hint;

	/* The analyzer does not see that TAILQ_REMOVE took the one before out.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	while ((hint = TAILQ_FIRST(&wishes->hints)))
		drop_hint(wishes, hint);
	pthread_mutex_destroy(&wishes->lock);
}

/* ---- what is missing of one ----------------------------------------------------------------- */

/* Moves `from` to the first page that may still come. */
static void wish_advance(struct pull_order *wish)
{
	enum page_state state;
	uint64_t run;

	while (wish->from < wish->end) {
		wish->from = pages_next_missing(wish->seg, wish->from);
		if (wish->from >= wish->end)
			break;
		run = pages_run(wish->seg, wish->from, wish->end - wish->from, &state);
		if (state != PAGE_LOST)
			return;
		wish->from += run;
	}
	wish->from = wish->end;
}

static uint64_t wish_lost(const struct pull_order *wish)
{
	uint64_t page = pages_next_missing(wish->seg, wish->first), lost = 0, run;
	enum page_state state;

	while (page < wish->end) {
		run = pages_run(wish->seg, page, wish->end - page, &state);
		if (state == PAGE_LOST)
			lost += run;
		page = pages_next_missing(wish->seg, page + run);
	}
	return lost;
}

static bool wish_is_full(const struct pull_order *wish)
{
	struct pulled *pulled = pulled_of(wish->pull, wish->seg);
	bool full = pulled && atomic_load(&pulled->no_room_ms) > pull_now_ms();

	pulled_put(pulled);
	return full;
}

/* Returns 0: nothing of it may come any more; -EAGAIN: something may. */
static int wish_result(struct pull_order *wish, uint64_t *lost)
{
	struct record record;

	*lost = 0;
	wish_advance(wish);
	if (wish->from == wish->end) {
		*lost = wish_lost(wish);
		return *lost ? -EIO : 0;
	}
	if (seg_removed(wish->seg))
		return -ENOENT;
	record_get(wish->seg, &record);
	if (!record_serves(&record))
		return -EREMOTE;
	return wish_is_full(wish) ? -ENOSPC : -EAGAIN;
}

/* ---- for the threads ------------------------------------------------------------------------ */

bool wishes_waited_for(struct pull *pull)
{
	return atomic_load(&pull->wishes.n_orders) > 0;
}

static bool list_any(struct wish_list *list, const struct seg *seg)
{
	struct pull_order *wish;

	TAILQ_FOREACH (wish, list, entry) {
		if (wish->seg != seg)
			continue;
		wish_advance(wish);
		if (wish->from < wish->end)
			return true;
	}
	return false;
}

bool wishes_any(const struct pulled *pulled)
{
	struct wishes *wishes = &pulled->pull->wishes;
	bool any;

	if (atomic_load(&wishes->n) == 0)
		return false;
	pthread_mutex_lock(&wishes->lock);
	any = list_any(&wishes->orders, pulled->seg) || list_any(&wishes->hints, pulled->seg);
	pthread_mutex_unlock(&wishes->lock);
	return any;
}

static uint64_t list_next(struct wish_list *list, const struct pulled *pulled,
			  const struct claim_request *request, uint64_t *end)
{
	struct pull_order *wish;
	uint64_t page;

	TAILQ_FOREACH (wish, list, entry) {
		if (wish->seg != pulled->seg)
			continue;
		wish_advance(wish);
		page = pages_next_remote(wish->seg, wish->from);
		if (page < wish->end && claim_request_leaves(request, page, 1) == 0)
			page = pages_next_remote(wish->seg, request->to);
		*end = wish->end;
		if (page < wish->end)
			return page;
	}
	return UINT64_MAX;
}

uint64_t wishes_next(const struct pulled *pulled, const struct claim_request *request,
		     uint64_t *end)
{
	struct wishes *wishes = &pulled->pull->wishes;
	uint64_t page;

	if (atomic_load(&wishes->n) == 0)
		return UINT64_MAX;
	pthread_mutex_lock(&wishes->lock);
	page = list_next(&wishes->orders, pulled, request, end);
	if (page == UINT64_MAX)
		page = list_next(&wishes->hints, pulled, request, end);
	pthread_mutex_unlock(&wishes->lock);
	return page;
}

/* Under the lock: an order that is ended meanwhile gets no `done` any more. */
static void look_at_orders(struct wishes *wishes)
{
	struct pull_order *order, *next;
	uint64_t lost;
	int rc;

	for (order = TAILQ_FIRST(&wishes->orders); order; order = next) {
		next = TAILQ_NEXT(order, entry);
		rc = wish_result(order, &lost);
		if (rc == -EAGAIN)
			continue;
		wish_take_out(wishes, order);
		order->over = true;
		order->done(order->arg, rc, lost);
	}
}

static void look_at_hints(struct wishes *wishes)
{
	struct pull_order *hint, *next;
	uint64_t lost;
	int rc;

	for (hint = TAILQ_FIRST(&wishes->hints); hint; hint = next) {
		next = TAILQ_NEXT(hint, entry);
		rc = wish_result(hint, &lost);
		if (rc != -EAGAIN && rc != -ENOSPC)
			drop_hint(wishes, hint);
	}
}

int wishes_look(struct pull *pull, int wait_ms)
{
	struct wishes *wishes = &pull->wishes;
	uint64_t now = pull_now_ms();

	if (atomic_load(&wishes->n) == 0)
		return wait_ms;
	pthread_mutex_lock(&wishes->lock);
	look_at_orders(wishes);
	look_at_hints(wishes);
	pthread_mutex_unlock(&wishes->lock);
	if (wishes_waited_for(pull))
		pull_sooner(&wait_ms, now + LOOK_MS, now);
	return wait_ms;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static struct pull_order *wish_new(struct pull *pull, struct seg *seg, uint64_t first,
				   uint64_t count)
{
	struct pull_order *wish = calloc(1, sizeof(*wish));

	if (!wish)
		return NULL;
	wish->pull = pull;
	wish->seg = seg_get(seg);
	wish->first = wish->from = first;
	wish->end = count > UINT64_MAX - first ? UINT64_MAX : first + count;
	return wish;
}

/* Forgets the oldest hint of the segment where it has more than HINTS_MAX. */
static void bound_hints(struct wishes *wishes, const struct seg *seg)
{
	struct pull_order *hint, *oldest = NULL;
	unsigned n = 0;

	TAILQ_FOREACH (hint, &wishes->hints, entry)
		if (hint->seg == seg) {
			oldest = hint;
			n++;
		}
	if (n > HINTS_MAX)
		drop_hint(wishes, oldest);
}

void pull_hint(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	struct wishes *wishes = &pull->wishes;
	struct pull_order *hint;

	if (count == 0 || pages_missing(seg) == 0)
		return;
	hint = wish_new(pull, seg, first, count);
	if (!hint)
		return; /* it is only a hint */
	pthread_mutex_lock(&wishes->lock);
	TAILQ_INSERT_HEAD(&wishes->hints, hint, entry);
	atomic_fetch_add(&wishes->n, 1);
	bound_hints(wishes, seg);
	pthread_mutex_unlock(&wishes->lock);
	pull_wake_prefetch(pull);
}

struct pull_order *pull_order_begin(struct pull *pull, struct seg *seg, uint64_t first,
				    uint64_t count,
				    void (*done)(void *arg, int result, uint64_t lost), void *arg)
{
	struct wishes *wishes = &pull->wishes;
	struct pull_order *order = wish_new(pull, seg, first, count);

	if (!order)
		return NULL;
	order->done = done;
	order->arg = arg;
	pthread_mutex_lock(&wishes->lock);
	TAILQ_INSERT_TAIL(&wishes->orders, order, entry);
	atomic_fetch_add(&wishes->n, 1);
	atomic_fetch_add(&wishes->n_orders, 1);
	pthread_mutex_unlock(&wishes->lock);
	pull_wake_prefetch(pull);
	return order;
}

bool pull_order_end(struct pull_order *order)
{
	struct wishes *wishes = &order->pull->wishes;
	bool over;

	pthread_mutex_lock(&wishes->lock);
	over = order->over;
	if (!over)
		wish_take_out(wishes, order);
	pthread_mutex_unlock(&wishes->lock);
	wish_free(order);
	return !over;
}
