/*
 * What the files of this folder share. Others use pull.h.
 *
 *   pull.c      segments being pulled: begin, end, want, cut
 *   turn.c      mapping what has come, by a thread that can be replaced
 *   puller.c    what the pager and the prefetch thread have in common: links to sources
 *   pager.c     page faults and wanted pages -> demand reads
 *   prefetch.c  the rest in the background; the end of a pull
 *   stage.c     whole huge pages on their way into the store
 *   serve.c     the source's side
 *
 * Locks, in the order in which they are taken: pull->lock (the lists), pulled->lock (its wants, and
 * the wish).
 * Both are held for a few stores or a short walk. Everything else belongs to one thread, or is
 * atomic.
 */
#ifndef RAMP_PULL_IMPL_H
#define RAMP_PULL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "base/adaptive_poll.h"
#include "memory/pages.h"
#include "memory/store.h"
#include "pull.h"
#include "transport/transport.h"

#define WANTS_MAX 1024u
/* So many are taken from who can ask again; the rest is for what comes back from reads under way,
   two wants each at most. */
#define WANTS_NEW    (WANTS_MAX - 2 * TP_QUEUE_MAX)
#define STREAMS	     4u
#define AROUND_PAGES 16u /* fault-around grows up to 64 KiB */
#define RETRY_MIN_MS 50u
#define RETRY_MAX_MS 2000u
#define SILENT_MS    5000u	 /* a read(2) of a silent source's page is EHOSTDOWN then */
#define NO_ROOM_MS   1000u	 /* how long a store that was full is believed to be full */
#define PIECE_BYTES  (64u << 10) /* received at once while demand waits */
#define REAP_BYTES   (1u << 20)
#define WISH_MS	     300u /* who is parked asks again every PARK_TICK_MS at the latest */
#define WISH_MAX_MS  2000u
#define STAGES	     4u
#define EACH_EVENTS  32
#define MAPPINGS_MAX 128u

/* Who waits in a page fault: whose page fault it was, where, and when it came. */
struct waiter {
	struct watch *watch; /* NULL: nobody, but parked requests perhaps. What it stands in says
				whether with a reference */
	uint64_t addr, since_us;
};

/* Pages that somebody waits for and that no read was posted for yet, or that another read brings.
 */
struct want {
	uint64_t first, count;
	struct waiter waiter; /* for the first of them */
};

/* Pages that a writer was to have all at once, and of which another had some: until then nobody asks
   for one of them but who waits for it, and those that are under way become fewer. */
struct wish {
	uint64_t from, to;
	uint64_t since_ms, until_ms; /* 0: none */
};

/* Sequential faults: where the next one is expected, and how much it gets. */
struct stream {
	uint64_t next;
	uint32_t pages;
};

enum { PULLER_PAGER = 1, PULLER_PREFETCH = 2, PULLER_BOTH = 3 };

/* One segment that is being pulled. Counted: pull->entries has a reference, and each read. */
struct pulled {
	TAILQ_ENTRY(pulled) link; /* protected by pull->lock */
	struct pull *pull;
	atomic_uint refs;
	struct seg *seg;
	struct pull_source source;
	uint8_t *base; /* seg_map: where reads land */
	uint64_t mapped;
	uint64_t pages_all;
	uint64_t began_us;

	atomic_bool hurry;
	atomic_bool ended;    /* pull_end */
	atomic_bool over;     /* the source is proved gone */
	atomic_uint released; /* PULLER_*: that one has no read of it any more, and posts none */
	atomic_bool told;     /* `finished` was called */
	atomic_bool denied;   /* page faults found no room: SIGBUS, until that may be over */
	atomic_uint cuts;     /* pages that are LOCAL by a cut and may not be mapped yet: no end */
	/* By PULLER_* - 1. 0: its source answers, or nobody asks it. */
	_Atomic uint64_t silent_since_ms[2];
	_Atomic uint64_t heard_ms;   /* when the last page came */
	_Atomic uint64_t no_room_ms; /* until then the store is full */
	_Atomic uint64_t demand_pages, prefetch_pages, hole_pages;

	pthread_mutex_t lock; /* protects n_wants, wants and wish */
	uint32_t n_wants;
	struct wish wish;

	/* The pager's. */
	struct stream streams[STREAMS];
	uint32_t next_stream;
	uint64_t far_mapped; /* of a mapping of the file as it has grown since; 0: none */
	uint8_t *far_base;
	uint32_t far_maps;

	/* The prefetch thread's. */
	uint64_t cursor;  /* pages */
	uint64_t cleared; /* pages; UINT64_MAX: there are no more to clear */

	/* By PULLER_* - 1. A source that does not know the key (yet) is asked again later. */
	uint64_t retry_ms[2], retry_after_ms[2];
	uint32_t n_flights[2];
	uint64_t asked_ms[2]; /* when the first of these was posted */
	bool hung[2];

	/* Each with a reference to its waiter's watch. The last: of what is not touched there is no
	   memory. */
	struct want wants[WANTS_MAX];
};
TAILQ_HEAD(pulled_list, pulled);

/* A read under way: pages [first, first + count) of it were claimed for it. */
struct flight {
	struct pulled *pulled; /* a reference; NULL: free */
	uint64_t first, count;
	uint64_t next;	      /* pages before it have arrived, or stand in `stage` */
	uint8_t *stage;	      /* where they land first; NULL: in place */
	bool some;	      /* not all of those in `stage` were a hole */
	struct waiter waiter; /* for the first of them; with a reference */
};

/*
 * A connection to one incarnation of one node, of one of the two threads.
 *
 *   DOWN --time to try--> CONNECTING --proved--> READY --any failure, or no answer for 5 s--> DOWN
 *                              +------------------failure------------------------------------>
 *
 * DOWN has no connection and no flights.
 */
enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY };

struct link {
	int kind; /* WATCH_LINK: first, for epoll's data.ptr */
	LIST_ENTRY(link) entry;
	struct puller *puller;
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	enum link_state state;
	struct tp_conn *conn;
	int fd; /* in epoll; -1: not */
	uint32_t events;
	uint64_t try_ms, after_ms, ready_ms, progress_ms, reaped_ms, down_ms;
	uint32_t n_flights;
	bool used;
	struct flight flights[TP_QUEUE_MAX];
};

enum { WATCH_WAKE, WATCH_SPACE, WATCH_LINK };

/* Pages that have come, to be mapped where somebody waits for them, or wherever they are
   attached. */
struct mapping {
	struct waiter waiter; /* with a reference; nobody: wherever they are attached */
	ramp_segment_t id;
	uint64_t first, count;
	bool fault;	     /* it ends a page fault */
	struct trace *trace; /* a reference */
};

enum { TURN_RUNS, TURN_MAPS, TURN_LEFT, TURN_BACK };

/* One thread, for as long as it has the puller. The drawing is in turn.c. */
struct turn {
	struct puller *puller;
	struct turn *before; /* whose puller it takes over; NULL: the first */
	uint64_t seen_us;    /* and since when that one was kept, as the guard saw it */
	pthread_t thread;
	TAILQ_ENTRY(turn) link; /* puller->left */
	_Atomic int state;
	_Atomic uint64_t since_us; /* when it began to map, the last time */
	struct mapping mapping;	   /* MAPS, LEFT, BACK: with its references */
	struct space *space;	   /* the same: a reference, or NULL */
	bool decided;		   /* whether it takes over; protected by pull->lock */
};

struct puller {
	struct pull *pull;
	int which; /* PULLER_PAGER or PULLER_PREFETCH */
	enum tp_class class;
	struct turn *turn; /* who has what follows; NULL: nobody (yet) */
	bool over;	   /* who has it has ended; protected by pull->lock */
	/* Its loop. False: another thread has the puller now. True: it ends. */
	bool (*run)(struct turn *turn);
	TAILQ_HEAD(, turn) left; /* LEFT or BACK; written by who has the puller, under pull->lock */
	struct mapping mappings[MAPPINGS_MAX];
	uint32_t first_mapping, n_mappings;
	struct epoll_event events[EACH_EVENTS]; /* those from next_event on are to be looked at */
	int n_events, next_event;
	int epoll, wake;
	int wake_kind; /* WATCH_WAKE */
	LIST_HEAD(, link) links;
	uint8_t *stages; /* STAGES buffers; NULL: none yet */
	uint32_t stages_used;
	void (*arrived)(struct puller *puller, struct flight *flight, uint64_t first,
			uint64_t count, bool hole);
};

/* A userfaultfd that the pager watches. Counted: pull->watches has a reference, and so have its
   page faults that wait, which may be for longer than its process lives. */
struct watch {
	int kind;		 /* WATCH_SPACE */
	TAILQ_ENTRY(watch) link; /* protected by pull->lock */
	atomic_uint refs;
	struct space *space; /* the pager's; NULL once it has gone */
	int uffd;
	bool parked; /* its page faults are left unread: it keeps a thread of the pager's */
};
TAILQ_HEAD(watch_list, watch);

/* What has come from one node. A place is taken by setting `node`, and never given back. */
struct pull_tally {
	_Atomic ramp_node_t node; /* 0: free */
	_Atomic uint64_t demand_pages, prefetch_pages, bytes;
};

struct pull {
	struct pull_config config;
	atomic_bool stop;
	struct puller pager, prefetch;
	atomic_int demand_waiting; /* demand reads in flight: prefetch asks for less */
	uint64_t clear_us;	   /* the prefetch thread's: not before that */
	/* The pager's. */
	struct adaptive_poll poll;
	bool moves;		/* the prefetch thread's: the group has more weight */
	const void *last_fault; /* whose page fault was the last: compared alone, it may be gone */

	pthread_t guard;
	bool guard_started, guard_failed; /* failed: it has said so; the guard's */
	atomic_bool guard_ends;
	atomic_bool guarded; /* it looks by itself, and need not be woken */
	int guard_wake, guard_end;

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t released;
	struct pulled_list entries;
	struct watch_list watches, gone; /* gone: not forgotten by the pager yet */

	_Atomic uint64_t faults, demand_pages, prefetch_pages, hole_pages, bytes, reconnects;
	_Atomic uint64_t faults_us; /* all that fault_us counts, together */
	struct pull_tally tallies[PULL_PEERS];
	_Atomic uint64_t fault_us[PULL_HISTOGRAM];
};

static inline bool tp_key_equal(const struct tp_key *a, const struct tp_key *b)
{
	return a->segment == b->segment && a->k_epoch == b->k_epoch &&
	       ramp_attempt_equal(a->k, b->k);
}

uint64_t pull_now_ms(void);
uint64_t pull_now_us(void);
/* To come again at that time, or at wait_ms (-1: not at all) where that is sooner. */
void pull_sooner(int *wait_ms, uint64_t at, uint64_t now);

/* ---- pull.c ---- */

/* With a reference, or NULL. */
struct pulled *pulled_find(struct pull *pull, ramp_segment_t id);
/* The same of this very segment: one that left with lost pages and has come back is another, and
   the entry of the one before may still be there. */
struct pulled *pulled_of(struct pull *pull, const struct seg *seg);
struct pulled *pulled_get(struct pulled *pulled);
void pulled_put(struct pulled *pulled);
/* The pager's, once nothing is pulled any more (told), and of the last reference: an entry that
   only waits for its lost pages to be written over keeps no mapping. */
void pulled_unmap(struct pulled *pulled);
/* The entry after `last` (NULL: the first) with a reference; puts `last`. */
struct pulled *pulled_next(struct pull *pull, struct pulled *last);
/* False: its pages come from nowhere any more. */
bool pulled_alive(struct pulled *pulled);
/* Pages of it may still come. Not after `finished`: what a writer has claimed then was lost, and
   where he gives it back it is REMOTE for a moment, until it is LOST again. */
bool pulled_undecided(struct pulled *pulled);
/* Its pages are pulled without being asked for. */
bool pulled_prefetches(struct pulled *pulled);
/* Remembers pages for the pager; false: there is no room for more, whoever wants them asks again.
 */
bool pulled_want(struct pulled *pulled, const struct want *want);
/* The same for what a read brought back, which nobody would ask for again. The pager. */
void pulled_want_back(struct pulled *pulled, const struct want *want);
/* Takes a reference for a copy of it; gives it back. NULL is nobody. */
void waiter_hold(const struct waiter *waiter);
void waiter_put(struct waiter *waiter);
/* So many are remembered that reads for others must wait: what they bring back needs its place. */
bool pulled_crowded(struct pulled *pulled);
/* Some are remembered. */
bool pulled_wanted(struct pulled *pulled);
/* The writer's wish, if there is one at that time. */
struct wish pulled_wish(struct pulled *pulled, uint64_t now_ms);
/* How many of the pages [first, first + count) come before the first that is wished for. */
uint64_t wish_leaves(const struct wish *wish, uint64_t first, uint64_t count);
/* The store had no room for what comes. False: there is some now, of what its move has reserved. */
bool pulled_no_room(struct pulled *pulled);
/* Pages that were claimed are REMOTE again: a prefetch that found nothing to ask for sleeps. */
void pulled_again(struct pulled *pulled);
/* Pages have arrived or been lost: perhaps that was the last one. */
void pulled_look(struct pulled *pulled);
/* Takes it out of the list, with the list's reference. */
void pulled_take_out(struct pulled *pulled);
/* For ended and over entries: this thread has no read of it any more. */
void pulled_release(struct pulled *pulled, int which);

/* ---- puller.c ---- */

/* Its `pull` is set. */
int puller_open(struct puller *puller, int which, bool (*run)(struct turn *turn),
		struct ramp_err *err);
/* Both have ended (turn_join, turns_end) before either is closed: each wakes the other. */
void puller_close(struct puller *puller);
void puller_wake(struct puller *puller);
/* Connects, times out, closes what nobody needs; returns when to come again (ms from now), or -1.
 */
int puller_step(struct puller *puller, bool (*needs)(struct pulled *pulled));
/* The same time, or sooner where an answer is awaited: for a thread that has posted since. */
int puller_wait(const struct puller *puller, int wait_ms);
/* The link to its source if it is READY and its entry may ask now; NULL: not yet. */
struct link *puller_link(struct puller *puller, struct pulled *pulled);
/* Pages that are claimed: asks for them. `waiter`: who waits for the first of them; NULL: nobody.
   `stage`: of stage_take, the flight's from here on. -EAGAIN: too many are under way. */
int link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
	      const struct waiter *waiter, uint8_t *stage);
/* Takes what has come, at most max_bytes. */
void link_reap(struct link *link, size_t max_bytes);
/* Gives up every read of the entry. */
void puller_drop(struct puller *puller, struct pulled *pulled);

/* ---- turn.c ---- */

/* Who has the puller: remembers it, and takes references to its waiter's watch and its trace.
   False: there is no room for more. */
bool puller_map(struct puller *puller, const struct mapping *mapping);
bool puller_map_full(const struct puller *puller);
/* Maps what was remembered. Called where nothing of the puller stands in a local variable. False: a
   program has kept this thread, the puller is another's, and the caller ends without touching it.
 */
bool puller_map_all(struct puller *puller, struct turn *turn);
/* Who was kept and is back ends, and his space is watched again. Who has the puller. */
void turns_back(struct puller *puller);
/* Begins the first thread. 0, or an errno. */
int turn_begin(struct puller *puller);
/* pull->stop is set: returns when who has the puller has ended. The guard still runs, or a program
   could keep him. */
void turn_join(struct puller *puller);
/* After turn_guard_join: waits for those who are kept, for a second at most. False: some still are,
   and `puller->pull` stays. */
bool turns_end(struct puller *puller);

/* After both pullers. */
int turn_guard_open(struct pull *pull, struct ramp_err *err);
void turn_guard_join(struct pull *pull);
void turn_guard_close(struct pull *pull);

/* ---- stage.c ---- */

#define HUGE_PAGES (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)

/* Not even a byte of it is there: then reserved and not cleared yet, or a hole. */
bool stage_untouched(struct pulled *pulled, uint64_t page);

/* A buffer for these pages, which are claimed; NULL: they land in place. */
uint8_t *stage_take(struct puller *puller, struct pulled *pulled, uint64_t first, uint64_t count);
void stage_put(struct puller *puller, const uint8_t *stage); /* NULL: nothing */
/* Gives the buffers' memory back where none is in use. */
void stage_forget(struct puller *puller);
/* Stores [first, next) of a flight. -EBUSY: it may not be stored so any more (seg_handed), and lands
   in place when it is asked for again. */
int stage_store(const struct flight *flight);

/* ---- pager.c, prefetch.c ---- */

int pager_open(struct pull *pull, struct ramp_err *err);
/* No page fault comes any more, and its thread has ended. */
void pager_join(struct pull *pull);
void pager_close(struct pull *pull);
/* For turn.c. Its page faults are left unread; are read again. */
void pager_park(struct pull *pull, struct watch *watch);
void pager_unpark(struct pull *pull, struct watch *watch);
/* Pages were mapped where somebody waited for them. */
void pager_mapped(struct pull *pull, const struct mapping *mapping);
int prefetch_open(struct pull *pull, struct ramp_err *err);
void prefetch_close(struct pull *pull);

void pull_wake_both(struct pull *pull);
struct pull_tally *pull_tally_of(struct pull *pull, ramp_node_t node);
void pull_count_fault(struct pull *pull, uint64_t since_us);
int puller_client_watch(struct pull *pull, int op, struct watch *watch);
int puller_client_added(void *arg, struct space *space, int uffd);
void puller_client_gone(void *arg, struct space *space);
void puller_clients_forget(struct pull *pull, bool all);
void wish_for(struct pulled *pulled, uint64_t from, uint64_t to);
void wish_fulfilled(struct pulled *pulled, uint64_t from, uint64_t to);
struct pulled *pulled_at(struct pull *pull, ramp_segment_t id);
uint64_t pulled_silent_since(struct pulled *pulled);
struct pulled *pulled_new(struct pull *pull, struct seg *seg, const struct pull_source *source,
			  struct ramp_err *err);
int pulled_insert(struct pull *pull, struct pulled *pulled, struct ramp_err *err);
struct mapping map_queue_next(struct puller *puller);
void map_queue_over(struct mapping *mapping);
void link_down(struct link *link, uint64_t after_ms);
void link_step(struct link *link, uint64_t now);
int turn_start(struct turn *turn);
struct turn *turn_new(struct puller *puller, struct turn *before, uint64_t seen_us);

#endif
