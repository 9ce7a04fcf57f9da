/*
 * The thread that lends a daemon its session in this process.
 *
 * Happy path: it takes a file table of its own, connects, makes a userfaultfd with the device that
 * the daemon session it, sends the doorman a copy, and then sleeps in recvmsg(2) and carries out one
 * command after the other. What it opens there no closefrom(3) of the program reaches and no child
 * inherits.
 *
 * How it fails: before the daemon has said READY for the first time, the thread ends and
 * agent_start says why. Afterwards it never ends: a session that hangs up is a daemon that died or
 * is being upgraded, so it connects again, for ever, and sends the userfaultfd that it kept (were
 * the last copy closed, blocked loads would go on and read zeros).
 *
 * It must never wait for a thread of the program, which may be blocked in a page fault that only
 * this thread can resolve, whatever locks it holds: so no allocation, no stdio, no symbol looked
 * up, and where it wants the table's lock it goes on without after a second (commands.c).
 *
 *           agent_start              READY
 *   NONE ---------------> STARTING --------> RUNNING
 *    ^                       |
 *    +------ FAILED <--------+ the thread has ended; error holds
 *     agent_start
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/ioc.h"
#include "commands.h"
#include "daemon_request.h"
#include "say.h"
#include "swap.h"
#include "sys.h"
#include "thread_count.h"

#define HANDSHAKE_MS	 5000
#define STACK_BYTES	 (256 * 1024)
#define PAUSE_FIRST_MS	 1
#define PAUSE_LAST_MS	 100
#define PAUSE_REFUSED_MS 1000

enum agent_state { NONE, STARTING, RUNNING, FAILED };

struct agent {
	char socket[RAMP_SOCKET_PATH_MAX + 1]; /* empty: the slot is free. Attach lock */
	_Atomic uint32_t state;		       /* enum agent_state; a futex */
	struct agent_error error;	       /* the thread's, until it has set FAILED */
	/* From here on the thread's alone. */
	int uffd;
	struct agent_session session; /* and the session's socket */
};

struct futex_lock attach_lock;

static struct agent agents[AGENTS_MAX]; /* protected by attach_lock */

/* ---- the session --------------------------------------------------------------------------------
 */

/* One command. False: the session is over. */
static bool serve_one(struct agent *agent)
{
	struct session_msg msg, done = {.type = SESSION_DONE};
	int fds[SESSION_FDS_MAX], nfds = 0;
	bool hung_up = false;

	if (session_recv(agent->session.sock, &msg, fds, &nfds, 0))
		return false;
	/* Before: who touches it may end by that. */
	if (msg.type == SESSION_GONE && msg.text[0])
		say_agent_line(msg.text, NULL);
	done.serial = msg.serial;
	done.result = (uint32_t)command_run(&agent->session, &msg, nfds > 0 ? fds[0] : -1, &done,
					    &hung_up);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	return !hung_up && !session_send(agent->session.sock, &done, NULL, 0, 0);
}

static int agent_refuse(struct agent *agent, int code, const char *text)
{
	agent->error.code = code;
	copy_text(agent->error.text, sizeof(agent->error.text), text);
	return -code;
}

static void set_patience(int sock, uint32_t ms)
{
	struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

/* Why nothing could be sent or received. */
static int agent_lost(struct agent *agent, int rc)
{
	if (rc == -EAGAIN)
		return agent_refuse(agent, ETIMEDOUT, "the daemon does not answer");
	if (rc == -EPROTO || rc == -EBADMSG)
		return agent_refuse(agent, -rc, "the daemon speaks another language");
	return agent_refuse(agent, -rc,
			    daemon_is_away(rc) ? "the daemon hung up" : strerrordesc_np(-rc));
}

/* The answer of that type, or why there is none. */
static int expect(struct agent *agent, uint16_t type, struct session_msg *msg, int *fds, int *nfds)
{
	int rc = session_recv(agent->session.sock, msg, fds, nfds, 0);

	if (rc)
		return agent_lost(agent, rc);
	if (msg->result)
		return agent_refuse(agent, (int)msg->result, msg->text);
	if (msg->type != type)
		return agent_refuse(agent, EPROTO, "the daemon speaks another language");
	return 0;
}

/* fds: the doorman's socket, and the device where this is the first time. */
static int hand_over_uffd(struct agent *agent, const int *fds, int nfds, bool again)
{
	int rc;

	if (nfds != (again ? 1 : 2))
		return agent_refuse(agent, EPROTO, "the daemon's welcome lacks a descriptor");
	if (!again) {
		agent->uffd = ioctl(fds[1], USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		if (agent->uffd < 0)
			return agent_refuse(agent, errno, "no userfaultfd");
	}
	rc = session_send_uffd(fds[0], agent->uffd);
	return rc ? agent_lost(agent, rc) : 0;
}

static int greet(struct agent *agent, bool again)
{
	struct session_msg msg = {.type = SESSION_HELLO, .flags = again ? SESSION_RECONNECT : 0};
	int fds[SESSION_FDS_MAX], nfds = 0;
	int rc;

	msg.tid = (uint32_t)syscall(SYS_gettid);
	rc = session_send(agent->session.sock, &msg, NULL, 0, 0);
	if (rc)
		return agent_lost(agent, rc);
	rc = expect(agent, SESSION_WELCOME, &msg, fds, &nfds);
	if (rc == 0)
		rc = hand_over_uffd(agent, fds, nfds, again);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	return rc ? rc : expect(agent, SESSION_READY, &msg, NULL, NULL);
}

static const char *why_not_connected(int rc)
{
	if (rc == -EPERM)
		return "who listens for it is not root's daemon below " SESSION_DIR;
	if (rc == -ETIMEDOUT)
		return "the daemon does not answer";
	return daemon_is_away(rc) ? "no daemon listens" : strerrordesc_np(-rc);
}

static int connect_session(struct agent *agent, bool again)
{
	int rc = daemon_connect(agent->socket, HANDSHAKE_MS);

	agent->session.sock = rc;
	if (rc < 0)
		return agent_refuse(agent, -rc, why_not_connected(rc));
	set_patience(agent->session.sock, HANDSHAKE_MS);
	rc = greet(agent, again);
	if (rc) {
		close(agent->session.sock);
		return rc;
	}
	set_patience(agent->session.sock, 0);
	return 0;
}

/* Until a daemon is there again; says once why it would not have us. */
static void reconnect(struct agent *agent)
{
	uint32_t pause = PAUSE_FIRST_MS;
	bool said = false;
	int rc;

	while ((rc = connect_session(agent, true)) != 0) {
		if (rc == -EPERM || rc == -EUSERS || rc == -EPROTO) {
			if (!said)
				say_agent_line("rampfs: the daemon came back and refuses this "
					       "program: ",
					       agent->error.text, NULL);
			said = true;
			pause = PAUSE_REFUSED_MS;
		}
		sys_pause_ms(pause);
		if (pause < PAUSE_LAST_MS)
			pause *= 2;
	}
}

/* A file table of its own, in which a stray write to stdout or stderr goes nowhere; and a root and
   a working directory of its own, so that it finds the next daemon also where the program goes into
   a chroot. */
static int leave_file_table(struct agent *agent)
{
	int fd;

	/* A container's seccomp may forbid it. */
	if (syscall(SYS_unshare, CLONE_FS) == 0 && chdir("/"))
		return agent_refuse(agent, errno, "no working directory of its own");
	if (syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE))
		return agent_refuse(agent, errno, "no file table of its own");
	fd = sys_open("/dev/null", O_RDWR);
	if (fd < 0)
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	while (fd >= 0 && fd < STDERR_FILENO)
		fd = dup(fd);
	return fd < 0 ? agent_refuse(agent, errno, "no /dev/null") : 0;
}

static void set_state(struct agent *agent, enum agent_state state)
{
	agent->state = state;
	sys_futex_wake(&agent->state);
}

static void *agent_main(void *arg)
{
	struct agent *agent = arg;

	prctl(PR_SET_NAME, "rampfs-agent", 0, 0, 0);
	thread_count_hide();
	if (leave_file_table(agent) || connect_session(agent, false)) {
		thread_count_show();
		set_state(agent, FAILED);
		return NULL;
	}
	set_state(agent, RUNNING);
	for (;;) {
		while (serve_one(agent))
			;
		close(agent->session.sock);
		if (!agent->session.swapping)
			scratch_drop_all(&agent->session);
		do
			reconnect(agent);
		while (agent->session.swapping && !swap_finish(&agent->session) &&
		       close(agent->session.sock) == 0);
		scratch_drop_all(&agent->session);
	}
	return NULL;
}

/* ---- for the program's threads ------------------------------------------------------------------
 */

int agent_of(const char *socket_path)
{
	size_t len = strnlen(socket_path, RAMP_SOCKET_PATH_MAX + 1);

	if (len == 0 || len > RAMP_SOCKET_PATH_MAX)
		return -EINVAL;
	for (int i = 0; i < AGENTS_MAX; i++) {
		if (agents[i].socket[0] == '\0') {
			memcpy(agents[i].socket, socket_path, len + 1);
			agents[i].session.index = (uint8_t)i;
		}
		if (strcmp(agents[i].socket, socket_path) == 0)
			return i;
	}
	return -EUSERS;
}

const char *agent_socket(int index)
{
	return agents[index].socket;
}

/* The caller has all signals blocked, and so has the thread. A program's thread-local storage may
   be larger than the stack that the agent needs: then it gets the default. */
static int spawn(struct agent *agent)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	rc = pthread_attr_init(&attr);
	if (rc)
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = pthread_create(&thread, &attr, agent_main, agent);
	pthread_attr_destroy(&attr);
	if (rc != EINVAL || pthread_attr_init(&attr))
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, agent_main, agent);
	pthread_attr_destroy(&attr);
	return rc;
}

int agent_start(int index, struct agent_error *err)
{
	struct agent *agent = &agents[index];
	int rc;

	if (agent->state == RUNNING)
		return 0;
	agent->state = STARTING;
	rc = spawn(agent);
	if (rc) {
		agent->state = NONE;
		agent_refuse(agent, rc, "no thread for the agent");
		*err = agent->error;
		return -rc;
	}
	/* The thread bounds every wait of its first handshake. */
	while (agent->state == STARTING)
		sys_futex_wait(&agent->state, STARTING, HANDSHAKE_MS);
	if (agent->state == RUNNING)
		return 0;
	*err = agent->error;
	return daemon_is_away(-err->code) ? -EPIPE : -err->code;
}

void agents_reset(void)
{
	for (int i = 0; i < AGENTS_MAX; i++) {
		agents[i].state = NONE;
		agents[i].session.swapping = false;
		memset(agents[i].session.scratch, 0, sizeof(agents[i].session.scratch));
	}
}
