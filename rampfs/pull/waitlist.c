/*
 * Pages of a segment that somebody waits for.
 */
#include "pull_impl.h"

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
