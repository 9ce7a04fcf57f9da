/*
 * Connections to the session socket, and the request that each of them makes.
 *
 *   a connection:  FIRST --HELLO--> SESSION          until it hangs up
 *                  FIRST --ATTACH and so on--> (a request on a worker, which answers and closes)
 *                  FIRST --MIGRATE, BATCH, PULL and so on--> TOOL   until its ANSWER is sent, or it hangs up
 *                  FIRST --LISTEN--> SUBSCRIBER      until it hangs up
 *
 * Happy path: HELLO begins a session (session_start.c); a request goes to a worker; a tool's
 * request goes up (tool_requests.c).
 *
 * How it fails: an error of the peer closes its connection, and so does a first message that does
 * not come. A request for an attachment is dropped, not begun, where its program does not wait for
 * it any more: it could hold a thread of its user's for as long as a session may take to come. No
 * descriptor is ever received here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/fork_adopt.h"
#include "attach/grow.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "client/broker_queue.h"
#include "client/broker_release.h"
#include "client/clients.h"
#include "client/conn.h"
#include "client/pending.h"
#include "client/quota.h"
#include "client/request.h"
#include "client/tokens.h"
#include "client/workers.h"
#include "client_life.h"
#include "full_store.h"
#include "listener.h"
#include "revoke/agent_priority.h"
#include "session_start.h"
#include "subscribers.h"
#include "tool_batch.h"
#include "tool_requests.h"

#define LOOK_MS 30000u
#define TICK_MS 1000u
/* One part in REQUEST_COUNTS of what a pending connection has cost counts, once it is a request. */
#define REQUEST_COUNTS 4

struct listener {
	struct programs *programs;
	struct conns conns;
	struct pending pending;
	uv_timer_t tick, look_full;
	struct full_store full;
	struct loop_wake look;
};

static const struct conn_kind_ops tool_ops, batch_ops, steps_ops, subscriber_ops;

/* Looks once more when the last client has gone: it may have died of a full store. */
static void on_look_full(uv_timer_t *timer)
{
	struct listener *l = timer->data;
	uint32_t ms = full_store_look(&l->full);
	bool any;

	pthread_mutex_lock(&l->programs->lock);
	any = !TAILQ_EMPTY(&l->programs->clients);
	pthread_mutex_unlock(&l->programs->lock);
	if (any)
		uv_timer_start(timer, on_look_full, ms, 0);
}

static void begin_session(struct session_conn *conn, const struct session_msg *msg)
{
	struct listener *l = conn->programs->listener;

	session_start(conn, msg);
	if (!uv_is_active((uv_handle_t *)&l->look_full))
		uv_timer_start(&l->look_full, on_look_full, 0, 0);
}

/* ---- first messages ------------------------------------------------------------------------- */

static void run_request(void *arg)
{
	struct client_request *r = arg;

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
	case SESSION_GROW:
		grow_begin(r);
		break;
	default:
		punch_begin(r);
		break;
	}
}

/* Gives the socket, and all that is known of its other end, to a worker. */
static void take_request(struct session_conn *conn, const struct session_msg *msg)
{
	struct client_request *r = malloc(sizeof(*r));
	int pidfd = conn_pidfd(conn);

	if (!r || pidfd < 0) {
		conn_refuse_lack(conn, SESSION_RESULT, r ? pidfd : 0);
		goto no_request;
	}
	/* A program that is hung up on comes again, as after a daemon's death. */
	if (!quota_take(conn->programs->quota, conn->uid, QUOTA_REQUESTS, 1, QUOTA_DEFAULT)) {
		conn_close(conn);
		goto no_request;
	}
	*r = (struct client_request){.programs = conn->programs,
				     .sock = conn->fd,
				     .pidfd = pidfd,
				     .pid = conn->pid,
				     .uid = conn->uid,
				     .gid = conn->gid,
				     .since_ms = clock_ms(),
				     .msg = *msg};
	pending_counts(conn, REQUEST_COUNTS);
	conn_leave(conn);
	workers_run(r->programs->workers, r->uid, run_request, r);
	return;
no_request:
	if (pidfd >= 0)
		close(pidfd);
	free(r);
}

static void take_tool(struct session_conn *conn, const struct session_msg *msg)
{
	bool in_steps = msg->type == SESSION_CONNECT;

	if (!conn_become(conn, in_steps ? &steps_ops : &tool_ops,
			 in_steps ? QUOTA_STEPS : QUOTA_TOOLS, QUOTA_DEFAULT)) {
		conn_refuse(conn, SESSION_ANSWER, EUSERS,
			    in_steps ? "too many segments of this user are connected already"
				     : "too many tools of this user wait already");
		return;
	}
	conn_settle(conn);
	conn->tool = tool_begin(conn->programs, conn, msg, conn->uid);
	if (!conn->tool)
		conn_refuse_lack(conn, SESSION_ANSWER, 0);
}

static void take_batch(struct session_conn *conn, const struct session_msg *msg)
{
	struct tool_batch *batch;

	if (!conn_become(conn, &batch_ops, QUOTA_TOOLS, QUOTA_DEFAULT)) {
		conn_refuse(conn, SESSION_ANSWER, EUSERS,
			    "too many tools of this user wait already");
		return;
	}
	conn_settle(conn);
	batch = conn->batch = tool_batch_begin(conn, msg);
	if (!batch)
		conn_refuse_lack(conn, SESSION_ANSWER, 0);
	else if (!tool_batch_add(batch, msg))
		conn_close(conn);
}

static void take_subscriber(struct session_conn *conn, const struct session_msg *msg)
{
	if (!conn_become(conn, &subscriber_ops, QUOTA_TOOLS, QUOTA_DEFAULT)) {
		conn_refuse(conn, SESSION_EVENT, EUSERS,
			    "too many tools and subscribers of this user are there already");
		return;
	}
	conn_settle(conn);
	conn->subscriber = subscriber_begin(conn->programs, conn, msg);
	if (!conn->subscriber)
		conn_close(conn);
}

static void first_message(struct session_conn *conn, const struct session_msg *msg)
{
	switch (msg->type) {
	case SESSION_HELLO:
		begin_session(conn, msg);
		break;
	case SESSION_ATTACH:
	case SESSION_FORK:
	case SESSION_ADOPT:
	case SESSION_DETACH:
	case SESSION_PUNCH:
	case SESSION_GROW:
		take_request(conn, msg);
		break;
	case SESSION_MIGRATE:
	case SESSION_CONNECT:
	case SESSION_MEMBER:
	case SESSION_PULL:
	case SESSION_GIVE_UP:
		take_tool(conn, msg);
		break;
	case SESSION_BATCH:
		take_batch(conn, msg);
		break;
	case SESSION_LISTEN:
		take_subscriber(conn, msg);
		break;
	default:
		conn_close(conn);
		break;
	}
}

static void wrong_version(struct session_conn *conn, const struct session_msg *msg)
{
	char text[64];

	snprintf(text, sizeof(text), "the daemon speaks version %d of the protocol",
		 SESSION_VERSION);
	conn_refuse(conn,
		    msg->type == SESSION_HELLO ? SESSION_WELCOME
		    : msg->type == SESSION_MIGRATE || msg->type == SESSION_CONNECT ||
				    msg->type == SESSION_MEMBER || msg->type == SESSION_BATCH ||
				    msg->type == SESSION_PULL || msg->type == SESSION_GIVE_UP
			    ? SESSION_ANSWER
			    : SESSION_RESULT,
		    EPROTO, text);
}

static void receive_message(struct session_conn *conn)
{
	struct session_msg msg;
	int rc = session_recv(conn->fd, &msg, NULL, NULL, MSG_DONTWAIT);

	if (rc == -EAGAIN)
		return;
	if (rc == -EPROTO && conn->ops->kind == CONN_FIRST)
		wrong_version(conn, &msg);
	else if (rc)
		conn_close(conn);
	else if (conn->ops->kind == CONN_FIRST)
		first_message(conn, &msg);
	else if (conn->tool && msg.type == SESSION_CANCEL)
		tool_cancel(conn->tool);
	else if (conn->batch && msg.type == SESSION_CANCEL)
		tool_batch_cancel(conn->batch);
	else if (conn->batch && msg.type == SESSION_BATCH && tool_batch_add(conn->batch, &msg))
		;
	else if (conn->ops->kind == CONN_STEPS && conn->tool && msg.type == SESSION_GO)
		tool_go(conn->tool, &msg);
	else if (conn->subscriber && msg.type == SESSION_QUIESCED)
		subscriber_answered(conn->subscriber, msg.segment);
	else
		conn_close(conn);
}

/* ---- kinds of connections ------------------------------------------------------------------- */

/* Reads the message. A hang-up shows in the read. */
static void take_message(struct session_conn *conn, bool hung_up)
{
	(void)hung_up;
	receive_message(conn);
}

static void close_socket(struct session_conn *conn)
{
	close(conn->fd);
}

static void end_tool(struct session_conn *conn)
{
	if (conn->tool)
		tool_gone(conn->tool);
	close(conn->fd);
}

static void end_batch(struct session_conn *conn)
{
	if (conn->batch)
		tool_batch_gone(conn->batch);
	close(conn->fd);
}

static void end_subscriber(struct session_conn *conn)
{
	if (conn->subscriber)
		subscriber_end(conn->subscriber);
	close(conn->fd);
}

static const struct conn_kind_ops first_ops = {CONN_FIRST, take_message, close_socket};
static const struct conn_kind_ops tool_ops = {CONN_TOOL, take_message, end_tool};
static const struct conn_kind_ops batch_ops = {CONN_TOOL, take_message, end_batch};
static const struct conn_kind_ops steps_ops = {CONN_STEPS, take_message, end_tool};
static const struct conn_kind_ops subscriber_ops = {CONN_SUBSCRIBER, take_message, end_subscriber};

/* ---- listening ------------------------------------------------------------------------------ */

/* Has the client looked at now and then, since no program says what it unmaps. */
static void look_now_and_then(struct programs *p, struct client *client, uint64_t now)
{
	uint32_t every_ms = atomic_load(&client->behind) ? TICK_MS : LOOK_MS;

	if (now < atomic_load(&client->looked_ms) + every_ms) /* looked_ms may be after `now` */
		return;
	atomic_store(&client->looked_ms, now);
	if (client_is(client, CLIENT_READY))
		workers_run_own(p->workers, client->uid, client_look, client_get(client));
}

static void listener_on_tick(uv_timer_t *timer)
{
	struct listener *l = timer->data;
	uint64_t now = clock_ms();
	struct session_conn *conn;

	broker_release_run(l->programs);
	workers_run_own(l->programs->workers, WORKERS_SELF, clients_sweep, l->programs);
	workers_run_own(l->programs->workers, WORKERS_SELF, agents_watch, l->programs);
	tokens_expire(l->programs);
	pending_expire(&l->pending);
	TAILQ_FOREACH (conn, &l->conns.settled, link)
		if (conn->ops->kind == CONN_SESSION)
			look_now_and_then(l->programs, conn->client, now);
}

static void on_look(void *arg)
{
	struct listener *l = arg;
	struct session_conn *conn;

	broker_release_run(l->programs);
	TAILQ_FOREACH (conn, &l->conns.settled, link) {
		if (conn->ops->kind != CONN_SESSION)
			continue;
		if (atomic_exchange(&conn->client->stale, false))
			workers_run_own(l->programs->workers, conn->uid, client_look,
					client_get(conn->client));
		conn_watch(conn);
	}
}

static void listener_on_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;

	l->conns.handles--;
}

/* The data of both polls is `pending` from pending_start on. */
static void on_poll_closed(uv_handle_t *handle)
{
	struct pending *pending = handle->data;

	pending->conns->handles--;
}

static void on_look_closed(void *arg)
{
	struct listener *l = arg;

	l->conns.handles--;
}

static void listener_release(struct listener *l)
{
	pending_close_old(&l->pending);
	close(l->pending.timer);
	free(l);
}

static void on_abandoned(void *arg)
{
	struct listener *l = arg;

	if (--l->conns.handles == 0)
		listener_release(l);
}

static void on_poll_abandoned(uv_handle_t *handle)
{
	on_abandoned(handle->data);
}

/* Closes what listener_open has opened and could not finish. */
static void abandon(struct listener *l)
{
	uv_poll_t *const polls[] = {&l->pending.poll, &l->pending.rest};

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
	l->conns.handles++;
	return 0;
}

/*
 * Refuses descriptors. A thread that drops a packet which was never received lets go of the
 * descriptors in it, and letting go of the last reference to a file of a hostile filesystem may
 * hang: so descriptors must not even be sent here. The keeper has made the socket so; a keeper of
 * an older version has not.
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
	TAILQ_INIT(&l->conns.settled);
	TAILQ_INIT(&l->conns.line);
	l->conns.first = &first_ops;
	rc = pending_open(&l->pending, p, &l->conns, listen_fd, err);
	if (rc) {
		free(l);
		return rc;
	}
	rc = loop_wake_open(p->loop, &l->look, on_look, l, err);
	if (rc) {
		listener_release(l);
		return rc;
	}
	l->conns.handles++;
	rc = open_poll(l, &l->pending.poll, listen_fd, err);
	if (!rc)
		rc = open_poll(l, &l->pending.rest, l->pending.timer, err);
	if (rc) {
		abandon(l);
		return rc;
	}
	uv_timer_init(loop_uv(p->loop), &l->tick);
	uv_timer_init(loop_uv(p->loop), &l->look_full);
	l->tick.data = l->look_full.data = l;
	l->conns.handles += 2;
	pending_start(&l->pending);
	uv_timer_start(&l->tick, listener_on_tick, TICK_MS, TICK_MS);
	l->full.programs = p;
	p->full = &l->full;
	p->listener = l;
	p->conns = &l->conns;
	p->pending = &l->pending;
	p->look = &l->look;
	return 0;
}

int programs_listen(struct programs *p, int fd)
{
	refuse_descriptors(fd);
	return pending_replace(&p->listener->pending, fd);
}

void listener_stop(struct programs *p)
{
	struct listener *l = p->listener;
	struct session_conn *conn;

	while ((conn = TAILQ_FIRST(&l->conns.pending)) || (conn = TAILQ_FIRST(&l->conns.settled)))
		conn_close(conn);
	uv_close((uv_handle_t *)&l->pending.poll, on_poll_closed);
	uv_close((uv_handle_t *)&l->tick, listener_on_closed);
	uv_close((uv_handle_t *)&l->look_full, listener_on_closed);
	uv_close((uv_handle_t *)&l->pending.rest, on_poll_closed);
}

void listener_close(struct programs *p)
{
	struct listener *l = p->listener;

	pthread_mutex_lock(&p->lock);
	p->look = NULL;
	pthread_mutex_unlock(&p->lock);
	loop_wake_close(&l->look, on_look_closed);
	broker_queue_free(p);
	while (l->conns.handles > 0)
		uv_run(loop_uv(p->loop), UV_RUN_NOWAIT);
	uv_run(loop_uv(p->loop), UV_RUN_NOWAIT); /* runs what was posted meanwhile */
	listener_release(l);
	p->listener = NULL;
}
