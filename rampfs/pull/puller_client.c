/*
 * The processes whose page faults the pager reads.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "pull_impl.h"

void waiter_hold(const struct waiter *waiter)
{
	if (waiter->watch)
		atomic_fetch_add(&waiter->watch->refs, 1);
}

void waiter_put(struct waiter *waiter)
{
	if (waiter->watch && atomic_fetch_sub(&waiter->watch->refs, 1) == 1)
		free(waiter->watch);
	waiter->watch = NULL;
}

/*
 * A userfaultfd that blocks is always ready, with an error, and whether it does is the program's to
 * say at any time: O_NONBLOCK is shared. So we want to hear of each message once, and of what is
 * left behind one more time.
 */
int puller_client_watch(struct pull *pull, int op, struct watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = watch};

	return epoll_ctl(pull->pager.epoll, op, watch->uffd, &event) ? -errno : 0;
}

/* With no events, and not taken out: that needs no memory when it is watched again. */
void pager_park(struct pull *pull, struct watch *watch)
{
	struct epoll_event event = {.events = EPOLLET, .data.ptr = watch};

	epoll_ctl(pull->pager.epoll, EPOLL_CTL_MOD, watch->uffd, &event);
	watch->parked = true;
	if (watch->space)
		space_kept(watch->space);
}

void pager_unpark(struct pull *pull, struct watch *watch)
{
	watch->parked = false;
	if (!watch->space) /* its uffd may be closed, and the number another's */
		return;
	puller_client_watch(pull, EPOLL_CTL_MOD, watch);
	space_wake_all(watch->space);
}

int puller_client_added(void *arg, struct space *space, int uffd)
{
	struct pull *pull = arg;
	struct watch *watch = calloc(1, sizeof(*watch));
	int rc;

	if (!watch)
		return -ENOMEM;
	watch->kind = WATCH_SPACE;
	atomic_init(&watch->refs, 1);
	watch->space = space;
	watch->uffd = uffd;
	pthread_mutex_lock(&pull->lock);
	TAILQ_INSERT_TAIL(&pull->watches, watch, link);
	rc = puller_client_watch(pull, EPOLL_CTL_ADD, watch);
	if (rc)
		TAILQ_REMOVE(&pull->watches, watch, link);
	pthread_mutex_unlock(&pull->lock);
	if (rc)
		free(watch);
	return rc;
}

/* The pager may be about to look at it: it lets it go itself. */
void puller_client_gone(void *arg, struct space *space)
{
	struct pull *pull = arg;
	struct watch *watch;

	pthread_mutex_lock(&pull->lock);
	TAILQ_FOREACH (watch, &pull->watches, link)
		if (watch->space == space)
			break;
	if (watch) {
		TAILQ_REMOVE(&pull->watches, watch, link);
		TAILQ_INSERT_TAIL(&pull->gone, watch, link);
	}
	pthread_mutex_unlock(&pull->lock);
	puller_wake(&pull->pager);
}

/*
 * What it has read comes again, and is read by whoever watches the same process now: a session that
 * comes again has a space of its own, beside which this one is watched for a moment.
 */
static void unread(struct watch *watch)
{
	if (atomic_load(&watch->refs) > 1)
		space_wake_all(watch->space);
}

/* all: of a pager that has ended. */
void puller_clients_forget(struct pull *pull, bool all)
{
	struct watch_list gone = TAILQ_HEAD_INITIALIZER(gone);
	struct watch *watch;

	pthread_mutex_lock(&pull->lock);
	TAILQ_CONCAT(&gone, &pull->gone, link);
	if (all)
		TAILQ_CONCAT(&gone, &pull->watches, link);
	pthread_mutex_unlock(&pull->lock);
	while ((watch = TAILQ_FIRST(&gone))) {
		TAILQ_REMOVE(&gone, watch, link);
		epoll_ctl(pull->pager.epoll, EPOLL_CTL_DEL, watch->uffd, NULL);
		unread(watch);
		space_put(watch->space);
		watch->space = NULL;
		waiter_put(&(struct waiter){.watch = watch});
	}
}
