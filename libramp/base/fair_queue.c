/*
 * A queue for each user that has entries waiting or running; it is freed with the last of those.
 */
#include "fair_queue.h"

#include <stdlib.h>

struct fair_queue_user {
	TAILQ_ENTRY(fair_queue_user) link;
	uid_t uid;
	STAILQ_HEAD(, fair_queue_entry) entries;
	unsigned int running;
};

void fair_queue_init(struct fair_queue *queue, unsigned int threads)
{
	*queue = (struct fair_queue){.threads = threads};
	TAILQ_INIT(&queue->users);
}

static struct fair_queue_user *user_of(struct fair_queue *queue, uid_t uid)
{
	struct fair_queue_user *user;

	TAILQ_FOREACH (user, &queue->users, link)
		if (user->uid == uid)
			return user;
	user = malloc(sizeof(*user));
	if (!user)
		abort(); /* the keeper starts us again */
	*user = (struct fair_queue_user){.uid = uid};
	STAILQ_INIT(&user->entries);
	TAILQ_INSERT_TAIL(&queue->users, user, link);
	return user;
}

void fair_queue_add(struct fair_queue *queue, uid_t uid, struct fair_queue_entry *entry)
{
	entry->user = user_of(queue, uid);
	STAILQ_INSERT_TAIL(&entry->user->entries, entry, link);
	queue->waiting++;
}

static struct fair_queue_user *next_user(const struct fair_queue *queue)
{
	struct fair_queue_user *user;

	TAILQ_FOREACH (user, &queue->users, link)
		if (!STAILQ_EMPTY(&user->entries) &&
		    user->running < queue->threads - queue->running)
			return user;
	return NULL;
}

bool fair_queue_ready(const struct fair_queue *queue)
{
	return next_user(queue) != NULL;
}

struct fair_queue_entry *fair_queue_next(struct fair_queue *queue)
{
	struct fair_queue_user *user = next_user(queue);
	struct fair_queue_entry *entry;

	if (!user)
		return NULL;
	entry = STAILQ_FIRST(&user->entries);
	STAILQ_REMOVE_HEAD(&user->entries, link);
	TAILQ_REMOVE(&queue->users, user, link);
	TAILQ_INSERT_TAIL(&queue->users, user, link);
	user->running++;
	queue->running++;
	queue->waiting--;
	return entry;
}

void fair_queue_end(struct fair_queue_entry *entry, struct fair_queue *queue)
{
	struct fair_queue_user *user = entry->user;

	user->running--;
	queue->running--;
	if (!user->running && STAILQ_EMPTY(&user->entries)) {
		TAILQ_REMOVE(&queue->users, user, link);
		free(user);
	}
}
