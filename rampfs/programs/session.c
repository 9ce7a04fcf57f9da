/*
 * Connections to the session socket, and the lives of sessions.
 *
 *   a connection:  FIRST --HELLO--> SESSION          until it hangs up
 *                  FIRST --ATTACH and so on--> (a request on the pool, which answers and closes)
 *                  FIRST --MIGRATE, MEMBER--> TOOL   until its ANSWER is sent, or it hangs up
 *
 * Happy path: HELLO makes a space and is answered with one end of a socket pair, whose other end
 * goes to the doorman, in its turn (doors.c); the userfaultfd comes back from there (session_uffd),
 * and the rest happens in space.c. What newcomers cost is counted (pace.h): beyond their part of
 * the machine's time nobody is accepted for a moment.
 *
 * How it fails: what a client does wrong closes its connection; a first message that does not come,
 * a userfaultfd that does not, a wrong one, a door that never gets free: the same. Too many of one
 * user (users.c): the newest is closed, and comes again where it is the shim's; too many sessions:
 * EUSERS. A request for an attachment that nobody waits for any more is dropped, not begun: it
 * could hold a thread of its user's for as long as a session may take to come. No descriptor is
 * ever received here.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conns.h"
#include "log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define ACCEPT_MAX	32    /* a turn */
#define ACCEPT_FEW	4     /* where that comes to much: others have their turn between */
#define CONNECTIONS_MAX 16384 /* of all users; root's come in beyond */
#define LOOK_MS		30000u
#define FOR_NOBODY_MS	100u /* whether somebody waits for an answer is looked at so often */
#define TICK_MS		1000u
#define ACCEPT_PAUSE_MS 100u

static const char out_of_memory[] = "the daemon is out of memory";

/* ---- connections ---------------------------------------------------------------------------- */

static void on_conn_closed(uv_handle_t *handle)
{
	struct conn *conn = handle->data;

	conn->programs->listener->handles--;
	free(conn);
}

/* The session has hung up: its space goes, as soon as nobody needs it. */
static void end_space(struct conn *conn)
{
	struct programs *p = conn->programs;
	struct space *space = conn->space;

	pthread_mutex_lock(&p->lock);
	if (space->state == SPACE_READY)
		p->status.sessions--;
	space->state = SPACE_DEAD;
	space->since_ms = now_ms();
	/* At once: its mappings stand until /proc says that they don't. */
	atomic_store(&space->orphan, true);
	TAILQ_REMOVE(&p->spaces, space, link);
	pthread_mutex_unlock(&p->lock);
	space->conn = NULL;
	shutdown(space->sock, SHUT_RDWR); /* who is in a conversation with it sees that */
	pool_run(p->pool, POOL_SELF, space_bury, space);
}

void conn_close(struct conn *conn)
{
	struct listener *l = conn->programs->listener;

	if (uv_is_closing((uv_handle_t *)&conn->poll))
		return;
	TAILQ_REMOVE(&l->conns, conn, link);
	l->n_conns--;
	if (conn->waits)
		TAILQ_REMOVE(&l->line, conn, in_line);
	if (conn->door)
		conn->door->conn = NULL;
	if (conn->kind == CONN_FIRST)
		user_give(conn->programs, conn->uid, USER_NEWCOMERS, 1);
	else if (conn->kind == CONN_TOOL)
		user_give(conn->programs, conn->uid, USER_TOOLS, 1);
	uv_close((uv_handle_t *)&conn->poll, on_conn_closed);
	if (conn->tool)
		tool_gone(conn->tool);
	if (conn->space)
		end_space(conn);
	else if (conn->fd >= 0)
		close(conn->fd);
}

void conn_send(struct conn *conn, const struct session_msg *msg)
{
	if (session_send(conn->fd, msg, NULL, 0, MSG_DONTWAIT) || msg->type == SESSION_ANSWER) {
		if (msg->type == SESSION_ANSWER)
			conn->tool = NULL;
		conn_close(conn);
	}
}

/* It has said what it is; false: its user has too many such. */
static bool become(struct conn *conn, enum conn_kind kind, enum user_count what, uint32_t max)
{
	if (!user_take(conn->programs, conn->uid, what, 1, max))
		return false;
	user_give(conn->programs, conn->uid, USER_NEWCOMERS, 1);
	conn->kind = kind;
	return true;
}

static void on_conn(uv_poll_t *poll, int status, int events);

/* Watches for the hang-up, and for late answers where there may be some. */
void conn_watch(struct conn *conn)
{
	int events = UV_DISCONNECT;

	if (conn->kind != CONN_SESSION || agent_has_late(conn->space))
		events |= UV_READABLE;
	uv_poll_start(&conn->poll, events, on_conn);
}

/* ---- HELLO ---------------------------------------------------------------------------------- */

/* Up to NGROUPS_MAX (65,536) of them, as the kernel says where there is too little room. */
static bool in_group(struct conn *conn, gid_t group)
{
	gid_t *groups = NULL;
	socklen_t len = 0;
	bool is = false;

	if (group == (gid_t)-1 || conn->uid == 0 || conn->gid == group)
		return true;
	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) && errno == ERANGE)
		groups = malloc(len);
	if (groups && getsockopt(conn->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0)
		for (size_t i = 0; i < len / sizeof(gid_t) && !is; i++)
			is = groups[i] == group;
	free(groups);
	return is;
}

/* Of the process that has connected, whatever its number stands for now; -errno. */
static int peer_pidfd(int sock)
{
	socklen_t len = sizeof(int);
	int pidfd;

	return getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) ? -errno : pidfd;
}

static const char *no_pidfd(int pidfd, struct ramp_err *err)
{
	ramp_err_sys(err, -pidfd, "looking at the process that has connected");
	return err->text;
}

/* The pidfd is the space's, on success. */
static struct space *make_space(struct conn *conn, const struct session_msg *hello, int pidfd)
{
	struct space *space = space_make(conn->programs, conn->pid, conn->uid);

	if (!space)
		return NULL;
	space->agent_tid = hello->tid;
	space->conn = conn;
	space->sock = conn->fd;
	space->pidfd = pidfd;
	return space;
}

void conn_refuse(struct conn *conn, uint16_t type, int result, const char *text)
{
	struct session_msg msg = {.type = type, .result = (uint32_t)result};

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	session_send(conn->fd, &msg, NULL, 0, MSG_DONTWAIT);
	conn_close(conn);
}

/* False: refused. The share of its user is the space's; without one it is given back here. */
static bool start_space(struct conn *conn)
{
	struct programs *p = conn->programs;
	int pidfd = peer_pidfd(conn->fd);
	struct space *space = pidfd < 0 ? NULL : make_space(conn, &conn->hello, pidfd);
	struct ramp_err err;

	if (!space) {
		user_give(p, conn->uid, USER_SESSIONS, 1);
		if (pidfd >= 0)
			close(pidfd);
		conn_refuse(conn, SESSION_WELCOME, pidfd < 0 ? -pidfd : ENOMEM,
			    pidfd < 0 ? no_pidfd(pidfd, &err) : out_of_memory);
		return false;
	}
	conn->space = space; /* the list's reference goes with it; it closes the socket */
	pthread_mutex_lock(&p->lock);
	space->id = ++p->next_space;
	TAILQ_INSERT_TAIL(&p->spaces, space, link);
	pthread_mutex_unlock(&p->lock);
	return true;
}

static void hello(struct conn *conn, const struct session_msg *msg)
{
	struct programs *p = conn->programs;

	if (!in_group(conn, p->uffd_group)) {
		conn_refuse(conn, SESSION_WELCOME, EPERM,
			    "mapping is for members of the group that uffd_group= names");
		return;
	}
	if (p->uffd_dev < 0) {
		conn_refuse(conn, SESSION_WELCOME, EOPNOTSUPP,
			    "this kernel has no /dev/userfaultfd");
		return;
	}
	if (!become(conn, CONN_SESSION, USER_SESSIONS, p->user_sessions)) {
		conn_refuse(conn, SESSION_WELCOME, EUSERS,
			    "too many programs of this user have segments mapped");
		return;
	}
	conn->hello = *msg;
	if (!start_space(conn))
		return;
	if (!doors_take(conn))
		doors_line_up(conn);
}

void session_uffd(struct programs *p, uint64_t id, int fd, int why)
{
	struct space *space;
	struct ramp_err err;

	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (space, &p->spaces, link)
		if (space->id == id && space->state == SPACE_DOOR)
			break;
	if (space && fd >= 0)
		space->state = SPACE_READYING;
	pthread_mutex_unlock(&p->lock);
	if (!space) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fd < 0) {
		ramp_err_sys(&err, why, "the userfaultfd");
		space_say_ready(space, why, err.text);
		return;
	}
	space->uffd = fd;
	pool_run(p->pool, POOL_SELF, space_ready, space_get(space));
}

/* ---- first messages ------------------------------------------------------------------------- */

int request_answer(struct request *request, const struct session_msg *result)
{
	return session_send(request->sock, result, NULL, 0, MSG_DONTWAIT);
}

void request_free(struct request *request)
{
	if (request->pidfd >= 0)
		close(request->pidfd);
	close(request->sock);
	user_give(request->programs, request->uid, USER_REQUESTS, 1);
	free(request);
}

bool request_is_for_nobody(const struct request *r)
{
	struct pollfd at = {.fd = r->sock, .events = POLLRDHUP};

	return r->msg.type != SESSION_DETACH && r->msg.type != SESSION_PUNCH && poll(&at, 1, 0) > 0;
}

struct space *request_find(struct request *request, pid_t pid, uint64_t until_ms)
{
	struct programs *p = request->programs;
	struct space *space;
	uint64_t look_ms;

	do {
		look_ms = now_ms() + FOR_NOBODY_MS;
		space = space_find(p, pid, look_ms < until_ms ? look_ms : until_ms);
	} while (!space && look_ms < until_ms && !atomic_load(&p->closing) &&
		 !request_is_for_nobody(request));
	return space;
}

struct space *request_space(struct request *request, uint64_t until_ms)
{
	struct space *space = request_find(request, request->pid, until_ms);

	/* Both were there at one time under one number: it is the same process. */
	if (!space || process_lives(request->pidfd))
		return space;
	space_put(space);
	return NULL;
}

static void run_request(void *arg)
{
	struct request *r = arg;

	if (request_is_for_nobody(r)) {
		request_free(r);
		return;
	}
	switch (r->msg.type) {
	case SESSION_ATTACH:
		attach_begin(r);
		break;
	case SESSION_FORK:
		fork_begin(r);
		break;
	case SESSION_ADOPT:
		adopt_begin(r);
		break;
	case SESSION_DETACH:
		detach_begin(r);
		break;
	default:
		punch_begin(r);
		break;
	}
}

/* The socket and all that is known of its other end go to the pool. */
static void request(struct conn *conn, const struct session_msg *msg)
{
	struct request *r = malloc(sizeof(*r));
	int pidfd = peer_pidfd(conn->fd);
	struct ramp_err err;

	if (!r || pidfd < 0) {
		conn_refuse(conn, SESSION_RESULT, r ? -pidfd : ENOMEM,
			    r ? no_pidfd(pidfd, &err) : out_of_memory);
		goto no_request;
	}
	/* Who is hung up on comes again, as after a daemon's death. */
	if (!user_take(conn->programs, conn->uid, USER_REQUESTS, 1, USER_SHARE)) {
		conn_close(conn);
		goto no_request;
	}
	*r = (struct request){.programs = conn->programs,
			      .sock = conn->fd,
			      .pidfd = pidfd,
			      .pid = conn->pid,
			      .uid = conn->uid,
			      .gid = conn->gid,
			      .msg = *msg};
	conn->fd = -1;
	conn_close(conn);
	pool_run(r->programs->pool, r->uid, run_request, r);
	return;
no_request:
	if (pidfd >= 0)
		close(pidfd);
	free(r);
}

static void tool(struct conn *conn, const struct session_msg *msg)
{
	if (!become(conn, CONN_TOOL, USER_TOOLS, USER_SHARE)) {
		conn_refuse(conn, SESSION_ANSWER, EUSERS, "too many of this user ask already");
		return;
	}
	conn->tool = tool_begin(conn->programs, conn, msg, conn->uid);
	if (!conn->tool)
		conn_refuse(conn, SESSION_ANSWER, ENOMEM, out_of_memory);
}

static void first_message(struct conn *conn, const struct session_msg *msg)
{
	switch (msg->type) {
	case SESSION_HELLO:
		hello(conn, msg);
		break;
	case SESSION_ATTACH:
	case SESSION_FORK:
	case SESSION_ADOPT:
	case SESSION_DETACH:
	case SESSION_PUNCH:
		request(conn, msg);
		break;
	case SESSION_MIGRATE:
	case SESSION_MEMBER:
		tool(conn, msg);
		break;
	default:
		conn_close(conn);
		break;
	}
}

static void wrong_version(struct conn *conn, const struct session_msg *msg)
{
	char text[64];

	snprintf(text, sizeof(text), "the daemon speaks version %d of the protocol",
		 SESSION_VERSION);
	conn_refuse(conn,
		    msg->type == SESSION_HELLO					  ? SESSION_WELCOME
		    : msg->type == SESSION_MIGRATE || msg->type == SESSION_MEMBER ? SESSION_ANSWER
										  : SESSION_RESULT,
		    EPROTO, text);
}

static void receive(struct conn *conn)
{
	struct session_msg msg;
	int rc = session_recv(conn->fd, &msg, NULL, NULL, MSG_DONTWAIT);

	if (rc == -EAGAIN)
		return;
	if (rc == -EPROTO && conn->kind == CONN_FIRST)
		wrong_version(conn, &msg);
	else if (rc)
		conn_close(conn);
	else if (conn->kind == CONN_FIRST)
		first_message(conn, &msg);
	else if (conn->tool && msg.type == SESSION_CANCEL)
		tool_cancel(conn->tool);
	else
		conn_close(conn);
}

static void attend(struct conn *conn, int status, int events)
{
	if (status < 0) {
		conn_close(conn);
	} else if (conn->kind != CONN_SESSION) {
		receive(conn); /* a hang-up is read as one */
	} else if (events & UV_DISCONNECT) {
		conn_close(conn);
	} else {
		agent_take_late(conn->space);
		conn_watch(conn);
	}
}

/* What this thread has computed so far. */
static uint64_t computed_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
}

static void on_conn(uv_poll_t *poll, int status, int events)
{
	struct conn *conn = poll->data;
	struct listener *l = conn->programs->listener;
	bool newcomer =
		conn->kind == CONN_FIRST || (conn->kind == CONN_SESSION && conn->space->uffd < 0);
	uint64_t began = newcomer ? computed_us() : 0;

	attend(conn, status, events);
	if (newcomer)
		pace_spend(&l->pace, now_us(), computed_us() - began);
}

/* ---- listening ------------------------------------------------------------------------------ */

/* The newcomer is counted, where this is true. */
static bool may_come(struct listener *l, uid_t uid)
{
	return (l->n_conns < CONNECTIONS_MAX || uid == 0) &&
	       user_take(l->programs, uid, USER_NEWCOMERS, 1, USER_SHARE);
}

static void add_conn(struct listener *l, int fd)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!conn || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0 ||
	    !may_come(l, peer.uid)) {
		free(conn);
		close(fd);
		return;
	}
	conn->programs = l->programs;
	conn->fd = fd;
	conn->pid = peer.pid;
	conn->uid = peer.uid;
	conn->gid = peer.gid;
	conn->since_ms = now_ms();
	if (uv_poll_init(loop_uv(l->programs->loop), &conn->poll, fd)) {
		user_give(l->programs, conn->uid, USER_NEWCOMERS, 1);
		free(conn);
		close(fd);
		return;
	}
	conn->poll.data = conn;
	l->handles++;
	TAILQ_INSERT_TAIL(&l->conns, conn, link);
	l->n_conns++;
	conn_watch(conn);
}

/* False: there is no descriptor or no memory for another one, which waits. */
static bool accept_some(struct listener *l)
{
	int most = pace_is_long(&l->pace) ? ACCEPT_FEW : ACCEPT_MAX;

	for (int i = 0; i < most; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			add_conn(l, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
			log_warn("connections wait: %s", strerror(errno));
			return false;
		} else if (errno != ECONNABORTED && errno != EINTR) {
			break;
		}
	}
	return true;
}

static void on_pause(uv_timer_t *timer);

/* The socket stays ready: whoever comes meanwhile waits in its queue. */
static void on_listen(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;
	uint64_t began = computed_us(), rest_ms = 0;

	(void)status;
	(void)events;
	if (!accept_some(l))
		rest_ms = ACCEPT_PAUSE_MS;
	pace_spend(&l->pace, now_us(), computed_us() - began);
	if (rest_ms < pace_rest_ms(&l->pace))
		rest_ms = pace_rest_ms(&l->pace);
	if (rest_ms) {
		uv_poll_stop(&l->poll);
		uv_timer_start(&l->pause, on_pause, rest_ms, 0);
	}
}

static void on_pause(uv_timer_t *timer)
{
	struct listener *l = timer->data;

	uv_poll_start(&l->poll, UV_READABLE, on_listen);
}

/* No program says what it unmaps. */
static void look_now_and_then(struct programs *p, struct space *space, uint64_t now)
{
	uint32_t every_ms = atomic_load(&space->behind) ? TICK_MS : LOOK_MS;

	if (now < atomic_load(&space->looked_ms) + every_ms) /* which may be after `now` */
		return;
	atomic_store(&space->looked_ms, now);
	if (space_is(space, SPACE_READY))
		pool_run(p->pool, POOL_SELF, space_look, space_get(space));
}

static void on_tick(uv_timer_t *timer)
{
	struct listener *l = timer->data;
	uint64_t now = now_ms();
	struct conn *conn, *next;

	pool_run(l->programs->pool, POOL_SELF, space_sweep, l->programs);
	pool_run(l->programs->pool, POOL_SELF, agents_watch, l->programs);
	tokens_expire(l->programs);
	for (conn = TAILQ_FIRST(&l->conns); conn; conn = next) {
		bool waits = conn->kind == CONN_FIRST ||
			     (conn->kind == CONN_SESSION && conn->space->uffd < 0);

		next = TAILQ_NEXT(conn, link);
		if (waits && now - conn->since_ms > FIRST_MESSAGE_MS)
			conn_close(conn);
		else if (!waits && conn->kind == CONN_SESSION)
			look_now_and_then(l->programs, conn->space, now);
	}
}

static void on_look(void *arg)
{
	struct listener *l = arg;
	struct conn *conn;

	TAILQ_FOREACH (conn, &l->conns, link) {
		if (conn->kind != CONN_SESSION)
			continue;
		if (atomic_exchange(&conn->space->stale, false))
			pool_run(l->programs->pool, POOL_SELF, space_look, space_get(conn->space));
		conn_watch(conn);
	}
}

static void on_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;

	l->handles--;
}

static void on_look_closed(void *arg)
{
	struct listener *l = arg;

	l->handles--;
}

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err)
{
	struct listener *l = calloc(1, sizeof(*l));
	uv_loop_t *uv = loop_uv(p->loop);
	int rc;

	if (!l)
		return ramp_err_sys(err, ENOMEM, "the session socket");
	l->programs = p;
	l->fd = listen_fd;
	l->pace.processors = kernel_processors();
	TAILQ_INIT(&l->conns);
	TAILQ_INIT(&l->line);
	rc = loop_wake_open(p->loop, &l->look, on_look, l, err);
	if (rc) {
		free(l);
		return rc;
	}
	rc = uv_poll_init(uv, &l->poll, listen_fd);
	if (rc) {
		loop_wake_close(&l->look, free);
		return ramp_err_set(err, -rc, "the session socket: %s", uv_strerror(rc));
	}
	uv_timer_init(uv, &l->tick);
	uv_timer_init(uv, &l->pause);
	l->poll.data = l->tick.data = l->pause.data = l;
	l->handles = 4;
	uv_poll_start(&l->poll, UV_READABLE, on_listen);
	uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
	p->listener = l;
	p->look = &l->look;
	return 0;
}

void listener_stop(struct programs *p)
{
	struct listener *l = p->listener;
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&l->conns)))
		conn_close(conn);
	uv_close((uv_handle_t *)&l->poll, on_closed);
	uv_close((uv_handle_t *)&l->tick, on_closed);
	uv_close((uv_handle_t *)&l->pause, on_closed);
}

void listener_close(struct programs *p)
{
	struct listener *l = p->listener;

	loop_wake_close(&l->look, on_look_closed);
	doors_free(l);
	while (l->handles > 0)
		uv_run(loop_uv(p->loop), UV_RUN_NOWAIT);
	uv_run(loop_uv(p->loop), UV_RUN_NOWAIT); /* what was posted meanwhile */
	free(l);
	p->listener = NULL;
}
