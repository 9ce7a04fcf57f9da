#include "puller_client.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

void fault_waiter_get(const struct fault_waiter *waiter)
{
	if (waiter->client)
		atomic_fetch_add(&waiter->client->refs, 1);
}

void fault_waiter_put(struct fault_waiter *waiter)
{
	if (waiter->client && atomic_fetch_sub(&waiter->client->refs, 1) == 1)
		free(waiter->client);
	waiter->client = NULL;
}

/*
 * A userfaultfd that blocks is always ready, with an error. Whether it blocks is the program's to
 * say at any time, since O_NONBLOCK is shared. So epoll is edge-triggered: it reports each message
 * once, and messages that are left behind only when it is asked again.
 */
static int client_watch(struct puller_client *client, int op)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = client};

	return epoll_ctl(client->epoll, op, client->uffd, &event) ? -errno : 0;
}

int puller_client_watch_again(struct puller_client *client)
{
	return client_watch(client, EPOLL_CTL_MOD);
}

void puller_client_unwatch(struct puller_client *client)
{
	epoll_ctl(client->epoll, EPOLL_CTL_DEL, client->uffd, NULL);
}

/* It stays in the epoll set, with no events: so no memory is needed when it is watched again. */
void puller_client_park(struct puller_client *client)
{
	struct epoll_event event = {.events = EPOLLET, .data.ptr = client};

	epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->uffd, &event);
	client->parked = true;
	if (client->space)
		client_blocked(client->space);
}

void puller_client_unpark(struct puller_client *client)
{
	client->parked = false;
	if (!client->space) /* its uffd may be closed, and the number another file's */
		return;
	puller_client_watch_again(client);
	client_wake_all(client->space);
}

int puller_client_add(struct pull *pull, int epoll, struct client *space, int uffd)
{
	struct puller_client *client = calloc(1, sizeof(*client));
	int rc;

	if (!client)
		return -ENOMEM;
	client->kind = PULLER_EVENT_CLIENT;
	atomic_init(&client->refs, 1);
	client->space = space;
	client->uffd = uffd;
	client->epoll = epoll;
	pthread_mutex_lock(&pull->lock);
	TAILQ_INSERT_TAIL(&pull->clients, client, entry);
	rc = client_watch(client, EPOLL_CTL_ADD);
	if (rc)
		TAILQ_REMOVE(&pull->clients, client, entry);
	pthread_mutex_unlock(&pull->lock);
	if (rc)
		free(client);
	return rc;
}

/* The pager may be about to look at it, so the pager itself forgets it. */
void puller_client_gone(struct pull *pull, struct client *space)
{
	struct puller_client *client;

	pthread_mutex_lock(&pull->lock);
	TAILQ_FOREACH (client, &pull->clients, entry)
		if (client->space == space)
			break;
	if (client) {
		TAILQ_REMOVE(&pull->clients, client, entry);
		TAILQ_INSERT_TAIL(&pull->gone, client, entry);
	}
	pthread_mutex_unlock(&pull->lock);
	pull_wake_pager(pull);
}

/*
 * Page faults that were read by a client that goes come again, and are read by the client that
 * watches the same process now: a session that comes again has a client of its own, beside which
 * this one is watched for a short time.
 */
static void client_unread(struct puller_client *client)
{
	if (atomic_load(&client->refs) > 1)
		client_wake_all(client->space);
}

void puller_clients_forget(struct pull *pull, bool all)
{
	struct puller_client_list gone = TAILQ_HEAD_INITIALIZER(gone);
	struct puller_client *client;

	pthread_mutex_lock(&pull->lock);
	TAILQ_CONCAT(&gone, &pull->gone, entry);
	if (all)
		TAILQ_CONCAT(&gone, &pull->clients, entry);
	pthread_mutex_unlock(&pull->lock);
	while ((client = TAILQ_FIRST(&gone))) {
		TAILQ_REMOVE(&gone, client, entry);
		puller_client_unwatch(client);
		client_unread(client);
		client_put(client->space);
		client->space = NULL;
		fault_waiter_put(&(struct fault_waiter){.client = client});
	}
}
