/*
 * Newcomers: connections to the session socket from accept(2) until they are settled, that is a
 * session with its userfaultfd, or a tool's. Anybody may make as many as he likes, as fast as he
 * can.
 *
 *   (accepted) --> pending connection --conn_settle--> settled
 *                     +-------closed, or FIRST_MESSAGE_MS are over-------> (gone)
 *
 * Happy path: they are accepted and attended as they come. What that costs is counted (throttle.h),
 * and there is a rest after each piece, where it is too much a long one after a small one. Who says
 * something or hangs up meanwhile stands in line, and of each line and of the socket's queue one is
 * taken by turns when the rest is over. So a thousand that hang up at once are a thousand small
 * pieces, not a long one. Those who are settled have nothing to do with that. What a session that
 * came to be has cost hardly counts, and a request a part: else a program that forks much, or a
 * thousand that come again when the daemon has died, would get there, too.
 *
 * How it fails: too many of one user (quota.c), or of all: the newest is closed, and comes again
 * where it is the shim's. Without a descriptor or memory for another one nobody is accepted for a
 * moment; who comes meanwhile waits in the kernel's queue.
 */
#include <errno.h>
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

#define FIRST_MESSAGE_MS 5000u /* a connection that says nothing is closed */
#define REST_COST_US	 8     /* what the loop does around a piece that has its rest */
#define CONNECTIONS_MAX	 16384 /* of all users; root's come in beyond */
#define ACCEPT_PAUSE_US	 100000u
#define SAY_MS		 1000u

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

/* The pending connection is counted, where this is true. */
static bool may_come(struct pending *pend, uid_t uid)
{
	return (pend->conns->count < CONNECTIONS_MAX || uid == 0) &&
	       quota_take(pend->programs->quota, uid, QUOTA_PENDING, 1, QUOTA_DEFAULT);
}

/* NULL: it can't be, and is closed. */
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

/* The first of those that have had their time. Who stands in line has not. */
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

/* What this thread has computed so far. */
static uint64_t computed_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
}

/* Nobody is accepted for so long. (The loop's own timers know milliseconds.) */
static bool pause_for(struct pending *pend, uint64_t us)
{
	const struct itimerspec until = {.it_value = {.tv_sec = (time_t)(us / 1000000),
						      .tv_nsec = (long)(us % 1000000 * 1000)}};

	if (us == 0 || timerfd_settime(pend->timer, 0, &until, NULL))
		return false;
	uv_poll_stop(&pend->poll);
	return true;
}

/* When so much has been done: nor is anybody attended, where a rest is due. True: it is. */
static bool rest(struct pending *pend, uint64_t us)
{
	uint64_t rest_us = throttle_rest_us(&pend->throttle, us);

	if (rest_us)
		pend->rests = pause_for(pend, rest_us);
	return pend->rests;
}

/* What it took. */
static uint64_t attend(struct session_conn *conn, bool hung_up)
{
	uint64_t us = computed_us();

	conn->ops->event(conn, hung_up);
	us = computed_us() - us;
	pending_cost(conn, us); /* closed it stands until the next round */
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

/* 1: one was accepted, or refused; 0: there is none; -EMFILE and so on: there is no room for one.
   *us grows by what it took. */
static int accept_one(struct pending *pend, uint64_t *us)
{
	uint64_t began = computed_us(), cost;
	int fd = accept4(pend->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = 1;
	struct session_conn *conn = NULL;

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

/* It took so long for a piece, or there is too much: others have their turn. */
static bool is_enough(struct pending *pend, uint64_t us)
{
	return us >= THROTTLE_PIECE_US || throttle_is_long(&pend->throttle);
}

/* The socket stays ready: whoever comes meanwhile waits in its queue. */
static void on_listen(uv_poll_t *poll, int status, int events)
{
	struct pending *pend = poll->data;
	uint64_t us = 0;
	int rc;

	(void)status;
	(void)events;
	do
		rc = accept_one(pend, &us);
	while (rc > 0 && !is_enough(pend, us));
	if (!rest(pend, us) && rc < 0)
		pause_for(pend, ACCEPT_PAUSE_US);
}

/* False: there was nobody. *us grows by what it took. */
static bool attend_first(struct conn_list *line, uint64_t *us)
{
	struct session_conn *conn = TAILQ_FIRST(line);

	if (!conn)
		return false;
	TAILQ_REMOVE(line, conn, in_ready);
	conn->ready = false; /* it is watched again, if it is there then */
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

/* The next piece. */
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

/* Now and then: the pieces see to it where there are some. */
void pending_expire(struct pending *pend)
{
	if (!pend->rests && expired(pend))
		pend->rests = pause_for(pend, 1);
}

int pending_open(struct pending *pend, struct programs *programs, struct conns *conns, int fd,
		 struct ramp_err *err)
{
	*pend = (struct pending){.programs = programs, .conns = conns, .fd = fd};
	pend->throttle.processors = kernel_processors();
	TAILQ_INIT(&conns->pending);
	TAILQ_INIT(&conns->ready);
	TAILQ_INIT(&conns->gone);
	conns->pending_event = pending_event;
	pend->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return pend->timer < 0 ? ramp_err_sys(err, errno, "the session socket's newcomers") : 0;
}

void pending_start(struct pending *pend)
{
	pend->poll.data = pend->rest.data = pend;
	uv_poll_start(&pend->poll, UV_READABLE, on_listen);
	uv_poll_start(&pend->rest, UV_READABLE, on_rest_over);
}
