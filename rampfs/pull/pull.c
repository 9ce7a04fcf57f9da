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
#include "pull.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "memory/record.h"
#include "memory/reserve.h"
#include "pull_impl.h"

/* ---- entries ---- */

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

void waiter_hold(const struct waiter *waiter)
{
	if (waiter->watch)
		atomic_fetch_add(&waiter->watch->refs, 1);
}

void waiter_put(struct waiter *waiter)
{
	if (waiter->watch && atomic_fetch_sub(&waiter->watch->refs, 1) == 1)
		free(waiter->watch);
	waiter->watch = NULL;
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
static struct pulled *find(struct pull *pull, ramp_segment_t id)
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
	pulled = find(pull, id);
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

/* Whoever waits for `b` is served by what `a` gets. */
static bool serves(const struct waiter *a, const struct waiter *b)
{
	return !b->watch || (a->watch == b->watch && a->addr == b->addr);
}

static bool wanted_already(const struct pulled *pulled, const struct want *want)
{
	for (uint32_t i = 0; i < pulled->n_wants; i++)
		if (pulled->wants[i].first == want->first &&
		    pulled->wants[i].count >= want->count &&
		    serves(&pulled->wants[i].waiter, &want->waiter))
			return true;
	return false;
}

static bool want_up_to(struct pulled *pulled, const struct want *want, uint32_t most)
{
	bool room = true;

	pthread_mutex_lock(&pulled->lock);
	if (!wanted_already(pulled, want)) {
		room = pulled->n_wants < most;
		if (room) {
			waiter_hold(&want->waiter);
			pulled->wants[pulled->n_wants++] = *want;
		}
	}
	pthread_mutex_unlock(&pulled->lock);
	return room;
}

bool pulled_want(struct pulled *pulled, const struct want *want)
{
	return want_up_to(pulled, want, WANTS_NEW);
}

void pulled_want_back(struct pulled *pulled, const struct want *want)
{
	want_up_to(pulled, want, WANTS_MAX);
}

bool pulled_crowded(struct pulled *pulled)
{
	bool crowded;

	pthread_mutex_lock(&pulled->lock);
	crowded = pulled->n_wants >= WANTS_NEW;
	pthread_mutex_unlock(&pulled->lock);
	return crowded;
}

bool pulled_wanted(struct pulled *pulled)
{
	bool wanted;

	pthread_mutex_lock(&pulled->lock);
	wanted = pulled->n_wants > 0;
	pthread_mutex_unlock(&pulled->lock);
	return wanted;
}

struct wish pulled_wish(struct pulled *pulled, uint64_t now_ms)
{
	struct wish wish;

	pthread_mutex_lock(&pulled->lock);
	wish = pulled->wish;
	pthread_mutex_unlock(&pulled->lock);
	return wish.until_ms > now_ms ? wish : (struct wish){0};
}

uint64_t wish_leaves(const struct wish *wish, uint64_t first, uint64_t count)
{
	if (!wish->until_ms || first >= wish->to || first + count <= wish->from)
		return count;
	return first < wish->from ? wish->from - first : 0;
}

/*
 * Of two writers the first has his turn before the other, but for one who wants those pages, too.
 * Where programs touch page after page there, a wish may not come true: then the prefetch goes on
 * for as long as it had to wait.
 */
static void wish_for(struct pulled *pulled, uint64_t from, uint64_t to)
{
	uint64_t now = pull_now_ms(), since;
	struct wish *wish = &pulled->wish;

	pthread_mutex_lock(&pulled->lock);
	since = now < wish->since_ms + 2 * WISH_MAX_MS ? wish->since_ms : now;
	if (now < since + WISH_MAX_MS &&
	    (wish->until_ms <= now || (from <= wish->from && to >= wish->to)))
		*wish = (struct wish){
			.from = from, .to = to, .since_ms = since, .until_ms = now + WISH_MS};
	pthread_mutex_unlock(&pulled->lock);
}

static void wish_fulfilled(struct pulled *pulled, uint64_t from, uint64_t to)
{
	struct wish *wish = &pulled->wish;

	pthread_mutex_lock(&pulled->lock);
	if (from <= wish->from && to >= wish->to)
		*wish = (struct wish){0};
	pthread_mutex_unlock(&pulled->lock);
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

static void wake_both(struct pull *pull)
{
	puller_wake(&pull->pager);
	puller_wake(&pull->prefetch);
}

/* ---- beginning and ending ---- */

static struct pulled *pulled_new(struct pull *pull, struct seg *seg,
				 const struct pull_source *source, struct ramp_err *err)
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
static int insert(struct pull *pull, struct pulled *pulled, struct ramp_err *err)
{
	struct pulled *there = find(pull, seg_id(pulled->seg));

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
	there = find(pull, seg_id(pulled->seg)) == pulled;
	if (there) {
		TAILQ_REMOVE(&pull->entries, pulled, link);
		pulled->link.tqe_next = NULL;
	}
	pthread_mutex_unlock(&pull->lock);
	if (there)
		pulled_put(pulled);
	wake_both(pull);
}

int pull_begin(struct pull *pull, struct seg *seg, const struct pull_source *source,
	       struct ramp_err *err)
{
	struct pulled *pulled = pulled_new(pull, seg, source, err);
	int rc;

	if (!pulled)
		return err ? -err->code : -ENOMEM;
	pthread_mutex_lock(&pull->lock);
	rc = insert(pull, pulled, err);
	pthread_mutex_unlock(&pull->lock);
	if (rc) {
		pulled_put(pulled);
		return rc == -EALREADY ? 0 : rc;
	}
	/* Page faults find the entry from the first one on. */
	rc = pages_missing(seg) && !source->alone
		     ? programs_pulling(pull->config.programs, seg, err)
		     : 0;
	if (rc) {
		pull_end(pull, seg_id(seg));
		return rc;
	}
	wake_both(pull);
	seg_tell(seg); /* reads may have come before it, as after a restart */
	return 0;
}

void pull_end(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return;
	if (atomic_exchange(&pulled->ended, true)) { /* somebody else's call waits for it */
		pulled_put(pulled);
		return;
	}
	wake_both(pull);
	pthread_mutex_lock(&pull->lock);
	/* One that finishes at this moment goes out of the list, and neither thread meets it there
	   to release it: its references, given back, wake us. */
	while (atomic_load(&pulled->released) != PULLER_BOTH && find(pull, id) == pulled &&
	       !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	pulled_take_out(pulled);
	/* Either thread may be in the middle of a walk over the entries. */
	pthread_mutex_lock(&pull->lock);
	while (atomic_load(&pulled->refs) > 1 && !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	/* The analyzer takes each put of a counted reference for the last one.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	pulled_put(pulled);
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
		wake_both(pull);
	}
}

/* ---- for parked requests ---- */

/* Since when the source has been silent; 0: it answers, or nobody asks it. */
static uint64_t silent_since(struct pulled *pulled)
{
	uint64_t demand = atomic_load(&pulled->silent_since_ms[PULLER_PAGER - 1]);
	uint64_t prefetch = atomic_load(&pulled->silent_since_ms[PULLER_PREFETCH - 1]);

	if (demand && prefetch)
		return demand < prefetch ? demand : prefetch;
	return demand ? demand : prefetch;
}

static int ask(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	const struct want want = {.first = first, .count = count};
	struct pulled *pulled = pulled_of(pull, seg);
	uint64_t now = pull_now_ms(), since;
	int rc = -EAGAIN;

	if (!pulled)
		return -EAGAIN; /* it is about to begin */
	pulled_want(pulled, &want);
	puller_wake(&pull->pager);
	since = silent_since(pulled); /* by the puller's clock: it may be after `now` */
	if (atomic_load(&pulled->no_room_ms) > now)
		rc = -ENOSPC;
	else if (since && now >= since + SILENT_MS && pulled_alive(pulled))
		rc = -EHOSTDOWN;
	pulled_put(pulled);
	return rc;
}

int pull_want(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	uint64_t end = count > UINT64_MAX - first ? UINT64_MAX : first + count;
	uint64_t page = pages_next_missing(seg, first), from = page;
	enum page_state state;

	if (page >= end)
		return 0;
	while (page < end) {
		uint64_t run = pages_run(seg, page, end - page, &state);

		if (state == PAGE_LOST)
			return -EIO;
		page = pages_next_missing(seg, page + run);
	}
	return ask(pull, seg, from, end - from);
}

/* Nobody pulls it any more: what is not LOCAL is LOST, or a writer's. */
static bool is_decided(struct pulled *pulled)
{
	return atomic_load(&pulled->told) ||
	       (atomic_load(&pulled->over) && atomic_load(&pulled->released) == PULLER_BOTH);
}

/* What was claimed and did not become right; of pages that nobody pulls any more, what was lost is
   lost again. */
static void give_back(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	struct pulled *pulled;

	pages_give_back(seg, first, count);
	pulled = pulled_of(pull, seg);
	if (pulled && is_decided(pulled))
		pages_lose_all(seg);
	if (pulled) {
		pulled_again(pulled);
		puller_wake(&pull->pager); /* page faults may have found them claimed */
	}
	pulled_put(pulled);
}

/* Claims all that is not LOCAL; where a page is another's, everything goes back, and is wished for:
   beside a prefetch there would always be one. */
static int claim_all(struct pull *pull, struct seg *seg, uint64_t first, uint64_t end)
{
	struct pulled *pulled = pulled_of(pull, seg);
	uint64_t page = first, from = end, won;
	int rc = 0;

	while (!rc && (page = pages_next_missing(seg, page)) < end) {
		won = pages_claim_cut(seg, page, end - page);
		if (won == 0 && pages_get(seg, page) != PAGE_LOCAL)
			rc = -EAGAIN;
		else if (won && from == end)
			from = page;
		page += won;
	}
	if (pulled && rc)
		wish_for(pulled, first, end); /* before others see what goes back */
	else if (pulled)
		wish_fulfilled(pulled, first, end);
	/* Up to here every page that is IN_FLIGHT was claimed by us. */
	if (rc && from < page)
		give_back(pull, seg, from, page - from);
	pulled_put(pulled);
	return rc;
}

/* More than any write; what is beyond is a hole or an end that moves. */
#define WRITTEN_PAGES 1024u

static uint64_t page_up(uint64_t offset)
{
	return offset / RAMP_PAGE_BYTES + (offset % RAMP_PAGE_BYTES != 0);
}

static uint64_t end_of(uint64_t offset, uint64_t len)
{
	return len > UINT64_MAX - offset ? UINT64_MAX : offset + len;
}

int pull_cut_begin(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len)
{
	uint64_t end = end_of(offset, len), first = page_up(offset), last = end / RAMP_PAGE_BYTES;
	int rc = 0;

	if (len == 0 || pages_missing(seg) == 0)
		return 0;
	if (offset % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, offset / RAMP_PAGE_BYTES, 1);
	/* Nothing lies behind the end of the file: a last page that is cut up to there is whole. */
	if (end % RAMP_PAGE_BYTES && end >= seg_size(seg))
		last++;
	else if (!rc && end % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, last, 1);
	if (rc || last <= first)
		return rc;
	return claim_all(pull, seg, first, last);
}

/*
 * The file's size may be another than at the beginning. So the last page is always seen as a whole
 * one: where it was not, it is LOCAL, and stays that.
 */
void pull_cut_end(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len, uint64_t done)
{
	uint64_t first = page_up(offset), last = page_up(end_of(offset, len)), right;
	struct pulled *pulled, *held;

	if (len == 0 || pages_missing(seg) == 0 || last <= first)
		return;
	right = done >= len ? last : end_of(offset, done) / RAMP_PAGE_BYTES;
	if (right < first)
		right = first;
	held = pulled_of(pull, seg);
	if (held)
		atomic_fetch_add(&held->cuts, 1);
	pages_arrive(seg, first, right - first);
	if (right < last)
		give_back(pull, seg, right, last - right);
	pulled = held ? held : pulled_of(pull, seg); /* one that has begun meanwhile */
	/* Who was told SIGBUS of one gets it now. A hole has no page to give, and
	   stays SIGBUS until the end. */
	if (pulled && right > first && right - first <= WRITTEN_PAGES &&
	    right <= page_up(seg_size(seg)))
		programs_written(pull->config.programs, seg_id(seg), first, right - first);
	if (held)
		atomic_fetch_sub(&held->cuts, 1);
	if (!pulled)
		return;
	pulled_look(pulled);
	puller_wake(&pull->pager); /* page faults that waited for these are among its wants */
	pulled_put(pulled);
}

/* ---- what is going on ---- */

int pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *progress)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return -ENOENT;
	*progress = (struct pull_progress){
		.pages_all = pulled->pages_all,
		.pages_missing = pages_missing(pulled->seg),
		.pages_lost = pages_lost(pulled->seg),
		.demand_pages = atomic_load(&pulled->demand_pages),
		.prefetch_pages = atomic_load(&pulled->prefetch_pages),
		.hole_pages = atomic_load(&pulled->hole_pages),
		.source = pulled->source.node,
		.source_silent = silent_since(pulled) != 0,
		.heard_ms = atomic_load(&pulled->heard_ms),
	};
	pulled_put(pulled);
	return 0;
}

void pull_status(struct pull *pull, struct pull_status *status)
{
	struct tp_stats served;

	tp_get_stats(pull->config.tp, &served);
	*status = (struct pull_status){
		.faults = atomic_load(&pull->faults),
		.demand_pages = atomic_load(&pull->demand_pages),
		.prefetch_pages = atomic_load(&pull->prefetch_pages),
		.hole_pages = atomic_load(&pull->hole_pages),
		.bytes = atomic_load(&pull->bytes),
		.faults_us = atomic_load(&pull->faults_us),
		.reconnects = atomic_load(&pull->reconnects),
		.served_bytes = served.served_bytes,
		.served_reads = served.served_reads,
	};
	for (unsigned i = 0; i < PULL_HISTOGRAM; i++)
		status->fault_us[i] = atomic_load(&pull->fault_us[i]);
}

/* ---- opening and closing ---- */

void pull_watch_lost(struct pull *pull, struct seg *seg)
{
	const struct pull_source nobody = {.key = {.segment = seg_id(seg)}};
	struct ramp_err err = {0};
	struct pulled *pulled;
	int rc;

	if (pages_missing(seg) == 0)
		return;
	pulled = pulled_find(pull, seg_id(seg));
	if (pulled) { /* since its own pull, in this life */
		pulled_put(pulled);
		return;
	}
	pages_lose_all(seg); /* a write that a kill cut short */
	pulled = pulled_new(pull, seg, &nobody, &err);
	rc = pulled ? 0 : -err.code;
	if (!rc) {
		atomic_store(&pulled->over, true);
		atomic_store(&pulled->told, true);
		atomic_store(&pulled->released, PULLER_BOTH);
		pthread_mutex_lock(&pull->lock);
		TAILQ_INSERT_TAIL(&pull->entries, pulled, link);
		pthread_mutex_unlock(&pull->lock);
		wake_both(pull); /* one unmaps it, the other waits for its end */
		rc = programs_pulling(pull->config.programs, seg, &err);
	}
	if (rc)
		log_error("segment %llu: its lost pages are not watched: %s",
			  (unsigned long long)seg_id(seg), err.text);
}

static void adopt_lost(void *arg, struct seg *seg)
{
	struct record record;

	record_get(seg, &record);
	if (record.kind == RECORD_OWNED)
		pull_watch_lost(arg, seg);
}

int pull_open(const struct pull_config *config, struct pull **out, struct ramp_err *err)
{
	struct pull *pull = calloc(1, sizeof(*pull));
	int rc;

	if (!pull)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	pull->config = *config;
	/* pull_close asks those that were not begun, too. */
	pull->pager.pull = pull->prefetch.pull = pull;
	pull->pager.epoll = pull->pager.wake = -1;
	pull->prefetch.epoll = pull->prefetch.wake = -1;
	pull->guard_wake = pull->guard_end = -1;
	TAILQ_INIT(&pull->pager.left);
	TAILQ_INIT(&pull->prefetch.left);
	pthread_mutex_init(&pull->lock, NULL);
	pthread_cond_init(&pull->released, NULL);
	TAILQ_INIT(&pull->entries);
	TAILQ_INIT(&pull->watches);
	TAILQ_INIT(&pull->gone);
	rc = pager_open(pull, err);
	if (!rc)
		rc = prefetch_open(pull, err);
	if (!rc)
		rc = turn_guard_open(pull, err);
	if (rc) {
		pull_close(pull);
		return rc;
	}
	store_each(config->store, adopt_lost, pull);
	wake_both(pull);
	*out = pull;
	return 0;
}

void pull_close(struct pull *pull)
{
	struct pulled *pulled;
	bool all;

	atomic_store(&pull->stop, true);
	pthread_mutex_lock(&pull->lock);
	pthread_cond_broadcast(&pull->released);
	pthread_mutex_unlock(&pull->lock);
	pager_join(pull);
	turn_join(&pull->prefetch);
	turn_guard_join(pull);
	all = turns_end(&pull->pager);
	all = turns_end(&pull->prefetch) && all;
	pager_close(pull);
	prefetch_close(pull);
	while ((pulled = TAILQ_FIRST(&pull->entries))) {
		TAILQ_REMOVE(&pull->entries, pulled, link);
		pulled_put(pulled);
	}
	turn_guard_close(pull);
	if (!all) {
		log_warn("a program keeps the lock of its memory: this daemon's last thread ends "
			 "when it lets go");
		return;
	}
	pthread_cond_destroy(&pull->released);
	pthread_mutex_destroy(&pull->lock);
	free(pull);
}
