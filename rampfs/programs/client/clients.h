/*
 * All clients of this daemon (clients.c), and struct programs, which all folders of programs/
 * share.
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
struct full_store;
struct listener;
struct mapped_segment;
struct pending;
struct quota;
struct range_promise;
struct release;
struct subscriber;
struct token;
struct workers;

#define UID_SLOTS    1024u /* by a hash of the uid: users that share a slot are treated as one */
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
	programs_answered *answered; /* set before the loop runs */
	void *answered_arg;
	programs_member *member; /* set before the loop runs */
	void *member_arg;
	programs_punch *punch;
	void *punch_arg;
	programs_keeps_setid *keeps_setid; /* NULL: no process may keep set-id bits */
	programs_passthrough *passthrough;
	void *passthrough_arg;
	/* Drops what other folders have attached to a client whose last reference goes; set
	   before the first client comes. */
	void (*client_released)(struct client *client);
	struct full_store *full;   /* set before the loop runs */
	struct listener *listener; /* listener.c; this and the next three: control thread */
	struct conns *conns;
	struct pending *pending;
	TAILQ_HEAD(, subscriber) subscribers; /* control thread */
	struct broker *broker;
	struct workers *workers;
	struct quota *quota;
	pthread_mutex_t priority_lock; /* taken before lock; agent_priority.c */
	uint64_t slice_ns; /* a thread's usual time slice; 0: not known (time_slice.c) */
	/* Until when agents of those users get no priority; protected by priority_lock. */
	uint64_t greedy_until_ms[UID_SLOTS];
	/* Until when workers map pages for those users, and the pager maps none (resolve.c). */
	_Atomic uint64_t by_worker_until_ms[UID_SLOTS];
	int fdstore[2];		      /* -1: none; fdstore.c */
	pthread_mutex_t fdstore_lock; /* no other lock is taken under it */
	/* Protected by fdstore_lock; the serial in what was put last. */
	uint32_t fdstore_round;
	atomic_bool adopted;   /* what the daemon before left in the fdstore was taken */
	atomic_uint looking;   /* looks into clients that run on threads of their own */
	atomic_uint resolving; /* threads that map pages now */
	/* Held for reading by threads that give back what they mapped pages with. */
	pthread_rwlock_t ending;
	/* Set by programs_close: what is left then is freed by the process's end; protected by
	   `ending`. */
	bool ended;
	atomic_bool closing;
	struct loop_wake *look; /* a client is stale, or late answers have come */

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t
		changed; /* a client is ready; a mseg is no longer frozen, or an attach has ended */
	TAILQ_HEAD(client_list, client) clients, orphans;
	LIST_HEAD(, mapped_segment) msegs[MSEG_BUCKETS];
	LIST_HEAD(, token) tokens;
	uint32_t n_tokens;
	struct range_promise *promises; /* give_back.c */
	size_t n_promises;
	TAILQ_HEAD(release_list, release) releases; /* broker_release.c */
	uint64_t next_client, next_release;
	struct programs_status status;
};

/* Waits on p->changed until then; p->lock is held. False: the time is over, or programs_close
   has begun. */
bool programs_wait(struct programs *p, uint64_t until_ms);
/* Holds and releases the quota and struct programs beyond programs_close: a handler that was
   asked to punch a hole may answer after that. */
void programs_hold(struct programs *p);
void programs_let_go(struct programs *p);

/* Returns the ready client of that process, with a reference; waits for one until until_ms.
   NULL: none. */
struct client *client_find(struct programs *p, pid_t pid, uint64_t until_ms);
/* Returns whether an orphan's memory has a ready session by now. */
bool client_replaced(struct client *client);
/* Lists the ready clients, with references. -ENOMEM; clients_free takes the result of that, too. */
int clients_get_ready(struct programs *p, struct client ***clients, size_t *count);
void clients_free(struct client **clients, size_t count);
/* Calls fn(a copy of arg, client) for each client, on a thread of its own that has called
   bounded_enter for the client's process, until fn returns nonzero. Returns that, with its
   process in *pid; 0; or -errno. -EBUSY: process *pid can't be looked into (0: none was looked
   into). Except after -EBUSY, what fn wrote into the copy is in arg afterwards. Frees the list. */
typedef int client_fn(struct bounded *bounded, void *arg, struct client *client);
int clients_look(struct client **clients, size_t count, client_fn *fn, void *arg, size_t len,
		 pid_t *pid);
/* The same for fn that puts into the copy what has to be freed: it is the caller's afterwards, or is
   dropped where the thread is left behind. */
typedef void client_drop(void *arg);
int clients_look_into(struct client **clients, size_t count, client_fn *fn, client_drop *drop,
		      void *arg, size_t len, pid_t *pid);

#endif
