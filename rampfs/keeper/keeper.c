/*
 * The keeper: holds /dev/fuse, the listening session socket and the descriptors that daemons leave
 * to each other (the fdstore, protocol.h), and keeps a daemon running.
 *
 * It mounts and executes the daemon, and executes it again when it dies: at once, or after a pause
 * that grows while daemons die as soon as they start. It ends when the mount is gone and the daemon
 * has exited. It waits in one poll(2) alone (keeper_loop.c) and allocates nothing after its start.
 *
 * How it fails: a daemon that gives up before any daemon has served ends the keeper with an error.
 * A daemon that does not end when told to is killed after END_MS. Before Linux 6.9 the kernel
 * cannot send again requests that a dead daemon had read: the keeper drops the connection and
 * mounts again.
 */
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper_daemon.h"
#include "keeper_held.h"
#include "keeper_loop.h"
#include "keeper_mount.h"
#include "keeper_name.h"
#include "protocol.h"
#include "sd_notify.h"

int keeper_run(const struct keeper_config *config, struct ramp_err *err)
{
	struct keeper k = {.config = config,
			   .fuse = -1,
			   .sessions = -1,
			   .sessions_new = -1,
			   .control = -1,
			   .signals = -1,
			   .fdstore = {-1, -1},
			   .pidfd = -1};
	int rc;

	unsetenv(KEEPER_ENV_ADOPT);
	k.lock = fcntl(config->lock_fd, F_DUPFD_CLOEXEC, KEEPER_HIGH_FD);
	rc = k.lock < 0 ? ramp_err_sys(err, errno, "the lock's descriptor") : keeper_hold(&k, err);
	if (!rc)
		rc = keeper_detach_dead(config, err);
	if (!rc)
		rc = keeper_make_fdstore(&k, err);
	if (!rc)
		rc = keeper_listen_at(config, config->session_path, &k.sessions, err);
	if (!rc)
		keeper_name_note(&k);
	if (!rc)
		rc = keeper_make_mount(&k, err);
	if (!rc)
		rc = keeper_start_daemon(&k, err);
	if (!rc)
		rc = keeper_loop(&k, err);
	keeper_let_go(&k);
	if (k.lock >= 0)
		close(k.lock);
	if (rc)
		keeper_tell_ready(config, err ? err->text : "");
	return rc;
}

/* Moves an inherited descriptor up, so that its number is free for the next daemon's. */
static int take_descriptor(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, KEEPER_HIGH_FD);

	if (high >= 0)
		close(fd);
	return high;
}

/* Takes both ends of the fdstore, or neither: a daemon of an older version has none. */
static int take_fdstore(struct keeper *k)
{
	const int at[2] = {KEEPER_FD_FDSTORE, KEEPER_FD_LAST};

	for (int i = 0; i < 2; i++) {
		k->fdstore[i] = take_descriptor(at[i]);
		if (k->fdstore[i] < 0 && errno != EBADF)
			return -errno;
	}
	if (k->fdstore[0] >= 0 && k->fdstore[1] >= 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		if (k->fdstore[i] >= 0)
			close(k->fdstore[i]);
		k->fdstore[i] = -1;
	}
	return 0;
}

/* Tells systemd its new main process, which was the dead keeper. */
static void tell_main_pid(void)
{
	char state[64];

	snprintf(state, sizeof(state), "MAINPID=%d\nREADY=1\nSTATUS=serving", (int)getpid());
	notify_systemd(state);
}

/* Writes our pid into the lock's file, where contrib/local-cluster and others find the process that
   ends the node. Empty lines cover the rest of a longer number: a reader that comes meanwhile, or a
   file that could not be cut, would show two numbers. */
static void sign_lock(int lock)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", (int)getpid());

	memset(text + len, '\n', sizeof(text) - (size_t)len);
	if (pwrite(lock, text, sizeof(text), 0) != (ssize_t)sizeof(text))
		log_warn("the lock's file names a keeper that has died: %s", strerror(errno));
}

/*
 * Continues in a child of its own and ends, so that the keeper becomes a child of init. systemd
 * waits for the end of a main process only where that is its own child. Elsewhere it kills the rest
 * of the unit as soon as it has told the main process to end, and the mount stays, dead.
 */
static int become_inits_child(struct ramp_err *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return ramp_err_sys(err, errno, "fork");
	if (pid > 0)
		_exit(0);
	while (getppid() == parent)
		sched_yield();
	return 0;
}

int keeper_adopt(const struct keeper_config *config, struct ramp_err *err)
{
	const char *pid = getenv(KEEPER_ENV_ADOPT);
	struct keeper k = {.config = config,
			   .sessions_new = -1,
			   .signals = -1,
			   .fdstore = {-1, -1},
			   .pidfd = -1,
			   .served = true};
	int rc;

	if (!pid || !getenv(KEEPER_ENV_CONNECTION))
		return ramp_err_set(err, EINVAL, "no daemon asks to be adopted");
	k.pid = (pid_t)atol(pid);
	unsetenv(KEEPER_ENV_ADOPT);
	k.fuse = take_descriptor(KEEPER_FD_FUSE);
	k.control = take_descriptor(KEEPER_FD_CONTROL);
	k.sessions = take_descriptor(KEEPER_FD_SESSIONS);
	k.lock = take_descriptor(KEEPER_FD_LOCK);
	rc = take_fdstore(&k);
	if (rc || k.fuse < 0 || k.control < 0 || k.sessions < 0 || k.lock < 0)
		return ramp_err_set(err, EBADF, "a descriptor of the daemon is missing");
	rc = become_inits_child(err);
	if (!rc && k.fdstore[0] < 0)
		rc = keeper_make_fdstore(&k, err);
	if (!rc)
		rc = keeper_hold(&k, err);
	if (rc)
		return rc; /* the daemon sees us hang up and starts another: the mount stays */
	rc = keeper_watch_daemon(&k, false);
	if (rc && rc != -ESRCH)
		return ramp_err_sys(err, -rc, "watching the daemon");
	if (rc) /* the daemon has died meanwhile: start another */
		k.start_at_ms = clock_ms();
	sign_lock(k.lock);
	keeper_name_note(&k);
	log_info("adopted the daemon, process %d", (int)k.pid);
	tell_main_pid();
	rc = keeper_loop(&k, err);
	keeper_let_go(&k);
	close(k.lock);
	return rc;
}
