/*
 * The keeper: the process that holds the mount and keeps a daemon running.
 *
 * rampfs is one program in three processes. main.c starts as the keeper (keeper_run), which mounts
 * and executes main.c again as the daemon (daemon_argv). The daemon opens every floor and calls
 * mount_open, mount_start, loop_run, mount_stop, mount_free. When the daemon dies the keeper
 * executes it again on the same connection; when the keeper dies the daemon executes a new keeper
 * that adopts it (adopt_argv -> keeper_adopt). Where daemons end before they serve, and others have
 * served, main.c is executed as the stand-in between two tries (stand_in_argv). protocol.h lists the descriptors that they inherit.
 * The third process is the daemon's broker (programs/client/broker.c).
 *
 * Signals of the keeper: SIGTERM, SIGINT: unmount and end; SIGHUP: open the log's file again and
 * upgrade (the daemon is asked to end and is executed again, reading its configuration). The daemon
 * should ignore SIGINT, SIGTERM and SIGHUP: its keeper tells it to end through mount_config.ended.
 */
#ifndef RAMP_KEEPER_H
#define RAMP_KEEPER_H

#include "base/err.h"

struct keeper_config {
	const char *source; /* the state directory's absolute path, which mount(8) shows in front */
	const char *mountpoint;	   /* absolute */
	unsigned long mount_flags; /* MS_RDONLY, MS_NOEXEC, ... ; MS_NOSUID|MS_NODEV are added */
	const char *session_path;  /* made (mode 0666, an old one removed) and listened on */
	int session_type;	   /* SOCK_STREAM or SOCK_SEQPACKET, as programs wants it */
	char *const *daemon_argv;  /* [0]: the file to execute, absolute */
	/* The same of the process that answers requests while no daemon can start. This very program
	   is executed, whatever has become of its file. */
	char *const *stand_in_argv;
	/* Called at SIGHUP, before the daemon makes room: returns whether another can start; -errno
	   leaves this one where it is, and is logged. */
	int (*check)(const struct keeper_config *config, struct ramp_err *err);
	int lock_fd;	      /* locked by the caller (flock LOCK_EX|LOCK_NB) */
	const char *log_path; /* a file to open again at SIGHUP, absolute; NULL: none */
	/* -1, or a pipe to the process that the user started, which waits for it: gets one line
	   when it is decided, "" once the mount answers, or why it failed; then it is closed. */
	int ready_fd;
};

/*
 * Mounts, starts the daemon, starts it again whenever it dies, until the mount is gone. A dead
 * mount of the same source, or one at the mountpoint that answers ENOTCONN, is detached first (the
 * caller holds the lock, so no daemon serves it); -EBUSY where something that lives is mounted at
 * the mountpoint. A daemon that ends with exit status KEEPER_EXIT_FATAL before it ever said that it
 * serves is not started again: keeper_run unmounts and returns -EIO, with the reason that it told.
 * Blocks SIGTERM, SIGINT and SIGHUP of the process; call it from its only thread.
 */
int keeper_run(const struct keeper_config *config, struct ramp_err *err);

/* Continues where the dead keeper stopped; for main.c, when RAMPFS_ADOPT is set. lock_fd and
   ready_fd are ignored; session_path and mountpoint as in keeper_run. */
int keeper_adopt(const struct keeper_config *config, struct ramp_err *err);

#endif
