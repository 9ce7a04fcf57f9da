/*
 * The waitlist of a segment: pages that a page fault or a parked request waits for, and that no read
 * was posted for yet, or that another read brings.
 *
 * Any thread adds; the pager alone removes. Bounded: where there is no room, the page fault or the
 * request tries again.
 */
#ifndef RAMP_WAITLIST_H
#define RAMP_WAITLIST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "puller_client.h"
#include "transport/transport.h"

#define WAITLIST_MAX 1024u
/* Only these are for new entries, which can be tried again. The rest is for pages that reads under
   way give back, at most two entries each. */
#define WAITLIST_NEW (WAITLIST_MAX - 2 * TP_QUEUE_MAX)

/* Pages [first, first + count). */
struct waitlist_entry {
	uint64_t first, count;
	struct fault_waiter waiter; /* for the first of them; in the list with a reference */
};

struct waitlist {
	pthread_mutex_t lock; /* protects the following */
	uint32_t n;
	struct waitlist_entry entries[WAITLIST_MAX]; /* those beyond n may never be touched */
};

void waitlist_init(struct waitlist *list);
/* Gives back all references. */
void waitlist_destroy(struct waitlist *list);
/* Adds pages, unless an entry serves them already. False: no room, try again later. */
bool waitlist_add(struct waitlist *list, const struct waitlist_entry *entry);
/* Adds pages that a read brought back, which nothing else would ask for again. The pager. */
void waitlist_return(struct waitlist *list, const struct waitlist_entry *entry);
/* True: reads for new entries must wait, since pages that they give back need a place. */
bool waitlist_is_crowded(struct waitlist *list);
bool waitlist_is_empty(struct waitlist *list);

#endif
