/*
 * Connections to the session socket, and the lives of sessions.
 *
 *   a connection:  FIRST --HELLO--> SESSION          until it hangs up
 *                  FIRST --ATTACH and so on--> (a request on the pool, which answers and closes)
 *                  FIRST --MIGRATE, MEMBER--> TOOL   until its ANSWER is sent, or it hangs up
 *
 * Happy path: HELLO makes a space and is answered with one end of a socket pair, whose other end
 * goes to the doorman, in its turn (doors.c); the userfaultfd comes back from there (session_uffd),
 * and the rest happens in space.c. Until then it is a newcomer (newcomers.c).
 *
 * How it fails: what a client does wrong closes its connection; a first message that does not come,
 * a userfaultfd that does not, a wrong one, a door that never gets free: the same. Too many
 * sessions of one user (users.c): EUSERS. A request for an attachment that nobody waits for any
 * more is dropped, not begun: it could hold a thread of its user's for as long as a session may
 * take to come. No descriptor is ever received here.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "programs/client/conns.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define LOOK_MS	      30000u
#define FOR_NOBODY_MS 100u /* whether somebody waits for an answer is looked at so often */
#define TICK_MS	      1000u
/* Of what a newcomer has cost that became that, one part in so many counts. */
#define REQUEST_COUNTS 4
#define SESSION_COUNTS 16

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
	pool_run_own(p->pool, space->uid, space_bury, space);
}

/* What it had to do with, but for its socket. */
static void leave(struct conn *conn)
{
	struct listener *l = conn->programs->listener;

	if (conn->settled)
		TAILQ_REMOVE(&l->conns, conn, link);
	else
		newcomer_leave(conn);
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
}

void conn_close(struct conn *conn)
{
	if (uv_is_closing((uv_handle_t *)&conn->poll))
		return;
	leave(conn);
	if (conn->space)
		end_space(conn);
	else
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

static void on_conn(uv_poll_t *poll, int status, int events)
{
	struct conn *conn = poll->data;

	if (status < 0)
		conn_close(conn);
	else if (conn->settled)
		conn_attend(conn, events & UV_DISCONNECT);
	else
		newcomer_event(conn, events & UV_DISCONNECT);
}

void conn_watch(struct conn *conn)
{
	int events = UV_DISCONNECT;

	if (conn->ready)
		return; /* when it has been attended */
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
	struct pollfd at = {.fd = conn->fd, .events = POLLRDHUP};

	if (poll(&at, 1, 0) > 0) { /* nobody waits for it */
		conn_close(conn);
		return;
	}
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
			uffd_let_go(p, door_uid(p->listener, id), fd);
		return;
	}
	if (fd < 0) {
		ramp_err_sys(&err, why, "the userfaultfd");
		space_say_ready(space, why, err.text);
		return;
	}
	space->uffd = fd;
	newcomer_counts(space->conn, SESSION_COUNTS);
	newcomer_settle(space->conn);
	pool_run_own(p->pool, space->uid, space_ready, space_get(space));
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

	return r->msg.type != SESSION_DETACH && poll(&at, 1, 0) > 0;
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
			      .since_ms = now_ms(),
			      .msg = *msg};
	newcomer_counts(conn, REQUEST_COUNTS);
	leave(conn);
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
	newcomer_settle(conn);
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

void conn_attend(struct conn *conn, bool hung_up)
{
	if (conn->kind != CONN_SESSION) {
		receive(conn); /* a hang-up is read as one */
	} else if (hung_up) {
		conn_close(conn);
	} else {
		agent_take_late(conn->space);
		conn_watch(conn);
	}
}

/* ---- listening ------------------------------------------------------------------------------ */

/* No program says what it unmaps. */
static void look_now_and_then(struct programs *p, struct space *space, uint64_t now)
{
	uint32_t every_ms = atomic_load(&space->behind) ? TICK_MS : LOOK_MS;

	if (now < atomic_load(&space->looked_ms) + every_ms) /* which may be after `now` */
		return;
	atomic_store(&space->looked_ms, now);
	if (space_is(space, SPACE_READY))
		pool_run_own(p->pool, space->uid, space_look, space_get(space));
}

static void on_tick(uv_timer_t *timer)
{
	struct listener *l = timer->data;
	uint64_t now = now_ms();
	struct conn *conn;

	leaving_go_on(l->programs);
	pool_run_own(l->programs->pool, POOL_SELF, space_sweep, l->programs);
	pool_run_own(l->programs->pool, POOL_SELF, agents_watch, l->programs);
	tokens_expire(l->programs);
	newcomers_expire(l);
	TAILQ_FOREACH (conn, &l->conns, link)
		if (conn->kind == CONN_SESSION)
			look_now_and_then(l->programs, conn->space, now);
}

static void on_look(void *arg)
{
	struct listener *l = arg;
	struct conn *conn;

	leaving_go_on(l->programs);
	TAILQ_FOREACH (conn, &l->conns, link) {
		if (conn->kind != CONN_SESSION)
			continue;
		if (atomic_exchange(&conn->space->stale, false))
			pool_run_own(l->programs->pool, conn->uid, space_look,
				     space_get(conn->space));
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

static void release(struct listener *l)
{
	close(l->timer);
	free(l);
}

static void on_abandoned(void *arg)
{
	struct listener *l = arg;

	if (--l->handles == 0)
		release(l);
}

static void on_poll_abandoned(uv_handle_t *handle)
{
	on_abandoned(handle->data);
}

/* What listener_open could not finish. */
static void abandon(struct listener *l)
{
	uv_poll_t *const polls[] = {&l->poll, &l->rest};

	for (size_t i = 0; i < sizeof(polls) / sizeof(*polls); i++)
		if (polls[i]->data)
			uv_close((uv_handle_t *)polls[i], on_poll_abandoned);
	loop_wake_close(&l->look, on_abandoned);
}

static int open_poll(struct listener *l, uv_poll_t *poll, int fd, struct ramp_err *err)
{
	int rc = uv_poll_init(loop_uv(l->programs->loop), poll, fd);

	if (rc)
		return ramp_err_set(err, -rc, "the session socket: %s", uv_strerror(rc));
	poll->data = l;
	l->handles++;
	return 0;
}

/*
 * Whoever drops a packet that nobody receives lets go of the descriptors in it, and the last to let
 * go of a hostile filesystem's file may hang: so they must not even be sent here. The keeper has
 * made the socket so; one by an older version has not.
 */
static void refuse_descriptors(int listen_fd)
{
	int rc = kernel_refuse_fds(listen_fd);

	if (rc)
		log_warn("descriptors of a hostile FUSE filesystem that a program sends to the "
			 "session socket can hang the daemon (Linux 6.16 refuses them): %s",
			 strerror(-rc));
}

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err)
{
	struct listener *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return ramp_err_sys(err, ENOMEM, "the session socket");
	refuse_descriptors(listen_fd);
	l->programs = p;
	l->fd = listen_fd;
	TAILQ_INIT(&l->conns);
	TAILQ_INIT(&l->line);
	rc = newcomers_open(l, err);
	if (rc) {
		free(l);
		return rc;
	}
	rc = loop_wake_open(p->loop, &l->look, on_look, l, err);
	if (rc) {
		release(l);
		return rc;
	}
	l->handles++;
	rc = open_poll(l, &l->poll, l->fd, err);
	if (!rc)
		rc = open_poll(l, &l->rest, l->timer, err);
	if (rc) {
		abandon(l);
		return rc;
	}
	uv_timer_init(loop_uv(p->loop), &l->tick);
	l->tick.data = l;
	l->handles++;
	newcomers_start(l);
	uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
	p->listener = l;
	p->look = &l->look;
	return 0;
}

void listener_stop(struct programs *p)
{
	struct listener *l = p->listener;
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&l->newcomers)) || (conn = TAILQ_FIRST(&l->conns)))
		conn_close(conn);
	uv_close((uv_handle_t *)&l->poll, on_closed);
	uv_close((uv_handle_t *)&l->tick, on_closed);
	uv_close((uv_handle_t *)&l->rest, on_closed);
}

void listener_close(struct programs *p)
{
	struct listener *l = p->listener;

	pthread_mutex_lock(&p->lock);
	p->look = NULL;
	pthread_mutex_unlock(&p->lock);
	loop_wake_close(&l->look, on_look_closed);
	doors_free(l);
	while (l->handles > 0)
		uv_run(loop_uv(p->loop), UV_RUN_NOWAIT);
	uv_run(loop_uv(p->loop), UV_RUN_NOWAIT); /* what was posted meanwhile */
	release(l);
	p->listener = NULL;
}
