/*
 * One client: a process, its agent's session and its userfaultfd (client.c). Reference-counted:
 * client_get and client_put are in programs.h.
 *
 * Locks, in the order in which they are taken:
 *   mseg->change   held to register, unregister, revoke or look into /proc again, also while an
 *                  agent's answer is awaited
 *   client->life   becoming ready and being buried
 *   client->io     one conversation with an agent at a time
 *   client->mappings.lock  the text of /proc/PID/maps
 *   mseg->lock     the segment's mappings. Nothing that may block on a program is called under it,
 *                  except where memory is short
 *   client->list   the same mappings, by client. They are changed with mseg->change held, too: a
 *                  thread that holds it reads them without mseg->lock and client->list, and so does
 *                  not hold up page faults while it waits in a program
 *   programs->priority_lock  which threads have priority
 *   programs->lock everything else
 *   client->time_slices.lock its own fields
 * The control thread takes only client->list and programs->lock and, if free, io. The pager takes
 * client->list and programs->lock, and, if free, client->time_slices.lock and mseg->lock for
 * reading: a thread that holds mseg->lock may be going through the mappings of many programs.
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

#include "away.h"
#include "memory/store.h"
#include "programs/proc/mappings.h"
#include "time_slice.h"

struct client_mappings;
struct late;
struct programs;
struct session_conn;

RB_HEAD(attached_by_end, client_mappings); /* by address */

/* The kinds of threads that map pages. The first two are one thread each, not counting those
   that a program keeps blocked (pull/takeover.c). */
enum resolver { RESOLVER_PAGER, RESOLVER_PREFETCH, RESOLVER_WORKER, RESOLVERS };

/* The processor time of a thread with priority, when it was last looked at (agent_priority.c). */
struct agent_load {
	int schedstat; /* its file in /proc; -1: none */
	uint64_t at_us, ran_us;
	uint32_t serial; /* of the last command at that time */
	/* Looks at which it had computed much, less looks at which it had not. */
	uint32_t busy;
};

/*
 *   AT_BROKER --userfaultfd--> READYING --learned--> READY
 *   AT_BROKER | READYING | READY --hang-up--> DEAD
 *   AT_BROKER --left by the daemon before--> DEAD
 *
 * AT_BROKER: its userfaultfd has not come from the broker yet.
 * READYING: a worker makes the handshake and learns from /proc what the process maps.
 * READY: its agent takes commands, its page faults are served.
 * DEAD: its session has hung up. It is an orphan while its memory still maps something.
 */
enum client_state { CLIENT_AT_BROKER, CLIENT_READYING, CLIENT_READY, CLIENT_DEAD };

struct client {
	struct programs *programs;
	TAILQ_ENTRY(client) link; /* programs->clients, or orphans; protected by programs->lock */
	uint64_t id;
	atomic_uint refs;
	pid_t pid;
	uid_t uid;
	uint32_t agent_tid; /* the agent's thread id, as the agent sees it */
	/* The agent's thread if it has priority, else 0; protected by programs->priority_lock. */
	pid_t raised;
	struct agent_load look; /* protected by programs->priority_lock */
	struct time_slices time_slices;
	enum client_state state;   /* protected by programs->lock */
	uint64_t since_ms;	   /* when it connected; DEAD: when it hung up */
	struct session_conn *conn; /* NULL once it has hung up; control thread */
	int sock, uffd;
	/* A second userfaultfd of the same memory, without WP_ASYNC: protected pages can be loaded, and a
	   store waits. The agent reads its events. -1: none, of an older agent. */
	int second;
	/* Of the process that connected: `pid` alone may be another process's by now. -1: an
	   orphan of the daemon before, of which only the memory is known. */
	int pidfd;
	bool pager_has; /* the pager has a reference; protected by life */
	bool moves;	/* its agent knows RESERVE, MOVE and RETURN */
	/* Its agent asks before a mapping grows. It has asked: mappings are registered as a whole, or not at all
	   (attach/stretches.c). */
	bool asks_growth;
	atomic_bool grown;
	/* Its agent had page tables away when it came: an earlier daemon's, of which this one has
	   no notes. */
	bool came_away;
	atomic_bool held; /* mappings of it may be registered with `second` */
	atomic_bool orphan;
	/* An orphan whose missing pages are being pulled; the sweep's field. */
	bool prefetched;
	bool stored;	    /* an orphan that is in the fdstore; the sweep's field */
	atomic_bool behind; /* it was not told of each segment that has left or come back */
	/* Its mappings may have changed (a remap event): look into /proc. */
	atomic_bool stale;
	atomic_bool stopped;	      /* a hint: by SIGSTOP, shortly before the window */
	_Atomic uint64_t answered_us; /* when its agent has answered last */
	_Atomic uint64_t remaps;      /* remap events read so far */
	atomic_uint reading;	      /* threads that have read events and not counted them yet */
	/* Since when the thread of that kind (the first one of several) maps pages in this
	   client; 0: none does. */
	_Atomic uint64_t resolving_ms[RESOLVERS];
	_Atomic uint64_t looked_ms;
	_Atomic uint64_t
		stray_fault; /* address of a page fault where the table has no mapping; 0: none */

	pthread_mutex_t life;

	pthread_mutex_t io; /* protects what follows */
	uint32_t serial;
	uint32_t mapped;	  /* serial of the last MAP; 0: none yet */
	uint32_t return_serial;	  /* of a RETURN that is not answered yet; 0: none */
	atomic_uint n_late;	  /* written under io */
	STAILQ_HEAD(, late) late; /* GONEs that are not answered yet */

	struct mappings mappings; /* of its process */

	pthread_mutex_t list;
	struct attached_by_end attached; /* protected by list */
	struct away_notes away;		 /* likewise */
};

/* Makes a client, with a reference for the caller and all descriptors -1. NULL: no memory. */
struct client *client_make(struct programs *p, pid_t pid, uid_t uid);
/* The only function that changes the state: aborts if it is not `from`, or if no arrow above
   leads from there to `to`. programs->lock is held, or no other thread knows the client yet. */
void client_go(struct client *client, enum client_state from, enum client_state to);
bool client_is(struct client *client, enum client_state state);
bool client_dead(struct client *client);
/* Opens the segment's file for the client's agent; the caller closes it. seg_hand_out. */
int client_open_seg(struct client *client, struct seg *seg, bool writable);
/* Returns whether the process maps a file of the store in the arena, or may. */
bool client_maps(struct client *client);
/* Waits until the process's mappings have gone, for 50 ms and until until_ms at most. For a
   client whose session has hung up, as a rule since its process ends. True: they have; no thread
   can touch a segment through them. */
bool client_has_ended(struct client *client, uint64_t until_ms);
/* Has the control thread look soon at what the client maps. Any thread. */
void client_look_soon(struct client *client);
/* Returns whether GONEs wait for the agent's answer. */
bool client_has_late(struct client *client);
/* Returns the agent's thread; where it is not known, the main one. */
pid_t client_agent_thread(struct client *client);
/* Returns whether its agent's thread is stopped by a signal (SIGSTOP; not by a tracer). An agent that has
   answered within the last millisecond counts as one that is not. */
bool client_stopped(struct client *client);

#endif
