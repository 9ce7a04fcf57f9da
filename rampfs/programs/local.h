/*
 * What the files of this folder share. Others use programs.h.
 *
 *   struct space       one process: its agent's session and its userfaultfd. Counted.
 *   struct mapped_segment        one segment, as local programs have it: state and attachments. Counted.
 *   struct client_mappings     all that one client has mapped of one mseg.
 *   struct attachment  one mapping (a VMA) of it; found in /proc, never guessed.
 *
 * Locks, in the order in which they are taken:
 *   mseg->change   who registers, unregisters, revokes or looks anew; held over agents' answers
 *   client->life    becoming ready and being buried
 *   client->io      one conversation with an agent at a time
 *   client->mappings.lock  the text of /proc/PID/maps
 *   mseg->lock     its mappings; nothing that may wait for a program is called under it, but for
 *                  want of memory
 *   client->list    the same mappings, by client; they change under mseg->change, too, so whoever has
 *                  that reads them without these, and holds up nobody's page faults where he
 *                  waits in a program
 *   programs->lift which threads have priority
 *   programs->lock everything else
 *   client->time_slices  its own fields
 * The control thread takes only client->list and programs->lock and, if free, io. The pager takes
 * client->list and programs->lock, and, if free, client->time_slices and mseg->lock for reading: who has
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
#include "programs/proc/bounded.h"
#include "programs/proc/clock.h"
#include "programs/proc/mappings.h"
#include "programs/proc/process.h"
#include "programs/proc/search.h"

#define FREEZE_WAIT_MS	 10000u /* how long an attach waits for a freeze to end */
#define FIRST_MESSAGE_MS 5000u	/* a connection that says nothing is closed */
#define LATE_MAX	 1024u	/* GONEs that an agent has not answered yet */
#define RANGES_MAX	 8192u	/* attachments of one segment in one process */
#define UID_SLOTS	 1024u	/* by uid; users who share one share its fate */
#define TIME_SLICES_MAX	 8u	/* threads of one client whose slice is short */

/* Neighbours that are protected in different ways are one. */
struct attachment {
	uint64_t start, end, offset;
	uint32_t prot; /* all that is allowed somewhere in it */
	bool writable; /* of the file description, not of prot */
	bool gone;     /* maps the empty file */
};

/* Each look makes it anew and puts it in the place of the one before: whoever waits for the locks
   meanwhile does not wait for longer where a program has thousands of attachments. */
struct client_mappings {
	RB_ENTRY(client_mappings) in_mseg;   /* protected by mseg->lock */
	RB_ENTRY(client_mappings) in_client; /* protected by client->list */
	struct mapped_segment *mseg;	     /* a reference */
	struct space *client;		     /* a reference */
	ramp_segment_t id;		     /* of mseg */
	uint64_t end;			     /* of the last attachment */
	size_t count;			     /* at least 1 */
	struct attachment at[];		     /* sorted; written under both locks, and change */
};
RB_HEAD(attached_by_end, client_mappings);    /* by address */
RB_HEAD(attached_by_client, client_mappings); /* by client */
RB_PROTOTYPE(attached_by_end, client_mappings, in_client, compare_ends)
RB_PROTOTYPE(attached_by_client, client_mappings, in_mseg, compare_clients)

/*
 *   OPEN --programs_revoke--> FROZEN --programs_gone--> GONE --programs_back--> OPEN
 *                             FROZEN --programs_restore--> OPEN
 *
 * OPEN: not registered, or `pulling`: every attachment is registered and the pager serves it.
 * FROZEN: every attachment is registered, what touches it waits, nothing resolves it.
 * GONE: attachments map the empty file, or wait until their agents do it.
 * A daemon that starts finds FROZEN by a record GIVEN, GONE by none.
 */
enum mseg_state { MSEG_OPEN, MSEG_FROZEN, MSEG_GONE };

/* What stood when a full look was made (prelook.c). */
struct prelook {
	bool on;    /* and nothing has come between so far */
	bool armed; /* attachments may be registered for it */
	uint64_t attaches, remaps;
	size_t live;
};

struct mapped_segment {
	LIST_ENTRY(mapped_segment)
	link;			  /* programs->mapped segments; protected by programs->lock */
	uint32_t refs, attaching; /* protected by programs->lock */
	uint64_t attaches;	  /* how many began; protected by programs->lock */
	ramp_segment_t id;
	pthread_mutex_t change;
	struct prelook watch;  /* protected by change */
	pthread_rwlock_t lock; /* protects what follows */
	_Atomic int state;     /* enum mseg_state; written under lock and change */
	atomic_bool coming;    /* GONE, but programs_back is about to come */
	bool pulling;
	struct seg *seg;	 /* a reference, or NULL: not in this store */
	_Atomic uint64_t lo, hi; /* its extent, or the arena where it is not known */
	struct attached_by_client attached;
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
	struct mapped_segment *mseg; /* a reference */
	uint64_t addr, len;
};

/* What a raised thread had computed when it was looked at last (agent_priority.c). */
struct agent_load {
	int schedstat; /* its file in /proc; -1: none */
	uint64_t at_us, ran_us;
	uint32_t serial; /* of the last command by then */
	uint32_t busy;	 /* looks at which it had computed much, less those at which it had not */
};

/* Who maps pages. The first two are one thread each, but for those that programs keep
   (pull/takeover.c). */
enum resolver { RESOLVER_PAGER, RESOLVER_PREFETCH, RESOLVER_WORKER, RESOLVERS };

enum client_state { CLIENT_AT_BROKER, CLIENT_READYING, CLIENT_READY, CLIENT_DEAD };

/* Threads that page fault (time_slice.c). */
struct time_slices {
	pthread_mutex_t lock;
	bool over;	  /* the session is */
	bool again;	  /* the last scan may have missed some */
	uint64_t next_ms; /* no scan before that */
	struct {
		pid_t tid; /* 0: none */
		uint64_t fault_ms, set_ms;
	} of[TIME_SLICES_MAX];
};

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
	bool told; /* the pager has it; protected by life */
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
	_Atomic uint64_t strange; /* where a page fault was and the table has nothing; 0: none */

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

struct adopt_range {
	ramp_segment_t id;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
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

#define MSEG_BUCKETS 1024u

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
	struct listener *listener; /* listener.c; control thread */
	struct broker *broker;	   /* broker.c; control thread */
	struct workers *workers;
	struct quota *quota;  /* quota.c */
	pthread_mutex_t lift; /* before lock; agent_priority.c */
	uint64_t slice_ns; /* of a thread that nobody has given one; 0: not known (time_slice.c) */
	/* Until when agents of those users are not raised; protected by lift. */
	uint64_t greedy_until_ms[UID_SLOTS];
	/* Until when the pager maps nothing for those users (resolve.c). */
	_Atomic uint64_t by_worker_until_ms[UID_SLOTS];
	int shelf[2];		      /* -1: none */
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
	TAILQ_HEAD(release_list, release) leaving; /* broker_release.c */
	uint64_t next_client, next_release;
	struct programs_status status;
};

/* Waits on p->changed (p->lock held) until then; false: the time is over, or programs_close. */
bool programs_wait(struct programs *p, uint64_t until_ms);

/* ---- workers.c: threads that may wait for an agent --------------------------------------------- */

typedef void worker_fn(void *arg);
int workers_open(struct workers **out, struct ramp_err *err);
void workers_close(struct workers *workers); /* ends when all that was queued has run */
/* Runs fn(arg) on a worker thread, for a program of that user. Users take turns, and at most half
   of the threads run for one of them. Any thread. */
void workers_run(struct workers *workers, uid_t uid, worker_fn *fn, void *arg);
/* The same of what the daemon itself has to do for such a program, which goes first; WORKERS_SELF: for
   none of them. */
#define WORKERS_SELF ((uid_t)-1)
void workers_run_own(struct workers *workers, uid_t uid, worker_fn *fn, void *arg);

/* ---- quota.c: what one user may have at a time ---------------------------------------------- */

enum quota_kind {
	QUOTA_PENDING,
	QUOTA_SESSIONS, /* orphans too */
	QUOTA_BROKER, /* until the broker's thread has ended; what is to be let go of (broker_release.c) */
	QUOTA_REQUESTS,
	QUOTA_TOOLS,
	QUOTA_TOKENS,
	QUOTA_KINDS
};
#define QUOTA_DEFAULT 0u	/* max: the usual one, of that kind */
struct quota *quota_open(void); /* NULL: no memory */
void quota_close(struct quota *quota);
/* False, and a line in the log, where he would have more than `max`. Any thread. */
bool quota_take(struct programs *p, uid_t uid, enum quota_kind what, uint32_t by, uint32_t max);
void quota_give(struct programs *p, uid_t uid, enum quota_kind what, uint32_t by);

/* ---- broker.c ------------------------------------------------------------------------------ */

int broker_open(struct programs *p, struct broker **out, struct ramp_err *err);
void broker_close(struct broker *broker);
/* The userfaultfd of `client` will come over `door` (stays the caller's); listener_uffd gets it, and
   broker_queue_closed comes when the thread that waited there has ended. -EAGAIN: there is no
   broker now, or it is behind; this never waits. */
int broker_ask(struct broker *broker, uint64_t client, int door);
/* In two steps, and nothing of the kind in between: the broker has a copy of fd, which stays the
   caller's, and lets go of it when he says so. broker_release_ended comes when it has. -errno: later. */
int broker_let_go(struct broker *broker, uint64_t id, int fd);
int broker_go(struct broker *broker, uint64_t id);

/* ---- broker_release.c: userfaultfds that nobody needs any more -------------------------------------- */

#define RELEASE_IDS (UINT64_C(1) << 63) /* from here on; those of clients are less */
/* fd, which a program has sent, is ours no more. Any thread; nobody waits. */
void broker_release(struct programs *p, uid_t uid, int fd);
/* Control thread: sends what may be sent. */
void broker_release_run(struct programs *p);
void broker_release_ended(struct programs *p, uint64_t id);
/* The broker has died, and what he had with him. */
void broker_release_lost(struct programs *p);
/* At the end, without a broker. */
void broker_release_close(struct programs *p);

/* ---- listener.c, pending.c, broker_queue.c: connections ------------------------------------------ */

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err);
/* Hangs up everybody; then, when the workers have ended, the rest. */
void listener_stop(struct programs *p);
void listener_close(struct programs *p);
/* From the broker; control thread. fd is ours; -1: `why` (an errno) it was no good. */
void listener_uffd(struct programs *p, uint64_t client, int fd, int why);
/* Room for another one that waits. */
void broker_queue_closed(struct programs *p, uint64_t client);
/* The broker has died: sessions that wait for it are hung up, and come again. */
void broker_queue_lost(struct programs *p);
/* Sends to a tool; closes after an ANSWER. */
void conn_send(struct session_conn *conn, const struct session_msg *msg);
void conn_close(struct session_conn *conn);

/* ---- agent_priority.c: priority for agents ------------------------------------------------------------ */

/* Gives the client's agent real-time priority, and takes it from any other of that memory. */
void agent_raise(struct space *client);
/* Its session is over. */
void agent_lower(struct space *client);
/* A worker's job, each second, of the programs: who computes all the time loses it; and short
   slices end (time_slice.c). */
worker_fn agents_watch;

/* ---- time_slice.c: short time slices for threads that page fault --------------------------------- */

void time_slices_init(struct space *client);
/* Of those which have not page faulted for a moment the slice is as it was. Each second; the us that
   it took. */
uint64_t time_slices_restore(struct space *client);
/* The same of threads that inherited a short one, or got it from a former daemon. */
void time_slices_inherited(struct space *client);
/* Of all of them, and nobody gets one any more. */
void time_slices_over(struct space *client);

/* ---- client_life.c -------------------------------------------------------------------------------- */

/* Jobs of the workers. ready and look: take a reference with them; bury: the list's. sweep: of the
   programs, drops the orphans that need not be kept any more. */
worker_fn client_ready, client_look, client_bury, clients_sweep;
/* With a reference for the caller, and nothing open; NULL: no memory. */
struct space *client_make(struct programs *p, pid_t pid, uid_t uid);
/* A former daemon's orphan, DEAD, is one of ours, reference and all. */
void client_adopt(struct space *client);
/* READY; a result other than 0 ends the session. */
void client_say_ready(struct space *client, int result, const char *text);
/* Whether the process maps anything of the store. */
bool client_maps(struct space *client);
/* Whether its memory has a ready session by now. */
bool client_replaced(struct space *client);
/* A reference to the ready client of that process, waiting for one at most until then; NULL. */
struct space *client_find(struct programs *p, pid_t pid, uint64_t until_ms);
bool client_is(struct space *client, enum client_state state);
/* A descriptor of the segment's file for its agent, which the caller closes: seg_hand_out. */
int client_open_seg(struct space *client, struct seg *seg, bool writable);
bool client_dead(struct space *client);
/* ---- fdstore.c -------------------------------------------------------------------------------- */

/* An orphan: the next daemon finds it there (stored is set); or not any more. */
void fdstore_put(struct space *client);
void fdstore_drop(struct space *client);
/* What a former daemon has put there becomes orphans of ours. */
void fdstore_adopt(struct programs *p);

/* A throw-away request (ATTACH, FORK, ADOPT, DETACH, PUNCH): on a worker, then closed. */
struct client_request {
	struct programs *programs;
	int sock, pidfd; /* pidfd -1: the process has ended */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	struct session_msg msg;
};
/* Who asked for it has ended, or has hung up. */
bool request_is_for_nobody(const struct client_request *request);
/* The ready client of the very process that has connected, as client_find; it is waited for as long
   as somebody waits for the answer. */
struct space *request_space(struct client_request *request, uint64_t until_ms);
/* The same of another process. */
struct space *request_find(struct client_request *request, pid_t pid, uint64_t until_ms);
/* Sends RESULT: 0, or -errno where nobody takes it. */
int request_answer(struct client_request *request, const struct session_msg *result);
void request_free(struct client_request *request);

/* ---- tool_requests.c -------------------------------------------------------------------------------- */

struct tool_request *tool_begin(struct programs *p, struct session_conn *conn,
				const struct session_msg *msg, uid_t uid);
void tool_gone(struct tool_request *tool); /* hung up: cancels, never sends any more */
void tool_cancel(struct tool_request *tool);
void punch_begin(struct client_request *request);

/* ---- programs.c ------------------------------------------------------------------------------ */

/* What it counts of users outlives programs_close until whoever holds it lets go: who is asked to
   punch a hole may answer later. */
void programs_hold(struct programs *p);
void programs_let_go(struct programs *p);

/* ---- agent_call.c: conversations with an agent ---------------------------------------------------- */

/* Locks io, sends, waits for DONE. 0, the agent's -errno (with `at`: DONE's addr), -ETIMEDOUT,
   -ESRCH (the session is over), -EPROTO (then it has been hung up). */
int agent_call(struct space *client, struct session_msg *msg, int fd, uint64_t until_ms,
	       uint64_t *at);
/* The same with io held by the caller. */
int agent_ask(struct space *client, struct session_msg *msg, int fd, uint64_t until_ms,
	      uint64_t *at);
/* In two steps, with io held by the caller. */
int agent_send(struct space *client, struct session_msg *msg, int fd);
int agent_wait(struct space *client, uint32_t serial, uint64_t until_ms, uint64_t *at);
/* The same without waiting: -EAGAIN when the DONE has not come. */
int agent_look(struct space *client, uint32_t serial, uint64_t *at);
/* A GONE that was sent and not answered: the range is woken when it is. io is held. */
void agent_expect(struct space *client, uint32_t serial, struct mapped_segment *mseg, uint64_t addr,
		  uint64_t len);
/* Control thread: takes late answers, if nobody else is in a conversation. */
void agent_take_late(struct space *client);
bool client_has_late(struct space *client);
void agent_forget_late(struct space *client);

/* ---- attachments.c: mapped segments and attachments --------------------------------------------------------- */

/* Finds or makes; NULL: no memory. */
struct mapped_segment *mseg_get(struct programs *p, ramp_segment_t id);
struct mapped_segment *mseg_hold(struct programs *p, struct mapped_segment *mseg);
struct mapped_segment *mseg_find(struct programs *p, ramp_segment_t id); /* NULL: none */
/* The same where the table knows that the client has it mapped: whoever names another's segment does
   not get to its locks. */
struct mapped_segment *mseg_held(struct programs *p, ramp_segment_t id, struct space *client);
void mseg_put(struct programs *p, struct mapped_segment *mseg);
void mseg_free_all(struct programs *p); /* at the end */
/* Makes mseg->seg this one (takes a reference of its own), or NULL. */
void mseg_set_seg(struct mapped_segment *mseg, struct seg *seg);
void mseg_set_state(struct programs *p, struct mapped_segment *mseg, enum mseg_state state);
bool mseg_armed(struct mapped_segment *mseg); /* attachments must be registered; change is held */
/* Looks what `client` maps of mseg and makes the table say so; registers what is new where it must
   be. change is held. -E2BIG: more than RANGES_MAX attachments. */
int mseg_look(struct programs *p, struct mapped_segment *mseg, struct space *client);
/* The same for all that have it (or that client: NULL for all), since a program says nothing when it
   unmaps, splits or lets grow. Without memory the table stays as it is. change is held. */
void mseg_look_all(struct programs *p, struct mapped_segment *mseg, const struct space *only);
/* What that client has of it, or NULL; mseg->lock or change is held. */
struct client_mappings *mseg_mappings_of(struct mapped_segment *mseg, struct space *client);
/* What is attached at that address, or NULL; client->list is held. */
struct client_mappings *client_mappings_at(struct space *client, uint64_t addr);
const struct attachment *attachment_at(const struct client_mappings *holding, uint64_t addr);
/* All that the client maps, for a session that has come. */
int client_learn(struct programs *p, struct space *client);
/* Takes its mappings out of the table. */
void client_forget(struct programs *p, struct space *client);

struct mapping_ref;
/* The attachments in that range map the segment from now on: BACK is about to swap it in. */
void mseg_mark_live(struct mapped_segment *mseg, const struct mapping_ref *ref);

/* A copy of the attachments, with references to their clients. */
struct mapping_ref {
	struct space *client;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};
/* -ENOMEM. Sorted by client, then start. */
int mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count);
void mapping_refs_free(struct mapping_ref *refs, size_t count);

/* ---- uffd.c, poison.c --------------------------------------------------------------------- */

/* 0; -EINVAL and the like: no good, `why` says it. */
int uffd_handshake(int uffd, struct ramp_err *err);
/* Registers / unregisters. -EINVAL: nothing is there any more, or something else. */
int uffd_arm(struct space *client, uint64_t start, uint64_t end);
void uffd_disarm(struct space *client, uint64_t start, uint64_t end);

/* Takes out every POISON, on a worker. False: no memory. */
bool unpoison_begin(struct programs *p, struct mapped_segment *mseg, uid_t owner);

/* How many remap events there were; false: one is under way. */
bool uffd_remaps(struct space *client, uint64_t *count);

/* What arrives on a userfaultfd while the kernel says EAGAIN; page faults are woken, and come
   again. */
void uffd_drain(struct space *client);
/* Between two such tries: gives way, and sleeps after the first few. */
void uffd_let_others(int tries);

/* ---- resolve.c ------------------------------------------------------------------------------ */

/* The part of an attachment that maps bytes [from, to) of the file: how long it is, and where. */
uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr);

/* ---- prelook.c -------------------------------------------------------------------------------- */

/* Whether nothing has come since programs_watch that could map it outside of the arena; change is
   held, and the segment frozen. */
bool prelook_holds(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count);
/* The full look. -EBUSY with who. */
int prelook_look(struct programs *p, struct mapped_segment *mseg, uint64_t ino,
		 struct ramp_err *err);
/* No window comes: unregistered. change is held. */
void prelook_end(struct mapped_segment *mseg);
/* Whether the locks of those memories can be had that have it mapped: to register takes them, for
   as long as a program likes. -EBUSY with who it is. change is not held, or others would wait. */
int prelook_reach(struct mapped_segment *mseg, struct ramp_err *err);
/* Those that have it mapped, with references; NULL: no memory. */
struct space **mseg_clients(struct mapped_segment *mseg, size_t *count);
/* The ready sessions, with references. -ENOMEM, and clients_free takes that, too. */
int clients_get_ready(struct programs *p, struct space ***clients, size_t *count);
void clients_free(struct space **clients, size_t count);
/* fn(a copy of arg, client), entered, for each, apart, until it returns nonzero: that, and whose *pid; -errno, of
   which -EBUSY: that process does not let itself be looked into (0: none was looked into). What fn has
   written into the copy is in arg afterwards, but for -EBUSY. Frees the clients. */
typedef int client_fn(struct bounded *bounded, void *arg, struct space *client);
int clients_look(struct space **clients, size_t count, client_fn *fn, void *arg, size_t len,
		 pid_t *pid);

/* ---- drop_ahead.c -------------------------------------------------------------------------------- */

/* Drops what programs have mapped by small pages, a chunk at a time: what they use comes back. For
   a second at most. */
void drop_ahead_cold(struct mapped_segment *mseg);
/* Drops everything, until little comes back meanwhile. change is held. */
void drop_ahead_last(struct mapped_segment *mseg, const struct mapping_ref *refs, size_t count);

/* ---- inject.c ------------------------------------------------------------------------------- */

#define INJECT_WHY 96
/* Whether it is stopped by a signal (SIGSTOP; not by a tracer). */
bool client_stopped(struct space *client);
/* Whether inject_drop may be tried. -EBUSY: `why` goes on after "process 4711 (x) "; else empty. */
int inject_ready(struct space *client, char why[INJECT_WHY]);
/* Drops the entries of those ranges in a stopped process, which stays stopped. 0; -errno with
   `why`. Blocks: a second, and two more where a filter of the program's holds the call; 30 s where
   the kernel does not end it. */
int inject_drop(struct space *client, const struct address_range *ranges, size_t count,
		uint64_t until_ms, char why[INJECT_WHY]);

/* ---- attach.c, fork_adopt.c, replace.c ------------------------------------------------------------------ */

void attach_begin(struct client_request *request);
void adopt_begin(struct client_request *request);
void fork_begin(struct client_request *request);
void detach_begin(struct client_request *request);
/* A name for messages: "a/cache". */
void segment_name(struct programs *p, ramp_segment_t id, char *name, size_t cap);
/* Sends GONE for one range; change is held. until_ms 0: does not wait. */
int replace_gone(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 bool say, uint64_t until_ms);
/* An empty file of that segment, O_RDONLY, without a name any more. */
int replace_open_empty(struct programs *p, ramp_segment_t id, bool writable);
/* When its session has come: segments that have gone or come back while there was none. `again`:
   later, what could not be done then; nobody is told once more. */
void client_catch_up(struct programs *p, struct space *client, bool again);
/* BACK and SWAP; change is held. */
int replace_back(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 uint32_t flags, uint64_t until_ms);

/* tokens.c */
int token_refused(struct ramp_err *err); /* -EPERM */
/* Whether the token was made for who asks: his own open, or a fork of his parent. 0;
   -EPERM: it was not; why he can't be looked at. */
int token_check(const struct token *token, struct client_request *request, struct ramp_err *err);
struct token *token_take(struct programs *p, const uint64_t secret[2]);
/* The token, whose process is set, is the table's, or freed. -EDQUOT. */
int token_add(struct programs *p, struct token *token, uint64_t secret[2], struct ramp_err *err);
void token_free(struct token *token);
/* Those that are too old. */
void tokens_expire(struct programs *p);
void tokens_close(struct programs *p);

#endif
