/*
 * Whose turn it is, where threads are shared by users who may keep them for as long as they like.
 *
 * Users take turns, and each has at most as many threads as are left then: the first a half, a
 * second one a quarter. So whoever comes after those that keep theirs finds one, until there are
 * as many of them as it takes to halve the threads away.
 *
 * Thread-safety: none; the caller's lock is held around each call. Aborts without memory: what
 * waits here is somebody's request, which must not get lost.
 */
#ifndef RAMP_FAIR_QUEUE_H
#define RAMP_FAIR_QUEUE_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

struct fair_queue_user; /* one user's, while he has any */

/* Part of what waits: the caller's until fair_queue_add, and from fair_queue_next on. */
struct fair_queue_entry {
	STAILQ_ENTRY(fair_queue_entry) link;
	struct fair_queue_user *user;
};

struct fair_queue {
	TAILQ_HEAD(, fair_queue_user) users; /* whose turn is next first */
	unsigned int threads, running, waiting;
};

void fair_queue_init(struct fair_queue *queue, unsigned int threads);
void fair_queue_add(struct fair_queue *queue, uid_t uid, struct fair_queue_entry *entry);
/* Whether fair_queue_next would say one. */
bool fair_queue_ready(const struct fair_queue *queue);
/* The next one, which runs from here on; NULL: none, or whose there are has all that he may have. */
struct fair_queue_entry *fair_queue_next(struct fair_queue *queue);
void fair_queue_end(struct fair_queue_entry *entry,
		    struct fair_queue *queue); /* it has run; turn is the caller's */

#endif
