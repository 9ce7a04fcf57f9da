/*
 * A puller: the work of one of the threads (pager, prefetch), and the thread itself.
 *
 * A program can block the thread that maps pages for it. So the puller is an object apart from its
 * thread, and another thread can take it over (takeover.h).
 */
#ifndef RAMP_PULLER_H
#define RAMP_PULLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "links.h"
#include "map_queue.h"
#include "pull_core.h"

#define PULLER_EVENTS 32

/* The drawing is in puller.c. */
enum puller_thread_state { THREAD_RUNS, THREAD_MAPS, THREAD_REPLACED, THREAD_BACK };

struct puller_thread {
	struct puller *puller;
	struct puller_thread *before; /* takes its puller over; NULL: the first thread */
	uint64_t seen_us;	      /* since when `before` was blocked, as the guard saw it */
	pthread_t pthread;
	TAILQ_ENTRY(puller_thread) entry; /* puller->replaced */
	_Atomic int state;
	_Atomic uint64_t since_us;  /* when it last began to map */
	struct map_request mapping; /* MAPS, REPLACED, BACK: with its references */
	struct client *space;	    /* the same: a reference, or NULL */
	bool decided;		    /* it takes over or does not; protected by pull->lock */
};

struct puller {
	struct links links;
	struct puller_thread *thread; /* has the following; NULL: none (yet) */
	bool over;		      /* that thread has ended; protected by pull->lock */
	/* The loop. False: another thread has the puller now. True: pull->stop is set. */
	bool (*run)(struct puller_thread *thread);
	/* REPLACED or BACK; written by the thread that has the puller, under pull->lock */
	TAILQ_HEAD(, puller_thread) replaced;
	struct map_queue map_queue;
	struct epoll_event events[PULLER_EVENTS]; /* those from next_event on are to be looked at */
	int n_events, next_event;
	int wake_kind; /* PULLER_EVENT_WAKE */
};

/* Begins the first thread. */
int puller_open(struct puller *puller, struct pull *pull, int which,
		bool (*run)(struct puller_thread *thread), struct ramp_err *err);
/* pull->stop is set: returns when the thread that has the puller has ended. The guard still runs, or
   a program could block that thread. */
void puller_join(struct puller *puller);
/* After takeover_join: waits for threads that programs block, for a second at most. False: some still
   are blocked, and the puller and its pull stay in memory. */
bool puller_end(struct puller *puller);
/* All pullers have ended before one is closed: each wakes others. */
void puller_close(struct puller *puller);

/* The rest is for the thread that has the puller. */

/* Maps the pages in the map queue. Called where nothing of the puller is in a local variable. False: a
   program has blocked this thread, the puller is another thread's, and the caller ends without
   touching it. */
bool puller_map_all(struct puller_thread *thread);
/* Fetches events, for at most wait_ms (-1: for ever). Returns how many. */
static inline int puller_wait(struct puller *puller, int wait_ms)
{
	puller->next_event = 0;
	puller->n_events = epoll_wait(puller->links.epoll, puller->events, PULLER_EVENTS, wait_ms);
	return puller->n_events;
}

/* Returns the next of the events that this thread, or the one before it, has fetched. NULL: none. */
static inline void *puller_next_event(struct puller *puller)
{
	if (puller->next_event >= puller->n_events)
		return NULL;
	return puller->events[puller->next_event++].data.ptr;
}

/* Takes a wake-up (PULLER_EVENT_WAKE). */
void puller_take_wake(struct puller *puller);
/* Ends threads that were blocked and are back, and reads the page faults of their programs again. */
void puller_reap(struct puller *puller);

/* For takeover.c. */

/* NULL: no memory. */
struct puller_thread *puller_thread_new(struct puller *puller, struct puller_thread *before,
					uint64_t seen_us);
/* 0, or an errno. */
int puller_thread_start(struct puller_thread *thread);

#endif
