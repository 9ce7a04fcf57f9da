/*
 * A queue of work for threads that are shared by users, each of which may block a thread for as long
 * as it likes.
 *
 * Users take turns, and each has at most as many threads as are left then: the first a half, a
 * second one a quarter. So a user that comes after those that keep their threads finds one, until
 * there are as many users as it takes to halve the threads away.
 *
 * Thread-safety: none; the caller's lock is held around each call. Aborts without memory: an entry
 * is a client's request, which must not get lost.
 */
#ifndef RAMP_FAIR_QUEUE_H
#define RAMP_FAIR_QUEUE_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

struct fair_queue_user; /* a user that has entries */

/* Embedded in the work. It is the caller's until fair_queue_add, and from fair_queue_next on. */
struct fair_queue_entry {
	STAILQ_ENTRY(fair_queue_entry) link;
	struct fair_queue_user *user;
};

struct fair_queue {
	TAILQ_HEAD(, fair_queue_user) users; /* the next one first */
	unsigned int threads, running, waiting;
};

void fair_queue_init(struct fair_queue *queue, unsigned int threads);
void fair_queue_add(struct fair_queue *queue, uid_t uid, struct fair_queue_entry *entry);
/* Whether fair_queue_next would return an entry. */
bool fair_queue_ready(const struct fair_queue *queue);
/* Takes the next entry, which runs from now on. NULL: the queue is empty, or every user in it is at
   its limit. */
struct fair_queue_entry *fair_queue_next(struct fair_queue *queue);
/* Called when it has run; the entry is still the caller's. */
void fair_queue_end(struct fair_queue_entry *entry, struct fair_queue *queue);

#endif
