#include "waitlist.h"

void waitlist_init(struct waitlist *list)
{
	pthread_mutex_init(&list->lock, NULL);
}

void waitlist_destroy(struct waitlist *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		fault_waiter_put(&list->entries[i].waiter);
	pthread_mutex_destroy(&list->lock);
}

/* True: what `a` gets serves `b`, too. */
static bool waiter_serves(const struct fault_waiter *a, const struct fault_waiter *b)
{
	return !b->client || (a->client == b->client && a->addr == b->addr);
}

/* list->lock is held. */
static bool waitlist_has(const struct waitlist *list, const struct waitlist_entry *entry)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->entries[i].first == entry->first &&
		    list->entries[i].count >= entry->count &&
		    waiter_serves(&list->entries[i].waiter, &entry->waiter))
			return true;
	return false;
}

static bool waitlist_add_up_to(struct waitlist *list, const struct waitlist_entry *entry,
			       uint32_t most)
{
	bool room = true;

	pthread_mutex_lock(&list->lock);
	if (!waitlist_has(list, entry)) {
		room = list->n < most;
		if (room) {
			fault_waiter_get(&entry->waiter);
			list->entries[list->n++] = *entry;
		}
	}
	pthread_mutex_unlock(&list->lock);
	return room;
}

bool waitlist_add(struct waitlist *list, const struct waitlist_entry *entry)
{
	return waitlist_add_up_to(list, entry, WAITLIST_NEW);
}

void waitlist_return(struct waitlist *list, const struct waitlist_entry *entry)
{
	waitlist_add_up_to(list, entry, WAITLIST_MAX);
}

static uint32_t waitlist_length(struct waitlist *list)
{
	uint32_t n;

	pthread_mutex_lock(&list->lock);
	n = list->n;
	pthread_mutex_unlock(&list->lock);
	return n;
}

bool waitlist_is_crowded(struct waitlist *list)
{
	return waitlist_length(list) >= WAITLIST_NEW;
}

bool waitlist_is_empty(struct waitlist *list)
{
	return waitlist_length(list) == 0;
}
