/*
 * Local programs: who has which segment mapped, how access is taken away and given back.
 *
 * An unmodified program maps a segment through the shim (libramp/preload.c), whose agent thread
 * keeps a session here. What is mapped is what /proc says (proc/mappings.c), not what a table
 * remembers. A fully local segment is not registered with userfaultfd at all; from a revoke on, and
 * while pages are still remote, every attachment's range is registered MISSING|MINOR|WP together.
 *
 * Thread-safety: stated with each function. "Blocks": for workers (loop_work), never on the control
 * loop, a fuse thread or the pager.
 */
#ifndef RAMP_PROGRAMS_H
#define RAMP_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "memory/store.h"
#include "meta/meta.h"

struct programs;
struct space; /* one client: a process, its session and its userfaultfd */

/*
 * The first statement of main(): where this program was executed as `--doorman` (by programs_open),
 * serves as that and never returns; else returns at once.
 */
void programs_doorman(int argc, char **argv);

struct programs_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	int listen_fd; /* the session socket, listening (the keeper holds it too) */
	/* Two ends of a socket pair that the keeper holds, too, in which a daemon leaves what the
	   next one finds (client/fdstore.c); NULL: none. */
	const int *shelf;
	const char *session_path;
	const char *mountpoint; /* for messages */
	gid_t uffd_group;	/* (gid_t)-1: everybody may have a userfaultfd */
	uint32_t connect_ms;	/* an agent that does not answer for this long: EBUSY; 0: 5000 */
	uint32_t user_sessions; /* processes of one user, but root; 0: 4096 */
	uint32_t token_ms;	/* how long a token is good; 0: 30000 */
};

/* Starts the broker, and listens. Control thread, as programs_close and the programs_set_*
   functions, which come before the loop runs. */
int programs_open(const struct programs_config *config, struct programs **out,
		  struct ramp_err *err);
/* Ends sessions' service (programs keep their mappings and come back to the next daemon). After
   the pager has given back every client, and the loop has stopped. A thread that a program keeps in
   space_resolve or programs_resolve keeps its memory. */
void programs_close(struct programs *programs);

/*
 * A one-time token for one open of a segment (the FUSE ioctl's answer): good for one ATTACH of
 * that access mode (O_RDONLY, O_RDWR) by that process, for 30 s. -ESRCH: there is no such process;
 * -EDQUOT: its user has too many. Any thread.
 */
int programs_token(struct programs *programs, ramp_segment_t id, int access_mode, pid_t pid,
		   uint64_t token[2], struct ramp_err *err);

/* ---- page faults (pull/pager.c) ------------------------------------------------------------- */

/* One page fault, already turned into a page of a segment. */
struct space_fault {
	struct seg *seg; /* a reference for the caller; NULL: not in any attachment (woken) */
	uint64_t page;
	uint64_t addr;
	pid_t tid; /* as its program calls the thread; 0: not known */
	bool write;
};

struct programs_pager {
	/* A client has come (with a reference for the pager), or gone: the pager adds `uffd` to its
	   epoll set, or forgets it and gives the reference back by space_put. Any thread but the
	   pager's; once each. `uffd` stays open until the last reference goes. Where it can't be
	   added (-errno) no reference is kept, and the program is told so: nobody would serve its
	   page faults. */
	int (*space_added)(void *arg, struct space *client, int uffd);
	void (*space_gone)(void *arg, struct space *client);
	/* If that segment is pulled: at full speed. Never blocks. */
	void (*hurry)(void *arg, ramp_segment_t id);
	void *arg;
};
void programs_set_pager(struct programs *programs, const struct programs_pager *pager);
/* Reads what is ready on the userfaultfd, without blocking; remap events are handled inside, and
   page faults of a segment that is frozen or gone are left waiting. Returns how many faults, which
   may be 0; -EAGAIN none; -EIO: they can't be read, which the log says. At most 32 a call; *more:
   there may be some left. Pager thread. */
int space_read(struct space *client, struct space_fault *faults, int max, bool *more);
struct space *space_get(struct space *client); /* one more reference. Any thread */
void space_put(struct space *client);
/* A thread of it waits for a page: when that has come it is to run soon. Never waits. Pager
   thread. */
void space_waits(struct space *client, pid_t tid);
/* Lets one blocked access try again. Pager thread. */
void space_wake(struct space *client, uint64_t addr);
/* The same for all of them, whatever stands in the tables. Any thread. */
void space_wake_all(struct space *client);
/*
 * The page `first` of the segment, which is at `addr` in that client, and those behind it, `count`
 * in all, have come: maps (CONTINUE) those of them that are LOCAL in that attachment, and wakes who
 * waits there. Others who wait for one of them have page faults of their own. Does nothing while
 * the segment is frozen. What it costs does not depend on who else has the segment attached. It
 * waits for no other thread of ours: where it would have to, or a program that mremaps all the time
 * keeps the kernel from mapping anything, whoever waits at `addr` is woken without it, and his page
 * fault comes again. (A page that was POISONED before it came is then SIGBUS for that program as
 * long as nobody writes it over.)
 *
 * But the kernel may wait in there for the program, which can keep the caller for as long as it
 * lives. Not more than one of them for a client: another thread of the pager's says space_kept, and
 * from then on comes back at once from here for all programs of that user, whose pages are mapped
 * elsewhere.
 */
void space_resolve(struct space *client, ramp_segment_t id, uint64_t addr, uint64_t first,
		   uint64_t count);
void space_kept(struct space *client);

/*
 * The same in every registered attachment. Takes the attachments' lock for reading, for a moment at
 * a time, and allocates nothing. A program may keep the caller here, too; where it keeps somebody
 * already it is passed over: its page faults get it all. *since_us (CLOCK_MONOTONIC) is when it
 * came to where it is: it takes its time where thousands have the segment attached, and nobody
 * keeps it then. The prefetch thread.
 */
void programs_resolve(struct programs *programs, ramp_segment_t id, uint64_t first, uint64_t count,
		      _Atomic uint64_t *since_us);
/*
 * The same for what a write(2) has brought, where page faults may have been told SIGBUS: on the
 * workers, in the share of each program's user. Waits until it is done, but 100 ms at most: no
 * program keeps the caller. Any thread but the pager's and the workers'.
 */
void programs_written(struct programs *programs, ramp_segment_t id, uint64_t first, uint64_t count);
/* A LOST page was touched (or its hole found no room): POISON, after the agent has said why. */
void programs_poison(struct programs *programs, struct seg *seg, uint64_t page, const char *why);
/* Every POISON is taken out: who touches such a page is told anew how it is. False: not now, one is
   on its way, or there is no memory; come again. Never blocks. */
bool programs_unpoison(struct programs *programs, struct seg *seg);
/* Pages are remote from now on (a target's TAKEN): registers every attachment of the segment,
   unless all have come meanwhile. Blocks shortly. New attachments register themselves while
   pages_missing() is not 0. */
int programs_pulling(struct programs *programs, struct seg *seg, struct ramp_err *err);
/* All pages are LOCAL: begins to unregister, to wake and to take out every POISON. False: not now,
   an agent is being waited for, which may take seconds; come again. It does not wait: who pulls
   this segment pulls others, too. */
bool programs_pulled(struct programs *programs, struct seg *seg);

/* ---- revoke (transfer/source.c) ------------------------------------------------------------- */

/*
 * At CONNECT: may the segment be moved? -EBUSY with the pid and name of a process that maps it and
 * answers to no session, is stopped by a debugger or a frozen cgroup, keeps the lock of its memory
 * (which takes 3 s to see), has private copies, or holds it by passthrough. Asks all processes;
 * where it may, drops what they have mapped by small pages, with pauses: they go on, and only what
 * they use will be there when the revoke comes. Blocks, for a second more where there is much to
 * drop.
 */
int programs_may_move(struct programs *programs, struct seg *seg, struct ramp_err *err);
/*
 * Right before the freeze: a full look at who maps it, so that the revoke need not make it within
 * the window (revoke/prelook.c), nor find more mapped than programs touch within a moment
 * (revoke/drop_ahead.c). -EBUSY as above. Where no revoke follows, programs_restore takes back what
 * it has registered. Blocks; programs go on.
 */
int programs_watch(struct programs *programs, struct seg *seg, struct ramp_err *err);
/*
 * Takes access away from every attachment: registers, lets the agents drop the entries, checks
 * with PAGEMAP_SCAN and PROCMAP_QUERY that nothing is left. New attaches wait from here on. When
 * it returns 0 no thread of any program can load or store until programs_restore or programs_gone;
 * on failure (-EBUSY, -ETIMEDOUT) everything has been given back. Blocks; `timeout_ms` at most, but
 * for a program that keeps the lock of its memory since programs_watch: until it lets go of it. So
 * may what follows: for loop_work_of, on whose threads that is its owner's concern alone.
 * Who calls it from kernel_rt_boost() on is not kept waiting by busy programs.
 */
int programs_revoke(struct programs *programs, struct seg *seg, uint32_t timeout_ms,
		    struct ramp_err *err);
/* The abort: access is back as it was. Blocks shortly. May come in a daemon's life that never
   revoked, and twice; programs_gone too. */
void programs_restore(struct programs *programs, struct seg *seg);
/* The segment is on another node now: agents map an empty file over it, say so, and everybody who
   waits gets SIGBUS. Blocks shortly. */
void programs_gone(struct programs *programs, struct seg *seg, const char *owner_node);
/* It is here again (TAKEN; programs_pulling, by pull_begin, comes first): agents that had it put it
   back in place at the old address. Blocks; the pager must be running. Who calls it from
   kernel_rt_boost() on is as others are when it has taken half a second. */
void programs_back(struct programs *programs, struct seg *seg);
/*
 * After it: agents of a former daemon's time come to this one in a moment. Waits for the programs
 * that had it and have no session yet, at most until then (CLOCK_MONOTONIC; in the past: not at
 * all). Looks at all of /proc again and again, for what needs the processors: not in a hurry.
 */
void programs_await(struct programs *programs, struct seg *seg, uint64_t until_ms);

/* True while any process of this machine maps the segment's file, or one can't be looked into.
   Blocks (asks /proc; up to 3 s). */
bool programs_mapped(struct programs *programs, struct seg *seg);

/*
 * Who holds a segment by FUSE passthrough is no session's, and can't be revoked: the mount knows of
 * them. Asked by programs_may_move, and by programs_revoke when the gate is closed: 0, or -EBUSY
 * with who it is. Set on the control thread before the loop runs.
 */
typedef int programs_passthrough(void *arg, struct seg *seg, struct ramp_err *err);
void programs_set_passthrough(struct programs *programs, programs_passthrough *fn, void *arg);
/* 1: a process maps that file, and *pid is one; 0; -errno, of -EBUSY: *pid can't be looked into,
   and may map it. Blocks (asks /proc; up to 3 s). */
int programs_maps_file(dev_t dev, uint64_t ino, pid_t *pid);

/* ---- madvise(MADV_REMOVE) of a program ---------------------------------------------------------
 */

struct punch_request; /* alive until punch_answer */
/* A program punches a hole in a segment that it has mapped writable; the handler goes through the
   page states as fallocate(2) does and answers by punch_answer, once, from any thread, also after
   programs_close. Control loop. Without a handler: EOPNOTSUPP. */
typedef void programs_punch(void *arg, struct punch_request *request, ramp_segment_t id,
			    uint64_t offset, uint64_t len);
/* Whether that process may leave set-id bits in what it changes (CAP_FSETID). Any thread; may wait
   for the process. */
typedef bool programs_keeps_setid(pid_t pid);
void programs_set_punch(struct programs *programs, programs_punch *fn, void *arg,
			programs_keeps_setid *keeps_setid);
/* It has waited for too long, or has hung up: what is punched now could be what the program stored
   since. To be asked right before; the answer is ETIMEDOUT then. */
bool punch_is_late(const struct punch_request *request);
/* -ESHUTDOWN: not at all, and the program asks the next daemon. */
void punch_answer(struct punch_request *request, int result);
/* Who asks: his process, and his group when he connected; what programs_keeps_setid said of him. */
bool punch_caller(const struct punch_request *request, pid_t *pid, gid_t *gid);

/* ---- tools over the session (tools/migrate.c, tools/node.c) --------------------------------- */

struct tool_request; /* one request of a tool, alive until tool_answer */
struct tool_migrate {
	ramp_segment_t id;
	char dst_node[RAMP_NODE_NAME_MAX + 1];
	char dst_name[RAMP_NAME_MAX + 1]; /* empty: keep its name */
	uint8_t mode;			  /* enum transfer_mode, unchecked */
	bool wait;			  /* until STABLE */
	bool progress, trace;
	uid_t uid;
};
struct programs_tools {
	/* Control loop. Answered exactly once by tool_answer, progress before by tool_progress. */
	void (*migrate)(void *arg, struct tool_request *request, const struct tool_migrate *what);
	void (*cancel)(void *arg, struct tool_request *request); /* Ctrl-C, or the tool is gone */
	void *arg;
};
void programs_set_tools(struct programs *programs, const struct programs_tools *tools);

/* A change of the cluster's members that root asks for: enum session_member, as it came. */
struct tool_member {
	uint8_t verb;
	char node[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	uint64_t capacity_bytes;
	ramp_incarnation_t incarnation;
	bool force;
};
/* Control loop. Answered exactly once by tool_answer. */
typedef void programs_member(void *arg, struct tool_request *request,
			     const struct tool_member *what);
void programs_set_members(struct programs *programs, programs_member *fn, void *arg);
void tool_answer(struct tool_request *request, int result, const char *text); /* control loop */
void tool_progress(struct tool_request *request, uint64_t done_pages, uint64_t all_pages,
		   const char *state); /* control loop */
/* One step of a trace; page: of a page fault, else UINT64_MAX; node "": a remark. Control loop. */
void tool_step(struct tool_request *request, const char *node, uint64_t page, uint64_t at_ns,
	       const char *name);

struct programs_status {
	uint32_t sessions, attachments;
	uint64_t revokes, revoke_last_us, revoke_max_us;
};
void programs_status(struct programs *programs, struct programs_status *status);

#endif
