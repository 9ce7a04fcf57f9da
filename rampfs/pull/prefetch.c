/*
 * The prefetch threads: pages that are not asked for, in the background; and the end of every pull.
 *
 * Happy path: it keeps a few large reads under way for each segment, front to back, on connections of
 * its own. While demand reads are under way its own are smaller and fewer, and so are the pieces that
 * it takes from a socket at once: the pager, which goes before it wherever it wants to run, need not
 * wait long for it in the kernel. When every page of a segment is decided it unregisters the
 * attachments and calls `finished`. Of a segment that is pulled on demand alone it clears the huge
 * pages that are reserved, so that a page fault need not. More threads help the first one where that
 * makes a pull faster (streams.h): they do nothing but ask for pages and take them, of segments of
 * which there is enough left for them, and nothing while demand reads are under way.
 *
 * Ranges that programs wait for, or have hinted at, go before the rest (wishes.h).
 *
 * How it fails: as in link.c. Pages that a writer needs at once, and found partly under way, are left
 * to the writer for a short time (claim_request.h). Where the store is full it rests; page faults and
 * reads say so, and page faults may be tried again when it continues. A program whose agent is being
 * waited for delays the end of its own segment's pull alone.
 */
#include "prefetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/cpu_weight.h"
#include "base/kernel.h"
#include "base/log.h"
#include "bounce.h"
#include "claim_request.h"
#include "link.h"
#include "links.h"
#include "pulled.h"
#include "puller.h"
#include "streams.h"
#include "wishes.h"

#define CHUNK_PAGES	  (TP_READ_MAX_BYTES / RAMP_PAGE_BYTES)
#define SMALL_CHUNK_PAGES ((256u << 10) / RAMP_PAGE_BYTES)
#define CHUNKS		  3u /* under way for one segment */
#define SMALL_CHUNKS	  2u
#define PIECE_BYTES	  (64u << 10) /* received at once while demand waits */
#define REAP_BYTES	  (1u << 20)
#define LOST_LOOK_MS	  1000
#define TELL_PAGES	  ((64u << 20) / RAMP_PAGE_BYTES)
#define TRIM_MS		  100u /* between two looks whether parts of a segment may be unregistered */
#define TRIM_PART	  8u   /* when one of that many missing pages has come */
#define NOT_YET_MS	  5 /* until it is tried again to end a pull, to undo a SIGBUS, or to help */
#define CLEAR_AFTER_US	  100000u /* a prefetch begins before, and clears nothing */
#define CLEAR_SHARE	  50u /* while demand waits it rests 50 times as long as one clearing took */

struct prefetch {
	struct puller puller; /* first: pull->pullers points to it */
	bool moves;	      /* the group of threads has more weight */
	bool ahead; /* all that it pulls is read ahead of a hand-over: programs go first */
	/* The first one's. */
	uint64_t clear_us; /* it clears nothing before that time */
	struct streams streams;
};

static bool demand_waits(struct pull *pull)
{
	return atomic_load(&pull->demand_waiting) > 0;
}

/* True: the thread pulls pages of it. A thread that helps needs more of them than all threads before
   it have under way. */
static bool needs_link(const struct links *links, struct pulled *pulled)
{
	const unsigned before = (unsigned)(links->which - PULLER_PREFETCH);

	if (!pulled_may_come(pulled))
		return false;
	if (!pulled_prefetches(pulled))
		return before == 0 && wishes_any(pulled);
	return before == 0 ||
	       (before < atomic_load(&links->pull->streams) &&
		pages_missing(pulled->seg) > (uint64_t)before * CHUNKS * CHUNK_PAGES);
}

/* ---- asking ---- */

enum prefetch_asked {
	ASKED,	      /* one more read is under way */
	ASKED_ENOUGH, /* as many are as may be; there is more to ask for */
	ASKED_NONE    /* there is nothing to ask for, or not now */
};

/* A walk over the entries. */
struct lap {
	enum pull_rank rank; /* entries of this one ask */
	unsigned ranks;	     /* bits: those that entries have */
	bool asked;
	int wait_ms;
};

/* Takes of the limits what a read of that many pages may have, or less. */
static uint64_t prefetch_may(struct link *link, struct pulled *pulled, uint64_t pages,
			     struct lap *lap)
{
	uint64_t due_us = 0, may;
	bool by_all = false;

	may = limits_take(&pulled->limits, pages, &due_us, &by_all);
	if (may)
		return may;
	pull_sooner(&lap->wait_ms, due_us / 1000 + 1, pull_now_us() / 1000);
	if (by_all && link->rank > lap->rank) /* what comes is for this rank first */
		link->rank = lap->rank;
	return 0;
}

/* Returns the next page to ask for, UINT64_MAX: none; *end: where the range ends that is wished for, UINT64_MAX:
   none is. Pages that were given back, or skipped, lie before the cursor. */
static uint64_t next_page(struct pulled *pulled, const struct claim_request *request, uint64_t *end)
{
	uint64_t page = wishes_next(pulled, request, end);

	if (page != UINT64_MAX)
		return page;
	*end = UINT64_MAX;
	if (!pulled_prefetches(pulled))
		return UINT64_MAX;
	do {
		page = pages_next_remote(pulled->seg, atomic_load(&pulled->cursor));
		if (claim_request_leaves(request, page, 1) == 0)
			page = pages_next_remote(pulled->seg, request->to);
	} while (page == UINT64_MAX && atomic_exchange(&pulled->cursor, 0));
	return page;
}

/* Posts one read. */
static enum prefetch_asked prefetch_one(struct link *link, struct pulled *pulled,
					const struct claim_request *request, struct lap *lap)
{
	bool waits = demand_waits(pulled->pull);
	uint64_t end, page = next_page(pulled, request, &end), won, may;
	uint8_t *buffer;

	if (page == UINT64_MAX)
		return ASKED_NONE;
	if (pulled->n_flights[link->links->which] >= (waits ? SMALL_CHUNKS : CHUNKS) ||
	    link->n_flights == TP_QUEUE_MAX)
		return ASKED_ENOUGH;
	won = waits ? SMALL_CHUNK_PAGES : CHUNK_PAGES - page % CHUNK_PAGES;
	won = won < end - page ? won : end - page;
	won = link_span(link, pulled, page, claim_request_leaves(request, page, won));
	may = prefetch_may(link, pulled, won, lap);
	if (won && !may)
		return ASKED_NONE;
	won = pages_claim(pulled->seg, page, may);
	limits_put_back(&pulled->limits, may - won);
	buffer = waits || link_lands(link, pulled, page)
			 ? NULL
			 : bounce_take(&link->links->bounce, pulled, page, won);
	if (won && link_post(link, pulled, page, won, NULL, buffer)) {
		bounce_put(&link->links->bounce, buffer);
		limits_put_back(&pulled->limits, won);
		pages_give_back(pulled->seg, page, won);
		pull_wake_pager(pulled->pull); /* page faults may have found them claimed */
		return ASKED_NONE;
	}
	if (end == UINT64_MAX)
		atomic_store(&pulled->cursor, page + won);
	return ASKED;
}

/* Tells the source, now and then, how much is here from the first page on: it may hold memory for the
   reads of that. The rest goes with the end of the pull. */
static void tell_arrived(struct link *link, struct pulled *pulled)
{
	uint64_t whole = pages_next_missing(pulled->seg, pulled->whole);

	if (whole == UINT64_MAX)
		return;
	pulled->whole = whole;
	if (whole < pulled->told + TELL_PAGES)
		return;
	pulled->told = whole - whole % TELL_PAGES;
	link_arrived(link, pulled, pulled->told);
}

/* Lets an entry ask for one read, if it is of the lap's rank, and no earlier rank has more to ask for of
   the same source. */
static void prefetch_turn(struct links *links, struct pulled *pulled, struct lap *lap)
{
	uint64_t now = pull_now_ms(), full = atomic_load(&pulled->no_room_ms);
	struct claim_request request;
	struct link *link;
	enum prefetch_asked asked;

	lap->ranks |= 1u << pulled->source.rank;
	if (pulled->source.rank != lap->rank)
		return;
	if (full > now) {
		pull_sooner(&lap->wait_ms, full, now);
		return;
	}
	request = claim_request_at(&pulled->claim, now);
	if (request.until_ms)
		pull_sooner(&lap->wait_ms, request.until_ms, now);
	link = links_ready(links, pulled);
	if (!link || link->rank < lap->rank)
		return;
	asked = prefetch_one(link, pulled, &request, lap);
	if (asked == ASKED) {
		lap->asked = true;
		links->turn = seg_id(pulled->seg);
	}
	if (asked != ASKED_NONE)
		link->rank = lap->rank;
	if (links->which == PULLER_PREFETCH)
		tell_arrived(link, pulled);
}

/* Lets each entry come by once, from the one behind that which asked last. Returns whether one asked, and
   another lap may find more. */
static bool prefetch_lap(struct links *links, struct lap *lap)
{
	struct pull *pull = links->pull;
	struct pulled *pulled = pulled_behind(pull, links->turn);

	links->lap++;
	lap->asked = false;
	while (pulled && pulled->lap[links->which] != links->lap && links_have_room(links)) {
		pulled->lap[links->which] = links->lap;
		if (needs_link(links, pulled))
			prefetch_turn(links, pulled, lap);
		pulled = pulled_next(pull, pulled);
		if (!pulled)
			pulled = pulled_next(pull, NULL);
	}
	pulled_put(pulled);
	return lap->asked;
}

/*
 * Posts reads for all segments: those of an earlier rank before others, and in turn where the rank is
 * the same, one read each. Returns when to come again because of a store that is full, of pages that a
 * writer may not need any more, or of a limit, or wait_ms where that is sooner. *ahead: whether all of it is
 * read ahead of a hand-over; as it was, where there is nothing.
 */
static int prefetch_more(struct links *links, int wait_ms, bool *ahead)
{
	struct lap lap = {.wait_ms = wait_ms};
	struct pull *pull = links->pull;
	uint64_t now = pull_now_ms();
	struct link *link;

	if (links->which > PULLER_PREFETCH && demand_waits(pull)) {
		if (!LIST_EMPTY(&links->list))
			pull_sooner(&wait_ms, now + NOT_YET_MS, now);
		return wait_ms;
	}
	LIST_FOREACH (link, &links->list, entry)
		link->rank = PULL_RANKS;
	for (lap.rank = 0; lap.rank < PULL_RANKS; lap.rank++) {
		if (lap.rank && !(lap.ranks >> lap.rank))
			break;
		while (prefetch_lap(links, &lap))
			;
	}
	if (lap.ranks)
		*ahead = lap.ranks == 1u << PULL_AHEAD;
	return lap.wait_ms;
}

/* Lets programs that were denied a page try again. Returns when to come again, or wait_ms where that
   is sooner. */
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
		atomic_store(&pulled->denied, false); /* first: a denial meanwhile is seen */
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
	return pulled->cleared != UINT64_MAX && pulled_is_alive(pulled) &&
	       pulled_may_come(pulled) && !pulled_prefetches(pulled) &&
	       !pages_unlisted(pulled->seg);
}

/* Clears one huge page. It is claimed meanwhile, so that no hole is punched there: the hole would be
   filled. */
static void clear_one(struct pulled *pulled)
{
	uint64_t page = pages_next_remote(pulled->seg, pulled->cleared);
	struct claim_request request = pulled_claim_request(pulled);

	if (page >= pulled->mapped / RAMP_PAGE_BYTES) {
		pulled->cleared = UINT64_MAX;
		return;
	}
	pulled->cleared = (page / HUGE_PAGES + 1) * HUGE_PAGES;
	if (!bounce_is_untouched(pulled, page) ||
	    !pages_claim(pulled->seg, page, claim_request_leaves(&request, page, 1)))
		return;
	/* Where that fails the page fault finds out. */
	(void)madvise(pulled->base + page * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, MADV_POPULATE_WRITE);
	pages_give_back(pulled->seg, page, 1);
	pull_wake_pager(pulled->pull); /* page faults may have found it claimed */
}

/* Clears one huge page of one segment. Returns when to come again, or wait_ms where that is sooner.
   In the first CLEAR_AFTER_US programs get the segment back and its move is committed: they need the
   processors. */
static int clear_ahead(struct prefetch *prefetch, int wait_ms)
{
	struct pull *pull = prefetch->puller.links.pull;
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
			if (began >= prefetch->clear_us || !demand_waits(pull)) {
				clear_one(pulled);
				now = pull_now_us();
				prefetch->clear_us = now;
				if (demand_waits(pull))
					prefetch->clear_us += (now - began) * CLEAR_SHARE;
			}
			pulled_put(pulled);
			return demand_waits(pull) ? 1 : 0;
		}
	return wait_ms;
}

/* ---- the end ---- */

/* Logs the figures of this daemon's life: a pull that an earlier daemon began is counted from where it
   was found. */
static void log_figures(struct pulled *pulled, const struct pull_figures *f)
{
	uint64_t demand = atomic_load(&pulled->demand_pages);
	uint64_t prefetch = atomic_load(&pulled->prefetch_pages);
	double gb = (double)((demand + prefetch) * RAMP_PAGE_BYTES) / 1e9;

	log_info("segment %" PRIu64 ": pulled %" PRIu64 " pages in %" PRIu64
		 " us (%.2f GB/s), %" PRIu64 " of them on demand, %" PRIu64 " lost",
		 seg_id(pulled->seg), demand + prefetch, f->us,
		 f->us ? gb * 1e6 / (double)f->us : 0.0, demand, f->lost);
}

static void take_figures(struct pulled *pulled, struct pull_figures *f)
{
	struct tp *tp = pulled->pull->config.tp;
	struct tp_peer peer = {.node = pulled->source.node};

	*f = (struct pull_figures){
		.all = pulled->pages_all,
		.missing = pulled->pages_to_come,
		.demand = atomic_load(&pulled->demand_pages) - atomic_load(&pulled->demand_holes),
		.prefetch =
			atomic_load(&pulled->prefetch_pages) - atomic_load(&pulled->prefetch_holes),
		.holes = atomic_load(&pulled->hole_pages),
		.lost = pages_lost(pulled->seg),
		.us = pull_now_us() - pulled->began_us,
		.rdma = tp->ops->peer(tp, &peer) && peer.offers,
	};
}

/* Ends the pull. False: not yet, since an agent is being waited for. */
static bool finish_pull(struct pulled *pulled)
{
	struct pull *pull = pulled->pull;
	ramp_segment_t id = seg_id(pulled->seg);
	struct pull_figures figures;
	bool whole = pages_missing(pulled->seg) == 0;

	if (whole && !programs_pulled(pull->config.programs, pulled->seg))
		return false;
	if (pulled_set(pulled, PULLED_FINISHED)) {
		take_figures(pulled, &figures);
		log_figures(pulled, &figures);
		pull->config.finished(pull->config.arg, id, &figures);
		if (!whole) /* what is lost stays registered */
			programs_trim(pull->config.programs, pulled->seg);
	}
	/* Last: pull_end waits for the entry that it finds in the list. Called after that, "finished"
	   would be taken for the next pull of the segment. */
	if (whole)
		pulled_remove(pulled);
	pull_wake_pager(pull); /* it unmaps */
	return true;
}

/* Ends the pulls whose pages are all LOCAL or LOST. An entry with lost pages stays until they have
   been written over, or the segment is removed, of which there is no message. Returns when to look
   again, or wait_ms where that is sooner. */
static int look_for_ends(struct pull *pull, int wait_ms)
{
	uint64_t now = pull_now_ms(), missing;
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		missing = pages_missing(pulled->seg);
		if (pulled_is(pulled, PULLED_ENDED) || missing != pages_lost(pulled->seg) ||
		    atomic_load(&pulled->cuts))
			continue;
		if ((missing == 0 || !pulled_is(pulled, PULLED_FINISHED)) && !finish_pull(pulled))
			pull_sooner(&wait_ms, now + NOT_YET_MS, now);
		if (missing == 0)
			continue;
		if (seg_removed(pulled->seg))
			pulled_remove(pulled);
		else
			pull_sooner(&wait_ms, now + LOST_LOOK_MS, now);
	}
	return wait_ms;
}

/* Has parts unregistered whose pages have come, now and then: to look for them costs by the mappings of the
   programs. Returns when to look again, or wait_ms where that is sooner. */
static int look_for_trims(struct pull *pull, int wait_ms)
{
	uint64_t now = pull_now_ms(), missing;
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		if (pulled->source.alone || !pulled_may_come(pulled))
			continue;
		if (pulled->trim_ms <= now) {
			missing = pages_missing(pulled->seg);
			if (missing < pulled->trim_missing &&
			    (pulled->trim_missing - missing) * TRIM_PART >= pulled->trim_missing) {
				programs_trim(pull->config.programs, pulled->seg);
				pulled->trim_missing = missing;
			}
			pulled->trim_ms = now + TRIM_MS;
		}
		pull_sooner(&wait_ms, pulled->trim_ms, now);
	}
	return wait_ms;
}

/* ---- the threads ---- */

/* Sets how many threads prefetch. */
static void look_at_streams(struct prefetch *prefetch)
{
	struct pull *pull = prefetch->puller.links.pull;
	struct streams_sample now = {
		.us = pull_now_us(),
		.bytes = atomic_load(&pull->bytes),
		.moves = prefetch->moves,
	};
	unsigned before = atomic_load(&pull->streams), open;

	if (!streams_is_due(&prefetch->streams, now.us, now.bytes, now.moves))
		return;
	now.idle_us = kernel_idle_us();
	open = streams_look(&prefetch->streams, &now);
	if (open == before)
		return;
	log_debug("prefetch over %u connections, not %u", open, before);
	atomic_store(&pull->streams, open);
	if (open > before)
		pull_wake(pull, PULLER_PREFETCH + (int)before);
}

/* Does all but to ask for pages. Returns when to come again, or wait_ms where that is sooner. */
static int first_does(struct prefetch *prefetch, int wait_ms)
{
	struct pull *pull = prefetch->puller.links.pull;

	wait_ms = look_for_room(pull, look_for_ends(pull, wait_ms));
	wait_ms = look_for_trims(pull, wait_ms);
	look_at_streams(prefetch);
	wait_ms = wishes_look(pull, wait_ms);
	return clear_ahead(prefetch, wait_ms);
}

/* A prefetch read has brought pages. Nothing of a hole is mapped; a page fault that waits for it is in
   the waitlist. */
static void prefetch_arrived(struct links *links, struct link_flight *flight, uint64_t first,
			     uint64_t count, bool hole)
{
	struct pulled *pulled = flight->pulled;

	atomic_fetch_add(&pulled->prefetch_pages, count);
	atomic_fetch_add(&pulled->prefetch_holes, hole ? count : 0);
	atomic_fetch_add(&links->pull->prefetch_pages, count);
	/* No room in the queue: page faults find the pages, or the end of the pull does where they
	   were SIGBUS. */
	if (!hole)
		(void)map_queue_add(&links->pull->pullers[links->which]->map_queue,
				    &(struct map_request){.id = seg_id(pulled->seg),
							  .first = first,
							  .count = count});
	if (!waitlist_is_empty(&pulled->waitlist))
		pull_wake_pager(links->pull);
	if (links->which != PULLER_PREFETCH && wishes_waited_for(links->pull))
		pull_wake_prefetch(links->pull);
}

static void prefetch_event(struct puller *puller, void *event)
{
	if (*(int *)event == PULLER_EVENT_WAKE)
		puller_take_wake(puller);
	else
		link_reap(event,
			  ((struct prefetch *)puller)->ahead || demand_waits(puller->links.pull)
				  ? PIECE_BYTES
				  : REAP_BYTES);
}

/* False: another thread has the puller now. */
static bool prefetch_events(struct puller *puller, struct puller_thread *thread)
{
	void *event;

	while ((event = puller_next_event(puller))) {
		prefetch_event(puller, event);
		if (!puller_map_all(thread))
			return false;
	}
	return true;
}

/* Gives the group more weight while there is a source, and none where all is read ahead of a hand-over. A program
   that wants a processor then waits for a short slice, and a short call into the kernel, at most. */
static void weigh(struct prefetch *prefetch, bool ahead)
{
	bool moves = links_any_ready(&prefetch->puller.links) && !ahead;

	if (prefetch->ahead != ahead)
		kernel_slice_set(0, ahead ? KERNEL_FAULT_SLICE_NS : 0);
	prefetch->ahead = ahead;
	if (prefetch->moves == moves)
		return;
	prefetch->moves = moves;
	cpu_weight_group(prefetch->moves);
}

static bool prefetch_run(struct puller_thread *thread)
{
	struct prefetch *prefetch = (struct prefetch *)thread->puller;
	struct puller *puller = &prefetch->puller;
	struct links *links = &puller->links;
	struct pull *pull = links->pull;
	bool ahead = false;
	int wait_ms = 0;

	cpu_weight_thread(false);
	if (!puller_map_all(thread) || !prefetch_events(puller, thread))
		return false;
	while (!atomic_load(&pull->stop)) {
		puller_wait(puller, wait_ms);
		if (!prefetch_events(puller, thread))
			return false;
		puller_reap(puller);
		wait_ms = links_step(links, needs_link);
		if (!puller_map_all(thread)) /* before the end of a pull */
			return false;
		wait_ms = prefetch_more(links, wait_ms, &ahead);
		weigh(prefetch, ahead);
		if (links->which == PULLER_PREFETCH)
			wait_ms = first_does(prefetch, wait_ms);
		wait_ms = links_wait(links, wait_ms);
		if (LIST_EMPTY(&links->list))
			bounce_trim(&links->bounce);
	}
	if (prefetch->moves)
		cpu_weight_group(false);
	return true;
}

static int prefetch_open_one(struct pull *pull, int which, struct ramp_err *err)
{
	struct prefetch *prefetch = calloc(1, sizeof(*prefetch));

	if (!prefetch)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	pull->pullers[which] = &prefetch->puller;
	prefetch->puller.links.arrived = prefetch_arrived;
	streams_init(&prefetch->streams, pull->config.streams);
	return puller_open(&prefetch->puller, pull, which, prefetch_run, err);
}

int prefetch_open(struct pull *pull, struct ramp_err *err)
{
	int rc = 0;

	for (unsigned i = PULLER_PREFETCH; i < pull->n_pullers && !rc; i++)
		rc = prefetch_open_one(pull, (int)i, err);
	return rc;
}

void prefetch_join(struct pull *pull)
{
	for (unsigned i = PULLER_PREFETCH; i < pull->n_pullers; i++)
		puller_join(pull->pullers[i]);
}

void prefetch_close(struct pull *pull)
{
	for (unsigned i = PULLER_PREFETCH; i < pull->n_pullers; i++)
		puller_close(pull->pullers[i]);
}

void prefetch_free(struct pull *pull)
{
	for (unsigned i = PULLER_PREFETCH; i < pull->n_pullers; i++) {
		free((struct prefetch *)pull->pullers[i]);
		pull->pullers[i] = NULL;
	}
}
