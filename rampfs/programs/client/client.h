/*
 * One client: a process, its agent's session and its userfaultfd (client.c). Counted: space_get and
 * space_put are in programs.h.
 *
 * Locks, in the order in which they are taken:
 *   mseg->change   who registers, unregisters, revokes or looks anew; held over agents' answers
 *   client->life   becoming ready and being buried
 *   client->io     one conversation with an agent at a time
 *   client->mappings.lock  the text of /proc/PID/maps
 *   mseg->lock     its mappings; nothing that may wait for a program is called under it, but for
 *                  want of memory
 *   client->list   the same mappings, by client; they change under mseg->change, too, so whoever has
 *                  that reads them without these, and holds up nobody's page faults where he waits in
 *                  a program
 *   programs->priority_lock  which threads have priority
 *   programs->lock everything else
 *   client->time_slices.lock its own fields
 * The control thread takes only client->list and programs->lock and, if free, io. The pager takes
 * client->list and programs->lock, and, if free, client->time_slices.lock and mseg->lock for
 * reading: who has that may look at all that many programs have mapped.
 */
#ifndef RAMP_PROGRAMS_CLIENT_H
#define RAMP_PROGRAMS_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv/tree.h>

#include "memory/store.h"
#include "programs/proc/mappings.h"
#include "time_slice.h"

struct client_mappings;
struct late;
struct programs;
struct session_conn;

RB_HEAD(attached_by_end, client_mappings); /* by address */

/* Who maps pages. The first two are one thread each, but for those that programs keep
   (pull/takeover.c). */
enum resolver { RESOLVER_PAGER, RESOLVER_PREFETCH, RESOLVER_WORKER, RESOLVERS };

/* What a raised thread had computed when it was looked at last (agent_priority.c). */
struct agent_load {
	int schedstat; /* its file in /proc; -1: none */
	uint64_t at_us, ran_us;
	uint32_t serial; /* of the last command by then */
	uint32_t busy;	 /* looks at which it had computed much, less those at which it had not */
};

/*
 *   AT_BROKER --userfaultfd--> READYING --learned--> READY
 *   AT_BROKER | READYING | READY --hang-up--> DEAD
 *   AT_BROKER --left by a former daemon--> DEAD
 *
 * AT_BROKER: its userfaultfd has not come from the broker yet.
 * READYING: a worker makes the handshake and learns what it maps.
 * READY: its agent is asked, its page faults are served.
 * DEAD: its session has hung up. It is an orphan while its memory still maps something.
 */
enum client_state { CLIENT_AT_BROKER, CLIENT_READYING, CLIENT_READY, CLIENT_DEAD };

struct space {
	struct programs *programs;
	TAILQ_ENTRY(space) link; /* programs->clients, or orphans; protected by programs->lock */
	uint64_t id;
	atomic_uint refs;
	pid_t pid;
	uid_t uid;
	uint32_t agent_tid; /* as the agent sees it */
	pid_t raised;	    /* the agent's thread, where it has priority; 0: none. programs->lift */
	struct agent_load look; /* protected by programs->lift */
	struct time_slices time_slices;
	enum client_state state;   /* protected by programs->lock */
	uint64_t since_ms;	   /* when it came; DEAD: when it has hung up */
	struct session_conn *conn; /* control thread; NULL once it has hung up */
	int sock, uffd;
	/* Of who has connected: its pid alone may be somebody else's by now. -1: a former daemon's
	   orphan, of which only the memory is known. */
	int pidfd;
	bool pager_has; /* the pager has it; protected by life */
	atomic_bool orphan;
	bool prefetched;	 /* an orphan, whose pages are not left missing; the sweep */
	bool stored;		 /* an orphan, which the next daemon finds; the sweep */
	atomic_bool behind;	 /* it has not been told all that has left and come back */
	atomic_bool stale;	 /* a remap event came: look into /proc */
	atomic_bool stopped;	 /* a hint: it was by SIGSTOP, when the window was about to come */
	_Atomic uint64_t remaps; /* remap events that were read */
	atomic_uint reading;	 /* threads between reading events and counting them */
	/* Since when that one, or the first of them, maps pages there; 0: not. */
	_Atomic uint64_t resolving_ms[RESOLVERS];
	_Atomic uint64_t looked_ms;
	_Atomic uint64_t
		stray_fault; /* where a page fault was and the table has nothing; 0: none */

	pthread_mutex_t life;

	pthread_mutex_t io; /* protects what follows */
	uint32_t serial;
	uint32_t mapped;	  /* serial of the last MAP; 0: none */
	atomic_uint n_late;	  /* written under io */
	STAILQ_HEAD(, late) late; /* GONEs without an answer yet */

	struct mappings mappings; /* of its process */

	pthread_mutex_t list;
	struct attached_by_end attached; /* protected by list */
};

/* With a reference for the caller, and nothing open; NULL: no memory. */
struct space *client_make(struct programs *p, pid_t pid, uid_t uid);
/* The one door for its state: aborts where it is not `from`, or where no arrow leads to `to`.
   programs->lock is held, or no other thread knows the client yet. */
void client_go(struct space *client, enum client_state from, enum client_state to);
bool client_is(struct space *client, enum client_state state);
bool client_dead(struct space *client);
/* A descriptor of the segment's file for its agent, which the caller closes: seg_hand_out. */
int client_open_seg(struct space *client, struct seg *seg, bool writable);
/* Whether the process maps anything of the store. */
bool client_maps(struct space *client);
/* Waits, for 50 ms and until until_ms at most, for what it maps to go: its session has hung up, as
   a rule since it ends. True: it has; nobody can touch a segment through it any more. */
bool client_has_ended(struct space *client, uint64_t until_ms);
/* Has the control thread look soon at what it maps. Any thread. */
void client_look_soon(struct space *client);
/* Whether GONEs wait for its agent's answer. */
bool client_has_late(struct space *client);
/* The agent's thread, or the main one. */
pid_t client_agent_thread(struct space *client);
/* Whether it is stopped by a signal (SIGSTOP; not by a tracer). */
bool client_stopped(struct space *client);

#endif
