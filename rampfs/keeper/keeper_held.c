/*
 * The descriptors that the keeper holds for its daemons, and its own.
 */
#include "keeper_held.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

void keeper_set_oom(pid_t pid, const char *score)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, score, strlen(score)) < 0)
		log_debug("%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

int keeper_move_high(int fd, int *high)
{
	int rc;

	*high = fcntl(fd, F_DUPFD_CLOEXEC, KEEPER_HIGH_FD);
	rc = *high < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int keeper_make_fdstore(struct keeper *k, struct ramp_err *err)
{
	int pair[2], rc, rc_other;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return ramp_err_sys(err, errno, "a pair of sockets");
	rc = keeper_move_high(pair[0], &k->fdstore[0]);
	rc_other = keeper_move_high(pair[1], &k->fdstore[1]);
	rc = rc ? rc : rc_other;
	return rc ? ramp_err_sys(err, -rc, "a pair of sockets") : 0;
}

int keeper_hold(struct keeper *k, struct ramp_err *err)
{
	sigset_t set;
	int rc, fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return ramp_err_sys(err, errno, "signalfd");
	rc = keeper_move_high(fd, &k->signals);
	if (rc)
		return ramp_err_sys(err, -rc, "signalfd");
	keeper_set_oom(getpid(), KEEPER_OOM_KEEPER);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		log_debug("the keeper's memory is not locked: %s", strerror(errno));
	return 0;
}
