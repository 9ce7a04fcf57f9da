/*
 * What the files of this folder share. Others use programs.h.
 *
 *   struct space       one process: its agent's session and its userfaultfd. Counted.
 *   struct pseg        one segment, as local programs have it: state and attachments. Counted.
 *   struct holding     all that one space has mapped of one pseg.
 *   struct attachment  one mapping (a VMA) of it; found in /proc, never guessed.
 *
 * Locks, in the order in which they are taken:
 *   pseg->change   who registers, unregisters, revokes or looks anew; held over agents' answers
 *   space->life    becoming ready and being buried
 *   space->io      one conversation with an agent at a time
 *   space->proc    the text of /proc/PID/maps
 *   pseg->lock     its holdings; nothing that may wait for a program is called under it, but for
 *                  want of memory
 *   space->list    the same holdings, by space; they change under pseg->change, too, so whoever has
 *                  that reads them without these, and holds up nobody's page faults where he
 *                  waits in a program
 *   programs->lift which threads have priority
 *   programs->lock everything else
 *   space->slices  its own fields
 * The control thread takes only space->list and programs->lock and, if free, io. The pager takes
 * space->list and programs->lock, and, if free, space->slices and pseg->lock for reading: who has
 * that may look at all that many programs have mapped.
 */
#ifndef RAMP_PROGRAMS_LOCAL_H
#define RAMP_PROGRAMS_LOCAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <time.h>
#include <uv/tree.h>

#include "base/kernel.h"
#include "base/session.h"
#include "programs.h"

#define FREEZE_WAIT_MS	 10000u /* how long an attach waits for a freeze to end */
#define FIRST_MESSAGE_MS 5000u	/* a connection that says nothing is closed */
#define LATE_MAX	 1024u	/* GONEs that an agent has not answered yet */
#define RANGES_MAX	 8192u	/* attachments of one segment in one process */
#define GREEDY_SLOTS	 1024u	/* by uid; users who share one share its fate */
#define SLICES_MAX	 8u	/* threads of one space whose slice is short */

/* Neighbours that are protected in different ways are one. */
struct attachment {
	uint64_t start, end, offset;
	uint32_t prot; /* all that is allowed somewhere in it */
	bool writable; /* of the file description, not of prot */
	bool gone;     /* maps the empty file */
};

/* Each look makes it anew and puts it in the place of the one before: whoever waits for the locks
   meanwhile does not wait for longer where a program has thousands of attachments. */
struct holding {
	RB_ENTRY(holding) in_pseg;  /* protected by pseg->lock */
	RB_ENTRY(holding) in_space; /* protected by space->list */
	struct pseg *pseg;	    /* a reference */
	struct space *space;	    /* a reference */
	ramp_segment_t id;	    /* of pseg */
	uint64_t end;		    /* of the last attachment */
	size_t count;		    /* at least 1 */
	struct attachment at[];	    /* sorted; written under both locks, and change */
};
RB_HEAD(space_holdings, holding); /* by address */
RB_HEAD(pseg_holdings, holding);  /* by space */
RB_PROTOTYPE(space_holdings, holding, in_space, holding_by_end)
RB_PROTOTYPE(pseg_holdings, holding, in_pseg, holding_by_space)

/*
 *   OPEN --programs_revoke--> FROZEN --programs_gone--> GONE --programs_back--> OPEN
 *                             FROZEN --programs_restore--> OPEN
 *
 * OPEN: not registered, or `pulling`: every attachment is registered and the pager serves it.
 * FROZEN: every attachment is registered, what touches it waits, nothing resolves it.
 * GONE: attachments map the empty file, or wait until their agents do it.
 * A daemon that starts finds FROZEN by a record GIVEN, GONE by none.
 */
enum pseg_state { PSEG_OPEN, PSEG_FROZEN, PSEG_GONE };

/* What stood when a full look was made (watch.c). */
struct watch {
	bool on;    /* and nothing has come between so far */
	bool armed; /* attachments may be registered for it */
	uint64_t attaches, remaps;
	size_t live;
};

struct pseg {
	LIST_ENTRY(pseg) link;	  /* programs->psegs; protected by programs->lock */
	uint32_t refs, attaching; /* protected by programs->lock */
	uint64_t attaches;	  /* how many began; protected by programs->lock */
	ramp_segment_t id;
	pthread_mutex_t change;
	struct watch watch;    /* protected by change */
	pthread_rwlock_t lock; /* protects what follows */
	_Atomic int state;     /* enum pseg_state; written under lock and change */
	atomic_bool coming;    /* GONE, but programs_back is about to come */
	bool pulling;
	struct seg *seg;	 /* a reference, or NULL: not in this store */
	_Atomic uint64_t lo, hi; /* its extent, or the arena where it is not known */
	struct pseg_holdings holdings;
	char owner[RAMP_NODE_NAME_MAX + 1]; /* GONE: where it is now, "": not known */
	bool poison_said;
	bool poisoned;	       /* somewhere, perhaps; protected by change */
	atomic_uint poisoning; /* how often it is about to be */
	atomic_uint resolving; /* threads that map pages of it, or are about to; counted up under
				  lock, while it is OPEN and pulling (resolve.c) */
};

struct late {
	STAILQ_ENTRY(late) link;
	uint32_t serial;
	struct pseg *pseg; /* a reference */
	uint64_t addr, len;
};

/* What a lifted thread had computed when it was looked at last (lift.c). */
struct agent_look {
	int schedstat; /* its file in /proc; -1: none */
	uint64_t at_us, ran_us;
	uint32_t serial; /* of the last command by then */
	uint32_t busy;	 /* looks at which it had computed much, less those at which it had not */
};

/* Who maps pages. The first two are one thread each, but for those that programs keep
   (pull/turn.c). */
enum resolver { RESOLVER_PAGER, RESOLVER_PREFETCH, RESOLVER_POOL, RESOLVERS };

enum space_state { SPACE_DOOR, SPACE_READYING, SPACE_READY, SPACE_DEAD };

/* Threads that page fault (slice.c). */
struct slices {
	pthread_mutex_t lock;
	bool over;	  /* the session is */
	bool again;	  /* the last scan may have missed some */
	uint64_t next_ms; /* no scan before that */
	struct {
		pid_t tid; /* 0: none */
		uint64_t fault_ms, set_ms;
	} of[SLICES_MAX];
};

struct space {
	struct programs *programs;
	TAILQ_ENTRY(space) link; /* programs->spaces, or orphans; protected by programs->lock */
	uint64_t id;
	atomic_uint refs;
	pid_t pid;
	uid_t uid;
	uint32_t agent_tid; /* as the agent sees it */
	pid_t lifted;	    /* the agent's thread, where it has priority; 0: none. programs->lift */
	struct agent_look look; /* protected by programs->lift */
	struct slices slices;
	enum space_state state; /* protected by programs->lock */
	uint64_t since_ms;	/* when it came; DEAD: when it has hung up */
	struct conn *conn;	/* control thread; NULL once it has hung up */
	int sock, uffd;
	/* Of who has connected: its pid alone may be somebody else's by now. -1: a former daemon's
	   orphan, of which only the memory is known. */
	int pidfd;
	bool told; /* the pager has it; protected by life */
	atomic_bool orphan;
	bool hurried;		 /* an orphan, whose pages are not left missing; the sweep */
	bool shelved;		 /* an orphan, which the next daemon finds; the sweep */
	atomic_bool behind;	 /* it has not been told all that has left and come back */
	atomic_bool stale;	 /* a remap event came: look into /proc */
	atomic_bool stopped;	 /* a hint: it was by SIGSTOP, when the window was about to come */
	_Atomic uint64_t remaps; /* remap events that were read */
	atomic_uint reading;	 /* threads between reading events and counting them */
	/* Since when that one, or the first of them, maps pages there; 0: not. */
	_Atomic uint64_t resolving_ms[RESOLVERS];
	_Atomic uint64_t looked_ms;
	_Atomic uint64_t strange; /* where a page fault was and the table has nothing; 0: none */

	pthread_mutex_t life;

	pthread_mutex_t io; /* protects what follows */
	uint32_t serial;
	uint32_t mapped;	  /* serial of the last MAP; 0: none */
	atomic_uint n_late;	  /* written under io */
	STAILQ_HEAD(, late) late; /* GONEs without an answer yet */

	int pagemap, map_files; /* these and the next: mappers_open */
	bool maps_open;
	pthread_mutex_t proc; /* protects what follows, where it is a text */
	struct kernel_maps maps;

	pthread_mutex_t list;
	struct space_holdings holdings; /* protected by list */
};

struct adopt_range {
	ramp_segment_t id;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};

/* Which process, and no later one of its number. */
struct process {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks; /* since boot */
};

struct token {
	LIST_ENTRY(token) link;
	uint64_t secret[2], until_ms;
	ramp_segment_t id; /* of an open; 0: a fork's */
	int access_mode;
	struct process process; /* that may use it; a fork's: whose child */
	uint64_t made_ticks;	/* a fork's child is not older */
	uint32_t share;		/* of its user's */
	uint32_t count;
	struct adopt_range *ranges; /* a fork's */
};

#define PSEG_BUCKETS 1024u

struct programs {
	atomic_uint refs; /* programs_hold */
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	char *mountpoint;
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
	struct listener *listener; /* session.c; control thread */
	struct doorman *doorman;   /* doorman.c; control thread */
	struct pool *pool;
	struct users *users;  /* users.c */
	pthread_mutex_t lift; /* before lock; lift.c */
	uint64_t slice_ns;    /* of a thread that nobody has given one; 0: not known (slice.c) */
	/* Until when agents of those users are not lifted; protected by lift. */
	uint64_t greedy_until_ms[GREEDY_SLOTS];
	/* Until when the pager maps nothing for those users (resolve.c). */
	_Atomic uint64_t apart_until_ms[GREEDY_SLOTS];
	int shelf[2];		  /* -1: none */
	pthread_mutex_t shelving; /* no other lock is taken under it */
	uint32_t shelf_round;	  /* protected by shelving; in what was put last */
	atomic_bool adopted;	  /* what was there */
	atomic_uint looking;	  /* looks at spaces, apart */
	atomic_uint resolving;	  /* threads that map pages */
	pthread_rwlock_t ending;  /* held for reading by who gives back what he has mapped with */
	bool ended;		  /* there is nothing to give it back to; protected by ending */
	atomic_bool closing;
	struct loop_wake *look; /* a space is stale, or has late answers */

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t
		changed; /* a space is ready, a pseg is not frozen any more or not attaching */
	TAILQ_HEAD(space_list, space) spaces, orphans;
	LIST_HEAD(, pseg) psegs[PSEG_BUCKETS];
	LIST_HEAD(, token) tokens;
	uint32_t n_tokens;
	TAILQ_HEAD(leaving_list, leaving) leaving; /* leaving.c */
	uint64_t next_space, next_leaving;
	struct programs_status status;
};

static inline uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t now_ms(void)
{
	return now_us() / 1000;
}

/* Waits on p->changed (p->lock held) until then; false: the time is over, or programs_close. */
bool programs_wait(struct programs *p, uint64_t until_ms);

/* ---- pool.c: threads that may wait for an agent --------------------------------------------- */

typedef void pool_fn(void *arg);
int pool_open(struct pool **out, struct ramp_err *err);
void pool_close(struct pool *pool); /* ends when all that was queued has run */
/* Runs fn(arg) on a thread of the pool, for a program of that user. Users take turns, and at most half
   of the threads run for one of them. Any thread. */
void pool_run(struct pool *pool, uid_t uid, pool_fn *fn, void *arg);
/* The same of what the daemon itself has to do for such a program, which goes first; POOL_SELF: for
   none of them. */
#define POOL_SELF ((uid_t)-1)
void pool_run_own(struct pool *pool, uid_t uid, pool_fn *fn, void *arg);

/* ---- users.c: what one user may have at a time ---------------------------------------------- */

enum user_count {
	USER_NEWCOMERS,
	USER_SESSIONS, /* orphans too */
	USER_DOORS, /* until the doorman's thread has ended; what is to be let go of (leaving.c) */
	USER_REQUESTS,
	USER_TOOLS,
	USER_TOKENS,
	USER_COUNTS
};
#define USER_SHARE 0u		/* max: the usual one, of that kind */
struct users *users_open(void); /* NULL: no memory */
void users_close(struct users *users);
/* False, and a line in the log, where he would have more than `max`. Any thread. */
bool user_take(struct programs *p, uid_t uid, enum user_count what, uint32_t by, uint32_t max);
void user_give(struct programs *p, uid_t uid, enum user_count what, uint32_t by);

/* ---- doorman.c ------------------------------------------------------------------------------ */

int doorman_open(struct programs *p, struct doorman **out, struct ramp_err *err);
void doorman_close(struct doorman *doorman);
/* The userfaultfd of `space` will come over `door` (stays the caller's); session_uffd gets it, and
   session_door_closed comes when the thread that waited there has ended. -EAGAIN: there is no
   doorman now, or it is behind; this never waits. */
int doorman_ask(struct doorman *doorman, uint64_t space, int door);
/* In two steps, and nothing of the kind in between: the doorman has a copy of fd, which stays the
   caller's, and lets go of it when he says so. leaving_ended comes when it has. -errno: later. */
int doorman_let_go(struct doorman *doorman, uint64_t id, int fd);
int doorman_go(struct doorman *doorman, uint64_t id);

/* ---- leaving.c: userfaultfds that nobody needs any more -------------------------------------- */

#define LEAVING_IDS (UINT64_C(1) << 63) /* from here on; those of spaces are less */
/* fd, which a program has sent, is ours no more. Any thread; nobody waits. */
void uffd_let_go(struct programs *p, uid_t uid, int fd);
/* Control thread: sends what may be sent. */
void leaving_go_on(struct programs *p);
void leaving_ended(struct programs *p, uint64_t id);
/* The doorman has died, and what he had with him. */
void leaving_lost(struct programs *p);
/* At the end, without a doorman. */
void leaving_close(struct programs *p);

/* ---- session.c, newcomers.c, doors.c: connections ------------------------------------------ */

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err);
/* Hangs up everybody; then, when the pool has ended, the rest. */
void listener_stop(struct programs *p);
void listener_close(struct programs *p);
/* From the doorman; control thread. fd is ours; -1: `why` (an errno) it was no good. */
void session_uffd(struct programs *p, uint64_t space, int fd, int why);
/* Room for another one that waits. */
void session_door_closed(struct programs *p, uint64_t space);
/* The doorman has died: sessions that wait for it are hung up, and come again. */
void session_doors_lost(struct programs *p);
/* Sends to a tool; closes after an ANSWER. */
void conn_send(struct conn *conn, const struct session_msg *msg);
void conn_close(struct conn *conn);

/* ---- lift.c: priority for agents ------------------------------------------------------------ */

/* Gives the space's agent real-time priority, and takes it from any other of that memory. */
void agent_lift(struct space *space);
/* Its session is over. */
void agent_lower(struct space *space);
/* A job of the pool, each second, of the programs: who computes all the time loses it; and short
   slices end (slice.c). */
pool_fn agents_watch;

/* ---- slice.c: short time slices for threads that page fault --------------------------------- */

void slices_init(struct space *space);
/* Of those which have not page faulted for a moment the slice is as it was. Each second; the us that
   it took. */
uint64_t slices_restore(struct space *space);
/* The same of threads that inherited a short one, or got it from a former daemon. */
void slices_inherited(struct space *space);
/* Of all of them, and nobody gets one any more. */
void slices_over(struct space *space);

/* ---- space.c -------------------------------------------------------------------------------- */

/* Jobs of the pool. ready and look: take a reference with them; bury: the list's. sweep: of the
   programs, drops the orphans that need not be kept any more. */
pool_fn space_ready, space_look, space_bury, space_sweep;
/* With a reference for the caller, and nothing open; NULL: no memory. */
struct space *space_make(struct programs *p, pid_t pid, uid_t uid);
/* A former daemon's orphan, DEAD, is one of ours, reference and all. */
void space_adopt(struct space *space);
/* READY; a result other than 0 ends the session. */
void space_say_ready(struct space *space, int result, const char *text);
/* Whether the process maps anything of the store. */
bool space_maps(struct space *space);
/* Whether its memory has a ready session by now. */
bool space_replaced(struct space *space);
/* A reference to the ready space of that process, waiting for one at most until then; NULL. */
struct space *space_find(struct programs *p, pid_t pid, uint64_t until_ms);
/* Whether the process that this pidfd stands for is still there (a zombie is: its number is not
   used anew). -1: no. */
bool process_lives(int pidfd);
bool space_is(struct space *space, enum space_state state);
/* A descriptor of the segment's file for its agent, which the caller closes: seg_hand_out. */
int space_open(struct space *space, struct seg *seg, bool writable);
bool space_dead(struct space *space);
/* "4711 (memcached)", for messages. */
void process_name(pid_t pid, char name[64]);

/* ---- shelf.c -------------------------------------------------------------------------------- */

/* An orphan: the next daemon finds it there (shelved is set); or not any more. */
void shelf_put(struct space *space);
void shelf_drop(struct space *space);
/* What a former daemon has put there becomes orphans of ours. */
void shelf_adopt(struct programs *p);

/* A throw-away request (ATTACH, FORK, ADOPT, DETACH, PUNCH): on the pool, then closed. */
struct request {
	struct programs *programs;
	int sock, pidfd; /* pidfd -1: the process has ended */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	struct session_msg msg;
};
/* Who asked for it has ended, or has hung up. */
bool request_is_for_nobody(const struct request *request);
/* The ready space of the very process that has connected, as space_find; it is waited for as long
   as somebody waits for the answer. */
struct space *request_space(struct request *request, uint64_t until_ms);
/* The same of another process. */
struct space *request_find(struct request *request, pid_t pid, uint64_t until_ms);
/* Sends RESULT: 0, or -errno where nobody takes it. */
int request_answer(struct request *request, const struct session_msg *result);
void request_free(struct request *request);

/* ---- tools.c -------------------------------------------------------------------------------- */

struct tool_request *tool_begin(struct programs *p, struct conn *conn,
				const struct session_msg *msg, uid_t uid);
void tool_gone(struct tool_request *tool); /* hung up: cancels, never sends any more */
void tool_cancel(struct tool_request *tool);
void punch_begin(struct request *request);

/* ---- programs.c ------------------------------------------------------------------------------ */

/* What it counts of users outlives programs_close until whoever holds it lets go: who is asked to
   punch a hole may answer later. */
void programs_hold(struct programs *p);
void programs_let_go(struct programs *p);

/* ---- call.c: conversations with an agent ---------------------------------------------------- */

/* Locks io, sends, waits for DONE. 0, the agent's -errno (with `at`: DONE's addr), -ETIMEDOUT,
   -ESRCH (the session is over), -EPROTO (then it has been hung up). */
int agent_call(struct space *space, struct session_msg *msg, int fd, uint64_t until_ms,
	       uint64_t *at);
/* The same with io held by the caller. */
int agent_ask(struct space *space, struct session_msg *msg, int fd, uint64_t until_ms,
	      uint64_t *at);
/* In two steps, with io held by the caller. */
int agent_send(struct space *space, struct session_msg *msg, int fd);
int agent_wait(struct space *space, uint32_t serial, uint64_t until_ms, uint64_t *at);
/* The same without waiting: -EAGAIN when the DONE has not come. */
int agent_look(struct space *space, uint32_t serial, uint64_t *at);
/* A GONE that was sent and not answered: the range is woken when it is. io is held. */
void agent_expect(struct space *space, uint32_t serial, struct pseg *pseg, uint64_t addr,
		  uint64_t len);
/* Control thread: takes late answers, if nobody else is in a conversation. */
void agent_take_late(struct space *space);
bool agent_has_late(struct space *space);
void agent_forget_late(struct space *space);

/* ---- mappers.c: what /proc says ------------------------------------------------------------- */

struct mapping {
	ramp_segment_t id;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};
typedef int mapping_fn(void *arg, const struct mapping *mapping);
/* Opens the space's files of /proc; -ESRCH. */
int mappers_open(struct space *space);
void mappers_close(struct space *space);
/* fn for each mapping of a file of the store in [lo, hi), until it returns nonzero. 0, that, or
   -errno (-EBUSY: one of them changes all the time). */
int mappers_each(struct space *space, uint64_t lo, uint64_t hi, mapping_fn *fn, void *arg);
/* In the window: 0 when no page of the file `ino` is present in [lo, hi), and every mapping of it
   lies in `covered` (sorted, n). -EBUSY. */
struct cover {
	uint64_t start, end;
};
int mappers_clear(struct space *space, uint64_t lo, uint64_t hi, uint64_t ino,
		  const struct cover *covered, size_t n);
/* 1 when a mapping of the file `ino` lies outside of [lo, hi); 0; -errno. All mappings are asked:
   milliseconds where there are thousands. */
int mappers_outside(struct space *space, uint64_t lo, uint64_t hi, uint64_t ino);
/* 1 when a file that is not the store's is mapped at that address, in *range; 0; -errno. */
int mappers_foreign(struct space *space, uint64_t addr, struct cover *range);
/* 1: the first part of [at, end) where nothing is mapped, in *gap; 0: there is none; -errno. */
int mappers_gap(struct space *space, uint64_t at, uint64_t end, struct cover *gap);
/* 1 when a private mapping there has pages of its own, which a revoke would throw away; 0; -errno.
   `swapped`: look for such that are swapped out, too (poisoned pages look the same). */
int mappers_copied(struct space *space, uint64_t start, uint64_t end, bool swapped);
/* 1 when there is a POISON there, *at being the first; 0; -errno. A private mapping's pages that
   are swapped out look the same. */
int mappers_poisoned(struct space *space, uint64_t start, uint64_t end, uint64_t *at);
/* 1 when a page of a file has an entry of its own there, *at being the first; 0; -errno. */
int mappers_small(struct space *space, uint64_t start, uint64_t end, uint64_t *at);
/* 'R', 'S', 'T', ... of /proc/PID/status; 0: no such process. Never waits. */
char mappers_state(pid_t pid);
pid_t mappers_tracer(pid_t pid, pid_t tid); /* who traces that thread of it; 0: nobody */
bool mappers_frozen(pid_t pid);		    /* by a cgroup */
pid_t mappers_parent(pid_t pid);	    /* 0: none, or no such process */
/* The thread of `pid` that calls itself `tid` in its own pid namespace; 0: none. */
pid_t mappers_tid(pid_t pid, uint32_t tid);

/* ---- apart.c: what looks into processes, and can be left ------------------------------------- */

struct apart;
/* Says with apart_enter into which process it is about to look; ends where that is not 0: -EBUSY: it
   is known not to let anybody; -ECANCELED: nobody waits any more. Has nothing locked that others
   need but to look into that process. */
typedef int apart_fn(struct apart *apart, void *arg);
typedef void apart_forget(void *arg);
int apart_enter(struct apart *apart, pid_t pid);
/* The same of who is about to take the lock of its memory. */
int apart_enter_memory(struct apart *apart, pid_t pid);
/* 1: the processes share their memory; 0; -errno, as apart_enter. */
int apart_same_memory(struct apart *apart, pid_t a, pid_t b);
/* Runs fn(arg) on a thread of its own, as urgent as the caller's. True: it has ended, *rc is what it says (-EBUSY: process *stuck
   does not let it), and arg is the caller's. False: process *stuck keeps it for 3 s by now, and
   forget(arg) comes when it ends. */
bool apart_run(apart_fn *fn, void *arg, apart_forget *forget, int *rc, pid_t *stuck);

/* ---- search.c: all processes ---------------------------------------------------------------- */

/* fn for each process but the daemon that maps the file, with where its first mapping of it begins
   and its last one ends, until it returns nonzero. 0, that, or -errno; -EBUSY: process *stuck can't
   be looked at (it takes up to 3 s to see that), and may map it. */
typedef int mapper_fn(void *arg, pid_t pid, uint64_t start, uint64_t end);
int mappers_all(dev_t dev, uint64_t ino, mapper_fn *fn, void *arg, pid_t *stuck);
/* 1 when a process, *pid, maps the file; 0; -errno, of -EBUSY as above with *pid. */
int mappers_any(dev_t dev, uint64_t ino, pid_t *pid);
/* The same of that one process. */
int mappers_one(dev_t dev, uint64_t ino, pid_t pid);
/* The same of who has something of the store mapped in the extent [lo, hi) that is not the segment's
   file `ino`: an empty file, in its place. */
int mappers_replaced(dev_t dev, uint64_t ino, uint64_t lo, uint64_t hi, pid_t *pid);

/* ---- table.c: psegs and attachments --------------------------------------------------------- */

/* Finds or makes; NULL: no memory. */
struct pseg *pseg_get(struct programs *p, ramp_segment_t id);
struct pseg *pseg_hold(struct programs *p, struct pseg *pseg);
struct pseg *pseg_find(struct programs *p, ramp_segment_t id); /* NULL: none */
/* The same where the table knows that the space has it mapped: whoever names another's segment does
   not get to its locks. */
struct pseg *pseg_held(struct programs *p, ramp_segment_t id, struct space *space);
void pseg_put(struct programs *p, struct pseg *pseg);
void pseg_free_all(struct programs *p); /* at the end */
/* Makes pseg->seg this one (takes a reference of its own), or NULL. */
void pseg_set_seg(struct pseg *pseg, struct seg *seg);
void pseg_set_state(struct programs *p, struct pseg *pseg, enum pseg_state state);
bool pseg_armed(struct pseg *pseg); /* attachments must be registered; change is held */
/* Looks what `space` maps of pseg and makes the table say so; registers what is new where it must
   be. change is held. -E2BIG: more than RANGES_MAX attachments. */
int pseg_look(struct programs *p, struct pseg *pseg, struct space *space);
/* The same for all that have it (or that space: NULL for all), since a program says nothing when it
   unmaps, splits or lets grow. Without memory the table stays as it is. change is held. */
void pseg_look_all(struct programs *p, struct pseg *pseg, const struct space *only);
/* What that space has of it, or NULL; pseg->lock or change is held. */
struct holding *pseg_holding(struct pseg *pseg, struct space *space);
/* What is attached at that address, or NULL; space->list is held. */
struct holding *space_holding(struct space *space, uint64_t addr);
const struct attachment *holding_at(const struct holding *holding, uint64_t addr);
/* All that the space maps, for a session that has come. */
int space_learn(struct programs *p, struct space *space);
/* Takes its holdings out of the table. */
void space_forget(struct programs *p, struct space *space);

struct piece;
/* The attachments in that range map the segment from now on: BACK is about to swap it in. */
void pseg_mark_live(struct pseg *pseg, const struct piece *piece);

/* A copy of the attachments, with references to their spaces. */
struct piece {
	struct space *space;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};
/* -ENOMEM. Sorted by space, then start. */
int pseg_pieces(struct pseg *pseg, struct piece **pieces, size_t *count);
void pieces_free(struct piece *pieces, size_t count);

/* ---- uffd.c, unpoison.c --------------------------------------------------------------------- */

/* 0; -EINVAL and the like: no good, `why` says it. */
int uffd_handshake(int uffd, struct ramp_err *err);
/* Registers / unregisters. -EINVAL: nothing is there any more, or something else. */
int uffd_arm(struct space *space, uint64_t start, uint64_t end);
void uffd_disarm(struct space *space, uint64_t start, uint64_t end);

/* Takes out every POISON, on the pool. False: no memory. */
bool unpoison_begin(struct programs *p, struct pseg *pseg, uid_t owner);

/* How many remap events there were; false: one is under way. */
bool uffd_remaps(struct space *space, uint64_t *count);

/* What arrives on a userfaultfd while the kernel says EAGAIN; page faults are woken, and come
   again. */
void uffd_drain(struct space *space);
/* Between two such tries: gives way, and sleeps after the first few. */
void uffd_let_others(int tries);

/* ---- resolve.c ------------------------------------------------------------------------------ */

/* The part of an attachment that maps bytes [from, to) of the file: how long it is, and where. */
uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* Whether nothing has come since programs_watch that could map it outside of the arena; change is
   held, and the segment frozen. */
bool watch_holds(struct programs *p, struct pseg *pseg, const struct piece *pieces, size_t count);
/* The full look. -EBUSY with who. */
int watch_look(struct programs *p, struct pseg *pseg, uint64_t ino, struct ramp_err *err);
/* No window comes: unregistered. change is held. */
void watch_end(struct pseg *pseg);
/* Whether the locks of those memories can be had that have it mapped: to register takes them, for
   as long as a program likes. -EBUSY with who it is. change is not held, or others would wait. */
int watch_reach(struct pseg *pseg, struct ramp_err *err);
/* Those that have it mapped, with references; NULL: no memory. */
struct space **pseg_holders(struct pseg *pseg, size_t *count);
/* The ready sessions, with references. -ENOMEM, and spaces_free takes that, too. */
int spaces_ready(struct programs *p, struct space ***spaces, size_t *count);
void spaces_free(struct space **spaces, size_t count);
/* fn(a copy of arg, space), entered, for each, apart, until it returns nonzero: that, and whose *pid; -errno, of
   which -EBUSY: that process does not let itself be looked into (0: none was looked into). What fn has
   written into the copy is in arg afterwards, but for -EBUSY. Frees the spaces. */
typedef int space_fn(struct apart *apart, void *arg, struct space *space);
int spaces_look(struct space **spaces, size_t count, space_fn *fn, void *arg, size_t len,
		pid_t *pid);

/* ---- ahead.c -------------------------------------------------------------------------------- */

/* Drops what programs have mapped by small pages, a chunk at a time: what they use comes back. For
   a second at most. */
void ahead_cold(struct pseg *pseg);
/* Drops everything, until little comes back meanwhile. change is held. */
void ahead_last(struct pseg *pseg, const struct piece *pieces, size_t count);

/* ---- inject.c ------------------------------------------------------------------------------- */

#define INJECT_WHY 96
/* Whether it is stopped by a signal (SIGSTOP; not by a tracer). */
bool inject_stopped(struct space *space);
/* Whether inject_drop may be tried. -EBUSY: `why` goes on after "process 4711 (x) "; else empty. */
int inject_ready(struct space *space, char why[INJECT_WHY]);
/* Drops the entries of those ranges in a stopped process, which stays stopped. 0; -errno with
   `why`. Blocks: a second, and two more where a filter of the program's holds the call; 30 s where
   the kernel does not end it. */
int inject_drop(struct space *space, const struct cover *ranges, size_t count, uint64_t until_ms,
		char why[INJECT_WHY]);

/* ---- attach.c, adopt.c, gone.c ------------------------------------------------------------------ */

void attach_begin(struct request *request);
void adopt_begin(struct request *request);
void fork_begin(struct request *request);
void detach_begin(struct request *request);
/* A name for messages: "a/cache". */
void segment_name(struct programs *p, ramp_segment_t id, char *name, size_t cap);
/* Sends GONE for one range; change is held. until_ms 0: does not wait. */
int gone_range(struct programs *p, struct pseg *pseg, const struct piece *piece, bool say,
	       uint64_t until_ms);
/* An empty file of that segment, O_RDONLY, without a name any more. */
int gone_open(struct programs *p, ramp_segment_t id, bool writable);
/* When its session has come: segments that have gone or come back while there was none. `again`:
   later, what could not be done then; nobody is told once more. */
void space_catch_up(struct programs *p, struct space *space, bool again);
/* BACK and SWAP; change is held. */
int back_range(struct programs *p, struct pseg *pseg, const struct piece *piece, uint32_t flags,
	       uint64_t until_ms);

/* tokens.c */
/* 0; -ESRCH: there is none; why it can't be looked at. */
int process_find(pid_t pid, struct process *process);
int token_refused(struct ramp_err *err); /* -EPERM */
/* Whether the token was made for who asks: his own open, or a fork of his parent. 0;
   -EPERM: it was not; why he can't be looked at. */
int token_check(const struct token *token, struct request *request, struct ramp_err *err);
struct token *token_take(struct programs *p, const uint64_t secret[2]);
/* The token, whose process is set, is the table's, or freed. -EDQUOT. */
int token_add(struct programs *p, struct token *token, uint64_t secret[2], struct ramp_err *err);
void token_free(struct token *token);
/* Those that are too old. */
void tokens_expire(struct programs *p);
void tokens_close(struct programs *p);

#endif
