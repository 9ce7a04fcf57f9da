/*
 * All links of one thread.
 *
 * Each turn of the thread's loop calls links_step: it finds the sources that the entries need, connects
 * to them, and notes since when one has been silent.
 */
#include "links.h"

#include "pulled.h"
#include "wishes.h"

#define CONNECTING_MS 100  /* how often the time-out of a hello is looked at */
#define SLOW_MS	      1000 /* without an answer: silent, as a read(2) sees it */

static struct link *links_find(struct links *links, const struct pull_source *source)
{
	struct link *link;

	LIST_FOREACH (link, &links->list, entry)
		if (link->node == source->node && link->incarnation == source->incarnation)
			return link;
	return NULL;
}

static struct link *links_need(struct links *links, const struct pull_source *source)
{
	struct link *link = links_find(links, source);

	return link ? link : link_new(links, source);
}

/* True: a page fault, a request or the prefetch waits for its pages. */
static bool is_waited_for(struct pulled *pulled, int by)
{
	return pulled->n_flights[by] || pulled_prefetches(pulled) ||
	       !waitlist_is_empty(&pulled->waitlist) || wishes_any(pulled);
}

/* Returns since when a slow link has not answered: since its last answer, or the entry's own request. */
static uint64_t unanswered_since(const struct pulled *pulled, int by, const struct link *link,
				 uint64_t now)
{
	if (pulled->n_flights[by] == 0)
		return now;
	return pulled->asked_ms[by] > link->progress_ms ? pulled->asked_ms[by] : link->progress_ms;
}

/*
 * Notes since when the source has been silent: a read(2) gives up on a source that has been silent
 * for long. The demand link shows it, and so does a prefetch that hangs, since it has claimed pages
 * that a program may wait for. A source that hung stays silent until it has proved itself again, or a
 * page comes (flight_reply): its kernel may still take connections. A source that is not asked is not
 * silent: the first read of a pull that was left alone finds a source that has come back, or waits
 * for as long as any other. The links of threads that only help are not looked at: each gives its
 * pages back before that matters (link_silent_ms).
 */
static void note_silence(struct links *links, struct pulled *pulled, const struct link *link,
			 uint64_t now)
{
	int by = links->which;
	bool slow = link->n_flights && now > link->progress_ms + SLOW_MS;
	bool down = links->class == TP_DEMAND &&
		    (link->state != LINK_READY || pulled->retry_ms[by] > now);
	uint64_t since;

	if (by > PULLER_PREFETCH)
		return;
	since = atomic_load(&pulled->silent_since_ms[by]);
	if ((slow || down || since) && !is_waited_for(pulled, by))
		slow = down = pulled->hung[by] = false;
	if (slow)
		pulled->hung[by] = true;
	if (slow || down) {
		if (!since)
			since = slow ? unanswered_since(pulled, by, link, now) : now;
	} else if (!pulled->hung[by] || (link->state == LINK_READY && link->ready_ms > since)) {
		pulled->hung[by] = false;
		since = 0;
	}
	atomic_store(&pulled->silent_since_ms[by], since);
}

static void note_no_need(const struct links *links, struct pulled *pulled)
{
	if (links->which <= PULLER_PREFETCH)
		atomic_store(&pulled->silent_since_ms[links->which], 0);
}

/* Gives up every read of the entry. */
static void links_drop(struct links *links, struct pulled *pulled)
{
	struct link *link = links_find(links, &pulled->source);

	for (unsigned i = 0; link && i < TP_QUEUE_MAX; i++)
		if (link->flights[i].pulled == pulled) {
			/* The only way to be sure that no byte of it lands any more. */
			link_down(link, 0);
			return;
		}
}

static void links_find_needed(struct links *links,
			      bool (*needs)(const struct links *links, struct pulled *pulled),
			      uint64_t now, int *wait_ms)
{
	struct pulled *pulled = NULL;
	struct link *link;

	while ((pulled = pulled_next(links->pull, pulled))) {
		if (!pulled_is_alive(pulled)) {
			links_drop(links, pulled);
			pulled_release(pulled, links->which);
			continue;
		}
		if (!needs(links, pulled)) {
			note_no_need(links, pulled);
			continue;
		}
		link = links_need(links, &pulled->source);
		if (!link) {
			pull_sooner(wait_ms, now + LINK_RETRY_MIN_MS, now);
			continue;
		}
		link->used = true;
		note_silence(links, pulled, link, now);
		if (pulled->retry_ms[links->which] > now)
			pull_sooner(wait_ms, pulled->retry_ms[links->which], now);
	}
}

int links_step(struct links *links, bool (*needs)(const struct links *links, struct pulled *pulled))
{
	uint64_t now = pull_now_ms();
	struct link *link, *next;
	int wait_ms = -1;

	LIST_FOREACH (link, &links->list, entry)
		link->used = false;
	links_find_needed(links, needs, now, &wait_ms);
	for (link = LIST_FIRST(&links->list); link; link = next) {
		next = LIST_NEXT(link, entry);
		if (!link->used && link->n_flights == 0) {
			link_free(link);
			continue;
		}
		link_step(link, now);
		if (link->state == LINK_DOWN)
			pull_sooner(&wait_ms, link->try_ms, now);
		else if (link->state == LINK_CONNECTING)
			pull_sooner(&wait_ms, now + CONNECTING_MS, now);
	}
	return wait_ms;
}

int links_wait(const struct links *links, int wait_ms)
{
	const struct link *link;

	LIST_FOREACH (link, &links->list, entry)
		if (link->n_flights && (wait_ms < 0 || wait_ms > LINK_LOOK_MS))
			wait_ms = LINK_LOOK_MS;
	return wait_ms;
}

struct link *links_ready(struct links *links, struct pulled *pulled)
{
	struct link *link;

	if (!pulled_is_alive(pulled) || !pulled_may_come(pulled))
		return NULL;
	link = links_find(links, &pulled->source);
	if (!link || link->state != LINK_READY)
		return NULL;
	if (pulled->retry_ms[links->which] && pulled->retry_ms[links->which] > pull_now_ms())
		return NULL;
	return link;
}

bool links_any_ready(const struct links *links)
{
	const struct link *link;

	LIST_FOREACH (link, &links->list, entry)
		if (link->state == LINK_READY)
			return true;
	return false;
}

bool links_have_room(const struct links *links)
{
	const struct link *link;

	LIST_FOREACH (link, &links->list, entry)
		if (link->state == LINK_READY && link->n_flights < TP_QUEUE_MAX)
			return true;
	return false;
}

void links_close(struct links *links)
{
	struct link *link;

	/* The analyzer does not see that LIST_REMOVE took the one before out.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	while ((link = LIST_FIRST(&links->list)))
		link_free(link);
}
