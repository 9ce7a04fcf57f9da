/*
 * The doorman: a small process that receives what strangers send and passes on userfaultfds alone.
 *
 * A descriptor that a stranger sends may be of a file whose close(2) never returns, and then the
 * process that closes it can't even be killed. So the daemon receives none. Each agent gets one end
 * of a socket pair (WELCOME), the doorman the other. It forks a child for each, which waits for the
 * one message, looks what the descriptor is (readlink of its own /proc/self/fd), and passes on what
 * is a userfaultfd and nothing else; what it thinks of anything else it answers as an errno. A
 * child that hangs in close hangs alone: it alone holds that end when it looks what has come, since
 * the last one that closes it closes what was not received, too. When a child has ended, the daemon
 * is told, which counts those that have not.
 *
 * The doorman is this program executed anew: a forked copy of the daemon would keep the store's
 * files mapped, and the proof that nobody maps a segment would never hold again.
 *
 * How it fails: when it dies, the daemon sees the hang-up, starts another, and hangs up on sessions
 * that were at the door; their agents come again. So it does where a child has ended without an
 * answer. When the daemon dies, it sees that and ends. A doorman that can't fork ends, too: it must
 * not close what it was given.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local.h"
#include "log.h"
#include "wire.h"

#define DOOR_FD	      3
#define DOOR_MS	      5000
#define RESTART_MS    100u
#define MESSAGE_BYTES 12u /* u64 the space's id, u32 errno or ENDED */
#define ENDED	      UINT32_MAX
#define CHILDREN_MAX  2048 /* more than the daemon has doors */

extern char **environ;

/* ---- one message with at most one descriptor, both ways ------------------------------------- */

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static int send_one(int sock, uint64_t space, uint32_t why, int fd)
{
	uint8_t buf[MESSAGE_BYTES];
	struct iovec io = {buf, sizeof(buf)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	union control control = {{0}};
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, space);
	wire_put_u32(&w, why);
	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Bytes received (0: hung up), or -errno; *fd: -1 where there was none. Of more than one the kernel
   closes the others here: there is no room for them, not even what aligns the first. */
static int receive(int sock, void *buf, size_t cap, int *fd, int flags)
{
	struct iovec io = {buf, cap};
	union control control;
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = CMSG_LEN(sizeof(int))};
	struct cmsghdr *c;
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return (int)n;
}

static int receive_one(int sock, uint64_t *space, uint32_t *why, int *fd, int flags)
{
	uint8_t buf[MESSAGE_BYTES + 1];
	struct wire_r r;
	int n = receive(sock, buf, sizeof(buf), fd, flags);

	if (n <= 0)
		return n ? n : -EPIPE;
	wire_r_init(&r, buf, (size_t)n);
	*space = wire_get_u64(&r);
	*why = wire_get_u32(&r);
	return wire_r_done(&r) ? 0 : -EBADMSG;
}

/* ---- the process itself: system calls only -------------------------------------------------- */

static int look(int fd)
{
	static const char wanted[] = "anon_inode:[userfaultfd]";
	char path[32], is[sizeof(wanted) + 1];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, is, sizeof(is));
	if (n < 0)
		return errno;
	return n == sizeof(wanted) - 1 && memcmp(is, wanted, sizeof(wanted) - 1) == 0 ? 0 : EBADF;
}

/* The child's life: one message, one answer. */
static void serve_door(int daemon, uint64_t space, int door)
{
	struct pollfd at = {.fd = door, .events = POLLIN};
	uint8_t byte[2];
	int fd = -1, n, why;

	n = poll(&at, 1, DOOR_MS);
	if (n <= 0) {
		send_one(daemon, space, ETIMEDOUT, -1);
		return;
	}
	n = receive(door, byte, sizeof(byte), &fd, MSG_DONTWAIT);
	if (n != 1 || byte[0] != SESSION_VERSION || fd < 0)
		why = n == 0 ? EPIPE : EBADMSG;
	else
		why = look(fd);
	send_one(daemon, space, (uint32_t)why, why ? -1 : fd);
}

static struct {
	pid_t pid;
	uint64_t space;
} children[CHILDREN_MAX];
static size_t n_children;

/* Tells the daemon who has ended. */
static void reap(int daemon)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		size_t i = 0;

		while (i < n_children && children[i].pid != pid)
			i++;
		if (i == n_children)
			continue;
		send_one(daemon, children[i].space, ENDED, -1);
		children[i] = children[--n_children];
	}
}

/* The child goes on when nobody else holds its door any more: at the end of `gate`. */
static void open_door(int daemon, uint64_t space, int door)
{
	int gate[2];
	char none;
	pid_t pid;

	if (n_children == CHILDREN_MAX || pipe2(gate, O_CLOEXEC))
		_exit(1);
	pid = fork();
	if (pid < 0)
		_exit(1);
	if (pid == 0) {
		close(gate[1]);
		if (read(gate[0], &none, 1) == 0)
			serve_door(daemon, space, door);
		_exit(0);
	}
	children[n_children].pid = pid;
	children[n_children++].space = space;
	close(door);
	close(gate[1]);
	close(gate[0]);
}

static void take_request(int daemon)
{
	uint64_t space;
	uint32_t unused;
	int door, rc = receive_one(daemon, &space, &unused, &door, MSG_DONTWAIT);

	if (rc == -EAGAIN)
		return;
	if (rc == -EPIPE)
		_exit(0);
	if (rc || door < 0)
		_exit(1);
	open_door(daemon, space, door);
}

static void doorman_serve(int daemon)
{
	struct pollfd wait[2] = {{.fd = daemon, .events = POLLIN}, {.events = POLLIN}};
	struct signalfd_siginfo info;
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &chld, NULL))
		_exit(1);
	wait[1].fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (wait[1].fd < 0)
		_exit(1);
	for (;;) {
		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[1].revents && read(wait[1].fd, &info, sizeof(info)) > 0)
			reap(daemon);
		if (wait[0].revents)
			take_request(daemon);
	}
}

void programs_doorman(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--doorman") != 0)
		return;
	prctl(PR_SET_NAME, "rampfs-doorman");
	signal(SIGCHLD, SIG_DFL); /* and not what the daemon was started with */
	signal(SIGINT, SIG_IGN);  /* it ends with the daemon */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (close_range(DOOR_FD + 1, ~0U, 0))
		_exit(1);
	doorman_serve(DOOR_FD);
}

/* ---- the daemon's side: control thread ------------------------------------------------------ */

struct doorman {
	struct programs *programs;
	int sock;
	pid_t pid;
	uv_poll_t poll;
	uv_timer_t again;
	int handles; /* not closed yet; the last one's callback frees */
};

static int spawn(struct doorman *d, int sock)
{
	char *argv[] = {"rampfs", "--doorman", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	/* Where sock is 3 already, dup2 takes its close-on-exec away. */
	rc = posix_spawn_file_actions_adddup2(&files, sock, DOOR_FD);
	if (!rc)
		rc = posix_spawn(&d->pid, "/proc/self/exe", &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

static void on_door(uv_poll_t *poll, int status, int events);

static int start(struct doorman *d, struct ramp_err *err)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return ramp_err_sys(err, errno, "the doorman's socket");
	rc = spawn(d, pair[1]);
	close(pair[1]);
	if (rc) {
		close(pair[0]);
		return ramp_err_sys(err, -rc, "the doorman");
	}
	rc = uv_poll_init(loop_uv(d->programs->loop), &d->poll, pair[0]);
	if (rc) {
		close(pair[0]);
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
		return ramp_err_set(err, -rc, "the doorman's socket: %s", uv_strerror(rc));
	}
	d->sock = pair[0];
	d->poll.data = d;
	d->handles++;
	uv_poll_start(&d->poll, UV_READABLE | UV_DISCONNECT, on_door);
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct doorman *d = handle->data;

	if (--d->handles == 0)
		free(d);
}

/* The poll handle may not be used again before it is closed, so the new one waits for that. */
static void on_poll_closed(uv_handle_t *handle)
{
	struct doorman *d = handle->data;

	if (!uv_is_closing((uv_handle_t *)&d->again)) {
		d->handles--;
		return;
	}
	on_closed(handle);
}

static void on_again(uv_timer_t *timer)
{
	struct doorman *d = timer->data;
	struct ramp_err err;

	waitpid(d->pid, NULL, WNOHANG);
	if (start(d, &err)) {
		log_error("no program can attach: %s", err.text);
		uv_timer_start(&d->again, on_again, 10 * RESTART_MS, 0);
	}
}

static void lost(struct doorman *d)
{
	log_warn("the doorman has died; starting another");
	uv_close((uv_handle_t *)&d->poll, on_poll_closed);
	close(d->sock);
	d->sock = -1;
	uv_timer_start(&d->again, on_again, RESTART_MS, 0);
	session_doors_lost(d->programs);
}

static void on_door(uv_poll_t *poll, int status, int events)
{
	struct doorman *d = poll->data;
	uint64_t space;
	uint32_t why;
	int fd, rc;

	(void)status;
	(void)events;
	for (;;) {
		rc = receive_one(d->sock, &space, &why, &fd, MSG_DONTWAIT);
		if (rc == -EAGAIN)
			return;
		if (rc) {
			if (fd >= 0)
				close(fd);
			lost(d);
			return;
		}
		if (why == ENDED && fd < 0)
			session_door_closed(d->programs, space);
		else
			session_uffd(d->programs, space, fd, fd < 0 && !why ? EBADMSG : (int)why);
	}
}

int doorman_open(struct programs *p, struct doorman **out, struct ramp_err *err)
{
	struct doorman *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return ramp_err_sys(err, ENOMEM, "the doorman");
	d->programs = p;
	rc = start(d, err);
	if (rc) {
		free(d);
		return rc;
	}
	uv_timer_init(loop_uv(p->loop), &d->again);
	d->again.data = d;
	d->handles++;
	*out = d;
	return 0;
}

void doorman_close(struct doorman *d)
{
	uv_close((uv_handle_t *)&d->again, on_closed);
	if (d->sock < 0)
		return;
	uv_close((uv_handle_t *)&d->poll, on_closed);
	close(d->sock); /* it ends by that */
	waitpid(d->pid, NULL, 0);
}

int doorman_ask(struct doorman *d, uint64_t space, int door)
{
	return d->sock < 0 ? -EAGAIN : send_one(d->sock, space, 0, door);
}
