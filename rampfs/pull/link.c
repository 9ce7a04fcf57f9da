/*
 * Links to sources: what the pager and the prefetch thread do alike.
 *
 * Happy path: puller_step connects to every source that an entry needs; link_post asks for pages
 * that were claimed; link_reap takes what has come: data stands in the file's pages already, so
 * they are LOCAL, and `arrived` does the rest. A hole that reaches beyond what was asked for makes
 * the REMOTE pages there LOCAL as well.
 *
 * How it fails: a link that breaks, or is silent for SILENT_MS while reads are under way, gives
 * their pages back to REMOTE and connects again after 50 ms, then twice as long, up to 2 s; what
 * somebody waits for is remembered as wanted. A source that does not know the key is asked again
 * in the same rhythm. A hello that proves another incarnation of the node means that the source is
 * over. A page that the source itself has lost is lost here, too.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "memory/reserve.h"
#include "pull_impl.h"

#define LOOK_MS		250 /* without an event, what has come is taken all the same */
#define DONE_MAX	16
#define HOLE_MORE_PAGES (UINT64_C(1) << 20) /* 4 GiB beyond what was asked, at once */

static const struct tp_ops *ops(const struct puller *puller)
{
	return puller->pull->config.tp->ops;
}

/* Waits for what the connection waits for now: after every call that moved bytes. One that has
   failed waits for nothing, so the next step is to find it. */
static void watch_fd(struct link *link)
{
	uint32_t events = 0;
	int fd = link->conn ? ops(link->puller)->fd(link->conn, &events) : -1;
	struct epoll_event event = {.events = events, .data.ptr = link};

	if (link->conn && ops(link->puller)->state(link->conn, NULL) == TP_FAILED)
		puller_wake(link->puller);
	if (fd == link->fd && (fd < 0 || events == link->events))
		return;
	if (fd >= 0 && epoll_ctl(link->puller->epoll,
				 fd == link->fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event)) {
		if (fd != link->fd)
			link->fd = -1;
		return; /* the next call tries again, at the latest that of a look (LOOK_MS) */
	}
	link->fd = fd;
	link->events = events;
}

static void flight_end(struct link *link, struct flight *flight)
{
	struct pulled *pulled = flight->pulled;

	stage_put(link->puller, flight->stage);
	waiter_put(&flight->waiter);
	flight->pulled = NULL;
	flight->stage = NULL;
	link->n_flights--;
	pulled->n_flights[link->puller->which - 1]--;
	if (link->puller->class == TP_DEMAND)
		atomic_fetch_sub(&pulled->pull->demand_waiting, 1);
	pulled_put(pulled);
}

/* A page fault waits for the first page of its read; whoever touches another has a want of it. */
static struct waiter waiter_of(const struct flight *flight, uint64_t page)
{
	return page == flight->first ? flight->waiter : (struct waiter){0};
}

/* What has not arrived is REMOTE again; a demand is remembered. */
static void flight_back(struct link *link, struct flight *flight)
{
	struct pulled *pulled = flight->pulled;
	const uint64_t from = flight->stage ? flight->first : flight->next;
	const struct want want = {
		.first = from,
		.count = flight->first + flight->count - from,
		.waiter = waiter_of(flight, from),
	};

	pages_give_back(pulled->seg, want.first, want.count);
	if (want.count && link->puller->class == TP_DEMAND)
		pulled_want_back(pulled, &want);
	else if (want.count) /* page faults may have waited for it */
		puller_wake(&pulled->pull->pager);
	flight_end(link, flight);
}

int link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
	      const struct waiter *waiter, uint8_t *stage)
{
	struct tp_read read = {
		.key = pulled->source.key,
		.offset = first * RAMP_PAGE_BYTES,
		.len = (uint32_t)(count * RAMP_PAGE_BYTES),
		.dst = stage ? stage : pulled->base + first * RAMP_PAGE_BYTES,
	};
	struct flight *flight = link->flights;
	int who = link->puller->which - 1, rc;

	if (link->n_flights == TP_QUEUE_MAX)
		return -EAGAIN;
	while (flight->pulled)
		flight++;
	read.cookie = (uint64_t)(flight - link->flights);
	rc = ops(link->puller)->read(link->conn, &read);
	if (rc)
		return rc;
	if (link->n_flights++ == 0)
		link->progress_ms = link->reaped_ms = pull_now_ms();
	if (pulled->n_flights[who]++ == 0)
		pulled->asked_ms[who] = pull_now_ms();
	*flight = (struct flight){
		.pulled = pulled_get(pulled),
		.first = first,
		.count = count,
		.next = first,
		.stage = stage,
	};
	if (waiter) {
		waiter_hold(waiter);
		flight->waiter = *waiter;
	}
	if (link->puller->class == TP_DEMAND)
		atomic_fetch_add(&pulled->pull->demand_waiting, 1);
	watch_fd(link);
	return 0;
}

/* The one door to DOWN. The connection goes first: nothing lands any more when pages go back. */
void link_down(struct link *link, uint64_t after_ms)
{
	if (link->state == LINK_READY)
		link->down_ms = pull_now_ms();
	link->state = LINK_DOWN;
	link->try_ms = pull_now_ms() + after_ms;
	/* While a child between fork and exec has a copy of it, close(2) leaves it in there. */
	if (link->fd >= 0)
		epoll_ctl(link->puller->epoll, EPOLL_CTL_DEL, link->fd, NULL);
	if (link->conn)
		ops(link->puller)->close(link->conn);
	link->conn = NULL;
	link->fd = -1;
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++)
		if (link->flights[i].pulled)
			flight_back(link, &link->flights[i]);
}

/* An earlier read of the same segment lands in place, too. */
static bool lands_again(const struct link *link, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (link->flights[j].pulled == link->flights[i].pulled && !link->flights[j].stage)
			return true;
	return false;
}

/* The landing place of one read found no room, nobody knows of which: each segment gets some, once,
   however many of its reads were under way. */
static void link_no_room(struct link *link)
{
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++) {
		const struct flight *flight = &link->flights[i];

		if (flight->pulled && !flight->stage && !lands_again(link, i))
			pulled_no_room(flight->pulled);
	}
}

static void link_failed(struct link *link)
{
	struct ramp_err err = {.text = "it has not answered for 5 s"};
	ramp_incarnation_t proved = 0;

	if (link->conn && ops(link->puller)->state(link->conn, &err) == TP_FAILED)
		proved = ops(link->puller)->incarnation(link->conn);
	if (link->state == LINK_READY)
		log_info("pulling from node %u: %s", link->node, err.text);
	if (err.code == EFAULT) /* the source is not to blame */
		link_no_room(link);
	link_down(link, link->after_ms);
	link->after_ms = link->after_ms * 2 < RETRY_MAX_MS ? link->after_ms * 2 : RETRY_MAX_MS;
	if (proved && proved != link->incarnation)
		pull_source_over(link->puller->pull, link->node, link->incarnation);
}

static void link_connect(struct link *link)
{
	struct puller *puller = link->puller;
	struct ramp_err err;

	if (ops(puller)->connect(puller->pull->config.tp, link->node, link->incarnation,
				 puller->class, &link->conn, &err)) {
		link->conn = NULL;
		link_failed(link);
		return;
	}
	link->state = LINK_CONNECTING;
	watch_fd(link);
}

static void link_connecting(struct link *link)
{
	struct puller *puller = link->puller;

	switch (ops(puller)->state(link->conn, NULL)) {
	case TP_CONNECTING:
		break;
	case TP_READY:
		link->state = LINK_READY;
		link->progress_ms = link->ready_ms = pull_now_ms();
		if (link->down_ms)
			atomic_fetch_add(&puller->pull->reconnects, 1);
		puller_wake(puller); /* the silence is over, which the next step tells */
		break;
	case TP_FAILED:
		link_failed(link);
		return;
	}
	watch_fd(link);
}

void link_step(struct link *link, uint64_t now)
{
	if (link->state == LINK_DOWN && now >= link->try_ms)
		link_connect(link);
	if (link->state == LINK_CONNECTING)
		link_connecting(link);
	/* The transport may wait for more than a slow network brings at once: no silence. */
	if (link->state == LINK_READY && link->n_flights && now >= link->reaped_ms + LOOK_MS)
		link_reap(link, PIECE_BYTES);
	if (link->state == LINK_READY && (ops(link->puller)->state(link->conn, NULL) == TP_FAILED ||
					  (link->n_flights && now > link->progress_ms + SILENT_MS)))
		link_failed(link);
}

/* Data stands in place: LOCAL, then CONTINUE. */
static void arrive(struct link *link, struct flight *flight, uint64_t first, uint64_t count,
		   bool hole)
{
	pages_arrive(flight->pulled->seg, first, count);
	link->puller->arrived(link->puller, flight, first, count, hole);
}

/* What stands in its buffer goes into place. False: there was no room for it, or no way any more. */
static bool unload(struct link *link, struct flight *flight)
{
	uint64_t first = flight->first, count = flight->next - first;
	int rc;

	if (count == 0)
		return true;
	while (flight->some && (rc = stage_store(flight)))
		if (rc == -EBUSY || pulled_no_room(flight->pulled))
			return false;
	flight->first += count;
	flight->count -= count;
	arrive(link, flight, first, count, !flight->some);
	return true;
}

/* A reply to a read that has a buffer. False: it could not be stored, and the flight is over. */
static bool load(struct link *link, struct flight *flight, const struct tp_done *done,
		 uint64_t first, uint64_t count)
{
	if (done->kind == TP_HOLE)
		memset(flight->stage + (first - flight->first) * RAMP_PAGE_BYTES, 0,
		       count * RAMP_PAGE_BYTES);
	else
		flight->some = true;
	if (done->more || unload(link, flight))
		return true;
	flight_back(link, flight);
	return false;
}

/* The source has lost the next page itself: it is lost here, too, and whoever waits for it is told.
 */
static void flight_lose(struct link *link, struct flight *flight)
{
	struct pulled *pulled = flight->pulled;
	const struct want want = {
		.first = flight->next,
		.count = 1,
		.waiter = waiter_of(flight, flight->next),
	};

	pages_lose(pulled->seg, flight->next, 1);
	flight->next++; /* no longer ours to give back: a writer may have claimed it */
	if (flight->stage) {
		flight->first++;
		flight->count--;
	}
	if (want.waiter.watch)
		pulled_want_back(pulled, &want);
	if (link->puller->class != TP_DEMAND)
		puller_wake(&pulled->pull->pager); /* page faults may have waited for it */
	pulled_look(pulled);
}

/* Its key is not granted (yet), or the source could not read a page. */
static void flight_refused(struct link *link, struct flight *flight, int result)
{
	struct pulled *pulled = flight->pulled;
	int who = link->puller->which - 1;

	if (result == -EIO && (!flight->stage || unload(link, flight))) {
		flight_lose(link, flight);
	} else {
		pulled->retry_after_ms[who] = pulled->retry_after_ms[who] * 2;
		if (pulled->retry_after_ms[who] < RETRY_MIN_MS)
			pulled->retry_after_ms[who] = RETRY_MIN_MS;
		if (pulled->retry_after_ms[who] > RETRY_MAX_MS)
			pulled->retry_after_ms[who] = RETRY_MAX_MS;
		pulled->retry_ms[who] = pull_now_ms() + pulled->retry_after_ms[who];
	}
	flight_back(link, flight);
}

/*
 * A hole where the list in CONNECT is not true: what it named there was cut out since, and the room
 * that was taken for it would be nobody's, and travel on as data with the next move. (A copy's
 * source does not tell holes from zeros.) Not of pages that somebody touches: they are to be there.
 */
static void give_room_back(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count)
{
	if (link->puller->class != TP_DEMAND && pages_unlisted(pulled->seg) &&
	    !pulled->source.alone)
		room_give_back(pulled->seg, first, count);
}

/* Who is asked for a page that somebody touches gives no room back, also not behind that page: where
   there may be some, the prefetch asks again. */
static bool leaves_beyond(struct link *link, struct pulled *pulled)
{
	return link->puller->class == TP_DEMAND && pages_unlisted(pulled->seg) &&
	       !pulled->source.alone && pulled_prefetches(pulled);
}

/* Beyond what was asked the source has nothing either: the REMOTE pages there are LOCAL zeros. */
static uint64_t take_hole(struct link *link, struct pulled *pulled, uint64_t from, uint64_t count)
{
	const struct wish wish = pulled_wish(pulled, pull_now_ms());
	uint64_t to, page = from, won, taken = 0;

	to = count > HOLE_MORE_PAGES ? from + HOLE_MORE_PAGES : from + count;
	while ((page = pages_next_remote(pulled->seg, page)) < to) {
		won = wish_leaves(&wish, page, to - page);
		if (won == 0) {
			page = wish.to;
			continue;
		}
		won = pages_claim(pulled->seg, page, won);
		if (won) {
			give_room_back(link, pulled, page, won);
			pages_arrive(pulled->seg, page, won);
		}
		taken += won;
		page += won ? won : 1;
	}
	return taken;
}

static void count_pages(struct link *link, uint64_t count, uint64_t bytes)
{
	struct pull_tally *tally = pull_tally_of(link->puller->pull, link->node);

	atomic_fetch_add(link->puller->which == PULLER_PAGER ? &tally->demand_pages
							     : &tally->prefetch_pages,
			 count);
	atomic_fetch_add(&tally->bytes, bytes);
}

static void flight_came(struct link *link, const struct tp_done *done)
{
	struct flight *flight = &link->flights[done->cookie];
	struct pulled *pulled = flight->pulled;
	uint64_t first = done->offset / RAMP_PAGE_BYTES, count = done->len / RAMP_PAGE_BYTES;
	uint64_t end = flight->first + flight->count, beyond = 0;
	bool hole = done->kind == TP_HOLE;

	if (done->result) {
		flight_refused(link, flight, done->result);
		return;
	}
	if (count > end - first) {
		beyond = count - (end - first);
		count = end - first;
	}
	flight->next = first + count;
	link->after_ms = RETRY_MIN_MS;
	pulled->retry_after_ms[link->puller->which - 1] = 0;
	pulled->hung[link->puller->which - 1] = false;
	atomic_store(&pulled->heard_ms, link->progress_ms);
	count_pages(link, count, hole ? 0 : done->len);
	if (hole)
		give_room_back(link, pulled, first, count);
	if (!flight->stage)
		arrive(link, flight, first, count, hole);
	else if (!load(link, flight, done, first, count))
		return;
	if (beyond && !leaves_beyond(link, pulled))
		beyond = take_hole(link, pulled, end, beyond);
	else
		beyond = 0;
	/* Page faults may have found them claimed. */
	if (beyond && link->puller->class != TP_DEMAND && pulled_wanted(pulled))
		puller_wake(&pulled->pull->pager);
	if (hole) {
		atomic_fetch_add(&pulled->hole_pages, count + beyond);
		atomic_fetch_add(&pulled->pull->hole_pages, count + beyond);
	} else {
		atomic_fetch_add(&pulled->pull->bytes, done->len);
	}
	pulled_look(pulled);
	if (!done->more)
		flight_end(link, flight);
}

void link_reap(struct link *link, size_t max_bytes)
{
	struct tp_done done[DONE_MAX];
	int n;

	if (link->state != LINK_READY)
		return;
	link->reaped_ms = pull_now_ms();
	n = ops(link->puller)->reap(link->conn, done, DONE_MAX, max_bytes);
	if (n > 0)
		link->progress_ms = link->reaped_ms;
	for (int i = 0; i < n; i++)
		flight_came(link, &done[i]);
	if (n < 0)
		link_failed(link);
	else
		watch_fd(link);
}
