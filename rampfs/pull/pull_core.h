/*
 * The object that all files of this room share: its configuration, its lists and their lock, the
 * wake-ups of its threads, and its counters.
 *
 * Locks, in the order in which they are taken: pull->lock (the lists), then the lock of a waitlist
 * or of a claim slot. Each is held for a few stores or a short walk. Everything else belongs to one
 * thread, or is atomic.
 */
#ifndef RAMP_PULL_CORE_H
#define RAMP_PULL_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/ids.h"
#include "base/rate.h"
#include "pull.h"
#include "wishes.h"

#define PULL_SILENT_MS 5000u /* a read(2) of a silent source's page is EHOSTDOWN then */

/* The threads, as indices. PULLER_PREFETCH is the first that prefetches; the others are behind it. */
enum { PULLER_PAGER, PULLER_PREFETCH, PULLER_MAX = PULLER_PREFETCH + PULL_STREAMS_MAX };

/* The first member of each object that is in a thread's epoll set, for epoll's data.ptr. */
enum puller_event { PULLER_EVENT_WAKE, PULLER_EVENT_CLIENT, PULLER_EVENT_LINK };

/* Pages that have come from one node. A place is taken by setting `node`, and never given back. */
struct pull_tally {
	_Atomic ramp_node_t node; /* 0: free */
	_Atomic uint64_t demand_pages, prefetch_pages, bytes;
	_Atomic uint32_t streams; /* connections for prefetch that are READY */
	struct rate limit;	  /* of what it sends ahead, as it says itself */
};

struct pulled;
struct puller;
struct puller_client;
struct takeover_guard;

struct pull {
	struct pull_config config;
	atomic_bool stop;
	struct puller *pullers[PULLER_MAX]; /* NULL: not open */
	unsigned n_pullers;		    /* of them */
	struct takeover_guard *guard;	    /* NULL: not open */
	int wake[PULLER_MAX];		    /* an eventfd; -1: not open */
	int guard_wake;			    /* an eventfd; -1: not open */
	int zeros;			    /* /dev/zero; -1: not open */
	atomic_bool guarded;		    /* the guard looks by itself, and need not be woken */
	atomic_int demand_waiting;	    /* demand reads in flight: prefetch asks for less */
	atomic_uint streams; /* how many threads prefetch, the first ones (streams.h) */
	struct rate limit;   /* of what this node reads ahead */

	pthread_mutex_t lock; /* protects the following */
	pthread_cond_t released;
	TAILQ_HEAD(, pulled) entries;
	LIST_HEAD(, limit_group) groups; /* limits.c */
	/* gone: the pager has not forgotten them yet */
	TAILQ_HEAD(puller_client_list, puller_client) clients, gone;

	struct wishes wishes; /* pull_open makes it */

	_Atomic uint64_t faults, demand_pages, prefetch_pages, hole_pages, bytes, reconnects;
	_Atomic uint64_t faults_us; /* sum of all page faults that fault_us counts */
	struct pull_tally tallies[PULL_PEERS];
	_Atomic uint64_t fault_us[PULL_HISTOGRAM];
};

/* NULL: no memory. */
struct pull *pull_new(const struct pull_config *config);
/* No thread uses it any more. */
void pull_free(struct pull *pull);

/* clock_ms() and clock_us(), as functions that tests can replace. */
uint64_t pull_now_ms(void);
uint64_t pull_now_us(void);
/* Makes *wait_ms (-1: for ever) end at `at` at the latest. */
void pull_sooner(int *wait_ms, uint64_t at, uint64_t now);

/* Make the thread look at everything again. From any thread. */
void pull_wake(struct pull *pull, int which);
void pull_wake_pager(struct pull *pull);
void pull_wake_prefetch(struct pull *pull);
void pull_wake_all(struct pull *pull);

/* The place of a node. More nodes than places share the last one. Each thread takes places. */
struct pull_tally *pull_tally_of(struct pull *pull, ramp_node_t node);
/* Counts a page fault that is over. */
void pull_count_fault(struct pull *pull, uint64_t since_us);

#endif
