/*
 * A connection to one incarnation of one node.
 *
 *   DOWN       -> CONNECTING  [link_connect]     it is time to try
 *   CONNECTING -> READY       [link_connecting]  the peer has proved itself
 *   CONNECTING -> DOWN        [link_down]        failed, or not needed any more
 *   READY      -> DOWN        [link_down]        failed, not needed any more, or silent too long
 *
 * A link that is DOWN has no connection and no flights.
 *
 * Happy path: link_post asks for pages that were claimed. link_reap takes data that has come: it is
 * in the file's pages already, so they become LOCAL, and `arrived` does the rest. A hole that reaches
 * beyond the pages of its read makes the REMOTE pages there LOCAL as well.
 *
 * How it fails: a link that breaks, or is silent for link_silent_ms while reads are under way, gives
 * their pages back to REMOTE and connects again after 50 ms, then twice as long, up to 2 s. Pages
 * that a page fault or a request waits for go back to the waitlist. A source that does not know the
 * key is asked again in the same rhythm. A hello that proves another incarnation of the node means
 * that the source is over. A page that the source itself has lost is lost here, too.
 */
#include "link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "memory/reserve.h"
#include "old_bytes.h"

#define LINK_LOOK_BYTES	    (64u << 10)
#define DONE_MAX	    16
#define LINK_HELP_SILENT_MS 2000u
#define HOLE_MORE_PAGES	    (UINT64_C(1) << 20) /* 4 GiB beyond the end of the read, at once */

static const struct tp_ops *link_ops(const struct link *link)
{
	return link->links->pull->config.tp->ops;
}

/* The one door to a state. */
static void link_go(struct link *link, enum link_state from, enum link_state to)
{
	static const struct {
		const char *name;
		unsigned next; /* bits */
	} states[] = {
		[LINK_DOWN] = {"DOWN", 1u << LINK_CONNECTING},
		[LINK_CONNECTING] = {"CONNECTING", 1u << LINK_READY | 1u << LINK_DOWN},
		[LINK_READY] = {"READY", 1u << LINK_DOWN},
	};

	if (link->state != from || !(states[from].next >> to & 1)) {
		log_error("link to node %u: no step from %s (expected %s) to %s", link->node,
			  states[link->state].name, states[from].name, states[to].name);
		abort();
	}
	link->state = to;
	if (link->links->class == TP_PREFETCH && to == LINK_READY)
		atomic_fetch_add(&pull_tally_of(link->links->pull, link->node)->streams, 1);
	if (link->links->class == TP_PREFETCH && from == LINK_READY)
		atomic_fetch_sub(&pull_tally_of(link->links->pull, link->node)->streams, 1);
	log_debug("link to node %u: %s -> %s", link->node, states[from].name, states[to].name);
}

/* ---- flights ---- */

/* Whether link_step has to look at the connection without an event: it has failed, or to ask for its state has
   made it ready, by the bytes of which an event would have told. */
static bool link_has_turned(const struct link *link)
{
	enum tp_state state = link_ops(link)->state(link->conn, NULL);

	return state == TP_FAILED || (state == TP_READY && link->state == LINK_CONNECTING);
}

/* Makes epoll wait for the events that the connection needs now: after every call that moved bytes. */
static void link_watch(struct link *link)
{
	uint32_t events = 0;
	int fd = link->conn ? link_ops(link)->fd(link->conn, &events) : -1;
	struct epoll_event event = {.events = events, .data.ptr = link};

	if (link->conn && link_has_turned(link))
		pull_wake(link->links->pull, link->links->which);
	if (fd == link->fd && (fd < 0 || events == link->events))
		return;
	if (fd >= 0 && epoll_ctl(link->links->epoll, fd == link->fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
				 fd, &event)) {
		if (fd != link->fd)
			link->fd = -1;
		return; /* the next call tries again, after LINK_LOOK_MS at the latest */
	}
	link->fd = fd;
	link->events = events;
}

static void flight_end(struct link *link, struct link_flight *flight)
{
	struct pulled *pulled = flight->pulled;

	bounce_put(&link->links->bounce, flight->bounce);
	fault_waiter_put(&flight->waiter);
	flight->pulled = NULL;
	flight->bounce = NULL;
	link->n_flights--;
	pulled->n_flights[link->links->which]--;
	if (link->links->class == TP_DEMAND)
		atomic_fetch_sub(&pulled->pull->demand_waiting, 1);
	pulled_put(pulled);
}

/* A page fault waits for the first page of its read. Page faults of the others are in the waitlist. */
static struct fault_waiter flight_waiter(const struct link_flight *flight, uint64_t page)
{
	return page == flight->first ? flight->waiter : (struct fault_waiter){0};
}

/* Ends it: pages that have not arrived are REMOTE again, and those of a demand are in the waitlist. */
static void flight_give_back(struct link *link, struct link_flight *flight)
{
	struct pulled *pulled = flight->pulled;
	const uint64_t from = flight->bounce ? flight->first : flight->next;
	const struct waitlist_entry entry = {
		.first = from,
		.count = flight->first + flight->count - from,
		.waiter = flight_waiter(flight, from),
	};

	pages_give_back(pulled->seg, entry.first, entry.count);
	if (entry.count && link->links->class == TP_DEMAND)
		waitlist_return(&pulled->waitlist, &entry);
	else if (entry.count) /* page faults may have waited for it */
		pull_wake_pager(pulled->pull);
	if (entry.count &&
	    link->links->which > PULLER_PREFETCH) /* this thread may not come again */
		pulled_given_back(pulled);
	flight_end(link, flight);
}

uint64_t link_span(const struct link *link, const struct pulled *pulled, uint64_t first,
		   uint64_t count)
{
	return link_ops(link)->span(link->conn, &pulled->source.key, first * RAMP_PAGE_BYTES,
				    count * RAMP_PAGE_BYTES) /
	       RAMP_PAGE_BYTES;
}

bool link_lands(const struct link *link, const struct pulled *pulled, uint64_t page)
{
	return link_ops(link)->lands(link->conn, &pulled->source.key, page * RAMP_PAGE_BYTES);
}

void link_arrived(struct link *link, const struct pulled *pulled, uint64_t end)
{
	link_ops(link)->arrived(link->conn, &pulled->source.key, end * RAMP_PAGE_BYTES);
}

int link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
	      const struct fault_waiter *waiter, uint8_t *bounce)
{
	struct tp_read read = {
		.key = pulled->source.key,
		.offset = first * RAMP_PAGE_BYTES,
		.len = (uint32_t)(count * RAMP_PAGE_BYTES),
		.dst = bounce ? bounce : pulled->base + first * RAMP_PAGE_BYTES,
	};
	struct link_flight *flight = link->flights;
	int by = link->links->which, rc;

	if (link->n_flights == TP_QUEUE_MAX)
		return -EAGAIN;
	while (flight->pulled)
		flight++;
	read.cookie = (uint64_t)(flight - link->flights);
	rc = link_ops(link)->read(link->conn, &read);
	if (rc)
		return rc;
	if (link->n_flights++ == 0)
		link->progress_ms = link->reaped_ms = pull_now_ms();
	if (pulled->n_flights[by]++ == 0)
		pulled->asked_ms[by] = pull_now_ms();
	*flight = (struct link_flight){
		.pulled = pulled_get(pulled),
		.first = first,
		.count = count,
		.next = first,
		.bounce = bounce,
	};
	if (waiter) {
		fault_waiter_get(waiter);
		flight->waiter = *waiter;
	}
	if (link->links->class == TP_DEMAND)
		atomic_fetch_add(&pulled->pull->demand_waiting, 1);
	link_watch(link);
	return 0;
}

/* ---- its life ---- */

/* The connection is closed first: nothing lands any more when pages are given back. */
void link_down(struct link *link, uint64_t after_ms)
{
	if (link->state == LINK_READY)
		link->down_ms = pull_now_ms();
	if (link->state != LINK_DOWN)
		link_go(link, link->state, LINK_DOWN);
	link->try_ms = pull_now_ms() + after_ms;
	/* Explicitly: close(2) leaves it in the epoll set while a child between fork and exec has a
	   copy of it. */
	if (link->fd >= 0)
		epoll_ctl(link->links->epoll, EPOLL_CTL_DEL, link->fd, NULL);
	if (link->conn)
		link_ops(link)->close(link->conn);
	link->conn = NULL;
	link->fd = -1;
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++)
		if (link->flights[i].pulled)
			flight_give_back(link, &link->flights[i]);
}

struct link *link_new(struct links *links, const struct pull_source *source)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->kind = PULLER_EVENT_LINK;
	link->links = links;
	link->node = source->node;
	link->incarnation = source->incarnation;
	link->key = source->key;
	link->all = source->all;
	link->after_ms = LINK_RETRY_MIN_MS;
	link->fd = -1;
	LIST_INSERT_HEAD(&links->list, link, entry);
	return link;
}

void link_free(struct link *link)
{
	link_down(link, 0);
	LIST_REMOVE(link, entry);
	free(link);
}

/* True: an earlier read of the same segment lands in place, too. */
static bool link_lands_again(const struct link *link, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (link->flights[j].pulled == link->flights[i].pulled && !link->flights[j].bounce)
			return true;
	return false;
}

/* One read found no room in place, and it is not known which. Each segment gets some, once, however
   many of its reads were under way. */
static void link_no_room(struct link *link)
{
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++) {
		const struct link_flight *flight = &link->flights[i];

		if (flight->pulled && !flight->bounce && !link_lands_again(link, i))
			pulled_no_room(flight->pulled);
	}
}

/* A thread that only helps holds the pages of a connection that hangs for less long: the others bring
   them, where only one path of the network fails. */
static unsigned link_silent_ms(const struct link *link)
{
	return link->links->which > PULLER_PREFETCH ? LINK_HELP_SILENT_MS : PULL_SILENT_MS;
}

static void link_failed(struct link *link)
{
	struct ramp_err err = {0};
	ramp_incarnation_t proved = 0;

	ramp_err_set(&err, ETIMEDOUT, "it has not answered for %u s", link_silent_ms(link) / 1000);
	if (link->conn && link_ops(link)->state(link->conn, &err) == TP_FAILED)
		proved = link_ops(link)->incarnation(link->conn);
	if (link->state == LINK_READY)
		log_info("pulling from node %u: %s", link->node, err.text);
	if (err.code == EFAULT) /* not for the source: there was no room in place */
		link_no_room(link);
	link_down(link, link->after_ms);
	link->after_ms =
		link->after_ms * 2 < LINK_RETRY_MAX_MS ? link->after_ms * 2 : LINK_RETRY_MAX_MS;
	if (proved && proved != link->incarnation)
		pulled_source_over(link->links->pull, link->node, link->incarnation);
}

static void link_connect(struct link *link)
{
	struct links *links = link->links;
	struct ramp_err err;

	if (link_ops(link)->connect(links->pull->config.tp, link->node, link->incarnation,
				    links->class, &link->conn, &err)) {
		link->conn = NULL;
		link_failed(link);
		return;
	}
	if (link->all) /* a segment on demand may never be read: the source need not pin it yet */
		link_ops(link)->will_read(link->conn, &link->key);
	link_go(link, LINK_DOWN, LINK_CONNECTING);
	link_watch(link);
}

static void link_connecting(struct link *link)
{
	struct pull *pull = link->links->pull;

	switch (link_ops(link)->state(link->conn, NULL)) {
	case TP_CONNECTING:
		break;
	case TP_READY:
		link_go(link, LINK_CONNECTING, LINK_READY);
		link->progress_ms = link->ready_ms = pull_now_ms();
		if (link->down_ms)
			atomic_fetch_add(&pull->reconnects, 1);
		pull_wake(pull, link->links->which); /* links_step ends the silence */
		break;
	case TP_FAILED:
		link_failed(link);
		return;
	}
	link_watch(link);
}

void link_step(struct link *link, uint64_t now)
{
	if (link->state == LINK_DOWN && now >= link->try_ms)
		link_connect(link);
	if (link->state == LINK_CONNECTING)
		link_connecting(link);
	/* The transport may wait for more than a slow network brings at once: that is no silence. */
	if (link->state == LINK_READY && link->n_flights && now >= link->reaped_ms + LINK_LOOK_MS)
		link_reap(link, LINK_LOOK_BYTES);
	if (link->state == LINK_READY &&
	    (link_ops(link)->state(link->conn, NULL) == TP_FAILED ||
	     (link->n_flights && now > link->progress_ms + link_silent_ms(link))))
		link_failed(link);
}

/* ---- data that has come ---- */

/* The data is in place: LOCAL first, then `arrived`, which maps the pages. */
static void flight_arrive(struct link *link, struct link_flight *flight, uint64_t first,
			  uint64_t count, bool hole)
{
	pages_arrive(flight->pulled->seg, first, count);
	link->links->arrived(link->links, flight, first, count, hole);
}

/* Stores the pages that are in its bounce buffer. False: there was no room for them, or they may not
   be stored any more. */
static bool flight_unload(struct link *link, struct link_flight *flight)
{
	uint64_t first = flight->first, count = flight->next - first;
	int rc;

	if (count == 0)
		return true;
	while (flight->some && (rc = bounce_store(flight->pulled, flight->bounce, first, count)))
		if (rc == -EBUSY || pulled_no_room(flight->pulled))
			return false;
	flight->first += count;
	flight->count -= count;
	flight_arrive(link, flight, first, count, !flight->some);
	return true;
}

/* Takes a reply to a read that has a bounce buffer. False: it could not be stored, and the flight is
   over. */
static bool flight_load(struct link *link, struct link_flight *flight, const struct tp_done *done,
			uint64_t first, uint64_t count)
{
	if (done->kind == TP_HOLE)
		memset(flight->bounce + (first - flight->first) * RAMP_PAGE_BYTES, 0,
		       count * RAMP_PAGE_BYTES);
	else
		flight->some = true;
	if (done->more || flight_unload(link, flight))
		return true;
	flight_give_back(link, flight);
	return false;
}

/* The source has lost the next page itself: it is lost here, too, and a page fault that waits for it
   finds that. */
static void flight_lose(struct link *link, struct link_flight *flight)
{
	struct pulled *pulled = flight->pulled;
	const struct waitlist_entry entry = {
		.first = flight->next,
		.count = 1,
		.waiter = flight_waiter(flight, flight->next),
	};

	pages_lose(pulled->seg, flight->next, 1);
	flight->next++; /* not ours to give back any more: a writer may have claimed it */
	if (flight->bounce) {
		flight->first++;
		flight->count--;
	}
	if (entry.waiter.client)
		waitlist_return(&pulled->waitlist, &entry);
	if (link->links->class != TP_DEMAND)
		pull_wake_pager(pulled->pull); /* page faults may have waited for it */
	pulled_check_end(pulled);
}

/* The source does not grant its key (yet), or could not read a page. */
static void flight_refused(struct link *link, struct link_flight *flight, int result)
{
	struct pulled *pulled = flight->pulled;
	int by = link->links->which;

	if (result == -EIO && (!flight->bounce || flight_unload(link, flight))) {
		flight_lose(link, flight);
	} else {
		pulled->retry_after_ms[by] = pulled->retry_after_ms[by] * 2;
		if (pulled->retry_after_ms[by] < LINK_RETRY_MIN_MS)
			pulled->retry_after_ms[by] = LINK_RETRY_MIN_MS;
		if (pulled->retry_after_ms[by] > LINK_RETRY_MAX_MS)
			pulled->retry_after_ms[by] = LINK_RETRY_MAX_MS;
		pulled->retry_ms[by] = pull_now_ms() + pulled->retry_after_ms[by];
	}
	flight_give_back(link, flight);
}

/*
 * Gives the room of a hole back where the list in CONNECT is not true: the data that it named there
 * was cut out since. The room that was taken for it would have no user, and travel on as data with
 * the next move. (A copy's source does not tell holes from zeros.) Not by demand: pages that a
 * program touches are to be there.
 */
static void give_room_back(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count)
{
	if (link->links->class != TP_DEMAND && pages_unlisted(pulled->seg) && !pulled->source.alone)
		reserve_give_back(pulled->seg, first, count);
}

/* True: the hole beyond the read is left to the prefetch. A demand read gives no room back, also not
   behind its page; where there may be some, the prefetch asks again and gives it back. */
static bool leaves_beyond(struct link *link, struct pulled *pulled)
{
	return link->links->class == TP_DEMAND && pages_unlisted(pulled->seg) &&
	       !pulled->source.alone && pulled_prefetches(pulled);
}

/* Beyond the read the source has a hole, too: the REMOTE pages there become LOCAL zeros. */
static uint64_t take_hole(struct link *link, struct pulled *pulled, uint64_t from, uint64_t count)
{
	const struct claim_request request = pulled_claim_request(pulled);
	uint64_t to, page = from, won, taken = 0;

	to = count > HOLE_MORE_PAGES ? from + HOLE_MORE_PAGES : from + count;
	while ((page = pages_next_remote(pulled->seg, page)) < to) {
		won = claim_request_leaves(&request, page, to - page);
		if (won == 0) {
			page = request.to;
			continue;
		}
		won = pages_claim(pulled->seg, page, won);
		if (won) {
			old_bytes_clear(pulled, page, won);
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
	struct pull_tally *tally = pull_tally_of(link->links->pull, link->node);

	atomic_fetch_add(link->links->which == PULLER_PAGER ? &tally->demand_pages
							    : &tally->prefetch_pages,
			 count);
	atomic_fetch_add(&tally->bytes, bytes);
}

static void flight_reply(struct link *link, const struct tp_done *done)
{
	struct link_flight *flight = &link->flights[done->cookie];
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
	link->after_ms = LINK_RETRY_MIN_MS;
	pulled->retry_after_ms[link->links->which] = 0;
	pulled->hung[link->links->which] = false;
	atomic_store(&pulled->heard_ms, link->progress_ms);
	count_pages(link, count, hole ? 0 : done->len);
	if (hole) {
		if (link->links->class == TP_PREFETCH)
			limits_put_back(&pulled->limits, count);
		old_bytes_clear(pulled, first, count);
		give_room_back(link, pulled, first, count);
	}
	if (!flight->bounce)
		flight_arrive(link, flight, first, count, hole);
	else if (!flight_load(link, flight, done, first, count))
		return;
	if (beyond && !leaves_beyond(link, pulled))
		beyond = take_hole(link, pulled, end, beyond);
	else
		beyond = 0;
	/* Page faults may have found those pages claimed. */
	if (beyond && link->links->class != TP_DEMAND && !waitlist_is_empty(&pulled->waitlist))
		pull_wake_pager(pulled->pull);
	if (hole) {
		atomic_fetch_add(&pulled->hole_pages, count + beyond);
		atomic_fetch_add(&pulled->pull->hole_pages, count + beyond);
	} else {
		atomic_fetch_add(&pulled->pull->bytes, done->len);
	}
	pulled_check_end(pulled);
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
	n = link_ops(link)->reap(link->conn, done, DONE_MAX, max_bytes);
	if (n > 0)
		link->progress_ms = link->reaped_ms;
	for (int i = 0; i < n; i++)
		flight_reply(link, &done[i]);
	if (n < 0)
		link_failed(link);
	else
		link_watch(link);
}
