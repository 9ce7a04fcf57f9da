/*
 * Newcomers: connections to the session socket from accept(2) until they are settled, that is a
 * session with its userfaultfd, or a tool's. Anybody may make as many as he likes, as fast as he
 * can.
 *
 *   (accepted) --> newcomer --newcomer_settle--> settled
 *                     +-------closed, or FIRST_MESSAGE_MS are over-------> (gone)
 *
 * Happy path: they have an epoll of their own, and one event of it after the other is taken by
 * turns with one newcomer from the listening socket's queue. What that costs is counted (pace.h):
 * where it is too much, turns are short and rests come between, in which all of them wait, and
 * nobody else. So a thousand that hang up at once are a thousand small pieces, not a long one.
 *
 * How it fails: too many of one user (users.c), or of all: the newest is closed, and comes again
 * where it is the shim's. Without a descriptor or memory for another one nobody is taken for a
 * moment; who comes meanwhile waits in the kernel's queue.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "conns.h"
#include "kernel.h"
#include "log.h"

#define TURN_MAX	64    /* events: then others have their turn */
#define EVENT_COST_US	8     /* what the loop does around one, where each has its rest */
#define OF_USE_PARTS	16    /* of what one has cost that was of use, one is counted */
#define CONNECTIONS_MAX 16384 /* of all users; root's come in beyond */
#define ACCEPT_PAUSE_US 100000u

static void spend(struct listener *l, uint64_t us)
{
	pace_spend(&l->pace, now_us(), us);
}

void newcomer_cost(struct conn *conn, uint64_t us)
{
	conn->cost_us += us;
	spend(conn->programs->listener, conn->of_use ? us / OF_USE_PARTS : us);
}

void newcomer_is_of_use(struct conn *conn)
{
	if (!conn->of_use)
		pace_refund(&conn->programs->listener->pace,
			    conn->cost_us - conn->cost_us / OF_USE_PARTS);
	conn->of_use = true;
}

/* ---- one of them ---------------------------------------------------------------------------- */

/* The newcomer is counted, where this is true. */
static bool may_come(struct listener *l, uid_t uid)
{
	return (l->n_conns < CONNECTIONS_MAX || uid == 0) &&
	       user_take(l->programs, uid, USER_NEWCOMERS, 1, USER_SHARE);
}

static int watch(struct conn *conn, int op, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = conn};

	return epoll_ctl(conn->programs->listener->epoll, op, conn->fd, &event);
}

/* NULL: it can't be, and is closed. */
static struct conn *add_conn(struct listener *l, int fd)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!conn || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0 ||
	    !may_come(l, peer.uid))
		goto no_conn;
	conn->programs = l->programs;
	conn->fd = fd;
	conn->pid = peer.pid;
	conn->uid = peer.uid;
	conn->gid = peer.gid;
	conn->since_ms = now_ms();
	if (watch(conn, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP))
		goto no_watch;
	if (uv_poll_init(loop_uv(l->programs->loop), &conn->poll, fd))
		goto no_watch; /* closing it takes it out of the epoll */
	conn->poll.data = conn;
	l->handles++;
	TAILQ_INSERT_TAIL(&l->newcomers, conn, link);
	l->n_conns++;
	return conn;
no_watch:
	user_give(l->programs, peer.uid, USER_NEWCOMERS, 1);
no_conn:
	free(conn);
	close(fd);
	return NULL;
}

void newcomer_watch(struct conn *conn, uint32_t events)
{
	watch(conn, EPOLL_CTL_MOD, events);
}

void newcomer_renew(struct conn *conn)
{
	struct listener *l = conn->programs->listener;

	conn->since_ms = now_ms();
	TAILQ_REMOVE(&l->newcomers, conn, link);
	TAILQ_INSERT_TAIL(&l->newcomers, conn, link);
}

void newcomer_leave(struct conn *conn)
{
	watch(conn, EPOLL_CTL_DEL, 0);
	TAILQ_REMOVE(&conn->programs->listener->newcomers, conn, link);
}

void newcomer_settle(struct conn *conn)
{
	newcomer_is_of_use(conn);
	newcomer_leave(conn);
	conn->settled = true;
	TAILQ_INSERT_TAIL(&conn->programs->listener->conns, conn, link);
	conn_watch(conn);
}

/* The first of those that have had their time. */
static struct conn *expired(struct listener *l)
{
	struct conn *conn = TAILQ_FIRST(&l->newcomers);

	return conn && now_ms() - conn->since_ms > FIRST_MESSAGE_MS ? conn : NULL;
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* What this thread has computed so far. */
static uint64_t computed_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
}

/* False: there is no descriptor or no memory for another one, which waits. */
static bool accept_one(struct listener *l, struct conn **conn)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		*conn = add_conn(l, fd);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
		log_warn("connections wait: %s", strerror(errno));
		return false;
	}
	return true;
}

/* One event: what is done for one may close another. False: there is none, or (*room) no room.
   *computed: by this thread, until it began, and when it returns true. */
static bool step(struct listener *l, bool *room, uint64_t *computed)
{
	uint64_t began = *computed, cost;
	struct epoll_event event;
	struct conn *conn = NULL;

	if (epoll_wait(l->epoll, &event, 1, 0) <= 0)
		return false;
	if (event.data.ptr == l) {
		*room = accept_one(l, &conn);
	} else {
		conn = event.data.ptr; /* closed by that it stands until the loop's next round */
		conn_attend(conn, event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
	}
	*computed = computed_us();
	cost = EVENT_COST_US + *computed - began;
	if (conn)
		newcomer_cost(conn, cost);
	else
		spend(l, cost);
	return *room;
}

void newcomers_expire(struct listener *l)
{
	struct conn *conn = expired(l);
	uint64_t began = conn ? computed_us() : 0;
	int most = pace_is_long(&l->pace) ? 1 : TURN_MAX;

	if (!conn)
		return;
	for (int i = 0; i < most && conn; i++) {
		conn_close(conn);
		conn = expired(l);
	}
	spend(l, computed_us() - began);
}

static void on_rest_over(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;
	uint64_t count;

	(void)status;
	(void)events;
	if (read(l->timer, &count, sizeof(count)) == sizeof(count))
		newcomers_start(l);
}

/* Sockets stay ready: what happens meanwhile waits in the kernel. A timer that can't be set is no
   rest. (The loop's own ones know milliseconds.) */
static void rest(struct listener *l, uint64_t us)
{
	const struct itimerspec until = {.it_value = {.tv_sec = (time_t)(us / 1000000),
						      .tv_nsec = (long)(us % 1000000 * 1000)}};

	if (timerfd_settime(l->timer, 0, &until, NULL))
		return;
	uv_poll_stop(&l->poll);
}

static void on_turn(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;
	bool room = true;
	uint64_t rest_us, computed = computed_us();

	(void)status;
	(void)events;
	for (int i = 0; i < TURN_MAX && step(l, &room, &computed) && !pace_is_long(&l->pace); i++)
		;
	newcomers_expire(l);
	rest_us = pace_rest_us(&l->pace);
	if (!room && rest_us < ACCEPT_PAUSE_US)
		rest_us = ACCEPT_PAUSE_US;
	if (rest_us)
		rest(l, rest_us);
}

int newcomers_open(struct listener *l, struct ramp_err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = l};

	l->pace.processors = kernel_processors();
	TAILQ_INIT(&l->newcomers);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->epoll < 0 || l->timer < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->fd, &event)) {
		int rc = ramp_err_sys(err, errno, "the session socket's newcomers");

		newcomers_close(l);
		return rc;
	}
	return 0;
}

void newcomers_close(struct listener *l)
{
	if (l->epoll >= 0)
		close(l->epoll);
	if (l->timer >= 0)
		close(l->timer);
}

void newcomers_start(struct listener *l)
{
	uv_poll_start(&l->poll, UV_READABLE, on_turn);
	uv_poll_start(&l->rest, UV_READABLE, on_rest_over);
}
