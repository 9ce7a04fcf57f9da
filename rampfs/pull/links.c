/*
 * All links of a thread.
 */
#include <stdlib.h>

#include "pull_impl.h"

#define CONNECTING_MS 100  /* a hello's time-out is looked at so often */
#define SLOW_MS	      1000 /* without an answer: silent, as a read(2) sees it */
#define LOOK_MS	      250  /* without an event, what has come is taken all the same */

static struct link *find(struct puller *puller, const struct pull_source *source)
{
	struct link *link;

	LIST_FOREACH (link, &puller->links, entry)
		if (link->node == source->node && link->incarnation == source->incarnation)
			return link;
	return NULL;
}

static struct link *need(struct puller *puller, const struct pull_source *source)
{
	struct link *link = find(puller, source);

	if (link)
		return link;
	link = calloc(1, sizeof(*link));
	if (!link)
		return NULL; /* the next step tries again, soon */
	link->kind = WATCH_LINK;
	link->puller = puller;
	link->node = source->node;
	link->incarnation = source->incarnation;
	link->after_ms = RETRY_MIN_MS;
	link->fd = -1;
	LIST_INSERT_HEAD(&puller->links, link, entry);
	return link;
}

/* Somebody waits for its pages, or the prefetch does. */
static bool waited_for(struct pulled *pulled, int who)
{
	return pulled->n_flights[who] || pulled_prefetches(pulled) || pulled_wanted(pulled);
}

/* Of a link that is slow: from its last answer on, or from the entry's own question. */
static uint64_t unanswered_since(const struct pulled *pulled, int who, const struct link *link,
				 uint64_t now)
{
	if (pulled->n_flights[who] == 0)
		return now;
	return pulled->asked_ms[who] > link->progress_ms ? pulled->asked_ms[who]
							 : link->progress_ms;
}

/*
 * A read(2) gives up on a source that has been silent for long. The demand link tells, and a
 * prefetch that hangs, since it has claimed pages that somebody may wait for. One that hung stays
 * silent until it has proved itself anew, or a page comes (flight_came): its kernel may still take
 * connections. Whom nobody asks is not silent: the first read of a pull that was left alone finds
 * a source that has come back, or waits for as long as any other.
 */
static void tell_silence(struct puller *puller, struct pulled *pulled, const struct link *link,
			 uint64_t now)
{
	int who = puller->which - 1;
	uint64_t since = atomic_load(&pulled->silent_since_ms[who]);
	bool slow = link->n_flights && now > link->progress_ms + SLOW_MS;
	bool down = puller->class == TP_DEMAND &&
		    (link->state != LINK_READY || pulled->retry_ms[who] > now);

	if ((slow || down || since) && !waited_for(pulled, who))
		slow = down = pulled->hung[who] = false;
	if (slow)
		pulled->hung[who] = true;
	if (slow || down) {
		if (!since)
			since = slow ? unanswered_since(pulled, who, link, now) : now;
	} else if (!pulled->hung[who] || (link->state == LINK_READY && link->ready_ms > since)) {
		pulled->hung[who] = false;
		since = 0;
	}
	atomic_store(&pulled->silent_since_ms[who], since);
}

static void need_links(struct puller *puller, bool (*needs)(struct pulled *pulled), uint64_t now,
		       int *wait_ms)
{
	struct pulled *pulled = NULL;
	struct link *link;

	while ((pulled = pulled_next(puller->pull, pulled))) {
		if (!pulled_alive(pulled)) {
			puller_drop(puller, pulled);
			pulled_release(pulled, puller->which);
			continue;
		}
		if (!needs(pulled)) {
			atomic_store(&pulled->silent_since_ms[puller->which - 1], 0);
			continue;
		}
		link = need(puller, &pulled->source);
		if (!link) {
			pull_sooner(wait_ms, now + RETRY_MIN_MS, now);
			continue;
		}
		link->used = true;
		tell_silence(puller, pulled, link, now);
		if (pulled->retry_ms[puller->which - 1] > now)
			pull_sooner(wait_ms, pulled->retry_ms[puller->which - 1], now);
	}
}

int puller_step(struct puller *puller, bool (*needs)(struct pulled *pulled))
{
	uint64_t now = pull_now_ms();
	struct link *link, *next;
	int wait_ms = -1;

	LIST_FOREACH (link, &puller->links, entry)
		link->used = false;
	need_links(puller, needs, now, &wait_ms);
	for (link = LIST_FIRST(&puller->links); link; link = next) {
		next = LIST_NEXT(link, entry);
		if (!link->used && link->n_flights == 0) {
			link_down(link, 0);
			LIST_REMOVE(link, entry);
			free(link);
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

int puller_wait(const struct puller *puller, int wait_ms)
{
	const struct link *link;

	LIST_FOREACH (link, &puller->links, entry)
		if (link->n_flights && (wait_ms < 0 || wait_ms > LOOK_MS))
			wait_ms = LOOK_MS;
	return wait_ms;
}

struct link *puller_link(struct puller *puller, struct pulled *pulled)
{
	struct link *link;

	if (!pulled_alive(pulled) || !pulled_undecided(pulled))
		return NULL;
	link = find(puller, &pulled->source);
	if (!link || link->state != LINK_READY)
		return NULL;
	if (pulled->retry_ms[puller->which - 1] &&
	    pulled->retry_ms[puller->which - 1] > pull_now_ms())
		return NULL;
	return link;
}

void puller_drop(struct puller *puller, struct pulled *pulled)
{
	struct link *link = find(puller, &pulled->source);

	for (unsigned i = 0; link && i < TP_QUEUE_MAX; i++)
		if (link->flights[i].pulled == pulled) {
			/* The only way to be sure that no byte of it lands any more. */
			link_down(link, 0);
			return;
		}
}
