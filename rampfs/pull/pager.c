/*
 * The pager: page faults and the waitlists become demand reads, and pages that have come are mapped.
 *
 * Where a page fault goes, at the target:
 *   read_page_faults -> handle_page_fault -> demand_read -> link_post           (the request goes out)
 *   link_reap -> flight_arrive -> pager_arrived -> resolve_page_fault           (the page is LOCAL)
 *   puller_map_all -> client_resolve -> UFFDIO_CONTINUE                          (the program wakes)
 *
 * Happy path: a page fault's message is read. Its page is REMOTE, so it is claimed, with a few behind
 * it where page faults are sequential, and a read is posted. The reply lands in the page itself, which
 * is LOCAL then. It is mapped by CONTINUE where the page fault was, and the program continues. A page
 * that can't be asked for now (no connection, too many reads, another read brings it) goes into the
 * segment's waitlist, which is looked at again when something has changed: so does each page fault of
 * a page that is on its way. A later page fault finds the page LOCAL.
 *
 * How it fails: as in link.c. A LOST page, or one for which the store has no room, is poisoned: SIGBUS,
 * the latter for a second, after which it may be tried again. A process that ends is forgotten when
 * programs/ says so.
 *
 * A program can block this thread for as long as it likes where pages are mapped. Then another thread
 * takes over (takeover.c), and the page faults of that program are left unread until it lets go.
 *
 * This thread allocates nothing but connections, logs nothing per page, and takes no lock that is
 * held for long. It polls for a short time after something has happened (adaptive_poll.h), and sleeps
 * at real-time priority: a page fault would wait until a computing thread has used up its time slice.
 */
#include "pager.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/adaptive_poll.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/page.h"
#include "bounce.h"
#include "link.h"
#include "links.h"
#include "pulled.h"
#include "puller.h"
#include "waitlist.h"

#define FAULTS_MAX   32
#define AROUND_PAGES 16u /* fault-around grows up to 64 KiB */

struct pager {
	struct puller puller; /* first: pull->pullers[PULLER_PAGER] points to it */
	struct adaptive_poll poll;
	const void
		*last_fault; /* the client of the last page fault: only compared, it may be gone */
};

/* ---- room for a page ---- */

/* Returns where a page of the file is mapped here; NULL: behind its end. */
static uint8_t *page_place(struct pulled *pulled, uint64_t page)
{
	uint64_t end = (page + 1) * RAMP_PAGE_BYTES;
	uint8_t *base;

	if (end <= pulled->mapped)
		return pulled->base + page * RAMP_PAGE_BYTES;
	if (end > pulled->far_mapped) {
		if (seg_size(pulled->seg) <= page * RAMP_PAGE_BYTES ||
		    seg_map(pulled->seg, &base, &pulled->far_mapped, NULL))
			return NULL;
		pulled->far_base = base;
		pulled->far_maps++;
	}
	return end <= pulled->far_mapped ? pulled->far_base + page * RAMP_PAGE_BYTES : NULL;
}

/* 0; -ENOSPC: the store has no room; -ENXIO: behind the end of the file. */
static int make_room(struct pulled *pulled, uint64_t first, uint64_t count)
{
	uint8_t *at = page_place(pulled, first);

	if (!at)
		return -ENXIO;
	do {
		if (!madvise(at, count * RAMP_PAGE_BYTES, MADV_POPULATE_WRITE) || errno != EFAULT)
			return 0;
		if (seg_size(pulled->seg) <= (first + count - 1) * RAMP_PAGE_BYTES)
			return -ENXIO;
	} while (!pulled_no_room(pulled));
	return -ENOSPC;
}

/* ---- page faults ---- */

/* Makes the page SIGBUS, which the prefetch thread takes back once there may be room. */
static void poison_no_room(struct pulled *pulled, uint64_t page)
{
	programs_poison(pulled->pull->config.programs, pulled->seg, page,
			"the store is full: no room for a page that was touched");
	if (!atomic_exchange(&pulled->denied, true))
		pull_wake_prefetch(pulled->pull);
}

/*
 * Resolves a page fault: queues pages [first, first + count), which are LOCAL, to be mapped in the
 * waiter's client, the first at `addr`. puller_map_all does it soon, by UFFDIO_CONTINUE
 * (client_resolve), which wakes the program's thread. `fault`: its page fault is over by that.
 */
static void resolve_page_fault(struct pulled *pulled, const struct fault_waiter *waiter,
			       uint64_t addr, uint64_t first, uint64_t count, bool fault)
{
	const struct map_request request = {
		.waiter = {.client = waiter->client, .addr = addr, .since_us = waiter->since_us},
		.id = seg_id(pulled->seg),
		.first = first,
		.count = count,
		.fault = fault,
		.trace = pulled->source.trace,
	};

	/* No room in the queue: the program finds the page when it faults again. */
	if (!map_queue_add(&pulled->pull->pullers[PULLER_PAGER]->map_queue, &request) &&
	    waiter->client->space)
		client_wake(waiter->client->space, addr);
}

/* Resolves a page fault of a page that is LOCAL. A hole gets its page now, as the kernel would have
   done without a userfaultfd. LOCAL ones behind it are mapped, too: after a pre-copy nearly all are, and each would be
   a page fault until the last one has come. */
static void resolve_local(struct pulled *pulled, uint64_t page, const struct fault_waiter *waiter)
{
	enum page_state state;
	uint64_t here = HUGE_PAGES - page % HUGE_PAGES; /* the next ones may not be registered */
	uint64_t run =
		pages_run(pulled->seg, page, here < AROUND_PAGES ? here : AROUND_PAGES, &state);

	if (make_room(pulled, page, 1) == -ENOSPC) {
		poison_no_room(pulled, page);
		return;
	}
	resolve_page_fault(pulled, waiter, waiter->addr, page, state == PAGE_LOCAL ? run : 1, true);
}

/* Returns how many pages a page fault at `page` gets: doubled where the last one of a stream ended
   here. */
static uint32_t fault_around(struct pulled *pulled, uint64_t page, struct fault_stream **stream)
{
	for (unsigned i = 0; i < FAULT_STREAMS; i++) {
		struct fault_stream *s = &pulled->streams[i];

		if (s->pages && page >= s->next && page < s->next + AROUND_PAGES) {
			s->pages = s->pages * 2 < AROUND_PAGES ? s->pages * 2 : AROUND_PAGES;
			*stream = s;
			return s->pages;
		}
	}
	*stream = &pulled->streams[pulled->next_stream++ % FAULT_STREAMS];
	(*stream)->pages = 1;
	return 1;
}

/* Makes room where a read lands: for all of the pages, or for the first. Returns for how many. */
static uint64_t make_read_room(struct pulled *pulled, uint64_t first, uint64_t count)
{
	if (make_room(pulled, first, count) != -ENOSPC)
		return count;
	return count > 1 && make_room(pulled, first, 1) != -ENOSPC;
}

static void demand_give_back(struct pulled *pulled, uint64_t first, uint64_t count)
{
	pages_give_back(pulled->seg, first, count);
	if (count)
		pulled_given_back(pulled);
}

/*
 * Claims up to `count` pages from a REMOTE one on, within one span, and posts a read of them.
 * Returns how many pages that settles; 0: not now. Room is made while they are on their way. Where
 * the store was full within the last second it is made before the read: recv(2) would find no room,
 * and the link with all its reads would be lost. But where REMOTE pages may be holes, pages that no
 * program touches get no room: a read(2) of a sparse file would fill it.
 */
static uint64_t demand_read(struct link *link, struct pulled *pulled, uint64_t first,
			    uint64_t count, const struct fault_waiter *waiter)
{
	uint64_t most = TP_READ_MAX_BYTES / RAMP_PAGE_BYTES, won, fit;
	bool room = waiter->client || !pages_unlisted(pulled->seg), first_room;

	if (link->n_flights == TP_QUEUE_MAX)
		return 0;
	count = link_span(link, pulled, first, count < most ? count : most);
	won = pages_claim(pulled->seg, first, count);
	if (won == 0)
		return 0;
	first_room = room && atomic_load(&pulled->no_room_ms) > pull_now_ms();
	fit = first_room ? make_read_room(pulled, first, won) : won;
	demand_give_back(pulled, first + fit, won - fit);
	if (fit == 0) {
		if (waiter->client)
			poison_no_room(pulled, first);
		return 1;
	}
	trace_page(pulled->source.trace, first, "the request goes out");
	if (link_post(link, pulled, first, fit, waiter, NULL)) {
		demand_give_back(pulled, first, fit);
		return 0;
	}
	if (room && !first_room)
		make_read_room(pulled, first, fit);
	return fit;
}

static void poison_lost(struct pulled *pulled, uint64_t page)
{
	programs_poison(pulled->pull->config.programs, pulled->seg, page,
			pulled_is(pulled, PULLED_GIVEN_UP)
				? "a page was given up before it came"
				: "a page was lost at the node that had it");
}

static void wait_for_page(struct pulled *pulled, uint64_t page, const struct fault_waiter *waiter)
{
	const struct waitlist_entry entry = {.first = page, .count = 1, .waiter = *waiter};

	/* No room in the list: this thread tries again, which only costs it time. */
	if (!waitlist_add(&pulled->waitlist, &entry))
		client_wake(waiter->client->space, waiter->addr);
}

/* Handles one page fault, by the state of its page: resolves it, posts a read of the page, or puts it
   into the waitlist. */
static void handle_page_fault(struct pull *pull, struct puller_client *client,
			      const struct client_fault *fault)
{
	struct pulled *pulled = pulled_of(pull, fault->seg);
	const struct fault_waiter waiter = {
		.client = client,
		.addr = page_down(fault->addr),
		.since_us = pull_now_us(),
	};
	uint64_t won = 0, count;
	struct fault_stream *stream;
	struct claim_request request;
	struct link *link;

	atomic_fetch_add(&pull->faults, 1);
	if (!pulled)
		return; /* its pull was ended, or is about to begin, which wakes it */
	trace_fault(pulled->source.trace, fault->page, "the page fault is read");
	switch (pages_get(pulled->seg, fault->page)) {
	case PAGE_LOCAL:
		resolve_local(pulled, fault->page, &waiter);
		break;
	case PAGE_LOST:
		poison_lost(pulled, fault->page);
		break;
	case PAGE_REMOTE:
		link = waitlist_is_crowded(&pulled->waitlist)
			       ? NULL
			       : links_ready(&pull->pullers[PULLER_PAGER]->links, pulled);
		if (link) {
			request = pulled_claim_request(pulled);
			count = fault_around(pulled, fault->page, &stream);
			count = 1 + claim_request_leaves(&request, fault->page + 1, count - 1);
			won = demand_read(link, pulled, fault->page, count, &waiter);
			stream->next = fault->page + won;
		}
		if (won == 0)
			wait_for_page(pulled, fault->page, &waiter);
		break;
	case PAGE_IN_FLIGHT:
		wait_for_page(pulled, fault->page, &waiter);
		break;
	}
	pulled_put(pulled);
}

/* Reads the page faults of a client, and handles them. True: there were some. */
static bool read_page_faults(struct pager *pager, struct puller_client *client)
{
	struct pull *pull = pager->puller.links.pull;
	struct client_fault faults[FAULTS_MAX];
	bool more;
	int n;

	if (client->parked)
		return false;
	n = client_read(client->space, faults, FAULTS_MAX, &more);
	if (n > 0 && pager->last_fault != client) {
		adaptive_poll_another(&pager->poll);
		pager->last_fault = client;
	}
	for (int i = 0; i < n; i++) {
		if (faults[i].seg) {
			handle_page_fault(pull, client, &faults[i]);
			seg_put(faults[i].seg);
			client_waits(client->space, faults[i].tid); /* its page is on the way */
		}
	}
	/* The client goes when programs/ says so. */
	if (n == -EIO)
		puller_client_unwatch(client);
	else if (more)
		puller_client_watch_again(client);
	return n > 0;
}

/* ---- the waitlists ---- */

/* True: nothing more is to be done for the entry. */
static bool serve_entry(struct pulled *pulled, struct link *link, struct waitlist_entry *entry)
{
	enum page_state state;
	uint64_t run, won;

	while (entry->count) {
		if (entry->waiter.client &&
		    map_queue_is_full(&pulled->pull->pullers[PULLER_PAGER]->map_queue)) {
			pull_wake_pager(pulled->pull); /* to come again when there is room */
			return false;
		}
		run = pages_run(pulled->seg, entry->first, entry->count, &state);
		if (state == PAGE_IN_FLIGHT)
			return false;
		if (state == PAGE_REMOTE) {
			won = link ? demand_read(link, pulled, entry->first, run, &entry->waiter)
				   : 0;
			if (won == 0)
				return false;
			run = won;
		} else if (entry->waiter.client && state == PAGE_LOST) {
			poison_lost(pulled, entry->first);
		} else if (entry->waiter.client) {
			resolve_local(pulled, entry->first, &entry->waiter);
		}
		entry->first += run;
		entry->count -= run;
		fault_waiter_put(&entry->waiter); /* only the first page has a waiter */
	}
	return true;
}

/* Takes each entry out, and puts those back that have to wait. */
static void serve_waitlist(struct pull *pull, struct pulled *pulled)
{
	struct link *link = links_ready(&pull->pullers[PULLER_PAGER]->links, pulled);
	struct waitlist *list = &pulled->waitlist;
	struct waitlist_entry entry;
	uint32_t n, kept = 0;
	bool done;

	pthread_mutex_lock(&list->lock);
	n = list->n;
	for (uint32_t i = 0; i < n; i++) {
		entry = list->entries[i];
		pthread_mutex_unlock(&list->lock);
		done = serve_entry(pulled, link, &entry);
		pthread_mutex_lock(&list->lock);
		if (!done)
			list->entries[kept++] = entry;
	}
	/* Other threads only add behind the entries that were there. */
	for (uint32_t i = n; i < list->n; i++)
		list->entries[kept++] = list->entries[i];
	list->n = kept;
	pthread_mutex_unlock(&list->lock);
}

static void serve_waitlists(struct pull *pull)
{
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		serve_waitlist(pull, pulled);
		if (pulled_is(pulled, PULLED_FINISHED))
			pulled_unmap(pulled);
	}
}

/* A demand read has brought pages. A hole that a page fault asked for has its pages (make_read_room).
   Other page faults and requests that wait for one of them are in the waitlist. */
static void pager_arrived(struct links *links, struct link_flight *flight, uint64_t first,
			  uint64_t count, bool hole)
{
	const struct fault_waiter *waiter = &flight->waiter;
	struct pulled *pulled = flight->pulled;

	atomic_fetch_add(&pulled->demand_pages, count);
	atomic_fetch_add(&pulled->demand_holes, hole ? count : 0);
	atomic_fetch_add(&links->pull->demand_pages, count);
	if (wishes_waited_for(links->pull))
		pull_wake_prefetch(links->pull);
	if (!hole || waiter->client)
		trace_page(pulled->source.trace, first, "the page is in its place");
	if (!waiter->client)
		return;
	resolve_page_fault(pulled, waiter, waiter->addr + (first - flight->first) * RAMP_PAGE_BYTES,
			   first, count, first == flight->first);
}

/* ---- clients ---- */

static int on_client_added(void *arg, struct client *space, int uffd)
{
	struct pull *pull = arg;

	return puller_client_add(pull, pull->pullers[PULLER_PAGER]->links.epoll, space, uffd);
}

static void on_client_gone(void *arg, struct client *space)
{
	puller_client_gone(arg, space);
}

static void on_prefetch_all(void *arg, ramp_segment_t id)
{
	pulled_prefetch_all(arg, id);
}

/* ---- the thread ---- */

/* Handles one event. True: it was of use. */
static bool pager_event(struct pager *pager, void *event)
{
	switch (*(int *)event) {
	case PULLER_EVENT_WAKE:
		puller_take_wake(&pager->puller);
		return true;
	case PULLER_EVENT_CLIENT:
		return read_page_faults(pager, event);
	default:
		link_reap(event, 0);
		return true;
	}
}

static void boost(struct pager *pager, struct kernel_rt_boost *state, bool on)
{
	int rc = kernel_rt_boost_while(state, on);

	if (!rc)
		return;
	log_warn("page faults are served at normal priority (%s): busy programs delay them by "
		 "milliseconds",
		 strerror(-rc));
	pager->poll.may_be_firm = false;
}

/* False: another thread has the puller now. */
static bool pager_events(struct pager *pager, struct puller_thread *thread)
{
	void *event;

	while ((event = puller_next_event(&pager->puller))) {
		if (pager_event(pager, event))
			adaptive_poll_happened(&pager->poll, pull_now_us());
		if (!puller_map_all(thread))
			return false;
	}
	return true;
}

static bool pager_needs(const struct links *links, struct pulled *pulled)
{
	(void)links;
	return pulled_may_come(pulled);
}

static bool pager_run(struct puller_thread *thread)
{
	struct pager *pager = (struct pager *)thread->puller;
	struct links *links = &pager->puller.links;
	struct pull *pull = links->pull;
	struct adaptive_poll *poll = &pager->poll;
	struct kernel_rt_boost state = {0};
	int wait_ms = 0, sleep_ms;

	kernel_slice_set(0, KERNEL_FAULT_SLICE_NS);
	poll->may_be_firm = kernel_processors() > 1;
	if (!puller_map_all(thread) || !pager_events(pager, thread))
		return false;
	while (!atomic_load(&pull->stop)) {
		sleep_ms = adaptive_poll_wait_ms(poll, pull_now_us(), wait_ms);
		boost(pager, &state, sleep_ms || poll->firm);
		if (puller_wait(&pager->puller, sleep_ms) == 0 && adaptive_poll_again(poll))
			continue;
		if (!pager_events(pager, thread))
			return false;
		puller_reap(&pager->puller);
		wait_ms = links_step(links, pager_needs);
		serve_waitlists(pull);
		if (!puller_map_all(thread))
			return false;
		wait_ms = links_wait(links, wait_ms);
		puller_clients_forget(pull, false);
	}
	return true;
}

int pager_open(struct pull *pull, struct ramp_err *err)
{
	const struct programs_pager callbacks = {
		.client_added = on_client_added,
		.client_gone = on_client_gone,
		.prefetch_all = on_prefetch_all,
		.arg = pull,
	};
	struct pager *pager = calloc(1, sizeof(*pager));
	int rc;

	if (!pager)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	pull->pullers[PULLER_PAGER] = &pager->puller;
	pager->puller.links.arrived = pager_arrived;
	rc = puller_open(&pager->puller, pull, PULLER_PAGER, pager_run, err);
	if (!rc)
		programs_set_pager(pull->config.programs, &callbacks);
	return rc;
}

void pager_join(struct pull *pull)
{
	static const struct programs_pager none;

	if (pull->pullers[PULLER_PAGER] && pull->pullers[PULLER_PAGER]->thread)
		programs_set_pager(pull->config.programs, &none);
	puller_join(pull->pullers[PULLER_PAGER]);
}

void pager_close(struct pull *pull)
{
	puller_close(pull->pullers[PULLER_PAGER]);
	puller_clients_forget(pull, true);
}

void pager_free(struct pull *pull)
{
	free((struct pager *)pull->pullers[PULLER_PAGER]);
	pull->pullers[PULLER_PAGER] = NULL;
}
