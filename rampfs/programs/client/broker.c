/*
 * The broker: a small process that receives the descriptors that clients send, and passes nothing
 * but userfaultfds on to the daemon.
 *
 * A descriptor that an untrusted client sends may be of a file whose close(2) never returns, and
 * the thread that closes it can't even be killed. So the daemon receives none. Each agent gets one
 * end of a socket pair (WELCOME), the broker the other end, the "door". For each door the broker
 * makes a thread with a descriptor table of its own (unshare). The thread waits for the one
 * message, looks what kind of file the descriptor is (readlink of its own /proc/thread-self/fd),
 * passes a userfaultfd on, a second one before it, and answers an errno for any other file.
 *
 * A thread that hangs in close hangs alone. For that, it must be the only holder of the door when
 * it looks at what has come, since the last close of a socket also closes the descriptors in it
 * that were not received; and it receives all descriptors that one message can carry, since the
 * kernel closes those that find no room. When a thread has closed them all, the daemon is told; the
 * daemon counts the threads that have not. A process per door would cost eight times as much, in
 * pieces that each keep a processor for a tenth of a millisecond: page faults of other programs
 * would wait for that.
 *
 * The broker is this program executed again: a forked copy of the daemon would keep the store's
 * files mapped, and the proof that no process maps a segment would never hold again.
 *
 * How it fails: when the broker dies, the daemon sees the hang-up, starts another one, and hangs up
 * on the sessions that were waiting for the broker; their agents connect again. When the daemon
 * dies, the broker sees that and ends. A broker that can't make a thread ends, too: it must not
 * close a descriptor that it was given.
 *
 * A descriptor that the daemon itself must not be the last to close comes the same way
 * (broker_release.c): a message that carries it (LET_GO), and, when the daemon has closed its own
 * copy, a second one that says so (GO).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/log.h"
#include "base/session.h"
#include "base/wire.h"
#include "broker.h"
#include "programs/programs.h"

#define DOOR_FD	      3
#define DOOR_MS	      5000
#define RESTART_MS    100u
#define BURY_TRIES    1000	 /* one millisecond each */
#define MESSAGE_BYTES 12u	 /* u64 client's id; u32 an errno, 0 or one of the next three */
#define ENDED	      UINT32_MAX /* to the daemon: the thread of that id has ended */
#define LET_GO	      (UINT32_MAX - 1) /* to the broker: the descriptor to close, after GO */
#define GO	      (UINT32_MAX - 2) /* to the broker: the daemon has closed its copy */
#define SECOND	      (UINT32_MAX - 3) /* to the daemon: the second userfaultfd; the first follows */
#define STACK_BYTES   (128u << 10)
#define FDS_MAX	      253 /* in one message: the kernel's SCM_MAX_FD */

extern char **environ;

/* ---- messages: the daemon's carry one descriptor at most, a client's may carry many --------- */

union broker_control {
	char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	struct cmsghdr align;
};

static int send_one(int sock, uint64_t client, uint32_t why, int fd)
{
	uint8_t buf[MESSAGE_BYTES];
	struct iovec io = {buf, sizeof(buf)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	union broker_control control;
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, client);
	wire_put_u32(&w, why);
	if (fd >= 0) {
		struct cmsghdr *c;

		memset(control.bytes, 0, CMSG_SPACE(sizeof(int)));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Returns the bytes received (0: hung up), or -errno. *n_fds: in, how many descriptors there is
   room for; out, how many came. The kernel closes all others while this receives: there is no
   spare room in the control buffer, not even the padding behind the last one. */
static int receive_fds(int sock, void *buf, size_t cap, int *fds, size_t *n_fds, int flags)
{
	struct iovec io = {buf, cap};
	union broker_control control;
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = CMSG_LEN(sizeof(int) * *n_fds)};
	struct cmsghdr *c;
	ssize_t n;

	*n_fds = 0;
	do
		n = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), *n_fds * sizeof(int));
	}
	return (int)n;
}

static int receive_one(int sock, uint64_t *client, uint32_t *why, int *fd, int flags)
{
	uint8_t buf[MESSAGE_BYTES + 1];
	size_t n_fds = 1;
	struct wire_r r;
	int n;

	*fd = -1;
	n = receive_fds(sock, buf, sizeof(buf), fd, &n_fds, flags);
	if (n <= 0)
		return n ? n : -EPIPE;
	wire_r_init(&r, buf, (size_t)n);
	*client = wire_get_u64(&r);
	*why = wire_get_u32(&r);
	return wire_r_done(&r) ? 0 : -EBADMSG;
}

/* ---- the process itself --------------------------------------------------------------------- */

struct broker_door {
	uint64_t client;
	bool leaves; /* from LET_GO: `door` is only to be closed */
	int daemon, door, ended;
	sem_t unshared; /* posted by the thread: it has a table of its own */
	sem_t alone;	/* posted to the thread: nothing else holds `door` any more */
};

static int look_at_fd(int fd)
{
	static const char wanted[] = "anon_inode:[userfaultfd]";
	char path[40], is[sizeof(wanted) + 1];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	n = readlink(path, is, sizeof(is));
	if (n < 0)
		return errno;
	return n == sizeof(wanted) - 1 && memcmp(is, wanted, sizeof(wanted) - 1) == 0 ? 0 : EBADF;
}

/* Takes one message and sends one answer. Returns how many descriptors have come; the caller
   closes them. */
static size_t serve_door(int daemon, uint64_t client, int door, int fds[FDS_MAX])
{
	struct pollfd at = {.fd = door, .events = POLLIN};
	size_t n_fds = FDS_MAX;
	uint8_t byte[2];
	int n, why;

	n = poll(&at, 1, DOOR_MS);
	if (n <= 0) {
		send_one(daemon, client, ETIMEDOUT, -1);
		return 0;
	}
	n = receive_fds(door, byte, sizeof(byte), fds, &n_fds, MSG_DONTWAIT);
	if (n != 1 || byte[0] != SESSION_VERSION || n_fds == 0)
		why = n == 0 ? EPIPE : EBADMSG;
	else
		why = look_at_fd(fds[0]);
	if (!why && n_fds > 1 && !look_at_fd(fds[1]))
		send_one(daemon, client, SECOND, fds[1]);
	send_one(daemon, client, (uint32_t)why, why ? -1 : fds[0]);
	return n_fds;
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer takes equal numbers in two descriptor tables for one descriptor. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:at_door";
}
#endif

/*
 * Runs a door's thread. Its descriptor table is its own from the first step on, and it looks at its
 * door when nothing else holds that any more. It closes the daemon's socket before what a client
 * has sent: a hang there must not keep the daemon from seeing that the broker has died.
 */
static void *at_door(void *arg)
{
	struct broker_door *d = arg;
	int fds[FDS_MAX];
	size_t n;

	prctl(PR_SET_NAME, "rampfs-door");
	if (unshare(CLONE_FILES))
		_exit(1);
	sem_post(&d->unshared);
	while (sem_wait(&d->alone))
		;
	n = d->leaves ? 0 : serve_door(d->daemon, d->client, d->door, fds);
	close(d->daemon);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	close(d->door);
	if (write(d->ended, &d->client, sizeof(d->client)) != sizeof(d->client))
		_exit(1);
	free(d);
	return NULL;
}

/* Starts a door's thread, which waits until `alone` is posted: at once for a client's door, at
   GO for a descriptor that leaves the daemon. */
static struct broker_door *open_door(int daemon, uint64_t client, int door, int ended, bool leaves)
{
	struct broker_door *d = calloc(1, sizeof(*d));
	pthread_attr_t attr;
	pthread_t thread;

	if (!d || sem_init(&d->unshared, 0, 0) || sem_init(&d->alone, 0, 0))
		_exit(1);
	d->client = client;
	d->leaves = leaves;
	d->daemon = daemon;
	d->door = door;
	d->ended = ended;
	if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, STACK_BYTES) ||
	    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) ||
	    pthread_create(&thread, &attr, at_door, d))
		_exit(1);
	pthread_attr_destroy(&attr);
	while (sem_wait(&d->unshared))
		;
	close(door);
	return d;
}

static void take_request(int daemon, int ended)
{
	/* The LET_GO whose GO has not come yet. No other thread's table has a copy of its
	   descriptor. */
	static struct broker_door *leaving;
	uint64_t client;
	uint32_t what;
	int door, rc = receive_one(daemon, &client, &what, &door, MSG_DONTWAIT);

	if (rc == -EAGAIN)
		return;
	if (rc == -EPIPE)
		_exit(0);
	if (rc || (door < 0) != (what == GO) || (what == GO && !leaving) ||
	    (what == LET_GO && leaving))
		_exit(1);
	if (what == LET_GO) {
		leaving = open_door(daemon, client, door, ended, true);
	} else if (what == GO) {
		sem_post(&leaving->alone);
		leaving = NULL;
	} else {
		sem_post(&open_door(daemon, client, door, ended, false)->alone);
	}
}

/* Tells the daemon which threads have ended. */
static void tell_ended(int daemon, int ended)
{
	uint64_t client[64];
	ssize_t n = read(ended, client, sizeof(client));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*client); i++)
		send_one(daemon, client[i], ENDED, -1);
}

static void broker_serve(int daemon)
{
	struct pollfd wait[2] = {{.fd = daemon, .events = POLLIN}, {.events = POLLIN}};
	int ended[2];

	if (pipe2(ended, O_CLOEXEC))
		_exit(1);
	wait[1].fd = ended[0];
	for (;;) {
		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[1].revents)
			tell_ended(daemon, ended[0]);
		if (wait[0].revents)
			take_request(daemon, ended[1]);
	}
}

void programs_broker(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--broker") != 0)
		return;
	prctl(PR_SET_NAME, "rampfs-broker");
	signal(SIGINT, SIG_IGN); /* the broker ends with the daemon */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (close_range(DOOR_FD + 1, ~0U, 0))
		_exit(1);
	broker_serve(DOOR_FD);
}

/* ---- the daemon's side: control thread ------------------------------------------------------ */

struct broker {
	struct loop *loop;
	const struct broker_ops *ops;
	void *arg; /* of ops */
	int sock;
	pid_t pid;
	uv_poll_t poll;
	uv_timer_t again;
	int handles; /* that are not closed yet; the last one's callback frees this */
};

static int spawn(struct broker *d, int sock)
{
	char *argv[] = {"rampfs", "--broker", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	/* If sock is 3 already, this clears its close-on-exec flag (posix_spawn(3)). */
	rc = posix_spawn_file_actions_adddup2(&files, sock, DOOR_FD);
	if (!rc)
		rc = posix_spawn(&d->pid, "/proc/self/exe", &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

static void on_door(uv_poll_t *poll, int status, int events);

static int broker_start(struct broker *d, struct ramp_err *err)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return ramp_err_sys(err, errno, "the broker's socket");
	rc = spawn(d, pair[1]);
	close(pair[1]);
	if (rc) {
		close(pair[0]);
		return ramp_err_sys(err, -rc, "the broker");
	}
	rc = uv_poll_init(loop_uv(d->loop), &d->poll, pair[0]);
	if (rc) {
		close(pair[0]);
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
		return ramp_err_set(err, -rc, "the broker's socket: %s", uv_strerror(rc));
	}
	d->sock = pair[0];
	d->poll.data = d;
	d->handles++;
	uv_poll_start(&d->poll, UV_READABLE | UV_DISCONNECT, on_door);
	return 0;
}

static void broker_on_closed(uv_handle_t *handle)
{
	struct broker *d = handle->data;

	if (--d->handles == 0)
		free(d);
}

/* Only here may the poll handle be used again, so a new broker starts after this. */
static void on_poll_closed(uv_handle_t *handle)
{
	struct broker *d = handle->data;

	if (!uv_is_closing((uv_handle_t *)&d->again)) {
		d->handles--;
		return;
	}
	broker_on_closed(handle);
}

static void on_again(uv_timer_t *timer)
{
	struct broker *d = timer->data;
	struct ramp_err err;

	waitpid(d->pid, NULL, WNOHANG); /* while one of its threads hangs it stays a zombie */
	if (broker_start(d, &err)) {
		log_error("no program can attach: %s", err.text);
		uv_timer_start(&d->again, on_again, 10 * RESTART_MS, 0);
	}
}

static void broker_died(struct broker *d)
{
	log_warn("the broker has died; starting another");
	uv_close((uv_handle_t *)&d->poll, on_poll_closed);
	close(d->sock);
	d->sock = -1;
	uv_timer_start(&d->again, on_again, RESTART_MS, 0);
	d->ops->lost(d->arg);
}

static void on_door(uv_poll_t *poll, int status, int events)
{
	struct broker *d = poll->data;
	uint64_t client;
	uint32_t why;
	int fd, rc;

	(void)status;
	(void)events;
	for (;;) {
		rc = receive_one(d->sock, &client, &why, &fd, MSG_DONTWAIT);
		if (rc == -EAGAIN)
			return;
		if (rc) {
			if (fd >= 0)
				close(fd);
			broker_died(d);
			return;
		}
		if (why == ENDED && fd < 0)
			d->ops->ended(d->arg, client);
		else if (why == SECOND && fd >= 0)
			d->ops->second(d->arg, client, fd);
		else
			d->ops->uffd(d->arg, client, fd, fd < 0 && !why ? EBADMSG : (int)why);
	}
}

int broker_open(struct loop *loop, const struct broker_ops *ops, void *arg, struct broker **out,
		struct ramp_err *err)
{
	struct broker *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return ramp_err_sys(err, ENOMEM, "the broker");
	d->loop = loop;
	d->ops = ops;
	d->arg = arg;
	rc = broker_start(d, err);
	if (rc) {
		free(d);
		return rc;
	}
	uv_timer_init(loop_uv(loop), &d->again);
	d->again.data = d;
	d->handles++;
	*out = d;
	return 0;
}

void broker_close(struct broker *d)
{
	uv_close((uv_handle_t *)&d->again, broker_on_closed);
	if (d->sock < 0)
		return;
	uv_close((uv_handle_t *)&d->poll, broker_on_closed);
	close(d->sock); /* the broker sees that and ends */
	/* While one of the broker's threads hangs, the broker can't be reaped; then init does it
	   later. */
	for (int i = 0; i < BURY_TRIES && waitpid(d->pid, NULL, WNOHANG) == 0; i++)
		usleep(1000);
}

int broker_ask(struct broker *d, uint64_t client, int door)
{
	return d->sock < 0 ? -EAGAIN : send_one(d->sock, client, 0, door);
}

int broker_let_go(struct broker *d, uint64_t id, int fd)
{
	return d->sock < 0 ? -EAGAIN : send_one(d->sock, id, LET_GO, fd);
}

int broker_go(struct broker *d, uint64_t id)
{
	return d->sock < 0 ? -EAGAIN : send_one(d->sock, id, GO, -1);
}
