/*
 * One segment that is being pulled. The drawing of its marks is in pulled.c.
 *
 * Counted: pull->entries has a reference, and so has each read under way.
 */
#ifndef RAMP_PULLED_H
#define RAMP_PULLED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "claim_request.h"
#include "limits.h"
#include "memory/pages.h"
#include "memory/store.h"
#include "pull_core.h"
#include "waitlist.h"

#define FAULT_STREAMS 4u

/* Sequential page faults: where the next one is expected, and how many pages it gets. */
struct fault_stream {
	uint64_t next;
	uint32_t pages;
};

enum pulled_mark { PULLED_ENDED, PULLED_SOURCE_OVER, PULLED_GIVEN_UP, PULLED_FINISHED };

struct pulled {
	TAILQ_ENTRY(pulled) entry; /* protected by pull->lock */
	struct pull *pull;
	atomic_uint refs;
	struct seg *seg;
	struct pull_source source;
	struct limits limits;
	uint8_t *base; /* seg_map: where reads land */
	uint64_t mapped;
	uint64_t pages_all, pages_to_come; /* the latter: when it began */
	uint64_t began_us;

	atomic_bool prefetch_all; /* at full speed, though the source says on demand */
	atomic_bool marks[PULLED_FINISHED + 1];
	atomic_bool zeros;    /* of GIVEN_UP: pages that have not come are holes, not LOST */
	atomic_bool denied;   /* page faults found no room: SIGBUS, until that may be over */
	atomic_uint released; /* bits: that thread has no read of it any more, and posts none */
	/* Calls of pull_cut_end that have pages LOCAL and may not have mapped them yet: until they
	   have, the pull does not end. */
	atomic_uint cuts;
	/* Of the pager and the first that prefetches. 0: its source answers, or is not asked. */
	_Atomic uint64_t silent_since_ms[PULLER_PREFETCH + 1];
	_Atomic uint64_t heard_ms;   /* when the last page came */
	_Atomic uint64_t no_room_ms; /* until then the store is taken to be full */
	_Atomic uint64_t demand_pages, prefetch_pages, hole_pages;
	/* Of the first two: pages that were holes. */
	_Atomic uint64_t demand_holes, prefetch_holes;
	struct claim_slot claim;

	/* The pager's. */
	struct fault_stream streams[FAULT_STREAMS];
	uint32_t next_stream;
	uint64_t far_mapped; /* of a mapping of the file as it has grown since; 0: none */
	uint8_t *far_base;
	uint32_t far_maps;

	/* The page from which threads that prefetch look for more. */
	_Atomic uint64_t cursor;
	/* The first prefetch thread's. */
	uint64_t cleared; /* pages; UINT64_MAX: there are no more to clear */
	uint64_t whole;	  /* pages: none before is missing */
	uint64_t told;	  /* pages before, of which the source was told that they are here */
	/* When to look whether parts of it may be unregistered; and how many pages were missing then. */
	uint64_t trim_ms, trim_missing;

	/* Each thread's own, by PULLER_*. A source that does not know the key (yet) is asked
	   again later. */
	uint64_t retry_ms[PULLER_MAX], retry_after_ms[PULLER_MAX];
	uint32_t n_flights[PULLER_MAX];
	uint64_t asked_ms[PULLER_MAX]; /* when the first of these was posted */
	bool hung[PULLER_MAX];
	uint64_t lap[PULLER_MAX]; /* of links, that has come by */

	struct waitlist waitlist; /* last: untouched pages take no memory */
};

/* With one reference, in no list. NULL: no memory, and `err` says so. */
struct pulled *pulled_new(struct pull *pull, struct seg *seg, const struct pull_source *source,
			  struct ramp_err *err);
struct pulled *pulled_get(struct pulled *pulled);
void pulled_put(struct pulled *pulled);
/* Gives the file's mappings back: an entry that only waits for its lost pages to be written over
   keeps none. Called by the pager once the entry is FINISHED, and for the last reference. */
void pulled_unmap(struct pulled *pulled);

/* ---- the list ---- */

/* Puts it into the list, which takes the caller's reference. -EALREADY: the segment is being pulled
   in that attempt; -EBUSY: in another one. pull->lock is held. */
int pulled_insert(struct pull *pull, struct pulled *pulled, struct ramp_err *err);
/* Takes it out of the list, with the list's reference. */
void pulled_remove(struct pulled *pulled);
/* Without a reference; NULL: none. pull->lock is held. */
struct pulled *pulled_find_locked(struct pull *pull, ramp_segment_t id);
/* With a reference, or NULL. */
struct pulled *pulled_find(struct pull *pull, ramp_segment_t id);
/* Finds the entry of this very segment: one that left with lost pages and has come back is another
   one, while the entry of the one before may still be there. With a reference, or NULL. */
struct pulled *pulled_of(struct pull *pull, const struct seg *seg);
/* The entry after `last` (NULL: the first) with a reference; puts `last`. */
struct pulled *pulled_next(struct pull *pull, struct pulled *last);
/* The entry after that of this segment, or the first one: as pulled_next. */
struct pulled *pulled_behind(struct pull *pull, ramp_segment_t id);

/* ---- state ---- */

/* Sets a mark. False: it was set before. */
bool pulled_set(struct pulled *pulled, enum pulled_mark mark);
bool pulled_is(struct pulled *pulled, enum pulled_mark mark);
/* False: ENDED, SOURCE_OVER or GIVEN_UP, its pages come from nowhere any more. */
bool pulled_is_alive(struct pulled *pulled);
/* True: every page is LOCAL or LOST. */
bool pulled_is_decided(struct pulled *pulled);
/* True: pages of it may still come. False once it is FINISHED: a page that a writer has claimed then
   was lost, and where the writer gives it back it is REMOTE until it is made LOST again. */
bool pulled_may_come(struct pulled *pulled);
/* True: its pages are pulled without being asked for. */
bool pulled_prefetches(struct pulled *pulled);
/* True: no thread has a read of it, or posts one. */
bool pulled_is_released(struct pulled *pulled);
/* Since when its source has been silent; 0: it answers, or is not asked. */
uint64_t pulled_silent_since(struct pulled *pulled);
/* The writer's request for pages, if there is one now. */
struct claim_request pulled_claim_request(struct pulled *pulled);

/* ---- changes ---- */

/* The store had no room for a page that has come. False: there is some now, of the reserve of its
   move. True: there is none, which no_room_ms says. */
bool pulled_no_room(struct pulled *pulled);
/* Pages that were claimed are REMOTE again: wakes a prefetch that found nothing to ask for. */
void pulled_given_back(struct pulled *pulled);
/* Pages have arrived or been lost: perhaps that was the last one. */
void pulled_check_end(struct pulled *pulled);
/* This thread has no read of it any more. Of an entry that is not alive. */
void pulled_release(struct pulled *pulled, int which);
/* No thread has a read of it: of an entry that is not in the list yet. */
void pulled_set_released(struct pulled *pulled);
/* Pulls all of it at full speed, if it is being pulled. */
void pulled_prefetch_all(struct pull *pull, ramp_segment_t id);
/* That incarnation of that node is over: marks all that are pulled from it. */
void pulled_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation);

#endif
