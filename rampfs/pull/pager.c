/*
 * The pager: page faults and wanted pages become demand reads, and what has come is mapped.
 *
 * Happy path: a page fault's message is read; its page is REMOTE, so it is claimed, with a few
 * behind it where faults are sequential, and a read is posted; the reply lands in the page itself,
 * which is LOCAL then, is mapped by CONTINUE where the page fault was, and whoever waits there goes
 * on. What can't be asked for now (no connection, too many reads, another read brings it) is
 * remembered in the entry's wants and looked at again when something has changed: so is each page
 * fault of a page that is on its way. Who faults later finds it LOCAL.
 *
 * How it fails: puller.c. A LOST page, or one for which the store has no room, is poisoned: SIGBUS,
 * the latter for a second, after which it may be tried again. A process that ends is taken out when
 * programs says so.
 *
 * A program can keep this thread for as long as it likes where pages are mapped: then another one
 * goes on (turn.c), and the page faults of that program are left unread until it lets go.
 *
 * This thread allocates nothing but connections, logs nothing per page, and takes no lock that is
 * held for long. It polls for a moment after something has happened (adaptive_poll.h), and sleeps at
 * real-time priority: a page fault would wait until whoever computes has used up his time slice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "pull_impl.h"

#define FAULTS_MAX 32

/* ---- a place for a page ---- */

/* Where a page of the file is mapped here; NULL: behind its end. */
static uint8_t *place(struct pulled *pulled, uint64_t page)
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

/* -ENOSPC: the store has none; -ENXIO: behind the end of the file. */
static int make_room(struct pulled *pulled, uint64_t first, uint64_t count)
{
	uint8_t *at = place(pulled, first);

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

/* SIGBUS, which the prefetch thread takes back once there may be room. */
static void deny(struct pulled *pulled, uint64_t page)
{
	programs_poison(pulled->pull->config.programs, pulled->seg, page,
			"the store is full: no room for a page that was touched");
	if (!atomic_exchange(&pulled->denied, true))
		puller_wake(&pulled->pull->prefetch);
}

/* Pages [first, first + count) are LOCAL, the first being at `addr` in the waiter's space. `fault`:
   his page fault is over by that. */
static void resolve(struct pulled *pulled, const struct waiter *waiter, uint64_t addr,
		    uint64_t first, uint64_t count, bool fault)
{
	const struct mapping mapping = {
		.waiter = {.watch = waiter->watch, .addr = addr, .since_us = waiter->since_us},
		.id = seg_id(pulled->seg),
		.first = first,
		.count = count,
		.fault = fault,
		.trace = pulled->source.trace,
	};

	/* More than can be remembered: it finds them when it faults again. */
	if (!puller_map(&pulled->pull->pager, &mapping) && waiter->watch->space)
		space_wake(waiter->watch->space, addr);
}

void pager_mapped(struct pull *pull, const struct mapping *mapping)
{
	trace_page_over(mapping->trace, mapping->first, "CONTINUE is done");
	if (mapping->fault)
		pull_count_fault(pull, mapping->waiter.since_us);
}

/* The page is LOCAL; a hole gets its page now, as a page fault without us would have done. */
static void resolve_one(struct pulled *pulled, uint64_t page, const struct waiter *waiter)
{
	if (make_room(pulled, page, 1) == -ENOSPC) {
		deny(pulled, page);
		return;
	}
	resolve(pulled, waiter, waiter->addr, page, 1, true);
}

/* How many pages a fault at `page` shall get: doubled where the last one of a stream ended here. */
static uint32_t around(struct pulled *pulled, uint64_t page, struct stream **stream)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		struct stream *s = &pulled->streams[i];

		if (s->pages && page >= s->next && page < s->next + AROUND_PAGES) {
			s->pages = s->pages * 2 < AROUND_PAGES ? s->pages * 2 : AROUND_PAGES;
			*stream = s;
			return s->pages;
		}
	}
	*stream = &pulled->streams[pulled->next_stream++ % STREAMS];
	(*stream)->pages = 1;
	return 1;
}

/* Room where a read is to land: for all of the pages, or for the first; returns for how many. */
static uint64_t room_for(struct pulled *pulled, uint64_t first, uint64_t count)
{
	if (make_room(pulled, first, count) != -ENOSPC)
		return count;
	return count > 1 && make_room(pulled, first, 1) != -ENOSPC;
}

static void give_back(struct pulled *pulled, uint64_t first, uint64_t count)
{
	pages_give_back(pulled->seg, first, count);
	if (count)
		pulled_again(pulled);
}

/*
 * Claims and asks for up to `count` pages from a REMOTE one on. How many that settles; 0: not now.
 * Room is taken while they are on their way; where the store was full a moment ago, before they are
 * asked for: recv(2) finds no room then, and the link with all that is under way is lost. But where
 * REMOTE pages may be holes, what nobody touches gets no room: a read(2) of a sparse file would
 * fill it.
 */
static uint64_t demand(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		       const struct waiter *waiter)
{
	uint64_t most = TP_READ_MAX_BYTES / RAMP_PAGE_BYTES, won, fit;
	bool room = waiter->watch || !pages_unlisted(pulled->seg), first_room;

	if (link->n_flights == TP_QUEUE_MAX)
		return 0;
	won = pages_claim(pulled->seg, first, count < most ? count : most);
	if (won == 0)
		return 0;
	first_room = room && atomic_load(&pulled->no_room_ms) > pull_now_ms();
	fit = first_room ? room_for(pulled, first, won) : won;
	give_back(pulled, first + fit, won - fit);
	if (fit == 0) {
		if (waiter->watch)
			deny(pulled, first);
		return 1;
	}
	trace_page(pulled->source.trace, first, "the request goes out");
	if (link_post(link, pulled, first, fit, waiter, NULL)) {
		give_back(pulled, first, fit);
		return 0;
	}
	if (room && !first_room)
		room_for(pulled, first, fit);
	return fit;
}

static void lost(struct pulled *pulled, uint64_t page)
{
	programs_poison(pulled->pull->config.programs, pulled->seg, page,
			"a page was lost at the node that had it");
}

static void remember(struct pulled *pulled, uint64_t page, const struct waiter *waiter)
{
	const struct want want = {.first = page, .count = 1, .waiter = *waiter};

	/* More threads than we can remember: this one tries again, which costs it time only. */
	if (!pulled_want(pulled, &want))
		space_wake(waiter->watch->space, waiter->addr);
}

static void on_fault(struct pull *pull, struct watch *watch, const struct space_fault *fault)
{
	struct pulled *pulled = pulled_of(pull, fault->seg);
	const struct waiter waiter = {
		.watch = watch,
		.addr = fault->addr & ~(uint64_t)(RAMP_PAGE_BYTES - 1),
		.since_us = pull_now_us(),
	};
	uint64_t won = 0, count;
	struct stream *stream;
	struct wish wish;
	struct link *link;

	atomic_fetch_add(&pull->faults, 1);
	if (!pulled)
		return; /* its pull was ended, or is to begin: whoever does that wakes it */
	trace_fault(pulled->source.trace, fault->page, "the page fault is read");
	switch (pages_get(pulled->seg, fault->page)) {
	case PAGE_LOCAL:
		resolve_one(pulled, fault->page, &waiter);
		break;
	case PAGE_LOST:
		lost(pulled, fault->page);
		break;
	case PAGE_REMOTE:
		link = pulled_crowded(pulled) ? NULL : puller_link(&pull->pager, pulled);
		if (link) {
			wish = pulled_wish(pulled, pull_now_ms());
			count = around(pulled, fault->page, &stream);
			count = 1 + wish_leaves(&wish, fault->page + 1, count - 1);
			won = demand(link, pulled, fault->page, count, &waiter);
			stream->next = fault->page + won;
		}
		if (won == 0)
			remember(pulled, fault->page, &waiter);
		break;
	case PAGE_IN_FLIGHT:
		remember(pulled, fault->page, &waiter);
		break;
	}
	pulled_put(pulled);
}

static bool read_space(struct pull *pull, struct watch *watch)
{
	struct space_fault faults[FAULTS_MAX];
	bool more;
	int n;

	if (watch->parked)
		return false;
	n = space_read(watch->space, faults, FAULTS_MAX, &more);
	if (n > 0 && pull->last_fault != watch) {
		adaptive_poll_another(&pull->poll);
		pull->last_fault = watch;
	}
	for (int i = 0; i < n; i++) {
		if (faults[i].seg) {
			on_fault(pull, watch, &faults[i]);
			seg_put(faults[i].seg);
			space_waits(watch->space, faults[i].tid); /* its page is on the way */
		}
	}
	/* It would be ready for ever. The watch goes when programs says so. */
	if (n == -EIO)
		epoll_ctl(pull->pager.epoll, EPOLL_CTL_DEL, watch->uffd, NULL);
	else if (more)
		puller_client_watch(pull, EPOLL_CTL_MOD, watch);
	return n > 0;
}

/* ---- wanted pages ---- */

/* True: nothing more is to be done for it. */
static bool serve_want(struct pulled *pulled, struct link *link, struct want *want)
{
	enum page_state state;
	uint64_t run, won;

	while (want->count) {
		if (want->waiter.watch && puller_map_full(&pulled->pull->pager)) {
			puller_wake(&pulled->pull->pager); /* when there is room again */
			return false;
		}
		run = pages_run(pulled->seg, want->first, want->count, &state);
		if (state == PAGE_IN_FLIGHT)
			return false;
		if (state == PAGE_REMOTE) {
			won = link ? demand(link, pulled, want->first, run, &want->waiter) : 0;
			if (won == 0)
				return false;
			run = won;
		} else if (want->waiter.watch && state == PAGE_LOST) {
			lost(pulled, want->first);
		} else if (want->waiter.watch) {
			resolve_one(pulled, want->first, &want->waiter);
		}
		want->first += run;
		want->count -= run;
		waiter_put(&want->waiter); /* a page fault waits for the first page alone */
	}
	return true;
}

/* Takes the wants out, one after the other, and puts back what has to wait. */
static void serve_wants(struct pull *pull, struct pulled *pulled)
{
	struct link *link = puller_link(&pull->pager, pulled);
	struct want want;
	uint32_t n, kept = 0;
	bool done;

	pthread_mutex_lock(&pulled->lock);
	n = pulled->n_wants;
	for (uint32_t i = 0; i < n; i++) {
		want = pulled->wants[i];
		pthread_mutex_unlock(&pulled->lock);
		done = serve_want(pulled, link, &want);
		pthread_mutex_lock(&pulled->lock);
		if (!done)
			pulled->wants[kept++] = want;
	}
	/* Others only add behind what was there. */
	for (uint32_t i = n; i < pulled->n_wants; i++)
		pulled->wants[kept++] = pulled->wants[i];
	pulled->n_wants = kept;
	pthread_mutex_unlock(&pulled->lock);
}

static void serve_all_wants(struct pull *pull)
{
	struct pulled *pulled = NULL;

	while ((pulled = pulled_next(pull, pulled))) {
		serve_wants(pull, pulled);
		if (atomic_load(&pulled->told))
			pulled_unmap(pulled);
	}
}

/* A demand read has brought pages. A hole that a page fault asked for has its pages (room_for). Who
   else waits for one of them, or for what a parked request asked for, is among the wants. */
static void arrived(struct puller *puller, struct flight *flight, uint64_t first, uint64_t count,
		    bool hole)
{
	const struct waiter *waiter = &flight->waiter;
	struct pulled *pulled = flight->pulled;

	atomic_fetch_add(&pulled->demand_pages, count);
	atomic_fetch_add(&puller->pull->demand_pages, count);
	if (!hole || waiter->watch)
		trace_page(pulled->source.trace, first, "the page is in its place");
	if (!waiter->watch)
		return;
	resolve(pulled, waiter, waiter->addr + (first - flight->first) * RAMP_PAGE_BYTES, first,
		count, first == flight->first);
}

/* ---- spaces ---- */

static void on_hurry(void *arg, ramp_segment_t id)
{
	pull_hurry(arg, id);
}

/* ---- the thread ---- */

/* One event; true: it was of use. */
static bool on_event(struct pull *pull, void *what)
{
	uint64_t count;

	switch (*(int *)what) {
	case WATCH_WAKE:
		(void)!read(pull->pager.wake, &count, sizeof(count));
		return true;
	case WATCH_SPACE:
		return read_space(pull, what);
	default:
		link_reap(what, 0);
		return true;
	}
}

static void hurry(struct pull *pull, struct kernel_rt_boost *state, bool on)
{
	int rc = kernel_rt_boost_while(state, on);

	if (!rc)
		return;
	log_warn("page faults are served at normal priority (%s): busy programs delay them by "
		 "milliseconds",
		 strerror(-rc));
	pull->poll.may_be_firm = false;
}

/* Those that were fetched, by this thread or the one whose place it has taken. */
static bool on_events(struct pull *pull, struct turn *turn)
{
	struct puller *pager = &pull->pager;

	while (pager->next_event < pager->n_events) {
		if (on_event(pull, pager->events[pager->next_event++].data.ptr))
			adaptive_poll_happened(&pull->poll, pull_now_us());
		if (!puller_map_all(pager, turn))
			return false;
	}
	return true;
}

static bool run(struct turn *turn)
{
	struct puller *pager = turn->puller;
	struct pull *pull = pager->pull;
	struct adaptive_poll *poll = &pull->poll;
	struct kernel_rt_boost state = {0};
	int wait_ms = 0, sleep_ms;

	kernel_slice_set(0, KERNEL_FAULT_SLICE_NS);
	poll->may_be_firm = kernel_processors() > 1;
	if (!puller_map_all(pager, turn) || !on_events(pull, turn))
		return false;
	while (!atomic_load(&pull->stop)) {
		sleep_ms = adaptive_poll_wait_ms(poll, pull_now_us(), wait_ms);
		hurry(pull, &state, sleep_ms || poll->firm);
		pager->next_event = 0;
		pager->n_events = epoll_wait(pager->epoll, pager->events, EACH_EVENTS, sleep_ms);
		if (pager->n_events == 0 && adaptive_poll_again(poll))
			continue;
		if (!on_events(pull, turn))
			return false;
		turns_back(pager);
		wait_ms = puller_step(pager, pulled_undecided);
		serve_all_wants(pull);
		if (!puller_map_all(pager, turn))
			return false;
		wait_ms = puller_wait(pager, wait_ms);
		puller_clients_forget(pull, false);
	}
	return true;
}

int pager_open(struct pull *pull, struct ramp_err *err)
{
	const struct programs_pager pager = {
		.space_added = puller_client_added,
		.space_gone = puller_client_gone,
		.hurry = on_hurry,
		.arg = pull,
	};
	int rc;

	pull->pager.arrived = arrived;
	rc = puller_open(&pull->pager, PULLER_PAGER, run, err);
	if (!rc)
		programs_set_pager(pull->config.programs, &pager);
	return rc;
}

void pager_join(struct pull *pull)
{
	static const struct programs_pager nobody;

	if (pull->pager.turn)
		programs_set_pager(pull->config.programs, &nobody);
	turn_join(&pull->pager);
}

void pager_close(struct pull *pull)
{
	puller_close(&pull->pager);
	puller_clients_forget(pull, true);
}
