/*
 * Local programs: which segments they have mapped, how access is taken away from them and given
 * back.
 *
 * An unmodified program maps a segment through the shim (libramp/preload/), whose agent thread
 * keeps a session with the daemon. The truth about mappings is in /proc (proc/mappings.c), not in a
 * table that remembers. A fully local segment is not registered with userfaultfd at all; from a
 * revoke on every attachment's range is registered, and while pages are still remote all that is near
 * them, MISSING|MINOR|WP together (contrib/doc/design.md, "Attach: how a program gets local memory" and
 * "Revoke").
 *
 * Thread-safety is stated with each function. "Blocks" means: for workers (loop_work), never on the
 * control loop, a fuse thread or the pager.
 */
#ifndef RAMP_PROGRAMS_H
#define RAMP_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "memory/find_data.h"
#include "memory/page_set.h"
#include "memory/store.h"
#include "meta/meta.h"

struct programs;
struct client; /* a client: one process, its session and its userfaultfd */

/*
 * Must be the first statement of main(). Where programs_open has executed this program as
 * `--broker`, runs the broker and never returns; else returns at once.
 */
void programs_broker(int argc, char **argv);

struct programs_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	int listen_fd; /* the session socket, listening (the keeper holds it too) */
	/* Both ends of a socket pair that the keeper holds, too: a daemon leaves descriptors in it,
	   and the next daemon finds them there (client/fdstore.c). NULL: none. */
	const int *fdstore;
	const char *session_path;
	const char *mountpoint; /* for messages */
	gid_t uffd_group;	/* (gid_t)-1: every program may have a userfaultfd */
	uint32_t connect_ms;	/* an agent that is silent for longer: EBUSY; 0: 5000 */
	uint32_t user_sessions; /* processes of one user, unless it is root; 0: 4096 */
	uint32_t token_ms;	/* how long a token is valid; 0: 30000 */
};

/* Starts the broker, and listens. Control thread, as are programs_close and the programs_set_*
   functions, which are called before the loop runs. */
int programs_open(const struct programs_config *config, struct programs **out,
		  struct ramp_err *err);
/* Listens on another session socket, whose name programs find from now on, in the place of listen_fd
   and under its number. Closes `fd` in any case. 0; -errno: nothing has changed. Control thread. */
int programs_listen(struct programs *programs, int fd);
/* Ends the service of sessions: programs keep their mappings, and come back to the next daemon.
   Called after the pager has given back every client, and the loop has stopped. Where a program
   keeps a thread in client_resolve or programs_resolve, the memory that this thread uses is not
   freed. */
void programs_close(struct programs *programs);

/*
 * Makes a one-time token for one open of a segment (the answer to the FUSE ioctl). It is valid for
 * one ATTACH with that access mode (O_RDONLY, O_RDWR) by that process, for 30 s. -ESRCH: there is
 * no such process; -EDQUOT: its user has too many tokens. Any thread.
 */
int programs_token(struct programs *programs, ramp_segment_t id, int access_mode, pid_t pid,
		   uint64_t token[2], struct ramp_err *err);

/* ---- page faults (pull/pager.c) ------------------------------------------------------------- */

/* One page fault, with its address translated into a page of a segment. */
struct client_fault {
	struct seg *seg; /* a reference for the caller; NULL: in no attachment (it was woken) */
	uint64_t page;
	uint64_t addr;
	pid_t tid; /* the thread, as its program numbers it; 0: not known */
	bool write;
};

struct programs_pager {
	/* client_added: a client has come, with a reference for the pager, which adds `uffd` to its
	   epoll set. client_gone: it has gone, and the pager forgets `uffd` and gives the reference
	   back by client_put. Any thread but the pager's; once each. `uffd` stays open until the
	   last reference goes. Where it can't be added (-errno) no reference is kept, and the
	   program is told so: its page faults would not be served. */
	int (*client_added)(void *arg, struct client *client, int uffd);
	void (*client_gone)(void *arg, struct client *client);
	/* Pulls the segment at full speed from now on, if it is being pulled. Never blocks. */
	void (*prefetch_all)(void *arg, ramp_segment_t id);
	void *arg;
};
void programs_set_pager(struct programs *programs, const struct programs_pager *pager);
/* Reads the events that are ready on the userfaultfd, without blocking. Remap events are handled
   inside, and page faults of a segment that is FROZEN or GONE are left waiting. Returns how many
   page faults it has put into `faults`, which may be 0; -EAGAIN: nothing was ready; -EIO: the
   userfaultfd can't be read, and the log says so. At most 32 a call; *more: there may be some left.
   Pager thread. */
int client_read(struct client *client, struct client_fault *faults, int max, bool *more);
struct client *client_get(struct client *client); /* takes a reference. Any thread */
void client_put(struct client *client);
/* Notes that this thread of the client waits for a page: when the page has come the thread is to
   run soon (client/time_slice.c). Never waits. Pager thread. */
void client_waits(struct client *client, pid_t tid);
/* Wakes the access that is blocked at `addr`: it tries again. Pager thread. */
void client_wake(struct client *client, uint64_t addr);
/* Wakes all blocked accesses of the client, whatever the tables say. Any thread. */
void client_wake_all(struct client *client);
/*
 * Maps pages that have come: `count` pages of the segment from `first` on, where `first` is at
 * `addr` in that client. Maps (CONTINUE) those of them that are LOCAL in that attachment, and wakes
 * the threads that wait there. Threads of other clients that wait for one of them have page faults
 * of their own. Does nothing while the segment is frozen. The cost does not depend on how many
 * other clients have the segment attached. It waits for no other thread of the daemon: where it
 * would have to, or where a program that mremaps all the time keeps the kernel from mapping
 * anything, it only wakes the thread that waits at `addr`, whose page fault comes again. (A page
 * that was POISONED before it came then stays SIGBUS for that program until it is written over.)
 *
 * But the kernel may wait in there for the program, which can keep the caller for as long as it
 * lives. A client keeps one of these threads at most: another thread of the pager's calls
 * client_blocked. From then on client_resolve returns at once for all programs of that user, and
 * workers map their pages, for ten minutes (BY_WORKER_MS in fault/resolve.c).
 */
void client_resolve(struct client *client, ramp_segment_t id, uint64_t addr, uint64_t first,
		    uint64_t count);
void client_blocked(struct client *client);

/*
 * Does the same in every registered attachment of the segment. Takes the attachments' lock for
 * reading, each time for a short while, and allocates nothing. A program may keep the caller here,
 * too. A client that keeps a thread already is passed over: its page faults get the pages all the
 * same. *since_us (CLOCK_MONOTONIC) becomes the time at which the caller came to the client where
 * it is: the call takes its time where thousands of clients have the segment attached, without
 * being kept by one of them. The prefetch thread.
 */
void programs_resolve(struct programs *programs, ramp_segment_t id, uint64_t first, uint64_t count,
		      _Atomic uint64_t *since_us);
/*
 * Does the same for pages that a write(2) has brought, where accesses may have got SIGBUS before:
 * on the workers, in the share of each program's user. Waits until it is done, but 100 ms at most:
 * no program keeps the caller. Any thread but the pager's and the workers'.
 */
void programs_written(struct programs *programs, ramp_segment_t id, uint64_t first, uint64_t count);
/* Poisons a page that was touched and is LOST (or is a hole for which there was no room): POISON,
   after the agent has said why. */
void programs_poison(struct programs *programs, struct seg *seg, uint64_t page, const char *why);
/* Begins to take out every POISON: the next touch of such a page finds out again how it is. False:
   not now, since one is on its way, or there is no memory; call it again. Never blocks. */
bool programs_unpoison(struct programs *programs, struct seg *seg);
/* Registers the attachments of the segment, unless all pages have come meanwhile: pages are remote
   from now on (a target's TAKEN). Blocks shortly. New attachments register themselves while
   pages_missing() is not 0. */
int programs_pulling(struct programs *programs, struct seg *seg, struct ramp_err *err);
/* Begins to unregister what lies in a stretch without a missing page, in every program (attach/stretches.c): a
   touch of it costs no page fault of the daemon's any more. Of a segment that is being pulled, now and then.
   Never blocks. */
void programs_trim(struct programs *programs, struct seg *seg);
/* Begins to unregister, to wake and to take out every POISON: all pages are LOCAL. False: not now,
   since an agent is being waited for, which may take seconds; call it again. It does not wait,
   since the thread that pulls this segment pulls others, too. */
bool programs_pulled(struct programs *programs, struct seg *seg);

/* ---- revoke (transfer/source_window.c) ------------------------------------------------------ */

/*
 * Says at CONNECT whether the segment may be moved. -EBUSY, with its pid and name: a process that
 * maps it has no session, is stopped by a debugger or a frozen cgroup, keeps the lock of its memory
 * (which takes 3 s to see), has private copies, or holds it by passthrough. Asks all processes.
 * Blocks.
 */
int programs_may_move(struct programs *programs, struct seg *seg, struct ramp_err *err);
/* The same for one of many, which came at came_us (clock_us): they share a look at /proc that is not older
   than that, nor than 0.1 s. 0: as programs_may_move. */
int programs_may_move_since(struct programs *programs, struct seg *seg, uint64_t came_us,
			    struct ramp_err *err);
/*
 * Makes a full look, right before the freeze, at the processes that map the segment, so that the
 * revoke need not make it within the window (revoke/prelook.c). Finds places for the page tables that
 * the revoke moves away (attach/move_away.c). -EBUSY as above. Where no revoke follows, programs_restore takes back what this has registered.
 * Blocks; programs continue.
 */
int programs_prelook(struct programs *programs, struct seg *seg, struct ramp_err *err);
struct mapped_segment;
struct prelook_one {
	struct seg *seg;
	struct ramp_err *err;
	/* programs_prelook_many's own: */
	struct mapped_segment *mseg;
	uint64_t ino;
	bool looks;

	int rc; /* as of programs_prelook */
};
/* The same for several segments, which share a look; each has its own result. */
void programs_prelook_many(struct programs *programs, struct prelook_one *ones, size_t n);
/*
 * Takes access away from every attachment: registers, lets the agents move the page tables away, checks with
 * PAGEMAP_SCAN and PROCMAP_QUERY that nothing is left. New attaches wait from here on. When it
 * returns 0 no thread of any program can load or store until programs_restore or programs_gone, but for
 * a hostile one (security.md, "What the agent gets"); on failure (-EBUSY, -ETIMEDOUT) everything has been given back.
 *
 * Blocks for `timeout_ms` at most. Exception: a program that has taken the lock of its memory since
 * programs_prelook blocks it until the program lets go. The calls that follow may block so, too: all
 * of them are for loop_work_of, on whose threads that harms the segment's owner alone. A thread
 * with real-time priority (kernel_rt_boost) is not kept waiting by busy programs.
 */
int programs_revoke(struct programs *programs, struct seg *seg, uint32_t timeout_ms,
		    struct ramp_err *err);
/*
 * Closes a segment to stores before its hand-over, while loads continue (revoke/close_stores.c), in three calls:
 * programs_close_ahead, after programs_prelook, has all made that takes long; programs_revoke follows; and
 * programs_close_stores lets loads continue. From the revoke on no byte changes until programs_restore, which
 * opens it again, also instead of the later calls. programs_prelook and programs_revoke then lead to the
 * hand-over as ever. -EOPNOTSUPP: the agent of a process that has it mapped is too old, and is named; else as
 * programs_revoke. Block, while programs continue.
 */
int programs_close_ahead(struct programs *programs, struct seg *seg, struct ramp_err *err);
int programs_close_stores(struct programs *programs, struct seg *seg, uint32_t timeout_ms,
			  struct ramp_err *err);
/* Aborts: access is back as it was. Blocks shortly. May be called in the life of a daemon that
   never revoked, and twice; so may programs_gone. */
void programs_restore(struct programs *programs, struct seg *seg);
/* Replaces the segment, which is on another node now: agents map an empty file over it and say so,
   and every thread that waits there gets SIGBUS. Blocks shortly. */
void programs_gone(struct programs *programs, struct seg *seg, const char *owner_node);
/* Brings the segment back, which is here again (TAKEN; programs_pulling, by pull_begin, comes
   first): agents that had it put it in place at the old address. Blocks; the pager must be running.
   A thread with real-time priority (kernel_rt_boost) has normal priority again when it has taken
   half a second. */
void programs_back(struct programs *programs, struct seg *seg);
/*
 * Waits, after programs_back, for the programs that had the segment mapped and have no session yet:
 * the agents of an earlier daemon's time come to this daemon within a short time. Waits until
 * until_ms at most (CLOCK_MONOTONIC; in the past: not at all). Looks at all of /proc again and
 * again, while those agents need the processors: not for a thread with real-time priority.
 */
void programs_await(struct programs *programs, struct seg *seg, uint64_t until_ms);

/* ---- giving addresses back (transfer/give_back.c) -------------------------------------------- */

/* The extent of a segment, by its row at that epoch. */
struct programs_extent {
	ramp_segment_t id;
	uint64_t epoch, addr, len;
};
/* Holds attaches of it: those under way have ended, new ones wait until programs_release_attaches. -EBUSY: one
   does not end, or it is held already. Blocks; for the owner. */
int programs_hold_attaches(struct programs *programs, ramp_segment_t id, struct ramp_err *err);
void programs_release_attaches(struct programs *programs,
			       ramp_segment_t id); /* any thread; blocks shortly */
/*
 * Says whether no process of this machine has anything of it there, neither the segment nor the empty
 * file in its place; -EBUSY: one has, or can't be looked into; err names it. After 0 none will, until the
 * segment's row is newer: a fork's child gets no empty file there. Blocks (asks /proc; up to 3 s).
 */
int programs_give_back(struct programs *programs, const struct programs_extent *extent,
		       struct ramp_err *err);

/* ---- watching stores (transfer/rounds.c) ----------------------------------------------------- */

/*
 * Begins to watch which pages programs store into: registers each writable attachment for WP_ASYNC, and
 * write-protects what it has stored into. Stores continue, and cost a page fault for the first one to a
 * page, which the kernel resolves by itself. `ranges`: where the file has data. -EBUSY: pages of it are
 * lost, or a process could store past all this (direct I/O, io_uring, an RDMA device: pins.c), which is
 * named. Blocks; programs continue.
 */
int programs_watch(struct programs *programs, struct seg *seg, const struct data_range *ranges,
		   uint32_t count, struct ramp_err *err);
/*
 * Adds the pages in `ranges` (and perhaps some beside them) that may have been stored into since the last call to `stored`, and watches
 * on. All of them, where attachments have come, gone or changed in between. The caller reads the pages
 * after this. Errors as above. Blocks; programs continue.
 */
int programs_stored(struct programs *programs, struct seg *seg, const struct data_range *ranges,
		    uint32_t count, struct page_set *stored, struct ramp_err *err);
/* The same after programs_revoke or programs_close_stores: what is not in the set was not stored into since the call before.
   -ENOMEM. Blocks shortly. */
int programs_stored_last(struct programs *programs, struct seg *seg,
			 const struct data_range *ranges, uint32_t count, struct page_set *stored);
/* Says why the last of these made all pages count, which were perhaps not stored into; NULL: it did not. Blocks
   shortly. */
const char *programs_stored_all(struct programs *programs, struct seg *seg);
/* Returns whether a program has the segment mapped, as far as the table says. */
bool programs_use(struct programs *programs, struct seg *seg);
/*
 * Has stores into 4 KiB tell from each other, in huge pages that are in both sets, unless each huge
 * page is: what programs_stored has put into `stored` now, and the time before into `before`. Without `before`: in all that
 * are in `stored`, though each huge page may be. Returns in how many; the
 * caller reads what is in `stored` after this. Blocks; programs continue.
 */
uint32_t programs_split(struct programs *programs, struct seg *seg, const struct page_set *before,
			const struct page_set *stored);
/* Adds the first pages of those in `stored` that programs have mapped by huge pages, and where one store makes all of them
   count, to `huge`. -ENOMEM. Blocks shortly. */
int programs_huge(struct programs *programs, struct seg *seg, const struct page_set *stored,
		  struct page_set *huge);
/* Ends the watch. Blocks shortly. */
void programs_unwatch(struct programs *programs, struct seg *seg);

/* Maps 2 MiB that are a huge page of the file, from `offset` on, as one in each program that has them mapped by small
   entries, as far as the kernel does. Not where the segment moves or is pulled. Blocks shortly. */
void programs_map_huge(struct programs *programs, struct seg *seg, uint64_t offset);

/* Returns true while any process of this machine maps the segment's file, or can't be looked into.
   Blocks (asks /proc; up to 3 s). */
bool programs_mapped(struct programs *programs, struct seg *seg);
#define PROGRAMS_KEEPER 128
/* A process that maps the segment's file, and why it may not let go of it: "process 4711 (x), which
   is stopped,"; empty: none was found. Blocks as programs_mapped. */
void programs_keeper(struct seg *seg, char who[PROGRAMS_KEEPER]);

/*
 * Asks the mount for a process that holds the segment by FUSE passthrough: such a process has no
 * session for it, and can't be revoked. 0; -EBUSY with the process. Called by programs_may_move,
 * and by programs_revoke when the mount's gate is closed. Set on the control thread before the loop
 * runs.
 */
typedef int programs_passthrough(void *arg, struct seg *seg, struct ramp_err *err);
void programs_set_passthrough(struct programs *programs, programs_passthrough *fn, void *arg);
/* 1: a process maps that file, and *pid is one; 0: none does; -errno. -EBUSY: process *pid can't be
   looked into, and may map it. Blocks (asks /proc; up to 3 s). */
int programs_maps_file(dev_t dev, uint64_t ino, pid_t *pid);

/* ---- madvise(MADV_REMOVE) of a program ------------------------------------------------------ */

struct punch_request; /* alive until punch_answer */
/* Punches a hole for a program that has the segment mapped writable. The handler goes through the
   page states as fallocate(2) does, and answers by punch_answer, once, from any thread, also after
   programs_close. Control loop. Without a handler: EOPNOTSUPP. */
typedef void programs_punch(void *arg, struct punch_request *request, ramp_segment_t id,
			    uint64_t offset, uint64_t len);
/* Returns true where that process may leave set-id bits in what it changes (CAP_FSETID). Any
   thread; may wait for the process. */
typedef bool programs_keeps_setid(pid_t pid);
void programs_set_punch(struct programs *programs, programs_punch *fn, void *arg,
			programs_keeps_setid *keeps_setid);
/* Returns true where the program has waited for too long, or has hung up: bytes that are punched
   now could be what the program has stored since. Called right before punching; the answer is then
   ETIMEDOUT. */
bool punch_is_late(const struct punch_request *request);
/* -ESHUTDOWN: gives no answer, and the program asks the next daemon. */
void punch_answer(struct punch_request *request, int result);
/* Says which process asks, and the group that it had when it connected. Returns the result of
   programs_keeps_setid for it. */
bool punch_caller(const struct punch_request *request, pid_t *pid, gid_t *gid);

/* ---- tools over the session (tools/migrate.c, tools/node.c) --------------------------------- */

struct tool_request; /* one request of a tool, alive until tool_answer */
struct tool_migrate {
	ramp_segment_t id;
	char dst_node[RAMP_NODE_NAME_MAX + 1];
	char dst_name[RAMP_NAME_MAX + 1]; /* empty: keep its name */
	uint8_t mode;			  /* enum transfer_mode, unchecked */
	uint8_t rounds;			  /* at most; unchecked, 0: the default */
	bool wait;			  /* until STABLE */
	bool progress, trace;
	uint64_t limit_bytes_s, batch; /* unchecked; 0: none */
	bool queues; /* it is one of many, and waits for its turn where many are under way */
	/* It waits after `step` (enum session_step, unchecked), hold_ms at most, until it may continue. */
	bool in_steps;
	uint8_t step;
	uint32_t hold_ms;
	bool force; /* asks no program */
	uid_t uid;
};
/* A program that has the segment open waits for bytes [offset, offset + len); len 0: to the end. */
struct tool_pull {
	ramp_segment_t id;
	uint64_t offset, len;
};
/* A program that has the segment open for writing gives up its pages that have not come. */
struct tool_give_up {
	ramp_segment_t id;
	uid_t uid;
	bool zeros; /* they are zeros, not LOST */
};
struct programs_tools {
	/* Control loop. Is answered exactly once by tool_answer; tool_progress may come before. */
	void (*migrate)(void *arg, struct tool_request *request, const struct tool_migrate *what);
	void (*cancel)(void *arg, struct tool_request *request); /* Ctrl-C, or the tool is gone */
	/* A move in steps may continue to `step`; SESSION_HOLD: it waits for hold_ms from now on. */
	void (*go)(void *arg, struct tool_request *request, uint8_t step, uint32_t hold_ms);
	/* Is answered as `migrate` is. */
	void (*pull)(void *arg, struct tool_request *request, const struct tool_pull *what);
	void (*give_up)(void *arg, struct tool_request *request, const struct tool_give_up *what);
	void *arg;
};
void programs_set_tools(struct programs *programs, const struct programs_tools *tools);

/* A change of the cluster's members that root asks for; `verb` is an enum session_member,
   unchecked. */
struct tool_member {
	uint8_t verb; /* enum session_member */
	char node[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	uint64_t capacity_bytes; /* SET: the value */
	ramp_incarnation_t incarnation;
	bool force;
};
/* Control loop. Is answered exactly once by tool_answer. */
typedef void programs_member(void *arg, struct tool_request *request,
			     const struct tool_member *what);
void programs_set_members(struct programs *programs, programs_member *fn, void *arg);
void tool_answer(struct tool_request *request, int result, const char *text); /* control loop */
void tool_progress(struct tool_request *request, uint64_t done_pages, uint64_t all_pages,
		   const char *state); /* control loop */
/* Says that a move in steps waits after `step`, for ms. Control loop. */
void tool_held(struct tool_request *request, uint8_t step, uint32_t ms);
/* Sends one step of a trace. page: of a page fault, else UINT64_MAX; node "": a remark. Control
   loop. */
void tool_step(struct tool_request *request, const char *node, uint64_t page, uint64_t at_ns,
	       const char *name);

/* ---- programs that hear of segments (subscribers.c) ------------------------------------------- */

struct programs_event {
	uint8_t kind;	  /* enum session_event */
	bool asked_alone; /* only programs that were asked hear of it: it has no row any more */
	ramp_segment_t id;
	uint64_t epoch, size;
	uint64_t pages;		 /* WHOLE: that are lost; ROUND: that were stored into */
	uint32_t mode, uid, gid; /* of its row: only programs that may read it hear of it */
	char name[RAMP_NAME_MAX + 1];
	char node[RAMP_NODE_NAME_MAX + 1];  /* the other node: from where, or where it is now */
	char name_there[RAMP_NAME_MAX + 1]; /* COMING: its name on that node */
	int code;			    /* FAILED: a positive errno, and why */
	const char *text;
	uint32_t within_ms; /* ASKED */
};
/* Tells it to all subscribers that may hear of it. LEFT and FAILED end what programs_ask began.
   Control loop. */
void programs_announce(struct programs *programs, const struct programs_event *event);
/* Returns whether the receiver that hears of that segment wants its pages on demand alone. Control loop. */
bool programs_wants_demand(struct programs *programs, const struct programs_event *coming);
/* Asks (ASKED) each program that wants to be asked and has that segment mapped, once. Control
   loop. */
void programs_ask(struct programs *programs, const struct programs_event *event);
/* Returns how many of them have not let go of it yet, with one of them in `name`: "process 4711
   (x)". Control loop. */
unsigned programs_unanswered(struct programs *programs, ramp_segment_t id,
			     char name[PROGRAMS_KEEPER]);
/* Calls fn when one of them has let go of it, or has ended. Set before the loop runs. */
typedef void programs_answered(void *arg, ramp_segment_t id);
void programs_set_answered(struct programs *programs, programs_answered *fn, void *arg);

struct programs_status {
	uint32_t sessions, attachments;
	uint64_t revokes, revoke_last_us, revoke_max_us;
};
void programs_status(struct programs *programs, struct programs_status *status);

#endif
