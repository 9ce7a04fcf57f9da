/*
 * The prefetch thread: what nobody asks for, in the background; and the end of every pull.
 *
 * Happy path: it keeps a few large reads under way for each segment, front to back, on connections
 * of its own; while demand reads are under way its own are smaller and fewer, and so are the pieces
 * that it takes from a socket at once: the pager, which goes before it wherever it wants to run,
 * need not wait long for it in the kernel. When every page of a segment is decided it unregisters
 * the attachments and calls `finished`. Of a segment that is pulled on demand alone it clears the
 * huge pages that are reserved, so that a page fault need not.
 *
 * How it fails: puller.c. What a writer was to have at once, and found partly under way, is left to
 * him for a moment (struct wish). Where the store is full it rests; page faults and reads say so,
 * and page faults may be tried again when it goes on. A program whose agent is being waited for
 * delays the end of its own segment's pull alone.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu_weight.h"
#include "base/log.h"
#include "pull_impl.h"

#define CHUNK_PAGES	  (TP_READ_MAX_BYTES / RAMP_PAGE_BYTES)
#define SMALL_CHUNK_PAGES ((256u << 10) / RAMP_PAGE_BYTES)
#define CHUNKS		  3u /* under way for one segment */
#define SMALL_CHUNKS	  2u
#define LOST_LOOK_MS	  1000
#define NOT_YET_MS	  5	  /* until it is tried again to end a pull, or to undo a SIGBUS */
#define CLEAR_AFTER_US	  100000u /* who prefetches begins before, and clears nothing */
#define CLEAR_SHARE	  50u /* while demand waits it rests so many times as long as one took */

static bool demand_waits(struct pull *pull)
{
	return atomic_load(&pull->demand_waiting) > 0;
}

static bool needs_link(struct pulled *pulled)
{
	return pulled_prefetches(pulled) && pulled_undecided(pulled);
}

/* ---- asking ---- */

/* False: there is nothing to ask for, or not now. */
static bool ask_one(struct link *link, struct pulled *pulled, const struct wish *wish)
{
	bool waits = demand_waits(pulled->pull);
	uint64_t page = pages_next_remote(pulled->seg, pulled->cursor), won;
	uint8_t *stage;

	if (wish_leaves(wish, page, 1) == 0)
		page = pages_next_remote(pulled->seg, wish->to);

	if (pulled->n_flights[PULLER_PREFETCH - 1] >= (waits ? SMALL_CHUNKS : CHUNKS) ||
	    link->n_flights == TP_QUEUE_MAX)
		return false;
	if (page == UINT64_MAX) {
		if (pulled->cursor == 0)
			return false;
		pulled->cursor = 0; /* what was given back, or skipped */
		return true;
	}
	won = waits ? SMALL_CHUNK_PAGES : CHUNK_PAGES - page % CHUNK_PAGES;
	won = pages_claim(pulled->seg, page, wish_leaves(wish, page, won));
	stage = waits ? NULL : stage_take(link->puller, pulled, page, won);
	if (won && link_post(link, pulled, page, won, NULL, stage)) {
		stage_put(link->puller, stage);
		pages_give_back(pulled->seg, page, won);
		puller_wake(&pulled->pull->pager); /* page faults may have found them claimed */
		return false;
	}
	pulled->cursor = page + won;
	return true;
}

/* Returns when to come again because of a store that is full, or of pages that a writer may not want
   any more, or wait_ms where that is sooner. */
static int ask_for_more(struct pull *pull, int wait_ms)
{
	uint64_t now = pull_now_ms(), full;
	struct pulled *pulled = NULL;
	struct wish wish;
	struct link *link;

	while ((pulled = pulled_next(pull, pulled))) {
		if (!needs_link(pulled))
			continue;
		full = atomic_load(&pulled->no_room_ms);
		if (full > now) {
			pull_sooner(&wait_ms, full, now);
			continue;
		}
		wish = pulled_wish(pulled, now);
		if (wish.until_ms)
			pull_sooner(&wait_ms, wish.until_ms, now);
		link = puller_link(&pull->prefetch, pulled);
		while (link && ask_one(link, pulled, &wish))
			;
	}
	return wait_ms;
}

/* Who was denied a page may try again. Returns when to come again, or wait_ms where that is sooner.
 */
static int look_for_room(struct pull *pull, int wait_ms)
{
	uint64_t now = pull_now_ms(), full;
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		if (!atomic_load(&pulled->denied))
			continue;
		full = atomic_load(&pulled->no_room_ms);
		if (full > now) {
			pull_sooner(&wait_ms, full, now);
			continue;
		}
		atomic_store(&pulled->denied, false); /* first: who is denied meanwhile is seen */
		if (!programs_unpoison(pull->config.programs, pulled->seg)) {
			atomic_store(&pulled->denied, true);
			pull_sooner(&wait_ms, now + NOT_YET_MS, now);
		}
	}
	return wait_ms;
}

/* ---- clearing ahead ---- */

static bool has_uncleared(struct pulled *pulled)
{
	return pulled->cleared != UINT64_MAX && pulled_alive(pulled) && pulled_undecided(pulled) &&
	       !pulled_prefetches(pulled) && !pages_unlisted(pulled->seg);
}

/* One huge page. Claimed meanwhile, so that nobody punches a hole there: that would be filled. */
static void clear_one(struct pulled *pulled)
{
	uint64_t page = pages_next_remote(pulled->seg, pulled->cleared);
	struct wish wish = pulled_wish(pulled, pull_now_ms());

	if (page >= pulled->mapped / RAMP_PAGE_BYTES) {
		pulled->cleared = UINT64_MAX;
		return;
	}
	pulled->cleared = (page / HUGE_PAGES + 1) * HUGE_PAGES;
	if (!stage_untouched(pulled, page) ||
	    !pages_claim(pulled->seg, page, wish_leaves(&wish, page, 1)))
		return;
	/* Where that fails the page fault finds out. */
	(void)madvise(pulled->base + page * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, MADV_POPULATE_WRITE);
	pages_give_back(pulled->seg, page, 1);
	puller_wake(&pulled->pull->pager); /* page faults may have found it claimed */
}

/* Returns when to come again, or wait_ms where that is sooner. Programs get a segment back in the
   first moments, and its move is committed: they need the processors. */
static int clear_ahead(struct pull *pull, int wait_ms)
{
	struct pulled *pulled = NULL;
	uint64_t began = pull_now_us(), now;

	while ((pulled = pulled_next(pull, pulled)))
		if (has_uncleared(pulled)) {
			if (began < pulled->began_us + CLEAR_AFTER_US) {
				pull_sooner(&wait_ms,
					    (pulled->began_us + CLEAR_AFTER_US) / 1000 + 1,
					    began / 1000);
				continue;
			}
			if (began >= pull->clear_us || !demand_waits(pull)) {
				clear_one(pulled);
				now = pull_now_us();
				pull->clear_us = now;
				if (demand_waits(pull))
					pull->clear_us += (now - began) * CLEAR_SHARE;
			}
			pulled_put(pulled);
			return demand_waits(pull) ? 1 : 0;
		}
	return wait_ms;
}

/* ---- the end ---- */

/* Of this daemon's life: a pull that an earlier one began is counted from where it was found. */
static void tell_figures(struct pulled *pulled, uint64_t n_lost)
{
	uint64_t us = pull_now_us() - pulled->began_us;
	uint64_t demand = atomic_load(&pulled->demand_pages);
	uint64_t prefetch = atomic_load(&pulled->prefetch_pages);
	double gb = (double)((demand + prefetch) * RAMP_PAGE_BYTES) / 1e9;

	log_info("segment %llu: pulled %llu pages in %llu us (%.2f GB/s), %llu of them on demand, "
		 "%llu lost",
		 (unsigned long long)seg_id(pulled->seg), (unsigned long long)(demand + prefetch),
		 (unsigned long long)us, us ? gb * 1e6 / (double)us : 0.0,
		 (unsigned long long)demand, (unsigned long long)n_lost);
}

/* False: not yet, since an agent is being waited for. */
static bool finish(struct pulled *pulled)
{
	struct pull *pull = pulled->pull;
	uint64_t n_lost = pages_lost(pulled->seg);
	ramp_segment_t id = seg_id(pulled->seg);
	bool whole = pages_missing(pulled->seg) == 0;

	if (whole && !programs_pulled(pull->config.programs, pulled->seg))
		return false;
	if (!atomic_exchange(&pulled->told, true)) {
		tell_figures(pulled, n_lost);
		pull->config.finished(pull->config.arg, id, n_lost);
	}
	/* Last: pull_end waits for what it finds in the list. Said after it, "finished" would be
	   taken for the next pull of the segment. */
	if (whole)
		pulled_take_out(pulled);
	puller_wake(&pull->pager); /* it unmaps */
	return true;
}

/* An entry with lost pages stays until they have been written over, or the segment is removed:
   which nobody tells. Returns when to look again, or wait_ms where that is sooner. */
static int look_for_ends(struct pull *pull, int wait_ms)
{
	uint64_t now = pull_now_ms(), missing;
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		missing = pages_missing(pulled->seg);
		if (atomic_load(&pulled->ended) || missing != pages_lost(pulled->seg) ||
		    atomic_load(&pulled->cuts))
			continue;
		if ((missing == 0 || !atomic_load(&pulled->told)) && !finish(pulled))
			pull_sooner(&wait_ms, now + NOT_YET_MS, now);
		if (missing == 0)
			continue;
		if (seg_removed(pulled->seg))
			pulled_take_out(pulled);
		else
			pull_sooner(&wait_ms, now + LOST_LOOK_MS, now);
	}
	return wait_ms;
}

/* ---- the thread ---- */

/* Of a hole nothing is mapped; a page fault that waits for it is among the pager's wants. */
static void arrived(struct puller *puller, struct flight *flight, uint64_t first, uint64_t count,
		    bool hole)
{
	struct pulled *pulled = flight->pulled;

	atomic_fetch_add(&pulled->prefetch_pages, count);
	atomic_fetch_add(&puller->pull->prefetch_pages, count);
	/* What is too much to remember page faults find, or the end of the pull where it was SIGBUS. */
	if (!hole)
		(void)puller_map(puller, &(struct mapping){.id = seg_id(pulled->seg),
							   .first = first,
							   .count = count});
	if (pulled_wanted(pulled))
		puller_wake(&puller->pull->pager);
}

static void on_event(struct pull *pull, void *what)
{
	uint64_t count;

	if (*(int *)what == WATCH_WAKE) {
		(void)!read(pull->prefetch.wake, &count, sizeof(count));
		return;
	}
	link_reap(what, demand_waits(pull) ? PIECE_BYTES : REAP_BYTES);
}

static bool any_ready(const struct puller *prefetch)
{
	const struct link *link;

	LIST_FOREACH (link, &prefetch->links, entry)
		if (link->state == LINK_READY)
			return true;
	return false;
}

/* Those that were fetched, by this thread or the one whose place it has taken. */
static bool on_events(struct pull *pull, struct turn *turn)
{
	struct puller *prefetch = &pull->prefetch;

	while (prefetch->next_event < prefetch->n_events) {
		on_event(pull, prefetch->events[prefetch->next_event++].data.ptr);
		if (!puller_map_all(prefetch, turn))
			return false;
	}
	return true;
}

static bool run(struct turn *turn)
{
	struct puller *prefetch = turn->puller;
	struct pull *pull = prefetch->pull;
	int wait_ms = 0;

	cpu_weight_thread(false);
	if (!puller_map_all(prefetch, turn) || !on_events(pull, turn))
		return false;
	while (!atomic_load(&pull->stop)) {
		prefetch->next_event = 0;
		prefetch->n_events =
			epoll_wait(prefetch->epoll, prefetch->events, EACH_EVENTS, wait_ms);
		if (!on_events(pull, turn))
			return false;
		turns_back(prefetch);
		wait_ms = puller_step(prefetch, needs_link);
		if (!puller_map_all(prefetch, turn)) /* before the end of a pull */
			return false;
		wait_ms = ask_for_more(pull, wait_ms);
		wait_ms = look_for_room(pull, look_for_ends(pull, wait_ms));
		wait_ms = clear_ahead(pull, wait_ms);
		wait_ms = puller_wait(prefetch, wait_ms);
		if (LIST_EMPTY(&prefetch->links))
			stage_forget(prefetch);
		if (pull->moves != any_ready(prefetch)) {
			pull->moves = !pull->moves;
			cpu_weight_group(pull->moves);
		}
	}
	if (pull->moves)
		cpu_weight_group(false);
	return true;
}

int prefetch_open(struct pull *pull, struct ramp_err *err)
{
	pull->prefetch.arrived = arrived;
	return puller_open(&pull->prefetch, PULLER_PREFETCH, run, err);
}

void prefetch_close(struct pull *pull)
{
	puller_close(&pull->prefetch);
}
