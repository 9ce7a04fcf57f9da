/*
 * The thread that carries out a daemon's commands in this process.
 *
 * Happy path: the agent takes a file table of its own, connects, makes a userfaultfd with the
 * device that the daemon hands it, and sends the broker a copy. Then it sleeps in recvmsg(2) and
 * carries out one command after the other. No closefrom(3) of the program reaches a descriptor in
 * its file table, and no child inherits one.
 *
 * How it fails: before the daemon has said READY for the first time, the thread ends and
 * agent_start returns the reason. Afterwards it never ends. A session that hangs up means a daemon
 * that died or is being upgraded: so the agent connects again, for ever, and sends the userfaultfd
 * that it kept. (If the last copy were closed, blocked loads would continue and read zeros.)
 *
 * The agent must never wait for a thread of the program: that thread may hold any lock and be
 * blocked in a page fault that only the agent can resolve. So the agent allocates nothing, uses no
 * stdio and looks up no symbol; where it wants the table's lock it continues without it after a
 * second (table_agent_lock).
 *
 * States of an agent (agent_go). Only a step that is none is told on the program's stderr.
 *
 *   NONE -----> STARTING -----> RUNNING
 *    ^           |  ^  |
 *    +-----------+  |  v
 *                   FAILED
 *
 *   NONE, FAILED -> STARTING  [agent_start]
 *   STARTING -> RUNNING       READY has come [agent_main]
 *   STARTING -> FAILED        the thread has ended; error is set [agent_main]
 *   STARTING -> NONE          no thread could be made [agent_start]
 *   any -> NONE               in a fork's child [agents_reset]
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "away.h"
#include "base/clock.h"
#include "base/ioc.h"
#include "commands.h"
#include "daemon_request.h"
#include "libc_parts.h"
#include "replace.h"
#include "say.h"
#include "scribe.h"
#include "spawn.h"
#include "swap.h"
#include "sys.h"
#include "table.h"
#include "thread_count.h"

#define HANDSHAKE_MS	    5000
#define PAUSE_FIRST_MS	    1
#define PAUSE_LAST_MS	    100
#define PAUSE_REFUSED_MS    1000
#define POLL_US		    300
#define PROMISE_PATIENCE_MS 20

enum agent_state { AGENT_NONE, AGENT_STARTING, AGENT_RUNNING, AGENT_FAILED };

struct agent {
	char socket[RAMP_SOCKET_PATH_MAX +
		    1];		/* empty: the slot is free. Protected by attach_lock */
	_Atomic uint32_t state; /* enum agent_state; a futex */
	/* Its sessions so far, and that in which it was last asked whether mappings may grow; 0: none. Written
	   under table.lock, as `asks` before HELLO. */
	_Atomic uint32_t sessions, grown;
	_Atomic bool asks;	  /* its daemon wants to be asked, perhaps */
	struct agent_error error; /* the thread's, until it has set AGENT_FAILED */
	/* The thread's alone: with the session's socket, and its userfaultfd. */
	struct agent_session session;
};

struct futex_lock attach_lock;

static struct agent agents[AGENTS_MAX]; /* protected by attach_lock */

/* ---- the session ---- */

/* Receives the next command. Polls for a short time where a MOVE is about to come: in a window it costs
   more to be woken than to move. */
static int receive(struct agent_session *session, struct session_msg *msg, int *fds, int *nfds)
{
	int rc = -EAGAIN;

	while (rc == -EAGAIN && clock_us() < session->poll_until_us)
		rc = session_recv(session->sock, msg, fds, nfds, MSG_DONTWAIT);
	session->poll_until_us = 0;
	return rc == -EAGAIN ? session_recv(session->sock, msg, fds, nfds, 0) : rc;
}

/* Carries out one command. Returns false where the session is over. */
static bool serve_one(struct agent *agent)
{
	struct session_msg msg, done = {.type = SESSION_DONE};
	int fds[SESSION_FDS_MAX], nfds = 0;
	bool hung_up = false;

	away_unmap(&agent->session);
	if (receive(&agent->session, &msg, fds, &nfds))
		return false;
	/* Before the command: a thread that touches the segment afterwards may end by that. */
	if (msg.type == SESSION_GONE && msg.text[0] && replace_is_news(&agent->session, &msg))
		say_agent_line(msg.text, NULL);
	done.serial = msg.serial;
	done.result = (uint32_t)command_run(&agent->session, &msg, nfds > 0 ? fds[0] : -1, &done,
					    &hung_up);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	if (hung_up || session_send(agent->session.sock, &done, NULL, 0, 0))
		return false;
	if (msg.type == SESSION_RESERVE) /* it comes right before a window */
		agent->session.poll_until_us = clock_us() + POLL_US;
	away_settle(&agent->session);
	return true;
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

/* Sets the reason why nothing could be sent or received. */
static int agent_lost(struct agent *agent, int rc)
{
	if (rc == -EAGAIN)
		return agent_refuse(agent, ETIMEDOUT, "the daemon does not answer");
	if (rc == -EPROTO || rc == -EBADMSG)
		return agent_refuse(agent, -rc, "the daemon speaks another language");
	return agent_refuse(agent, -rc,
			    daemon_is_away(rc) ? "the daemon hung up" : errno_text(-rc));
}

/* Receives the answer of that type, or sets the reason why there is none. */
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

/* Makes both userfaultfds. The second one may lack: then no segment of this process is closed to
   stores. */
static int make_uffds(struct agent *agent, int device)
{
	agent->session.uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (agent->session.uffd < 0)
		return agent_refuse(agent, errno, "no userfaultfd");
	agent->session.second = move_guard_possible()
					? ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK)
					: -1;
	return 0;
}

/* fds: the broker's socket, and the userfaultfd device where this is the first time. */
static int hand_over_uffds(struct agent *agent, const int *fds, int nfds, bool again)
{
	int rc = 0, uffds[2];

	if (nfds != (again ? 1 : 2))
		return agent_refuse(agent, EPROTO, "the daemon's welcome lacks a descriptor");
	if (!again)
		rc = make_uffds(agent, fds[1]);
	if (rc)
		return rc;
	uffds[0] = agent->session.uffd;
	uffds[1] = agent->session.second;
	rc = session_send_uffds(fds[0], uffds, uffds[1] < 0 ? 1 : 2);
	return rc ? agent_lost(agent, rc) : 0;
}

/*
 * From HELLO on the daemon counts on being asked. A thread that is just about to grow a mapping, without a
 * question, has the table's lock: without that nothing is promised. Returns flags of HELLO.
 */
static uint32_t promise_to_ask(struct agent *agent)
{
	bool grown;

	if (!futex_lock_for(&table.lock, PROMISE_PATIENCE_MS))
		return 0;
	grown = agent->grown && agent->grown == agent->sessions;
	agent->sessions++;
	if (grown)
		agent->grown = agent->sessions;
	agent->asks = true;
	futex_unlock(&table.lock);
	return SESSION_GROWS | (grown ? SESSION_GROWN : 0);
}

static int greet(struct agent *agent, bool again)
{
	struct session_msg msg = {.type = SESSION_HELLO,
				  .flags = (again ? SESSION_RECONNECT : 0) |
					   (move_guard_possible() ? SESSION_MOVES : 0) |
					   (away_any(&agent->session) ? SESSION_AWAY : 0) |
					   promise_to_ask(agent)};
	int fds[SESSION_FDS_MAX], nfds = 0;
	int rc;

	msg.tid = (uint32_t)syscall(SYS_gettid);
	rc = session_send(agent->session.sock, &msg, NULL, 0, 0);
	if (rc)
		return agent_lost(agent, rc);
	rc = expect(agent, SESSION_WELCOME, &msg, fds, &nfds);
	if (rc == 0)
		rc = hand_over_uffds(agent, fds, nfds, again);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	if (rc == 0)
		rc = expect(agent, SESSION_READY, &msg, NULL, NULL);
	if (rc)
		return rc;
	if (!(msg.serial & SESSION_KNOWS_MOVE))
		away_let_go(&agent->session);
	agent->asks = msg.serial & SESSION_KNOWS_GROW;
	return 0;
}

static const char *why_not_connected(int rc)
{
	if (rc == -EPERM)
		return "the listener at its socket is not root's daemon below " SESSION_DIR;
	if (rc == -ETIMEDOUT)
		return "the daemon does not answer";
	return daemon_is_away(rc) ? "no daemon listens" : errno_text(-rc);
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

/* Returns when a daemon is there again. Says once why a daemon refuses this program. */
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

/* Gives the agent a file table of its own, in which a stray write to stdout or stderr goes nowhere.
   Gives it a root and a working directory of its own, too, so that it finds the next daemon also
   where the program enters a chroot. */
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

/* The one door to a state. */
static void agent_go(struct agent *agent, enum agent_state to)
{
	static const struct {
		const char *name;
		unsigned int next; /* bits of the states that may follow; NONE: a child's */
	} states[] = {
		[AGENT_NONE] = {"NONE", 1u << AGENT_NONE | 1u << AGENT_STARTING},
		[AGENT_STARTING] = {"STARTING",
				    1u << AGENT_NONE | 1u << AGENT_RUNNING | 1u << AGENT_FAILED},
		[AGENT_RUNNING] = {"RUNNING", 1u << AGENT_NONE},
		[AGENT_FAILED] = {"FAILED", 1u << AGENT_NONE | 1u << AGENT_STARTING},
	};
	uint32_t from = agent->state;

	if (!(states[from].next & 1u << to)) {
		say_agent_line("rampfs: agent: no step from ", states[from].name, " to ",
			       states[to].name, NULL);
		abort();
	}
	agent->state = to;
}

static void agent_started(struct agent *agent, enum agent_state to)
{
	agent_go(agent, to);
	sys_futex_wake(&agent->state);
}

static void *agent_main(void *arg)
{
	struct agent *agent = arg;

	prctl(PR_SET_NAME, "rampfs-agent", 0, 0, 0);
	thread_count_hide();
	if (leave_file_table(agent) || connect_session(agent, false)) {
		thread_count_show();
		agent_started(agent, AGENT_FAILED);
		return NULL;
	}
	agent_started(agent, AGENT_RUNNING);
	for (;;) {
		while (serve_one(agent))
			;
		away_hang_up(&agent->session);
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

/* ---- for the program's threads ---- */

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

int agent_start(int index, struct agent_error *err)
{
	struct agent *agent = &agents[index];
	int rc;

	say_agents_begin();
	if (agent->state == AGENT_RUNNING)
		return 0;
	agent_go(agent, AGENT_STARTING);
	rc = spawn_thread(agent_main, agent);
	if (rc) {
		agent_go(agent, AGENT_NONE);
		agent_refuse(agent, rc, "no thread for the agent");
		*err = agent->error;
		return -rc;
	}
	/* The thread bounds every wait of its first handshake. */
	while (agent->state == AGENT_STARTING)
		sys_futex_wait(&agent->state, AGENT_STARTING, HANDSHAKE_MS);
	if (agent->state == AGENT_RUNNING)
		return 0;
	*err = agent->error;
	return daemon_is_away(-err->code) ? -EPIPE : -err->code;
}

void agents_reset(void)
{
	scribe_reset();
	for (int i = 0; i < AGENTS_MAX; i++) {
		agent_go(&agents[i], AGENT_NONE);
		agents[i].session.swapping = false;
		agents[i].session.guard.begun = false;
		agents[i].session.second_guard.begun = false;
		memset(agents[i].session.scratch, 0, sizeof(agents[i].session.scratch));
		agents[i].session.n_away = 0;
		agents[i].asks = false;
		agents[i].grown = 0;
	}
}

bool agent_asks_growth(int index, uint32_t *session)
{
	*session = agents[index].sessions;
	return agents[index].asks && agents[index].grown != *session;
}

void agent_note_grown(int index, uint32_t session)
{
	agents[index].grown = session;
}
