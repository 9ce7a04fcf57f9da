/*
 * A source and a target in one process: two stores, two nodes on loopback with a man in the middle
 * of their data connections. programs_* is played by a userfaultfd of this process: the test's threads
 * touch its mapping of the target's file.
 */
#ifndef PULL_WORLD_H
#define PULL_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "memory_fixture.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "serve/serve.h"
#include "transport_node.h"

#define PAGE	     UINT64_C(4096)
#define MIB	     (UINT64_C(1) << 20)
#define POISONED_MAX 64
#define OTHERS_MAX   4
#define PREFETCH_MAX 64 /* connections for prefetch, of all that there were */
/* Of a second segment. */
#define OTHER_ID (MEMORY_ID + 1)

/* ThreadSanitizer leaves a program 1.5 TiB of addresses. */
#ifdef __SANITIZE_THREAD__
#define TIB (UINT64_C(1) << 36)
#else
#define TIB (UINT64_C(1) << 40)
#endif

/* The one space and its attachments, which is one in most tests. */
struct programs {
	struct programs_pager pager;
	struct seg *seg;
	int uffd;
	uint8_t *map;
	uint8_t *others[OTHERS_MAX]; /* n_others more mappings of the file */
	unsigned n_others;
	uint64_t len;
	_Atomic unsigned resolves; /* page faults that were resolved, each where it was */
	_Atomic bool registered;
	_Atomic unsigned forgotten; /* by the pager: client_put */
	_Atomic unsigned holds;	    /* more references than the pager's */
	_Atomic unsigned pulled, poisoned;
	atomic_uint trims;	     /* calls of programs_trim */
	_Atomic ramp_segment_t busy; /* programs_pulled says "not yet" of that one */
	_Atomic bool unread;	     /* client_read waits before it reads */
	_Atomic bool keeps;	     /* blocks a thread that maps a page where one waits */
	_Atomic bool keeps_prefetch; /* blocks the first that maps pages everywhere */
	_Atomic unsigned kept;	     /* how often it has blocked one */
	_Atomic unsigned told;	     /* by the pager: client_blocked */
};

/* A transport that wraps the target's: no read may cross a multiple of `every` bytes. */
struct borders {
	struct tp tp;
	struct tp *inner;
	_Atomic uint64_t every;		/* 0: no border */
	_Atomic unsigned asked, broken; /* reads that were posted, and those that crossed one */
	_Atomic unsigned at_border;	/* those that end where one is */
	_Atomic unsigned foretold;	/* connections that were told early that reads come */
	/* Until that number of connections for prefetch have asked for something, each asks once at most, or
	   takes pace_us for each read where that is not 0; 0: none waits. */
	_Atomic unsigned together, pace_us;
	_Atomic unsigned gathered; /* connections for prefetch that have asked */
	_Atomic bool mute;	   /* reads of the second thread that prefetches go nowhere */
	/* A connection for prefetch becomes ready while its state is asked for, for the third time. */
	_Atomic bool ready_at_third;
	_Atomic unsigned thirds;
	pthread_mutex_t lock; /* protects the following */
	struct {
		struct tp_conn *conn;
		bool asked;
	} prefetch[PREFETCH_MAX];
	unsigned n_prefetch;
};

struct world {
	struct node s, t;
	struct middle *middle;
	/* Cuts each data connection after this many bytes to the target; 0: never. */
	_Atomic uint64_t cut_after;
	_Atomic unsigned cuts;
	/* The first `to_die` connections that have let that number of bytes pass to the target let none
	   pass from then on: one path of several has failed. 0: none. */
	_Atomic uint64_t die_after;
	_Atomic unsigned to_die, dead;
	_Atomic bool is_dead[PREFETCH_MAX]; /* by the connection's number */
	_Atomic bool held;		    /* nothing passes the middle, and nothing is refused */
	/* Behind this many bytes of a data connection to the target the network is slow (256 KB/s);
	   0: never. */
	_Atomic uint64_t slow_after;
	_Atomic unsigned slowed;
	_Atomic uint64_t slowed_ms; /* when it last let some bytes pass */
	struct store *s_store, *t_store;
	struct pull *s_pull, *t_pull;
	struct serve *s_serve;
	struct seg *s_seg, *t_seg;
	struct programs s_programs, t_programs;
	struct ramp_attempt k;
	struct tp_key key;
	struct borders borders;
	uint64_t size, slack;
	_Atomic unsigned finished;
	struct pull_figures figures;	 /* of the last end; before `finished` */
	_Atomic unsigned finished_other; /* the same of any other segment */
	_Atomic bool busy;		 /* the callback does not return */
	_Atomic uint64_t lost;
};

/* struct pull_config's `streams` of both ends, for worlds that are opened from then on. */
extern unsigned world_streams;
/* Its `limit_bytes_s`, the same. */
extern uint64_t world_limit_bytes_s;
/* Both ends, with a segment of `size` bytes at the source, all holes. */
void world_open(struct world *w, uint64_t size);
void world_close(struct world *w);
/* Page `page` at the source gets its bytes. */
void world_write(struct world *w, uint64_t page);
void world_write_all(struct world *w);
/* Returns a byte of a page; never 0. */
uint8_t world_byte(uint64_t page, uint64_t at);
/* The target has reserved and TAKEN it, with the list of populated ranges, or with all REMOTE. */
void world_take(struct world *w, bool listed);
void world_begin(struct world *w, bool prefetch);
/* All of that, of a segment that is full of data; attached or not. */
void world_open_with(struct world *w, uint64_t size, bool attach, bool prefetch);
/* The target's pull of OTHER_ID, `other`, whose pages have been prepared; and the key that the source
   must grant. */
struct tp_key world_other_key(void);
void world_begin_other(struct world *w, struct seg *other);
/* Three pages of a tebibyte, pulled with the list of them or without, cost their huge pages' room;
   `kept`: the source's lock is kept meanwhile. */
void world_pull_sparse_tebibyte(struct world *w, bool listed, bool kept);
/* Maps the target's file here, as a program would. Before world_begin. */
void world_attach(struct world *w);
/* Once more, elsewhere; returns where. */
uint8_t *world_attach_other(struct world *w);
/* Another program that has it attached, after world_begin; until the pull has been closed. */
void world_attach_second(struct world *w, struct programs *second);
void world_detach_second(struct programs *second);
/* Its session has ended, and comes again: the pager gets the same userfaultfd as another client. */
void world_attach_again(struct world *w);
/* Begins a thread that loads from the attached page. world_touched returns the byte that it got. */
pthread_t world_touch(struct world *w, uint64_t page);
pthread_t world_touch_at(uint8_t *at);
uint8_t world_touched(pthread_t thread);
/* A load in this thread: -1 is SIGBUS. */
int world_load(const uint8_t *at);
/* Returns when the pager has read `count` page faults. */
void world_wait_for_fault(struct world *w, uint64_t count);
/* Ends the source's daemon; begins it again, as that incarnation, and grants. */
void world_source_stop(struct world *w);
void world_source_start(struct world *w, ramp_incarnation_t incarnation);
/* The same for the target: everything above its store. */
void world_target_restart(struct world *w);
/* For how long the slow network has let nothing pass, in ms. */
uint64_t world_slowed_ago_ms(struct world *w);
void world_wait_finished(struct world *w);
/* Every page of the target's file is as the source's. */
void world_check(struct world *w);
/* One page of a mapping or buffer is as written. */
bool world_page_is(const uint8_t *at, uint64_t page);

#define WORLD_INCARNATION UINT64_C(0x51)

#endif
