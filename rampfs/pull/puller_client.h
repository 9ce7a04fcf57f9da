/*
 * A client as the pager sees it: a userfaultfd whose page faults it reads.
 *
 * Counted: pull->clients has a reference, and so has each of its page faults that waits, which may
 * be for longer than its process lives.
 */
#ifndef RAMP_PULLER_CLIENT_H
#define RAMP_PULLER_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "programs/programs.h"
#include "pull_core.h"

struct puller_client {
	int kind;			  /* PULLER_EVENT_CLIENT: first, for epoll's data.ptr */
	TAILQ_ENTRY(puller_client) entry; /* protected by pull->lock */
	atomic_uint refs;
	struct client *space; /* the pager's; NULL once it has gone */
	int uffd;
	int epoll;   /* the pager's set */
	bool parked; /* its page faults are left unread: it blocks a thread of the pager's */
};

/* The page fault that waits for a page: its client, its address, and when it was read. */
struct fault_waiter {
	struct puller_client *client; /* NULL: no page fault, but perhaps parked FUSE requests.
					 Whether this is a counted reference depends on the struct
					 that contains it. */
	uint64_t addr, since_us;
};

/* Takes a reference for a copy of `waiter`. */
void fault_waiter_get(const struct fault_waiter *waiter);
/* Gives it back, and makes it no page fault's. */
void fault_waiter_put(struct fault_waiter *waiter);

/* Adds a client with its reference to `space`, and watches its userfaultfd in that epoll set. 0, or a
   negative errno and no reference is kept. Any thread but the pager's. */
int puller_client_add(struct pull *pull, int epoll, struct client *space, int uffd);
/* The client's process has gone: the pager forgets it soon. Any thread but the pager's. */
void puller_client_gone(struct pull *pull, struct client *space);

/* The rest is the pager's. */

/* Forgets those that have gone. `all`: also the others, of a pager that has ended. */
void puller_clients_forget(struct pull *pull, bool all);
/* Asks epoll to report messages that are left unread one more time. 0, or a negative errno. */
int puller_client_watch_again(struct puller_client *client);
/* Its page faults can't be read. Without this epoll would report it for ever. */
void puller_client_unwatch(struct puller_client *client);
/* Leaves its page faults unread, since it blocks a thread of the pager's. */
void puller_client_park(struct puller_client *client);
/* Reads them again: all that wait there are woken, and their page faults come again. */
void puller_client_unpark(struct puller_client *client);

#endif
