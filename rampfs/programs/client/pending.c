/*
 * Pending connections to the session socket: from accept(2) until they are settled, as a session
 * with its userfaultfd or as a tool's connection. Any user may make as many as it likes, as fast as
 * it can.
 *
 *   (accepted) --> pending connection --conn_settle--> settled
 *                     +-------closed, or FIRST_MESSAGE_MS are over-------> (gone)
 *
 * Happy path: connections are accepted and handled as they come. The time that this costs is
 * counted (throttle.h), and after each piece of work there is a rest; if there is too much work,
 * the piece is small and the rest is long. A connection that sends something or hangs up meanwhile
 * is put in line. When the rest is over, one is taken from each line and one from the socket's
 * queue by turns. So a thousand that hang up at once are a thousand small pieces, not a long one.
 * Settled connections are not affected. Of what a connection has cost hardly anything counts if it
 * has become a session, and a part if it was a request: else a program that forks much, or a
 * thousand agents that come again when the daemon has died, would be throttled, too.
 *
 * How it fails: if one user has too many (quota.c), or all users together, the newest is closed;
 * the shim's comes again. Without a descriptor or memory for another one, no connection is accepted
 * for ACCEPT_PAUSE_US; those that come meanwhile wait in the kernel's queue.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "clients.h"
#include "pending.h"
#include "quota.h"

#define FIRST_MESSAGE_MS 5000u /* a connection that has sent nothing by then is closed */
#define REST_COST_US	 8     /* what the loop itself costs for a piece with its rest */
#define CONNECTIONS_MAX	 16384 /* of all users together; root's are accepted beyond it */
#define ACCEPT_PAUSE_US	 100000u
#define SAY_MS		 1000u
#define OLD_SECONDS	 5 /* at least, from the end of a socket's name to that of the socket */

static void spend(struct pending *pend, uint64_t us)
{
	throttle_spend(&pend->throttle, clock_us(), us);
}

void pending_cost(struct session_conn *conn, uint64_t us)
{
	conn->cost_us += us;
	spend(conn->programs->pending, us / conn->counts);
}

void pending_counts(struct session_conn *conn, uint32_t parts)
{
	throttle_refund(&conn->programs->pending->throttle, conn->cost_us - conn->cost_us / parts);
	conn->counts = parts;
}

/* ---- one of them ---------------------------------------------------------------------------- */

/* Returns whether that user may have another pending connection, and if so counts it. */
static bool may_come(struct pending *pend, uid_t uid)
{
	return (pend->conns->count < CONNECTIONS_MAX || uid == 0) &&
	       quota_take(pend->programs->quota, uid, QUOTA_PENDING, 1, QUOTA_DEFAULT);
}

/* Makes a connection of an accepted socket. NULL: that is not possible, and the socket is
   closed. */
static struct session_conn *add_conn(struct pending *pend, int fd)
{
	struct session_conn *conn = calloc(1, sizeof(*conn));
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!conn || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0 ||
	    !may_come(pend, peer.uid))
		goto no_conn;
	conn->programs = pend->programs;
	conn->fd = fd;
	conn->pid = peer.pid;
	conn->uid = peer.uid;
	conn->gid = peer.gid;
	conn->ops = pend->conns->first;
	conn->counts = 1;
	conn->since_ms = clock_ms();
	if (uv_poll_init(loop_uv(pend->programs->loop), &conn->poll, fd))
		goto no_watch;
	conn->poll.data = conn;
	pend->conns->handles++;
	TAILQ_INSERT_TAIL(&pend->conns->pending, conn, link);
	pend->conns->count++;
	conn_watch(conn);
	return conn;
no_watch:
	quota_give(pend->programs->quota, peer.uid, QUOTA_PENDING, 1);
no_conn:
	free(conn);
	close(fd);
	return NULL;
}

/* Returns the first one whose time for a message is over. One whose event waits in line gets
   more time. */
static struct session_conn *expired(struct pending *pend)
{
	struct session_conn *conn;

	while ((conn = TAILQ_FIRST(&pend->conns->pending)) &&
	       clock_ms() - conn->since_ms > FIRST_MESSAGE_MS) {
		if (!conn->ready)
			return conn;
		conn_renew(conn);
	}
	return NULL;
}

/* ---- pieces and rests ----------------------------------------------------------------------- */

/* Returns the processor time of this thread so far. */
static uint64_t computed_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
}

/* Accepts no connection for `us`. (The loop's own timers only know milliseconds.) False: not
   possible, or `us` is 0. */
static bool pause_for(struct pending *pend, uint64_t us)
{
	const struct itimerspec until = {.it_value = {.tv_sec = (time_t)(us / 1000000),
						      .tv_nsec = (long)(us % 1000000 * 1000)}};

	if (us == 0 || timerfd_settime(pend->timer, 0, &until, NULL))
		return false;
	uv_poll_stop(&pend->poll);
	return true;
}

/* After a piece of work of `us`: if a rest is due, accepts no connection and handles no event
   until it is over, and returns true. */
static bool rest(struct pending *pend, uint64_t us)
{
	uint64_t rest_us = throttle_rest_us(&pend->throttle, us);

	if (rest_us)
		pend->rests = pause_for(pend, rest_us);
	return pend->rests;
}

/* Handles an event. Returns the time it took. */
static uint64_t attend(struct session_conn *conn, bool hung_up)
{
	uint64_t us = computed_us();

	conn->ops->event(conn, hung_up);
	us = computed_us() - us;
	pending_cost(conn, us); /* if it was closed, it is not freed before the loop's next round */
	return us;
}

static void pending_event(struct session_conn *conn, bool hung_up)
{
	struct pending *pend = conn->programs->pending;

	if (!pend->rests) {
		rest(pend, attend(conn, hung_up));
		return;
	}
	uv_poll_stop(&conn->poll);
	conn->ready = true;
	conn->hung_up = hung_up;
	TAILQ_INSERT_TAIL(conn_ready_line(conn), conn, in_ready);
	if (hung_up)
		conn_leave_line(conn); /* it needs no slot */
}

/* Returns 1: one was accepted, or refused; 0: there is none; -EMFILE and the like: there is no
   room for one. Adds to *us the time it took. */
static int accept_one(struct pending *pend, uint64_t *us)
{
	uint64_t began = computed_us(), cost;
	int fd = accept4(pend->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = 1;
	struct session_conn *conn = NULL;

	if (fd < 0 && errno == EAGAIN && pend->old >= 0)
		fd = accept4(pend->old, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		conn = add_conn(pend, fd);
	else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		rc = -errno;
	else if (errno != ECONNABORTED && errno != EINTR)
		rc = 0;
	cost = computed_us() - began;
	*us += cost;
	if (conn)
		pending_cost(conn, cost);
	else
		spend(pend, cost);
	if (rc < 0 && clock_ms() >= pend->said_ms + SAY_MS) {
		log_warn("connections wait: %s", strerror(-rc));
		pend->said_ms = clock_ms();
	}
	return rc;
}

/* Whether this was enough for one piece: it took as long as one may, or there is too much work. */
static bool is_enough(struct pending *pend, uint64_t us)
{
	return us >= THROTTLE_PIECE_US || throttle_is_long(&pend->throttle);
}

static void accept_some(struct pending *pend)
{
	uint64_t us = 0;
	int rc;

	do
		rc = accept_one(pend, &us);
	while (rc > 0 && !is_enough(pend, us));
	if (!rest(pend, us) && rc < 0)
		pause_for(pend, ACCEPT_PAUSE_US);
}

/* The socket stays readable: connections that are not accepted now wait in its queue. */
static void on_listen(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	accept_some(poll->data);
}

/* Handles the event of the first one in line. False: there was none. Adds to *us the time it
   took. */
static bool attend_first(struct conn_list *line, uint64_t *us)
{
	struct session_conn *conn = TAILQ_FIRST(line);

	if (!conn)
		return false;
	TAILQ_REMOVE(line, conn, in_ready);
	conn->ready = false; /* it is watched again below, unless it was closed */
	*us += attend(conn, conn->hung_up);
	if (!uv_is_closing((uv_handle_t *)&conn->poll))
		conn_watch(conn);
	return true;
}

static bool expire_one(struct pending *pend, uint64_t *us)
{
	struct session_conn *conn = expired(pend);
	uint64_t cost = computed_us();

	if (!conn)
		return false;
	conn_close(conn);
	cost = computed_us() - cost;
	spend(pend, cost);
	*us += cost;
	return true;
}

/* Does the next piece of work. */
static void on_rest_over(uv_poll_t *poll, int status, int events)
{
	struct pending *pend = poll->data;
	uint64_t count, us = 0;
	bool any, some = false;
	int rc = 1;

	(void)status;
	(void)events;
	if (read(pend->timer, &count, sizeof(count)) != sizeof(count))
		return;
	pend->rests = false;
	do {
		any = attend_first(&pend->conns->ready, &us);
		any |= attend_first(&pend->conns->gone, &us);
		any |= expire_one(pend, &us);
		if (rc > 0)
			rc = accept_one(pend, &us);
		any |= rc > 0;
		some |= any;
	} while (any && !is_enough(pend, us));
	if (some) {
		spend(pend, REST_COST_US);
		if (rest(pend, us + REST_COST_US))
			return;
	}
	any = !TAILQ_EMPTY(&pend->conns->ready) || !TAILQ_EMPTY(&pend->conns->gone) ||
	      expired(pend);
	pend->rests = any && pause_for(pend, 1);
	if (!pend->rests && (rc >= 0 || !pause_for(pend, ACCEPT_PAUSE_US)))
		uv_poll_start(&pend->poll, UV_READABLE, on_listen);
}

void pending_close_old(struct pending *pend)
{
	if (pend->old >= 0)
		close(pend->old);
	pend->old = -1;
}

int pending_replace(struct pending *pend, int with)
{
	bool listens = uv_is_active((uv_handle_t *)&pend->poll);
	int old = fcntl(pend->fd, F_DUPFD_CLOEXEC, 0), rc = old < 0 ? -errno : 0;

	uv_poll_stop(&pend->poll); /* libuv forgets the file that has the number now */
	if (!rc && dup3(with, pend->fd, O_CLOEXEC) < 0) {
		rc = -errno;
		close(old);
	}
	close(with);
	if (!rc) {
		pending_close_old(pend);
		pend->old = old;
		pend->old_seconds = 0;
	}
	if (listens) { /* else when the pause is over */
		uv_poll_start(&pend->poll, UV_READABLE, on_listen);
		accept_some(pend);
	}
	return rc;
}

/* A program may have found the old name just before it went, and connect only now. */
static void tend_old(struct pending *pend)
{
	struct pollfd waits = {.fd = pend->old, .events = POLLIN};

	if (pend->old < 0)
		return;
	if (uv_is_active((uv_handle_t *)&pend->poll))
		accept_some(pend);
	if (++pend->old_seconds >= OLD_SECONDS && poll(&waits, 1, 0) == 0)
		pending_close_old(pend);
}

/* While there are rests, on_rest_over expires connections. */
void pending_expire(struct pending *pend)
{
	tend_old(pend);
	if (!pend->rests && expired(pend))
		pend->rests = pause_for(pend, 1);
}

int pending_open(struct pending *pend, struct programs *programs, struct conns *conns, int fd,
		 struct ramp_err *err)
{
	*pend = (struct pending){.programs = programs, .conns = conns, .fd = fd, .old = -1};
	pend->throttle.processors = kernel_processors();
	TAILQ_INIT(&conns->pending);
	TAILQ_INIT(&conns->ready);
	TAILQ_INIT(&conns->gone);
	conns->pending_event = pending_event;
	pend->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return pend->timer < 0 ? ramp_err_sys(err, errno, "the session socket's timer") : 0;
}

void pending_start(struct pending *pend)
{
	pend->poll.data = pend->rest.data = pend;
	uv_poll_start(&pend->poll, UV_READABLE, on_listen);
	uv_poll_start(&pend->rest, UV_READABLE, on_rest_over);
}
