/*
 * All clients of the daemon: finding the one of a process, lists of them, and looking into many of
 * their processes.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "clients.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"
#include "programs/programs.h"
#include "quota.h"

bool programs_wait(struct programs *p, uint64_t until_ms)
{
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};

	if (clock_ms() >= until_ms || atomic_load(&p->closing))
		return false;
	return pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0 &&
	       !atomic_load(&p->closing);
}

void programs_hold(struct programs *p)
{
	atomic_fetch_add(&p->refs, 1);
}

void programs_let_go(struct programs *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	quota_close(p->quota);
	free(p);
}

/*
 * p->lock is held. A session outlives its process if another process holds the socket, and the pid
 * may be another process's then: messages that are meant for that one must not go to the old
 * session.
 */
static struct client *find_ready(struct programs *p, pid_t pid)
{
	struct client *client;

	TAILQ_FOREACH (client, &p->clients, link) {
		if (client->pid != pid || client->state != CLIENT_READY)
			continue;
		if (process_lives(client->pidfd))
			return client_get(client);
		shutdown(client->sock, SHUT_RDWR);
	}
	return NULL;
}

struct client *client_find(struct programs *p, pid_t pid, uint64_t until_ms)
{
	struct client *client;

	pthread_mutex_lock(&p->lock);
	do
		client = find_ready(p, pid);
	while (!client && programs_wait(p, until_ms));
	pthread_mutex_unlock(&p->lock);
	return client;
}

/* Returns whether the orphan's memory has a ready session. An agent keeps its userfaultfd, which
   belongs to one memory, from session to session; after an exec there is another one. If the
   kernel can't compare them, they are taken to be the same. p->lock is held. */
static bool has_new_session(struct programs *p, struct client *orphan)
{
	struct client *client;

	TAILQ_FOREACH (client, &p->clients, link)
		if (client->pid == orphan->pid && client->state == CLIENT_READY)
			return (orphan->pidfd < 0 ||
				/* Else the pid is another process's. */
				process_lives(orphan->pidfd)) &&
			       kernel_same_file(client->uffd, orphan->uffd) != 0;
	return false;
}

bool client_replaced(struct client *client)
{
	struct programs *p = client->programs;
	bool replaced;

	pthread_mutex_lock(&p->lock);
	replaced = has_new_session(p, client);
	pthread_mutex_unlock(&p->lock);
	return replaced;
}

int clients_get_ready(struct programs *p, struct client ***clients, size_t *count)
{
	struct client *client;
	size_t cap = 0;

	*count = 0;
	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (client, &p->clients, link)
		cap++;
	*clients = calloc(cap + 1, sizeof(struct client *));
	if (*clients)
		TAILQ_FOREACH (client, &p->clients, link)
			if (client->state == CLIENT_READY)
				(*clients)[(*count)++] = client_get(client);
	pthread_mutex_unlock(&p->lock);
	return *clients ? 0 : -ENOMEM;
}

void clients_free(struct client **clients, size_t count)
{
	for (size_t i = 0; i < count; i++)
		client_put(clients[i]);
	free(clients);
}

/* The work of clients_look_into, on a thread that may outlive the call. */
struct clients_looking {
	struct programs *programs;
	struct client **clients;
	size_t count;
	client_fn *fn;
	client_drop *drop; /* NULL: arg holds nothing */
	pid_t pid;	   /* the process that is looked into, or was last */
	max_align_t arg[];
};

static int look_at_clients(struct bounded *bounded, void *arg)
{
	struct clients_looking *l = arg;
	int rc = 0;

	for (size_t i = 0; i < l->count && !rc; i++) {
		l->pid = l->clients[i]->pid;
		rc = bounded_enter(bounded, l->pid);
		if (!rc)
			rc = l->fn(bounded, l->arg, l->clients[i]);
	}
	return rc;
}

static void looking_free(struct clients_looking *l)
{
	struct programs *p = l->programs;

	clients_free(l->clients, l->count);
	free(l);
	atomic_fetch_sub(&p->looking, 1); /* programs_close may free `p` now */
}

/* Its caller has left. */
static void looking_forget(void *arg)
{
	struct clients_looking *l = arg;

	if (l->drop)
		l->drop(l->arg);
	looking_free(l);
}

int clients_look(struct client **clients, size_t count, client_fn *fn, void *arg, size_t len,
		 pid_t *pid)
{
	return clients_look_into(clients, count, fn, NULL, arg, len, pid);
}

int clients_look_into(struct client **clients, size_t count, client_fn *fn, client_drop *drop,
		      void *arg, size_t len, pid_t *pid)
{
	struct clients_looking *l = count ? malloc(sizeof(*l) + len) : NULL;
	int rc;

	*pid = 0;
	if (!l) {
		clients_free(clients, count);
		return count ? -ENOMEM : 0;
	}
	*l = (struct clients_looking){
		.programs = clients[0]->programs,
		.clients = clients,
		.count = count,
		.fn = fn,
		.drop = drop,
	};
	atomic_fetch_add(&l->programs->looking, 1);
	if (len)
		memcpy(l->arg, arg, len);
	if (!bounded_look(look_at_clients, l, looking_forget, &rc, pid))
		return -EBUSY;
	if (rc != -EBUSY) /* else bounded_look has set it to the process that is stuck */
		*pid = l->pid;
	if (len)
		memcpy(arg, l->arg, len);
	looking_free(l);
	return rc;
}
