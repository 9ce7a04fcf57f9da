/*
 * The daemon's side of what it inherits from the keeper.
 */
#include "inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "keeper_held.h"
#include "protocol.h"

/* Makes an fdstore of the daemon's own. Both descriptor numbers are free. */
static int make_own_fdstore(void)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	for (int i = 0; i < 2; i++) {
		int high = fcntl(pair[i], F_DUPFD_CLOEXEC, KEEPER_HIGH_FD);

		close(pair[i]);
		pair[i] = high;
	}
	rc = pair[0] < 0 || pair[1] < 0 || dup2(pair[0], KEEPER_FD_FDSTORE) < 0 ||
			     dup2(pair[1], KEEPER_FD_LAST) < 0
		     ? -errno
		     : 0;
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
	return rc;
}

int keeper_inherited(uint64_t *connection, struct ramp_err *err)
{
	const char *text = getenv(KEEPER_ENV_CONNECTION);
	char *end = NULL;
	int rc = 0;

	if (text)
		*connection = strtoull(text, &end, 16);
	if (!text || !*text || *end || !*connection)
		return ramp_err_set(err, EINVAL,
				    "the daemon is started by rampfs itself, not by hand");
	/* A keeper of an older version has no fdstore. The next daemon does not receive from this
	   one. */
	if (fcntl(KEEPER_FD_LAST, F_GETFD) < 0)
		rc = make_own_fdstore();
	for (int fd = KEEPER_FD_FUSE; !rc && fd <= KEEPER_FD_LAST; fd++)
		rc = fcntl(fd, F_SETFD, FD_CLOEXEC) ? -errno : 0;
	return rc ? ramp_err_sys(err, -rc, "descriptors from the keeper") : 0;
}

int keeper_tell(char what)
{
	int rc = send(KEEPER_FD_CONTROL, &what, 1, MSG_NOSIGNAL) == 1 ? 0 : -errno;

	if (rc)
		log_debug("telling the keeper '%c': %s", what, strerror(-rc));
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc; /* a dead keeper is replaced */
}

void keeper_tell_failure(const struct ramp_err *err)
{
	char message[1 + RAMP_ERR_TEXT_BYTES];
	int len = snprintf(message, sizeof(message), "%c%s", KEEPER_SAY_FAILED, err->text);

	if (!getenv(KEEPER_ENV_CONNECTION)) /* started by hand: that is no socket to a keeper */
		return;
	if (send(KEEPER_FD_CONTROL, message, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
		log_debug("telling the keeper the error: %s", strerror(errno));
}
