/*
 * A connection to one source, and its reads under way (flights). Each thread has links of
 * its own, and everything here is called by that thread.
 */
#ifndef RAMP_LINK_H
#define RAMP_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bounce.h"
#include "pull_core.h"
#include "pulled.h"
#include "puller_client.h"
#include "transport/transport.h"

#define LINK_RETRY_MIN_MS 50u
#define LINK_RETRY_MAX_MS 2000u
#define LINK_LOOK_MS	  250 /* without an event, data that has come is taken all the same */

/* A read under way: pages [first, first + count) of it were claimed for it. */
struct link_flight {
	struct pulled *pulled; /* a reference; NULL: free */
	uint64_t first, count;
	uint64_t next;		    /* pages before it have arrived, or are in `bounce` */
	uint8_t *bounce;	    /* where they land first; NULL: in place */
	bool some;		    /* not all of the pages in `bounce` were a hole */
	struct fault_waiter waiter; /* for the first of them; with a reference */
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY };

/* To one incarnation of one node. The drawing is in link.c. */
struct link {
	int kind; /* PULLER_EVENT_LINK: first, for epoll's data.ptr */
	LIST_ENTRY(link) entry;
	struct links *links;
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	/* Of the segment that it was made for: its key; all of its pages will be read. */
	struct tp_key key;
	bool all;
	enum link_state state;
	struct tp_conn *conn;
	int fd; /* in epoll; -1: not */
	uint32_t events;
	uint64_t try_ms, after_ms, ready_ms, progress_ms, reaped_ms, down_ms;
	uint32_t n_flights;
	bool used;     /* links_step's: an entry needs it */
	unsigned rank; /* prefetch.c: segments of a later one ask for nothing now */
	struct link_flight flights[TP_QUEUE_MAX];
};

/* All links of one thread. */
struct links {
	struct pull *pull;
	int which; /* PULLER_* */
	enum tp_class class;
	int epoll;
	LIST_HEAD(, link) list;
	struct bounce bounce;
	ramp_segment_t turn; /* prefetch.c: the segment that asked last */
	uint64_t lap;	     /* a walk over all entries */
	/* Pages of a flight have become LOCAL. */
	void (*arrived)(struct links *links, struct link_flight *flight, uint64_t first,
			uint64_t count, bool hole);
};

/* DOWN, in the list. NULL: no memory. */
struct link *link_new(struct links *links, const struct pull_source *source);
/* Takes it down and out of the list. */
void link_free(struct link *link);
/* Returns how many of these pages one read may ask for: fewer where the transport changes behind them.
   Called before they are claimed; true until the connection is used again. */
uint64_t link_span(const struct link *link, const struct pulled *pulled, uint64_t first,
		   uint64_t count);
/* True: a read of that page lands without a processor. As link_span. */
bool link_lands(const struct link *link, const struct pulled *pulled, uint64_t page);
/* Tells the source that all pages before `end` are here. */
void link_arrived(struct link *link, const struct pulled *pulled, uint64_t end);
/* Posts a read of pages that are claimed, within one span. `waiter`: waits for the first of them;
   NULL: no page fault does. `bounce`: of bounce_take, the flight's from here on. -EAGAIN: too many
   are under way. */
int link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
	      const struct fault_waiter *waiter, uint8_t *bounce);
/* Takes data that has come, at most max_bytes. */
void link_reap(struct link *link, size_t max_bytes);
/* Connects when it is time, and takes it down where it has failed or been silent for too long. */
void link_step(struct link *link, uint64_t now);
/* Closes the connection and gives every read of it up. It connects again after `after_ms`. */
void link_down(struct link *link, uint64_t after_ms);

#endif
