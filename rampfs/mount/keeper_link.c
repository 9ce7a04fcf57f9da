/*
 * The daemon's end of the socket to the keeper.
 *
 * The keeper says when to end or to make room for another daemon, and sends a new session socket
 * where the old one's name is gone; we say that we serve, or that the
 * mount is gone. When the keeper dies the socket hangs up: we execute a new one, which adopts us
 * and finds the same descriptors as a daemon does.
 *
 * How it fails: an error of one read is not taken for the keeper's death: where the keeper has
 * died, the next read says so. Of two keepers, one would start daemons in vain for ever. Where no
 * keeper can be executed the mount works, but no process would start us again; the start is tried
 * again every second, and logged once.
 */
#include "keeper_link.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "keeper/keeper_spawn.h"
#include "keeper/protocol.h"

#define RETRY_MS   1000
#define READ_TRIES 3u

/* The handles live until libuv has closed them, which may be after the mount is freed. */
struct keeper_link {
	uv_poll_t poll;
	uv_timer_t retry;
	struct mount *mount;
	int handles;	 /* still open */
	unsigned failed; /* failed reads in a row */
	bool said;	 /* logged that no keeper can be executed */
};

extern char **environ;

static void keeper_link_watch(struct keeper_link *c);

/* Copies our environment, with RAMPFS_ADOPT. NULL: no memory. */
static char **adopt_env(char *pid_text)
{
	size_t n = 0;
	char **env;

	for (char **e = environ; *e; e++)
		n++;
	env = calloc(n + 2, sizeof(*env));
	n = 0;
	for (char **e = environ; env && *e; e++)
		if (strncmp(*e, KEEPER_ENV_ADOPT "=", sizeof(KEEPER_ENV_ADOPT)) != 0)
			env[n++] = *e;
	if (env)
		env[n] = pid_text;
	return env;
}

/* Waits for our child, which is not yet the keeper: it ends with 0 when it has a child that is
   (keeper_adopt). */
static int wait_for_keeper(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int spawn_keeper(struct mount *m, int socket)
{
	const int given[KEEPER_FDS] = {KEEPER_FD_FUSE,	   socket,
				       KEEPER_FD_SESSIONS, KEEPER_FD_LOCK,
				       KEEPER_FD_FDSTORE,  KEEPER_FD_LAST};
	char pid_text[sizeof(KEEPER_ENV_ADOPT) + 16], **env = adopt_env(pid_text);
	pid_t pid;
	int rc;

	if (!env)
		return -ENOMEM;
	snprintf(pid_text, sizeof(pid_text), KEEPER_ENV_ADOPT "=%d", (int)getpid());
	rc = keeper_spawn(given, m->config.adopt_argv, env, POSIX_SPAWN_SETSID, &pid);
	if (!rc)
		rc = wait_for_keeper(pid);
	free(env);
	return rc;
}

static void keeper_link_retry(uv_timer_t *timer);

/* Executes a new keeper, which gets the other end of a new socket. */
static void replace_keeper(struct keeper_link *c)
{
	struct mount *m = c->mount;
	int pair[2], rc = 0;

	uv_poll_stop(&c->poll);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		rc = -errno;
	if (!rc) {
		/* dup3 can fail and so comes before the start: two keepers would start a daemon
		   each. */
		rc = dup3(pair[0], KEEPER_FD_CONTROL, O_CLOEXEC) < 0 ? -errno : 0;
		close(pair[0]);
		if (!rc)
			rc = spawn_keeper(m, pair[1]);
		close(pair[1]);
	}
	if (!rc) {
		log_warn("the keeper has died: a new one has been started");
		keeper_link_watch(c);
		return;
	}
	if (!c->said)
		log_error("the keeper has died, and no new one can be started: %s", strerror(-rc));
	c->said = true;
	uv_timer_start(&c->retry, keeper_link_retry, RETRY_MS, 0);
}

static void keeper_link_retry(uv_timer_t *timer)
{
	replace_keeper(timer->data);
}

/* Receives a byte, and the descriptor that comes with it. */
static ssize_t receive(char *what, int *fd)
{
	struct iovec iov = {what, 1};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(KEEPER_FD_CONTROL, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return n;
}

/* The listening socket's name is gone: programs will find this one. Without an answer the keeper
   tries again. */
static void take_sessions(struct mount *m, int fd)
{
	const char what = KEEPER_SAY_SESSIONS;
	int rc = programs_listen(m->config.programs, fd);

	if (rc)
		log_warn("the new session socket can't be taken: %s", strerror(-rc));
	else if (send(KEEPER_FD_CONTROL, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		log_warn("the keeper is not told of the new session socket: %s", strerror(errno));
}

static void keeper_link_readable(uv_poll_t *poll, int status, int events)
{
	struct keeper_link *c = poll->data;
	int fd = -1;
	char what = 0;
	ssize_t n;

	(void)events;
	n = receive(&what, &fd);
	if (n < 0 && (errno == EAGAIN || errno == EINTR || ++c->failed < READ_TRIES)) {
		if (status) /* after an error libuv has stopped watching */
			keeper_link_watch(c);
		return;
	}
	c->failed = 0;
	if (n <= 0)
		replace_keeper(c);
	else if (what == KEEPER_SAY_END)
		mount_end(c->mount, MOUNT_TERMINATE);
	else if (what == KEEPER_SAY_UPGRADE)
		mount_end(c->mount, MOUNT_UPGRADE);
	else if (what == KEEPER_SAY_SESSIONS && fd >= 0)
		take_sessions(c->mount, fd);
	else if (fd >= 0)
		close(fd);
}

static void keeper_link_watch(struct keeper_link *c)
{
	uv_poll_start(&c->poll, UV_READABLE | UV_DISCONNECT, keeper_link_readable);
}

int keeper_link_open(struct mount *m, struct ramp_err *err)
{
	struct keeper_link *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return ramp_err_sys(err, ENOMEM, "keeper's socket");
	rc = uv_poll_init(loop_uv(m->config.loop), &c->poll, KEEPER_FD_CONTROL);
	if (rc) {
		free(c);
		return ramp_err_set(err, -rc, "keeper's socket: %s", uv_strerror(rc));
	}
	uv_timer_init(loop_uv(m->config.loop), &c->retry);
	c->poll.data = c->retry.data = c;
	c->mount = m;
	c->handles = 2;
	m->keeper_link = c;
	keeper_link_watch(c);
	return 0;
}

static void keeper_link_closed(uv_handle_t *handle)
{
	struct keeper_link *c = handle->data;

	if (--c->handles == 0)
		free(c);
}

void keeper_link_close(struct mount *m)
{
	if (!m->keeper_link)
		return;
	uv_close((uv_handle_t *)&m->keeper_link->poll, keeper_link_closed);
	uv_close((uv_handle_t *)&m->keeper_link->retry, keeper_link_closed);
	m->keeper_link = NULL;
}
