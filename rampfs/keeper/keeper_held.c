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
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/kernel.h"
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

int keeper_listen(struct keeper *k, struct ramp_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int rc, fd;

	if (strlen(k->config->session_path) >= sizeof(addr.sun_path))
		return ramp_err_set(err, ENAMETOOLONG, "session socket %s: more than %zu bytes",
				    k->config->session_path, sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, k->config->session_path);
	fd = socket(AF_UNIX, k->config->session_type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return ramp_err_sys(err, errno, "session socket");
	kernel_refuse_fds(fd); /* before any client connects; where that fails the daemon says so */
	unlink(addr.sun_path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || chmod(addr.sun_path, 0666) ||
	    listen(fd, 128)) {
		int code = errno;

		close(fd);
		return ramp_err_sys(err, code, "session socket %s", addr.sun_path);
	}
	rc = keeper_move_high(fd, &k->sessions);
	return rc ? ramp_err_sys(err, -rc, "session socket %s", addr.sun_path) : 0;
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
