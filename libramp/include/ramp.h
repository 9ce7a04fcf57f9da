/*
 * libramp: segments of memory that move between machines, for C and C++.
 *
 * A segment is RAM that one node of a rampfs cluster owns; its name is a file below the cluster's
 * mount. It has one range of addresses, the same on all nodes, so pointers into it stay right when
 * it moves. The model and the calls follow RAMP (Memon, "RAMP: RDMA Migration Platform", MMath
 * thesis, University of Waterloo 2018, section 3.3); libramp(3) says where they differ.
 *
 *   struct ramp_cluster *ramp;
 *   struct ramp_segment *cache;
 *   ramp_open(NULL, &ramp);
 *   ramp_alloc(ramp, &(struct ramp_alloc){.name = "cache", .size = 1 << 30}, &cache);
 *   build(ramp_data(cache));
 *   ramp_migrate(cache, "b", NULL);
 *
 * Programs need no rampfs-run(1). In a program that runs under it the library uses the shim's agent
 * and mappings. Without it nothing refuses madvise(MADV_GUARD_INSTALL) of a segment, from which the kernel
 * never comes back while stores are watched for a pre-copy: it is not to be used.
 *
 * Errors: a function that returns an int returns 0 or more on success and a negative errno on
 * failure; ramp_error() then says in words what failed and why. -EPROTO, from any that asks the daemon: it
 * speaks another version of the protocol.
 *
 * Thread-safety: all functions may be called by any thread at any time, on the same object too,
 * except that ramp_put(), ramp_close(), ramp_move_end(), ramp_watch_end() and ramp_pull_end() are an object's last
 * call. None may be
 * called in a signal handler.
 *
 * fork(2): a child has the mappings of its parent, and may use the parent's objects; an object that
 * both put is put twice, harmlessly. After exec nothing is left.
 */
#ifndef RAMP_H
#define RAMP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAMP_API_VERSION 5 /* of this header; grows with each addition */

/* Names, in bytes without the NUL. */
#define RAMP_API_NODE_MAX 63
#define RAMP_API_NAME_MAX 255

struct ramp_cluster; /* a mount that is in use */
struct ramp_segment; /* a segment that is mapped */
struct ramp_move;    /* a migration that was asked for */
struct ramp_watch;   /* a subscription to what happens to segments at this node */
struct ramp_pulling; /* pages of a segment that are being waited for */

/* Returns what the calling thread's last call failed with, in words, without a newline; "" after a
   success. Valid until the thread's next call. */
const char *ramp_error(void);

/* Returns RAMP_API_VERSION of the library that is loaded. */
int ramp_api_version(void);

/* ---- a mount -------------------------------------------------------------------------------- */

/*
 * Opens the cluster's mount of that path; NULL: that of the environment variable RAMPFS_MOUNT, or
 * else the only rampfs mount of this machine. Does not block for longer than a stat(2) of it.
 * -ENOENT: there is no such path, or no rampfs mount; -ENOTUNIQ: there are several; -ENOTTY: it is
 * no rampfs mount; -EPERM: its filesystem was mounted by another user than root; -ENOMEM, -EMFILE.
 */
int ramp_open(const char *mount, struct ramp_cluster **out);

/* Frees it. Its segments stay mapped, and can be used and put. NULL: does nothing. */
void ramp_close(struct ramp_cluster *ramp);

/* Returns the mount's path, or the name of the node whose mount it is. Valid until ramp_close(). */
const char *ramp_mount(const struct ramp_cluster *ramp);
const char *ramp_node(const struct ramp_cluster *ramp);

/* Returns the first address of the arena, from which the cluster's segments get their addresses;
   *len (NULL: not wanted) becomes its length in bytes. */
void *ramp_arena(const struct ramp_cluster *ramp, uint64_t *len);

/* ---- segments ------------------------------------------------------------------------------- */

struct ramp_alloc {
	const char *name; /* not taken at this node; no '/' */
	/* In bytes, at least 1: rounded up to pages (4096 bytes). No more than the node's capacity; memory
	   is taken as it is used. */
	uint64_t size;
	/* How far it may ever grow, in bytes, rounded up to a power of two of 64 MiB at least.
	   0: the cluster's own choice, four times its size or more. */
	uint64_t extent;
	mode_t mode; /* as of open(2), without the umask; 0: 0600 */
	int no_huge; /* not 0: memory in pages of 4 KiB alone (user.ramp.pages=small) */
};

/*
 * Allocates a segment of this node, filled with zeros, and maps it. The caller puts it with
 * ramp_put(); it stays, with its bytes, until ramp_free(). Blocks for one commit of the cluster,
 * 5 s at most (for several, where a daemon of the cluster is of an older version).
 *
 * All or nothing: after an error there is no such segment, but after -ETIMEDOUT it may still come to
 * be. A program that is killed in the middle leaves none, or the whole one; so does a daemon. (With
 * older daemons a program may leave an empty file of that name.)
 *
 * -EEXIST: the name is taken; -EINVAL: no name, a '/' in it, size 0, extent less than size;
 * -ENOSPC: the size is more than the node's capacity, the addresses are more than the arena has,
 * or has free, or the node has no room for one more file; -EDQUOT: the user would have too many
 * addresses; -EROFS: no quorum, or the mount is read-only; -ETIMEDOUT: no answer.
 */
int ramp_alloc(struct ramp_cluster *ramp, const struct ramp_alloc *what, struct ramp_segment **out);

#define RAMP_READ_ONLY 1 /* ramp_get: a store is SIGSEGV */

/*
 * Maps a segment that this node owns, by its name; or by its number, whatever its name is. flags:
 * RAMP_READ_ONLY or 0. The caller puts it.
 * -ENOENT: there is none; -EREMOTE: it is on another node (ramp_error() names it); -EACCES; -EIO:
 * it was rolled back (rampfs-migrate --reclaim), or the table of segments can't be read; -EROFS: no quorum, and it
 * was never mapped; -EAGAIN: ramp_get_id: its name changes again and again.
 */
int ramp_get(struct ramp_cluster *ramp, const char *name, int flags, struct ramp_segment **out);
int ramp_get_id(struct ramp_cluster *ramp, uint64_t id, int flags, struct ramp_segment **out);

/* Unmaps it, where this was the process's last mapping of it, and frees the object. NULL: does
   nothing. Its memory stays allocated on its node. */
void ramp_put(struct ramp_segment *segment);

/*
 * Deallocates a segment: removes its name at that node (NULL: this mount's). Its memory is freed when no
 * process has it mapped any more. Within 5 s of a ramp_receive() it waits until then for a name that is not there yet.
 * -ENOENT: there is none; -EBUSY: it is moving just now.
 */
int ramp_free(struct ramp_cluster *ramp, const char *node, const char *name);

/* Returns its first address: the same on every node, for its life. */
void *ramp_data(const struct ramp_segment *segment);
/* Returns how many bytes are mapped from there on: the segment's extent. Those behind its size are
   SIGBUS until it has grown. */
uint64_t ramp_extent(const struct ramp_segment *segment);
uint64_t ramp_id(const struct ramp_segment *segment); /* its number, never used again */

/* Returns its size in bytes, or an error as a negative number. Of a segment that is on another node, as
   this node knows it: at most a second old while there is a quorum. */
int64_t ramp_size(const struct ramp_segment *segment);
/* Makes it that large: new bytes are zeros, cut ones are gone. -ENOSPC, -EFBIG (more than the
   extent); -EREMOTE: it is on another node (ramp_error() names it), and nothing is changed. */
int ramp_resize(struct ramp_segment *segment, uint64_t size);

/* ---- what there is -------------------------------------------------------------------------- */

struct ramp_info {
	uint64_t id, size, extent;
	uint64_t addr;			    /* 0: it was never mapped */
	uint64_t resident;		    /* bytes in this node's memory */
	char node[RAMP_API_NODE_MAX + 1];   /* the directory in which it is: its owner */
	char source[RAMP_API_NODE_MAX + 1]; /* where pages of it still are; "": nowhere */
	char target[RAMP_API_NODE_MAX + 1]; /* where it is moving to; "": it is not */
	char name[RAMP_API_NAME_MAX + 1];
	/* "stable", "moving", "pulling", "in doubt", "writes closed", ...: user.ramp.state without the
	   figures that follow a comma there */
	char state[32];
};

/* Tells of one segment: as ramp_list(). Of one that was just received it waits, 5 s at most, until it is listed here.
   -ENOENT: it was removed; -EIO: the table of segments can't be read. */
int ramp_stat(const struct ramp_segment *segment, struct ramp_info *out);

/*
 * Calls `each` for all segments that the node of that name owns or that are moving to it (NULL: of
 * all nodes), of one moment, as this node knows it. A call that returns another value than 0 ends it. Returns that value, or 0;
 * -ENOENT: there is no such node.
 */
int ramp_list(struct ramp_cluster *ramp, const char *node,
	      int (*each)(void *arg, const struct ramp_info *info), void *arg);

/* The figures of a segment's last hand-over. Pages are of 4096 bytes. */
struct ramp_last_move {
	char from[RAMP_API_NODE_MAX + 1], to[RAMP_API_NODE_MAX + 1];
	uint64_t at_ms;	     /* CLOCK_REALTIME, of the hand-over */
	int measured;	     /* not 0: what the source measures is known: the next five */
	uint64_t connect_us; /* until the target had room */
	uint64_t rounds_us;  /* RAMP_PRECOPY: of its rounds */
	uint64_t prepare_us; /* until that was committed */
	uint64_t asked_us;   /* until the programs that are asked had answered */
	uint64_t window_us;  /* in which neither node could touch it */
	int whole;	     /* not 0: every page has come, and what follows is known */
	uint64_t pull_us;    /* of the pull: from the hand-over on; RAMP_COPY: before it */
	/* Pages that travelled: in RAMP_PRECOPY's rounds (one that came twice counts twice), in
	   RAMP_COPY's window, because they were touched, in the background. */
	uint64_t round_pages, window_pages, demand_pages, prefetch_pages;
	uint64_t hole_pages;  /* asked for, and the source had none */
	uint64_t local_pages; /* known as holes before, or written here before they came */
	uint64_t lost_pages;
	char transport[16]; /* "tcp" or "verbs" */
};

/*
 * Tells of the last hand-over of a segment of any node. Known are the two nodes' halves at both, and
 * at the node that asked for it what was known there when it was answered; a daemon's successor knows
 * nothing of it. -ENOENT: there is no such segment; -ENODATA: nothing is known here; -EOPNOTSUPP: the
 * daemon is of an older version.
 */
int ramp_last_move(struct ramp_cluster *ramp, uint64_t id, struct ramp_last_move *out);

/* ---- moving --------------------------------------------------------------------------------- */

enum ramp_mode {
	RAMP_AS_SET, /* as user.ramp.mode of the segment says, or the mount of its node; else RAMP_AUTO
		      (in steps: lazily) */
	RAMP_LAZY,   /* ownership at once; pages follow, on demand and in the background */
	RAMP_DEMAND, /* ownership at once; pages follow as they are touched */
	RAMP_COPY,   /* all pages first; programs stand still meanwhile */
	/* all pages first, in rounds, while programs continue; EBUSY where a process that maps it has direct
	   I/O, an io_uring or an RDMA device open; an older daemon says EINVAL */
	RAMP_PRECOPY,
	RAMP_AUTO, /* which of these pays: lazily, by pre-copy, or little by copy; not for moves in steps */
};

struct ramp_move_options {
	enum ramp_mode mode;
	const char *new_name; /* NULL: keeps its name */
	int wait_whole;	      /* not 0: ends when every page is at the target */
	int progress;	      /* not 0: ramp_move_next() tells of progress */
	int max_rounds;	      /* of a pre-copy, the first one included: 1 to 100; 0: 5 */
};

/*
 * Moves a segment to that node, as mv(1) does: blocks until the node owns it (or until every page
 * is there: wait_whole). options NULL: all 0. The mapping stays, and a touch of it is SIGBUS until
 * the segment is back, when it shows it again.
 * -EBUSY: a process that maps it can't let go of it, or it moves already; -EEXIST: the name is
 * taken there; -ENOENT: no such node, or the segment was removed; -ENOSPC; -EHOSTUNREACH: the node
 * does not answer; -EROFS: no quorum; -EINPROGRESS: this node's daemon has ended, or has hung up for 10 s
 * without an answer, and the move may continue; -ENOTSUP: max_rounds, and the daemon is of an older version.
 */
int ramp_migrate(struct ramp_segment *segment, const char *node,
		 const struct ramp_move_options *options);

/* The same in steps. Asks for it and returns at once. `id`: ramp_id(), of a segment of any node. */
int ramp_move_begin(struct ramp_cluster *ramp, uint64_t id, const char *node,
		    const struct ramp_move_options *options, struct ramp_move **out);
/* Returns a descriptor that poll(2) calls readable when ramp_move_next() has something to tell. It
   stays the library's. */
int ramp_move_fd(const struct ramp_move *move);

struct ramp_move_event {
	int ended;	     /* not 0: it is over, with `result` */
	int result;	     /* 0 or a negative errno */
	uint64_t pages, all; /* that have come, of how many; of 4096 bytes */
	char text[400];	     /* the state's name; once it has ended why it failed, or the mode
				that it had, and why; or "" */
};

/* Takes the next news; waits for them timeout_ms at most (0: not at all; -1: for as long as it
   takes). -ETIMEDOUT: there is none; -EALREADY: its end was told. */
int ramp_move_next(struct ramp_move *move, int timeout_ms, struct ramp_move_event *event);
/* Gives the move up: before the hand-over the segment stays (-EINTR in the event that ends it), after
   it nothing changes. Returns at once. */
int ramp_move_cancel(struct ramp_move *move);
/* Waits for the end of it and frees it. Returns the result, or -EINPROGRESS as above. NULL: does
   nothing. */
int ramp_move_end(struct ramp_move *move);

/*
 * A move in steps, of a segment of this node: all that may take long is done while the
 * program runs, and the hand-over is at a point of its choosing. A segment object has one such
 * move at most. Where the process ends, or ramp_put() comes, it is given up. All calls block; the
 * daemon's death costs time alone.
 *
 * Connects: the node takes room for all pages, and is ready. It keeps that for 30 s, longer by
 * ramp_extend(). options: as of ramp_migrate(), without progress.
 * -EISCONN: the segment is connected already; -EINVAL: mode RAMP_AUTO; -EREMOTE: it is not this node's; -EALREADY:
 * it is on that node; -EPERM: only its owner and root may move it; -EUSERS: the user, not root, has 64 that are connected;
 * -ENOTSUP: the daemon is of an older version; -ETIMEDOUT: there is no daemon; and as ramp_migrate().
 */
int ramp_connect(struct ramp_segment *segment, const char *node,
		 const struct ramp_move_options *options);
/* Keeps it connected for `ms` from now on (0: 30 s), until 10 minutes after ramp_connect() at most.
   Returns for how many ms that is. -ENOTCONN: it is not connected; -ETIMEDOUT: the time was over
   before; -EBUSY: it is prepared. */
int ramp_extend(struct ramp_segment *segment, unsigned ms);
/* Has the cluster agree on the move, 5 s before ramp_transfer() at most: that need not do it then.
   Meanwhile the segment can be loaded and stored, and not be removed or renamed (-EBUSY).
   -ENOTCONN; -ETIMEDOUT; and as ramp_migrate(): the segment stays, and is not connected. */
int ramp_prepare(struct ramp_segment *segment);
/* Hands the segment over, and returns as soon as the node has it (or has every page: wait_whole). It
   prepares where ramp_prepare() has not. The mapping is then as after ramp_migrate(). Lists and
   directories show the segment there some milliseconds later. Errors as of ramp_prepare(), and
   -EINPROGRESS as of ramp_migrate(). */
int ramp_transfer(struct ramp_segment *segment);
/*
 * The hand-over in two steps, of a segment that is connected in mode RAMP_PRECOPY and not prepared.
 *
 * ramp_finish_write() waits until the node has read ahead in rounds (and begins that), and closes the
 * segment to stores: from its return on no byte of it changes. A store of any program waits, and so does
 * a system call that would change bytes (one of the file is EBUSY after some seconds); loads and
 * read(2) continue, meanwhile that node reads what was stored into since. ramp_finish_read() waits until it has
 * all, and hands the segment over as ramp_transfer(): what waits to store is SIGBUS then, as any touch. The
 * forms with try wait for neither: -EAGAIN, call again; the first one begins the rounds.
 * Programs that want to be asked (RAMP_ASKED) are asked before it is closed to stores: ramp_finish_write() waits
 * for them, and is -EBUSY where one does not answer (its form with try is -EAGAIN meanwhile).
 *
 * ramp_abort(), the end of the process, and the end of the time (30 s from ramp_finish_write() on; longer by
 * ramp_extend()) give stores back, and the segment stays. So does the end of the daemon: -ECONNABORTED.
 * -EOPNOTSUPP: another mode; or a process that has it mapped has a librampfs-preload.so or libramp.so of an older
 * version, which is named; -ENOMEM: a process may map no more; -EFBIG: it is larger than 64 GiB, and nearly all of
 * it holes; -EINVAL: ramp_finish_read() before ramp_finish_write(); -EBUSY: it is prepared; and as ramp_transfer(). After an error other than -EAGAIN, -EINVAL
 * and -EBUSY for that reason it is not connected any more.
 */
int ramp_finish_write(struct ramp_segment *segment);
int ramp_try_finish_write(struct ramp_segment *segment);
int ramp_finish_read(struct ramp_segment *segment);
int ramp_try_finish_read(struct ramp_segment *segment);
/* Gives it up, also while another thread is in one of these calls, which then returns -EINTR.
   -ENOTCONN; -EALREADY: it is handed over; -EINPROGRESS. */
int ramp_abort(struct ramp_segment *segment);

/* ---- receiving ------------------------------------------------------------------------------ */

enum ramp_event_kind {
	RAMP_ARRIVED = 1, /* this node owns it from now on; `node`: from where its pages follow */
	RAMP_WHOLE,	  /* every page of it is here, but for the `lost` ones */
	RAMP_LEFT,	  /* `node` owns it */
	RAMP_MISSED,	  /* the node's daemon was followed by another one: of what happened
			     meanwhile, nothing is told (ramp_list() shows what is) */
	/* Steps of a departure to `node`; only of watches that want phases. */
	RAMP_ASKED,	 /* it is to leave, and this process has it mapped: ramp_quiesced() */
	RAMP_CONNECTING, /* that node makes room */
	RAMP_READY,	 /* all that takes long is done: it leaves when the programs that were asked
			    have let go */
	RAMP_GIVEN,	 /* it is that node's; RAMP_LEFT follows when touching it here is SIGBUS */
	RAMP_SETTLED,	 /* that node has every page: the memory here is given back */
	RAMP_FAILED,	 /* it stays: `result`, `why` */
	/* Only of a receiver that wants phases. */
	RAMP_COMING, /* this node has room for it, and `node` still owns it: it arrives, or stays there */
	/* Of a departure, too. */
	RAMP_CLOSED, /* stores into it wait, loads continue: ramp_finish_write() */
	RAMP_ROUND, /* of a pre-copy: the node has read a round; `left` pages were stored into since. The fewer
			stores, the fewer are left */
};

struct ramp_event {
	enum ramp_event_kind kind;
	uint64_t id, size;
	union {		       /* of 4096 bytes */
		uint64_t lost; /* WHOLE: pages that were lost with their source, or given up */
		uint64_t left; /* ROUND: pages that the node has to read again */
	};
	char node[RAMP_API_NODE_MAX + 1];
	char name[RAMP_API_NAME_MAX + 1];
	uint64_t within_ms; /* ASKED: how long after READY ramp_quiesced() may come */
	int result;	    /* FAILED: a negative errno */
	char why[400];	    /* FAILED: in words */
};

struct ramp_watch_options {
	const char *pattern; /* of names, as of fnmatch(3); NULL: any name */
	uint64_t id;	     /* 0: any segment */
	int receive; /* not 0: it is a receiver: arrivals come to it, and to no other receiver */
	int phases; /* not 0: it hears of the steps of departures, too; a receiver also of RAMP_COMING */
	int asked; /* not 0: the same, and it is asked (RAMP_ASKED) before a segment leaves that this
			process has mapped */
	/* Of a receiver, not 0: pages of what it receives come as they are touched, pulled (ramp_pull) or
	   hinted at, and not in the background, as if it had been moved by RAMP_DEMAND. Only of segments of its
	   user (root: of all), from the connect on, and not where the move waits for every page. */
	int demand;
};

/*
 * Begins to hear what happens at this node to segments that the calling user may read. options NULL:
 * all of them. The caller ends it with ramp_watch_end(). Waits for the daemon, 10 s at most.
 * -EBUSY: another receiver of the same pattern and id is there; of receivers of different ones the
 * first gets what matches both. -EINVAL: the pattern is longer than a name; -EUSERS: the user, not root, has too many
 * watches and requests; -ETIMEDOUT: the daemon has not answered; -EOPNOTSUPP: it is of an older version.
 */
int ramp_watch_begin(struct ramp_cluster *ramp, const struct ramp_watch_options *options,
		     struct ramp_watch **out);
/* Returns a descriptor that poll(2) calls readable when ramp_watch_next() may have something to
   tell. It stays the library's. */
int ramp_watch_fd(const struct ramp_watch *watch);
/* Takes the next event; waits for it timeout_ms at most (0: not at all; -1: for as long as it takes).
   -ETIMEDOUT: there is none. A program that does not take them loses some: RAMP_MISSED. */
int ramp_watch_next(struct ramp_watch *watch, int timeout_ms, struct ramp_event *event);
/* Ends it, and frees it. NULL: does nothing. */
void ramp_watch_end(struct ramp_watch *watch);

/*
 * Answers RAMP_ASKED: no thread of this process is in the middle of an operation on the segment, and
 * none begins one until RAMP_LEFT, or RAMP_FAILED (then it stays). A process that has not answered
 * within_ms after RAMP_READY keeps the segment: the move is EBUSY, and names it; rampfs-migrate --force
 * does not wait. Of a segment that it was not asked for nothing happens. Reads the table of segments, and waits
 * for no program.
 * -EAGAIN: a thread is in a call of a heap in the segment (ramp_heap(3)): call it again; -ESTALE: the
 * daemon that has asked has ended, and the move with it; -ENOENT: there is no such segment.
 */
int ramp_quiesced(struct ramp_watch *watch, uint64_t id);

/*
 * Waits for the next arrival of a watch and maps that segment, whose pages may still follow. Other
 * events that come before it are dropped. flags: as of ramp_get(). The caller puts the segment.
 * -ETIMEDOUT: none has come; -ESTALE: RAMP_MISSED; and as ramp_get_id(): then it has come, and is not mapped.
 */
int ramp_receive(struct ramp_watch *watch, int timeout_ms, int flags, struct ramp_segment **out);

/* ---- pages that have not come yet ------------------------------------------------------------ */

/*
 * Fetches the pages of bytes [offset, offset + len) of a segment whose pages still follow (len 0: to its end), and
 * waits until they are here: timeout_ms at most (0: not at all; -1: for as long as it takes). They come before
 * the rest, after pages that are being touched; in mode RAMP_DEMAND, too. A segment of which nothing is missing
 * is 0 at once.
 * -EIO: some were lost with their source, as ramp_error() says; the others are here; -ETIMEDOUT: not all
 * have come (their source may be silent); -EINTR: a signal handler has run; after both, pages that have come
 * stay, and the call may be made again; -ENOSPC: the node has no room for them now; -EREMOTE; -ENOENT: it was
 * removed; -EINVAL; -EUSERS: 1024 of the user's, not root, are waited for; -ENOTSUP: the daemon is of an older
 * version.
 */
int ramp_pull(struct ramp_segment *segment, uint64_t offset, uint64_t len, int timeout_ms);

/* The same in steps. Asks for them and returns at once. The segment may be put meanwhile. */
int ramp_pull_begin(struct ramp_segment *segment, uint64_t offset, uint64_t len,
		    struct ramp_pulling **out);
/* Returns a descriptor that poll(2) calls readable when ramp_pull_wait() may have a result. It stays the
   library's. */
int ramp_pull_fd(const struct ramp_pulling *pulling);
/* Waits for the result, as ramp_pull(). */
int ramp_pull_wait(struct ramp_pulling *pulling, int timeout_ms);
/* Frees it; pages that have not come are waited for no longer. NULL: does nothing. */
void ramp_pull_end(struct ramp_pulling *pulling);

/*
 * Says which range is needed next: its pages are fetched in the background, before the rest, after those that
 * are touched or waited for, and before those of earlier hints; in mode RAMP_DEMAND, too. It is advice: the node
 * forgets it with its daemon, and keeps 16 of a segment. Without this library it is an extended attribute:
 * setfattr -n user.ramp.hint -v "OFFSET LENGTH" FILE.
 * -EREMOTE; -EACCES: the segment is not writable for this user; -EINVAL; -EOPNOTSUPP: the daemon is of an older
 * version.
 */
int ramp_hint(struct ramp_segment *segment, uint64_t offset, uint64_t len);

#define RAMP_ZEROS 1 /* ramp_give_up_rest: pages that have not come are zeros */

/*
 * Gives up all pages of an arrived segment that have not come: they are lost, as with a source that has died (a touch
 * is SIGBUS, read(2) is EIO, until they are written over by write(2)), or with RAMP_ZEROS they are zeros. The
 * source frees what it has as soon as the cluster has agreed on that. A segment of which nothing is missing is 0.
 * Blocks until it is noted beside the bytes: a call after which the daemon, or this process, ends has given up
 * all or, before it has returned, perhaps a part. The pages are gone for all programs, on every node.
 * -EREMOTE; -EACCES: it was mapped with RAMP_READ_ONLY; -EINVAL: an unknown flag; -EAGAIN: pages do not come
 * yet; -ENOENT; -EUSERS and -ENOTSUP as of ramp_pull().
 */
int ramp_give_up_rest(struct ramp_segment *segment, int flags);

#ifdef __cplusplus
}
#endif

#endif
