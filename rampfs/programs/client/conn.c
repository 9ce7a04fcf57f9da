/*
 * A connection to the session socket: from accept(2) to its end, whatever kind of connection it
 * becomes.
 *
 *   pending --conn_settle--> settled --conn_close--> (gone)
 *      +---------------conn_close--------------------> (gone)
 *
 * Its kind (struct conn_kind_ops, given by listener.c and session_start.c) says how its events are
 * handled; while it is pending, pending.c decides when.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "clients.h"
#include "conn.h"
#include "quota.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* ---- lines ---------------------------------------------------------------------------------- */

/* Sessions that have hung up have a line of their own: a user may have thousands that do so at
   once. */
struct conn_list *conn_ready_line(struct session_conn *conn)
{
	struct conns *conns = conn->programs->conns;

	return conn->ops->kind == CONN_SESSION && conn->hung_up ? &conns->gone : &conns->ready;
}

static void leave_pending(struct session_conn *conn)
{
	struct conns *conns = conn->programs->conns;

	if (conn->ready)
		TAILQ_REMOVE(conn_ready_line(conn), conn, in_ready);
	conn->ready = false;
	TAILQ_REMOVE(&conns->pending, conn, link);
}

void conn_settle(struct session_conn *conn)
{
	leave_pending(conn);
	conn->settled = true;
	TAILQ_INSERT_TAIL(&conn->programs->conns->settled, conn, link);
	conn_watch(conn);
}

void conn_renew(struct session_conn *conn)
{
	struct conns *conns = conn->programs->conns;

	conn->since_ms = clock_ms();
	TAILQ_REMOVE(&conns->pending, conn, link);
	TAILQ_INSERT_TAIL(&conns->pending, conn, link);
}

void conn_leave_line(struct session_conn *conn)
{
	if (conn->waits)
		TAILQ_REMOVE(&conn->programs->conns->line, conn, in_line);
	conn->waits = false;
}

/* ---- one of them ---------------------------------------------------------------------------- */

static void on_conn_closed(uv_handle_t *handle)
{
	struct session_conn *conn = handle->data;

	conn->programs->conns->handles--;
	free(conn);
}

void conn_leave(struct session_conn *conn)
{
	struct conns *conns = conn->programs->conns;

	if (conn->settled)
		TAILQ_REMOVE(&conns->settled, conn, link);
	else
		leave_pending(conn);
	conns->count--;
	conn_leave_line(conn);
	if (conn->slot)
		conn->slot->conn = NULL;
	if (conn->ops->kind == CONN_FIRST)
		quota_give(conn->programs->quota, conn->uid, QUOTA_PENDING, 1);
	else if (conn->ops->kind == CONN_TOOL || conn->ops->kind == CONN_SUBSCRIBER)
		quota_give(conn->programs->quota, conn->uid, QUOTA_TOOLS, 1);
	else if (conn->ops->kind == CONN_STEPS)
		quota_give(conn->programs->quota, conn->uid, QUOTA_STEPS, 1);
	uv_close((uv_handle_t *)&conn->poll, on_conn_closed);
}

void conn_close(struct session_conn *conn)
{
	if (uv_is_closing((uv_handle_t *)&conn->poll))
		return;
	conn_leave(conn);
	conn->ops->gone(conn);
}

void conn_send(struct session_conn *conn, const struct session_msg *msg)
{
	if (session_send(conn->fd, msg, NULL, 0, MSG_DONTWAIT) || msg->type == SESSION_ANSWER) {
		if (msg->type == SESSION_ANSWER)
			conn->tool = NULL;
		conn_close(conn);
	}
}

bool conn_become(struct session_conn *conn, const struct conn_kind_ops *ops, enum quota_kind what,
		 uint32_t max)
{
	if (!quota_take(conn->programs->quota, conn->uid, what, 1, max))
		return false;
	quota_give(conn->programs->quota, conn->uid, QUOTA_PENDING, 1);
	conn->ops = ops;
	return true;
}

static void on_conn(uv_poll_t *poll, int status, int events)
{
	struct session_conn *conn = poll->data;

	if (status < 0)
		conn_close(conn);
	else if (conn->settled)
		conn->ops->event(conn, events & UV_DISCONNECT);
	else
		conn->programs->conns->pending_event(conn, events & UV_DISCONNECT);
}

void conn_watch(struct session_conn *conn)
{
	int events = UV_DISCONNECT;

	if (conn->ready)
		return; /* it is watched again when it has been handled */
	if (conn->ops->kind != CONN_SESSION || client_has_late(conn->client))
		events |= UV_READABLE;
	uv_poll_start(&conn->poll, events, on_conn);
}

void conn_refuse(struct session_conn *conn, uint16_t type, int result, const char *text)
{
	struct session_msg msg = {.type = type, .result = (uint32_t)result};

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	session_send(conn->fd, &msg, NULL, 0, MSG_DONTWAIT);
	conn_close(conn);
}

void conn_refuse_lack(struct session_conn *conn, uint16_t type, int pidfd)
{
	struct ramp_err err;

	if (pidfd >= 0) {
		conn_refuse(conn, type, ENOMEM, "the daemon is out of memory");
		return;
	}
	ramp_err_sys(&err, -pidfd, "looking at the process that has connected");
	conn_refuse(conn, type, -pidfd, err.text);
}

int conn_pidfd(struct session_conn *conn)
{
	socklen_t len = sizeof(int);
	int pidfd;

	return getsockopt(conn->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) ? -errno : pidfd;
}
