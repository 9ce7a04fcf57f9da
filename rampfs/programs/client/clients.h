/*
 * All clients of this daemon, and what the rooms share: struct programs (clients.c).
 */
#ifndef RAMP_PROGRAMS_CLIENTS_H
#define RAMP_PROGRAMS_CLIENTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "client.h"
#include "programs/programs.h"

struct bounded;
struct broker;
struct conns;
struct listener;
struct mapped_segment;
struct pending;
struct quota;
struct release;
struct token;
struct workers;

#define UID_SLOTS    1024u /* by uid; users who share one share its fate */
#define MSEG_BUCKETS 1024u

struct programs {
	atomic_uint refs; /* programs_hold */
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	gid_t uffd_group;
	uint32_t connect_ms, user_sessions, token_ms;
	uint64_t arena_lo, arena_hi;
	dev_t store_dev;
	int uffd_dev;		     /* /dev/userfaultfd; -1: this kernel has none */
	pthread_rwlock_t pager_lock; /* held for reading around the pager's callbacks */
	struct programs_pager pager; /* protected by pager_lock */
	struct programs_tools tools;
	programs_member *member; /* set before the loop runs */
	void *member_arg;
	programs_punch *punch;
	void *punch_arg;
	programs_keeps_setid *keeps_setid; /* NULL: none does */
	programs_passthrough *passthrough;
	void *passthrough_arg;
	/* Lets go of what other rooms have hung to a client that nobody knows any more; set before
	   the first one. */
	void (*client_released)(struct space *client);
	struct listener *listener; /* listener.c; these four: control thread */
	struct conns *conns;
	struct pending *pending;
	struct broker *broker;
	struct workers *workers;
	struct quota *quota;
	pthread_mutex_t priority_lock; /* before lock; agent_priority.c */
	uint64_t slice_ns; /* of a thread that nobody has given one; 0: not known (time_slice.c) */
	/* Until when agents of those users are not raised; protected by priority_lock. */
	uint64_t greedy_until_ms[UID_SLOTS];
	/* Until when the pager maps nothing for those users (resolve.c). */
	_Atomic uint64_t by_worker_until_ms[UID_SLOTS];
	int fdstore[2];		      /* -1: none; fdstore.c */
	pthread_mutex_t fdstore_lock; /* no other lock is taken under it */
	uint32_t fdstore_round;	      /* protected by fdstore_lock; in what was put last */
	atomic_bool adopted;	      /* what was there */
	atomic_uint looking;	      /* looks at clients, apart */
	atomic_uint resolving;	      /* threads that map pages */
	pthread_rwlock_t ending; /* held for reading by who gives back what he has mapped with */
	bool ended;		 /* there is nothing to give it back to; protected by ending */
	atomic_bool closing;
	struct loop_wake *look; /* a client is stale, or has late answers */

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t
		changed; /* a client is ready, a mseg is not frozen any more or not attaching */
	TAILQ_HEAD(client_list, space) clients, orphans;
	LIST_HEAD(, mapped_segment) msegs[MSEG_BUCKETS];
	LIST_HEAD(, token) tokens;
	uint32_t n_tokens;
	TAILQ_HEAD(release_list, release) releases; /* broker_release.c */
	uint64_t next_client, next_release;
	struct programs_status status;
};

/* Waits on p->changed (p->lock held) until then; false: the time is over, or programs_close. */
bool programs_wait(struct programs *p, uint64_t until_ms);
/* What it counts of users outlives programs_close until whoever holds it lets go: who is asked to
   punch a hole may answer later. */
void programs_hold(struct programs *p);
void programs_let_go(struct programs *p);

/* A reference to the ready client of that process, waiting for one at most until then; NULL. */
struct space *client_find(struct programs *p, pid_t pid, uint64_t until_ms);
/* Whether its memory has a ready session by now. */
bool client_replaced(struct space *client);
/* The ready sessions, with references. -ENOMEM, and clients_free takes that, too. */
int clients_get_ready(struct programs *p, struct space ***clients, size_t *count);
void clients_free(struct space **clients, size_t count);
/* fn(a copy of arg, client), entered, for each, apart, until it returns nonzero: that, and whose
   *pid; -errno, of which -EBUSY: that process does not let itself be looked into (0: none was
   looked into). What fn has written into the copy is in arg afterwards, but for -EBUSY. Frees the
   clients. */
typedef int client_fn(struct bounded *bounded, void *arg, struct space *client);
int clients_look(struct space **clients, size_t count, client_fn *fn, void *arg, size_t len,
		 pid_t *pid);

#endif
