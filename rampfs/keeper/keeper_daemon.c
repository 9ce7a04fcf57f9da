/*
 * The keeper's daemon: started, watched, and started again when it dies.
 */
#include "keeper_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "keeper_held.h"
#include "keeper_mount.h"
#include "keeper_spawn.h"
#include "protocol.h"

#define QUICK_MS	20 /* a daemon that served for less has died at once */
#define QUICK_FREE	5  /* that many quick deaths cost no pause */
#define PAUSE_FIRST_MS	10
#define PAUSE_MAX_MS	5000
#define STARTS_UNSERVED 5 /* give up after that many, where none ever served */
/* The stand-in comes after that many that never served, where others have. More where they were
   killed: a request may do that, and is answered before (fuse_takeover.c). */
#define STAND_IN_AFTER	      2
#define STAND_IN_AFTER_KILLED 12
#define RESEND_SINCE	      609 /* Linux 6.9 */

extern char **environ;

static int spawn_daemon(struct keeper *k, int control)
{
	const int given[KEEPER_FDS] = {k->fuse, control,       k->sessions,
				       k->lock, k->fdstore[0], k->fdstore[1]};

	if (k->standing_in)
		return keeper_spawn_self(given, k->config->stand_in_argv, environ, 0, &k->pid);
	return keeper_spawn(given, k->config->daemon_argv, environ, 0, &k->pid);
}

int keeper_watch_daemon(struct keeper *k, bool child)
{
	k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	k->child = child;
	k->serving_since_ms = 0;
	k->kill_at_ms = 0;
	return k->pidfd < 0 ? -errno : 0;
}

/* Makes the socket pair to the next daemon: our end is k->control, the daemon's *theirs. */
static int make_control(struct keeper *k, int *theirs)
{
	int pair[2], rc, rc_theirs;

	if (k->control >= 0)
		close(k->control);
	k->control = *theirs = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = keeper_move_high(pair[0], &k->control);
	rc_theirs = keeper_move_high(pair[1], theirs);
	return rc ? rc : rc_theirs;
}

/* Starts a daemon, and kills it if it can't be watched: another would be started beside it. */
static int spawn_watched(struct keeper *k, int control)
{
	int rc = spawn_daemon(k, control);

	if (rc)
		return rc;
	rc = keeper_watch_daemon(k, true);
	if (rc) {
		kill(k->pid, SIGKILL);
		waitpid(k->pid, NULL, 0);
	}
	return rc;
}

/* Tells the stand-in why it is one. */
static void tell_why(struct keeper *k)
{
	char message[1 + RAMP_ERR_TEXT_BYTES];
	int len = snprintf(message, sizeof(message), "%c%s", KEEPER_SAY_FAILED, k->failure);

	if (send(k->control, message, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
		log_debug("telling the stand-in the error: %s", strerror(errno));
}

/* Plans what follows a daemon that never served, where others have: k->failure says why. */
static void plan_after_failure(struct keeper *k, bool killed, uint64_t pause)
{
	k->unserved++;
	k->standing_in = k->unserved >= (killed ? STAND_IN_AFTER_KILLED : STAND_IN_AFTER) &&
			 kernel_version() >= RESEND_SINCE;
	k->start_at_ms = clock_ms() + (k->standing_in ? 0 : pause);
}

int keeper_start_daemon(struct keeper *k, struct ramp_err *err)
{
	int control, rc;

	k->start_at_ms = 0;
	k->starts += !k->standing_in;
	rc = make_control(k, &control);
	if (!rc)
		rc = spawn_watched(k, control);
	if (control >= 0)
		close(control);
	if (!rc) {
		keeper_set_oom(k->pid, KEEPER_OOM_DAEMON);
		if (k->standing_in)
			tell_why(k);
		else
			k->failure[0] = 0;
		return 0;
	}
	rc = ramp_err_sys(err, -rc, "starting the daemon %s", k->config->daemon_argv[0]);
	if (!k->served)
		return rc;
	log_error("%s", err->text);
	if (k->standing_in) {
		k->standing_in = false;
		k->start_at_ms = clock_ms() + PAUSE_MAX_MS;
	} else {
		snprintf(k->failure, sizeof(k->failure), "%s", err->text);
		plan_after_failure(k, false, PAUSE_MAX_MS);
	}
	return 0;
}

/* Returns the pause before the next start. */
static uint64_t pause_ms(struct keeper *k)
{
	uint64_t pause = PAUSE_FIRST_MS;

	if (k->serving_since_ms && clock_ms() - k->serving_since_ms >= QUICK_MS) {
		k->quick = 0;
		return 0;
	}
	if (++k->quick <= QUICK_FREE)
		return 0;
	for (unsigned i = QUICK_FREE + 1; i < k->quick && pause < PAUSE_MAX_MS; i++)
		pause *= 2;
	return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

/* Mounts again, since this kernel has no RESEND: requests that the dead daemon had read would hang
   for ever. */
static int mount_again(struct keeper *k, struct ramp_err *err)
{
	log_warn("Linux before 6.9 can't send requests again: mounting again");
	umount2(k->config->mountpoint, MNT_DETACH);
	close(k->fuse);
	return keeper_make_mount(k, err);
}

/* Says in k->failure why the daemon ended, where it has not told. */
static void note_failure(struct keeper *k, int status)
{
	if (k->failure[0])
		return;
	if (WIFSIGNALED(status))
		snprintf(k->failure, sizeof(k->failure),
			 "the daemon was killed by signal %d before it served (see its log)",
			 WTERMSIG(status));
	else
		snprintf(k->failure, sizeof(k->failure), "the daemon does not start (see its log)");
}

/* The stand-in's time is over: another daemon is tried, at once where nothing is wrong with it. */
static int stand_in_ended(struct keeper *k, int status)
{
	bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;

	k->standing_in = false;
	if (!well)
		log_warn("the process that answers requests meanwhile has died (status %#x)",
			 (unsigned)status);
	k->start_at_ms = clock_ms() + (well ? 0 : PAUSE_MAX_MS);
	return 0;
}

int keeper_daemon_died(struct keeper *k, struct ramp_err *err)
{
	int status = 0;
	uint64_t pause;

	if (k->child)
		waitpid(k->pid, &status, 0);
	close(k->pidfd);
	k->pidfd = -1;
	if (k->ending || k->gone)
		return 0;
	if (k->standing_in)
		return stand_in_ended(k, status);
	if (!k->served &&
	    ((WIFEXITED(status) && WEXITSTATUS(status) != 0) || k->starts >= STARTS_UNSERVED))
		return ramp_err_set(err, EIO, "%s",
				    k->failure[0] ? k->failure
						  : "the daemon does not start (see its log)");
	if (k->child && WIFSIGNALED(status))
		log_warn("the daemon was killed by signal %d; starting it again", WTERMSIG(status));
	else
		log_info("the daemon has ended; starting it again");
	if (kernel_version() < RESEND_SINCE) {
		int rc = mount_again(k, err);

		if (rc)
			return rc;
	}
	pause = pause_ms(k);
	if (k->served && k->child && !k->serving_since_ms) {
		note_failure(k, status);
		plan_after_failure(k, WIFSIGNALED(status), pause);
	} else {
		k->start_at_ms = clock_ms() + pause;
	}
	if (k->standing_in)
		log_warn("no daemon can start: requests are answered with an error until the next "
			 "try, in 5 s");
	else if (pause)
		log_warn("%u daemons have died at once: starting the next in %llu ms", k->quick,
			 (unsigned long long)pause);
	return 0;
}

void keeper_say(struct keeper *k, char what)
{
	if (k->control >= 0 && send(k->control, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		log_debug("telling the daemon '%c': %s", what, strerror(errno));
}
