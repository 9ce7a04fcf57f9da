/*
 * HELLO: how a session begins.
 *
 * Happy path: HELLO makes a client and is answered with one end of a socket pair. The other end
 * goes to the broker when it is the client's turn (broker_queue.c), the userfaultfd comes back from
 * there (on_uffd), and the rest happens in client_life.c. Until then the connection is pending
 * (pending.c).
 *
 * How it fails: where a userfaultfd does not come, or a wrong one does, or a slot never gets free,
 * the connection is closed. Too many sessions of one user (quota.c): EUSERS.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attach/agent_call.h"
#include "client/broker_queue.h"
#include "client/broker_release.h"
#include "client/clients.h"
#include "client/conn.h"
#include "client/pending.h"
#include "client/quota.h"
#include "client/workers.h"
#include "client_life.h"
#include "session_start.h"

/* One part in SESSION_COUNTS of what a pending connection has cost counts, once it is a session. */
#define SESSION_COUNTS 16

/* ---- its connection ------------------------------------------------------------------------- */

static void take_late(struct session_conn *conn, bool hung_up)
{
	if (hung_up) {
		conn_close(conn);
	} else {
		agent_take_late(conn->client);
		conn_watch(conn);
	}
}

static void end_session(struct session_conn *conn)
{
	if (conn->client)
		client_end(conn);
	else
		close(conn->fd);
}

static const struct conn_kind_ops session_ops = {CONN_SESSION, take_late, end_session};

/* ---- HELLO ---------------------------------------------------------------------------------- */

/* Returns true where the peer is in that group. It may have up to NGROUPS_MAX (65,536) groups: the
   kernel says how many where there is too little room. */
static bool in_group(struct session_conn *conn, gid_t group)
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

/* Makes the client, which owns the pidfd on success. */
static struct client *make_client(struct session_conn *conn, const struct session_msg *hello,
				  int pidfd)
{
	struct client *client = client_make(conn->programs, conn->pid, conn->uid);

	if (!client)
		return NULL;
	client->agent_tid = hello->tid;
	client->moves = hello->flags & SESSION_MOVES;
	client->came_away = hello->flags & SESSION_AWAY;
	client->asks_growth = hello->flags & SESSION_GROWS;
	client->grown = hello->flags & SESSION_GROWN;
	client->held = hello->flags & SESSION_RECONNECT; /* perhaps, by the daemon before */
	client->conn = conn;
	client->sock = conn->fd;
	client->pidfd = pidfd;
	return client;
}

/* False: refused. The quota that was taken for it is the client's; without one it is given back
   here. */
static bool start_client(struct session_conn *conn)
{
	struct programs *p = conn->programs;
	int pidfd = conn_pidfd(conn);
	struct client *client = pidfd < 0 ? NULL : make_client(conn, &conn->hello, pidfd);

	if (!client) {
		quota_give(p->quota, conn->uid, QUOTA_SESSIONS, 1);
		if (pidfd >= 0)
			close(pidfd);
		conn_refuse_lack(conn, SESSION_WELCOME, pidfd);
		return false;
	}
	conn->client = client; /* the list's reference goes with it; it closes the socket */
	pthread_mutex_lock(&p->lock);
	client->id = ++p->next_client;
	TAILQ_INSERT_TAIL(&p->clients, client, link);
	pthread_mutex_unlock(&p->lock);
	return true;
}

void session_start(struct session_conn *conn, const struct session_msg *msg)
{
	struct programs *p = conn->programs;
	struct pollfd at = {.fd = conn->fd, .events = POLLRDHUP};

	if (poll(&at, 1, 0) > 0) { /* the agent does not wait for it any more */
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
	if (!conn_become(conn, &session_ops, QUOTA_SESSIONS, p->user_sessions)) {
		conn_refuse(conn, SESSION_WELCOME, EUSERS,
			    "too many programs of this user have segments mapped");
		return;
	}
	conn->hello = *msg;
	if (!start_client(conn))
		return;
	if (!broker_queue_take(conn))
		broker_queue_wait(conn);
}

/* ---- what comes from the broker ------------------------------------------------------------- */

/* The client that waits for its userfaultfds; NULL: it has gone. p->lock is held. */
static struct client *find_at_broker(struct programs *p, uint64_t id)
{
	struct client *client;

	TAILQ_FOREACH (client, &p->clients, link)
		if (client->id == id && client->state == CLIENT_AT_BROKER)
			break;
	return client;
}

/* No other thread uses it before the first one has come. */
static void on_second(void *arg, uint64_t id, int fd)
{
	struct programs *p = arg;
	struct client *client;

	pthread_mutex_lock(&p->lock);
	client = find_at_broker(p, id);
	pthread_mutex_unlock(&p->lock);
	if (client && client->second < 0)
		client->second = fd;
	else
		broker_release(p, broker_queue_uid(p, id), fd);
}

static void on_uffd(void *arg, uint64_t id, int fd, int why)
{
	struct programs *p = arg;
	struct client *client;
	struct ramp_err err;

	pthread_mutex_lock(&p->lock);
	client = find_at_broker(p, id);
	if (client && fd >= 0)
		client_go(client, CLIENT_AT_BROKER, CLIENT_READYING);
	pthread_mutex_unlock(&p->lock);
	if (!client) {
		if (fd >= 0)
			broker_release(p, broker_queue_uid(p, id), fd);
		return;
	}
	if (fd < 0) {
		ramp_err_sys(&err, why, "the userfaultfd");
		client_say_ready(client, why, err.text);
		return;
	}
	client->uffd = fd;
	pending_counts(client->conn, SESSION_COUNTS);
	conn_settle(client->conn);
	workers_run_own(p->workers, client->uid, client_ready, client_get(client));
}

static void on_broker_thread_ended(void *arg, uint64_t id)
{
	struct programs *p = arg;

	if (id >= RELEASE_IDS)
		broker_release_ended(p, id);
	broker_queue_closed(p, id);
}

static void on_broker_lost(void *arg)
{
	struct programs *p = arg;

	broker_release_lost(p);
	broker_queue_lost(p);
}

const struct broker_ops session_broker_ops = {
	.uffd = on_uffd,
	.second = on_second,
	.ended = on_broker_thread_ended,
	.lost = on_broker_lost,
};
