/*
 * Closing userfaultfds of programs, which the broker does.
 *
 * The last close(2) of a userfaultfd waits for the mmap lock of the memory that it belongs to, and
 * can't be killed. A user with a FUSE filesystem can hold that lock as long as it likes: by a read
 * of /proc/self/mem of a page of a file there. So no thread of the daemon closes a userfaultfd that
 * a program has sent. Each goes to the broker, where a thread of its own closes it and hangs alone.
 *
 *   waits in the list --(few of its user are sent)--> sent, own copy closed --GO--> closed there
 *                                                                          --ENDED--> forgotten
 *
 * GO says that the broker's copy is the last: without it, the broker's thread could close its copy
 * first, and the daemon's close would be the last one. Each userfaultfd counts as a slot of its
 * user (broker_queue.c) until it is closed, also while it waits in the list: a user whose
 * userfaultfds can't be closed gets no new session.
 *
 * How it fails: if the broker's socket is full, or the broker has died, the list waits for the next
 * tick, or for the next broker. At the daemon's end, and without memory, the daemon closes them
 * itself.
 */
#include <stdlib.h>
#include <unistd.h>

#include "broker.h"
#include "broker_release.h"
#include "clients.h"
#include "quota.h"

#define SENT_MAX 8u /* of one user at a time */

struct release {
	TAILQ_ENTRY(release) link; /* programs->releases, protected by programs->lock */
	uint64_t id;
	uid_t uid;
	int fd;	      /* -1: sent to the broker, closed here */
	bool go;      /* GO was sent. Control thread */
	bool counted; /* in its user's quota */
};

void broker_release(struct programs *p, uid_t uid, int fd)
{
	struct release *l = malloc(sizeof(*l));

	if (!l) {
		close(fd);
		return;
	}
	*l = (struct release){.uid = uid, .fd = fd};
	l->counted = quota_take(p->quota, uid, QUOTA_BROKER, 1, UINT32_MAX);
	pthread_mutex_lock(&p->lock);
	l->id = RELEASE_IDS | ++p->next_release;
	TAILQ_INSERT_TAIL(&p->releases, l, link);
	/* A thread that a program kept blocked may come here at the daemon's end, and after it. */
	if (!atomic_load(&p->closing) && p->look)
		loop_wake_send(p->look);
	pthread_mutex_unlock(&p->lock);
}

/* Counts those of the user that are at the broker. p->lock is held; so for the next function. */
static uint32_t sent_of(const struct programs *p, uid_t uid)
{
	const struct release *l;
	uint32_t n = 0;

	TAILQ_FOREACH (l, &p->releases, link)
		n += l->fd < 0 && l->uid == uid;
	return n;
}

/* Returns the next one to send a message for: one whose GO is due, or the first whose user has
   fewer than SENT_MAX at the broker. NULL: none. */
static struct release *next(struct programs *p)
{
	struct release *l;
	uid_t full = 0;
	bool any_full = false;

	TAILQ_FOREACH (l, &p->releases, link)
		if (l->fd < 0 && !l->go)
			return l;
	TAILQ_FOREACH (l, &p->releases, link) {
		if (l->fd < 0 || (any_full && l->uid == full))
			continue;
		if (atomic_load(&p->closing) || sent_of(p, l->uid) < SENT_MAX)
			return l;
		any_full = true;
		full = l->uid;
	}
	return NULL;
}

static struct release *next_locked(struct programs *p)
{
	struct release *l;

	pthread_mutex_lock(&p->lock);
	l = next(p);
	pthread_mutex_unlock(&p->lock);
	return l;
}

void broker_release_run(struct programs *p)
{
	struct release *l;
	int fd;

	while ((l = next_locked(p))) {
		if (l->fd < 0) {
			if (broker_go(p->broker, l->id))
				return;
			l->go = true;
			continue;
		}
		if (broker_let_go(p->broker, l->id, l->fd))
			return;
		fd = l->fd;
		pthread_mutex_lock(&p->lock);
		l->fd = -1;
		pthread_mutex_unlock(&p->lock);
		close(fd); /* not the last copy: the broker has one */
	}
}

/* p->lock is held. */
static void forget(struct programs *p, struct release *l)
{
	TAILQ_REMOVE(&p->releases, l, link);
	if (l->counted)
		quota_give(p->quota, l->uid, QUOTA_BROKER, 1);
	free(l);
}

void broker_release_ended(struct programs *p, uint64_t id)
{
	struct release *l;

	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (l, &p->releases, link)
		if (l->id == id)
			break;
	if (l && l->fd < 0)
		forget(p, l);
	pthread_mutex_unlock(&p->lock);
	broker_release_run(p);
}

void broker_release_lost(struct programs *p)
{
	struct release *l, *after;

	pthread_mutex_lock(&p->lock);
	for (l = TAILQ_FIRST(&p->releases); l; l = after) {
		after = TAILQ_NEXT(l, link);
		if (l->fd < 0)
			forget(p, l);
	}
	pthread_mutex_unlock(&p->lock);
}

void broker_release_close(struct programs *p)
{
	struct release *l;

	broker_release_lost(p);
	while ((l = TAILQ_FIRST(&p->releases))) {
		close(l->fd);
		pthread_mutex_lock(&p->lock);
		forget(p, l);
		pthread_mutex_unlock(&p->lock);
	}
}
