/*
 * The mount: /dev/fuse kept by the keeper, read and answered by the daemon.
 *
 * rampfs is one program in three processes. main.c starts as the keeper (keeper_run), which mounts
 * and executes main.c again as the daemon (daemon_argv); the daemon opens every floor and calls
 * mount_open, mount_start, loop_run, mount_stop, mount_free. When the daemon dies the keeper
 * executes it again on the same connection; when the keeper dies the daemon executes a new one that
 * adopts it (adopt_argv -> keeper_adopt).
 *
 * What the daemon finds when it is executed:
 *   fd 3 KEEPER_FD_FUSE      /dev/fuse of the living connection
 *   fd 4 KEEPER_FD_CONTROL   socket to the keeper (SOCK_SEQPACKET, keeper.h)
 *   fd 5 KEEPER_FD_SESSIONS  the listening session socket
 *   fd 6 KEEPER_FD_LOCK      the locked file that shows that the state directory is in use
 *   fd 7, 8 KEEPER_FD_SHELF  two ends of a socket pair: what a daemon sends through it, its
 *                            successor finds there (programs/shelf.c). Older keepers give none
 *   RAMPFS_CONNECTION        the connection's random id in hex, made at mount
 * An adopting keeper finds the same (fd 4: the socket to the daemon), and RAMPFS_ADOPT, the daemon's
 * pid. 0 to 2 are inherited; every other descriptor is closed, and signals are as at login. Whoever
 * forks without exec must close these: a forgotten copy of /dev/fuse keeps a dead connection alive.
 *
 * Signals of the keeper: SIGTERM, SIGINT: unmount and end; SIGHUP: open the log's file anew and
 * upgrade (the daemon is asked to end and executed anew, reading its configuration). The daemon
 * should ignore SIGINT, SIGTERM and SIGHUP: its keeper tells it what to do through
 * mount_config.ended.
 */
#ifndef RAMP_MOUNT_H
#define RAMP_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "transfer/transfer.h"
#include "transport/peers/peer.h"

/* ---- keeper --------------------------------------------------------------------------------- */

#define KEEPER_FD_FUSE	   3
#define KEEPER_FD_CONTROL  4
#define KEEPER_FD_SESSIONS 5
#define KEEPER_FD_LOCK	   6
#define KEEPER_FD_SHELF	   7 /* and the next */
#define KEEPER_FD_LAST	   8

struct keeper_config {
	const char *source; /* what mount(8) shows in front: the state directory's absolute path */
	const char *mountpoint;	   /* absolute */
	unsigned long mount_flags; /* MS_RDONLY, MS_NOEXEC, ... ; MS_NOSUID|MS_NODEV are added */
	const char *session_path;  /* made (mode 0666, an old one removed) and listened on */
	int session_type;	   /* SOCK_STREAM or SOCK_SEQPACKET, as programs wants it */
	char *const *daemon_argv;  /* [0]: the file to execute, absolute */
	/* At SIGHUP, before the daemon makes room: whether another can start; -errno leaves this
	   one where it is, and is logged. */
	int (*check)(const struct keeper_config *config, struct ramp_err *err);
	int lock_fd;	      /* locked by the caller (flock LOCK_EX|LOCK_NB) */
	const char *log_path; /* a file to open anew at SIGHUP, absolute; NULL: none */
	/* -1, or a pipe: one line when it is decided: "" once the mount answers, or why it failed;
	   then closed. For the process that the user started, which waits for it. */
	int ready_fd;
};

/*
 * Mounts, starts the daemon, starts it again whenever it dies, until the mount is gone. A dead
 * mount of the same source, or one at the mountpoint that answers ENOTCONN, is detached first (the
 * caller holds the lock, so nobody serves it); -EBUSY where something that lives is mounted at the
 * mountpoint. A daemon that ends with exit status KEEPER_EXIT_FATAL before it ever said that it
 * serves is not started again: keeper_run unmounts and returns -EIO, with the reason that it told.
 * Blocks SIGTERM, SIGINT and SIGHUP of the process; call it from its only thread.
 */
#define KEEPER_EXIT_FATAL 3
int keeper_run(const struct keeper_config *config, struct ramp_err *err);

/* main.c, when RAMPFS_ADOPT is set: goes on where the dead keeper stopped. lock_fd and ready_fd
   are ignored; session_path and mountpoint as before. */
int keeper_adopt(const struct keeper_config *config, struct ramp_err *err);

/* The daemon's side: checks what it was executed with and sets close-on-exec on the four
   descriptors; -EINVAL where RAMPFS_CONNECTION is missing. */
int keeper_inherited(uint64_t *connection, struct ramp_err *err);

/* The daemon's side, before it ends with KEEPER_EXIT_FATAL: whoever mounts is told why. */
void keeper_tell_failure(const struct ramp_err *err);

/* ---- daemon --------------------------------------------------------------------------------- */

struct mount;

enum mount_end {
	MOUNT_UNMOUNTED, /* umount(8): finish pulls in both directions unseen, then exit 0 */
	MOUNT_TERMINATE, /* the keeper was told to end, and has unmounted: the same, but at once */
	MOUNT_UPGRADE,	 /* hand over what can be handed over, then exit 0: a new one is executed */
};

struct mount_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct programs *programs;
	struct pull *pull;
	struct transfers *transfers;

	uint64_t connection;	  /* of keeper_inherited */
	const char *session_path; /* told to programs by the ioctls */
	const char *mountpoint;	  /* absolute */
	char *const *adopt_argv;  /* executed when the keeper dies; [0] absolute */
	uint32_t threads;	  /* of the fuse pool; 0: 8 */
	bool debug;		  /* libfuse's own trace on stderr */

	/* Control loop: serving has ended, or should. Once; and once more with MOUNT_TERMINATE
	   where that comes after MOUNT_UNMOUNTED. */
	void (*ended)(void *arg, enum mount_end why);
	void *arg;
};

/*
 * Reads what a former daemon left in the store (saved INIT, appends under way), registers
 * store_on_change. `config` is copied, strings and argv must outlive the mount.
 */
int mount_open(const struct mount_config *config, struct mount **out, struct ramp_err *err);

/*
 * Takes the connection over: feeds libfuse the saved INIT, has unanswered requests sent again,
 * serves them, starts the threads, and tells the keeper. Everything below must be open, and
 * transfers started; main calls it on the control thread just before loop_run.
 */
int mount_start(struct mount *mount, struct ramp_err *err);

/* main's callback of meta: a segment's row changed (id), or a node's (0). Any thread, also before
   mount_start; never blocks. */
void mount_row_changed(struct mount *mount, ramp_segment_t id);
/* The same, any segments' rows. */
void mount_rows_restored(struct mount *mount);

/*
 * Stops reading requests, and ends the threads. Requests that are parked stay unanswered: the next
 * daemon on this connection has them sent again; where the mount is gone nobody waits for them.
 * After the loop has stopped, before the floors below are closed. The keeper knows by then whether
 * another daemon is wanted: exit(0).
 */
void mount_stop(struct mount *mount);
/* After pull_close, programs_close, meta_close and transfers_free: nobody calls in any more,
   neither with a page, a row, a punched hole nor a question who has something open. Before
   loop_close. */
void mount_free(struct mount *mount);

#endif
