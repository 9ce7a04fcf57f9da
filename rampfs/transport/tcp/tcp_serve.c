/*
 * The source's side of the TCP transport: a thread that sends exported memory.
 *
 * Happy path: the serve thread sleeps in epoll; a request comes, its key is looked up, the export
 * says where the bytes are (piece), and they go to the socket straight from there. A connection
 * that has something to send is in one of two lines; each turn sends at most TCP_PIECE_BYTES.
 * Every connection in the demand line has its turn before one in the prefetch line has one, and
 * epoll is asked between turns, so a demand waits for one piece of prefetch at most.
 *
 * After a demand that it had data for, the thread polls for a short time before it sleeps again
 * (base/adaptive_poll.h). It sleeps at real-time priority, so that no thread that computes keeps it
 * from a demand until the end of its time slice. It has ordinary priority while it polls, and once
 * it has sent one piece of each demand.
 *
 * Never blocks: a socket that is full takes its connection out of the line until epoll says that
 * it has room again. So a slow reader delays no other one.
 *
 * unexport: the export leaves the table, so no new piece of it begins; then the serve thread
 * waits until the bytes that were sent of it are acknowledged by the reader's kernel (each export
 * knows the position of its last byte in each connection), and cuts connections whose reader has
 * not acknowledged them within UNEXPORT_MS. Only acknowledged bytes cannot be sent again.
 *
 * What goes over connections for prefetch may be limited: the prefetch line then rests until the limit
 * lets the next piece go.
 *
 * A connection that is refused REFUSED_MAX times in a row, under keys that nothing is exported
 * under for its node, rests for REST_MS after each turn: a refusal costs this thread as much as an answer.
 *
 * How it fails: an error of a socket, a request that makes no sense, or exported memory that
 * cannot be read (EFAULT: the file was cut) ends that connection; half a reply cannot be taken
 * back. An error of an export goes to the reader as the reply's errno.
 */
#include "tcp_serve.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/adaptive_poll.h"
#include "base/clock.h"
#include "base/cpu_weight.h"
#include "base/kernel.h"
#include "base/log.h"
#include "export.h"
#include "serve_conn.h"
#include "tcp_wire.h"
#include "transport/endpoint.h"

#define EVENTS	    32
#define REFUSED_MAX TP_QUEUE_MAX /* a target has this many under way when its source is not ready */
#define REST_MS	    10

struct taken {
	STAILQ_ENTRY(taken) link;
	int fd;
	struct hello_peer peer;
};

struct tcp_serve {
	pthread_t thread;
	int epoll, wake;
	/* Of the serve thread, like all that is not marked. */
	struct serve_conn *conns[EXPORT_SLOTS];
	unsigned int n_conns, n_rest;
	TAILQ_HEAD(line_head, serve_conn) demand, prefetch;
	struct adaptive_poll poll; /* after a demand: another is likely to follow */
	struct kernel_rt_boost boost;
	struct rate *limit;
	uint64_t limited_until_us; /* the prefetch line rests; 0: it does not */
	struct exports exports;

	pthread_mutex_t lock;
	STAILQ_HEAD(, taken) taken; /* protected by lock */
	bool stop;		    /* protected by lock */

	struct serve_counters counters;
	_Atomic uint64_t connections, cut, rejected;
	atomic_uint prefetches; /* connections for prefetch, taken or about to be */
};

static void serve_wake(struct tcp_serve *serve)
{
	/* Can only fail when the counter is full: the thread is awake then. */
	(void)!write(serve->wake, &(uint64_t){1}, sizeof(uint64_t));
}

/* ---- exports ------------------------------------------------------------------------------ */

int tcp_serve_export(struct tcp_serve *serve, const struct tp_export *export, struct ramp_err *err)
{
	return exports_add(&serve->exports, export, err);
}

static void wake_for_unexport(void *arg)
{
	serve_wake(arg);
}

void tcp_serve_unexport(struct tcp_serve *serve, const struct tp_key *key,
			struct unexport *unexport)
{
	exports_remove(&serve->exports, key, unexport, wake_for_unexport, serve);
}

void tcp_serve_unexport_wait(struct tcp_serve *serve, struct unexport *unexport)
{
	exports_remove_wait(&serve->exports, unexport);
}

/* ---- connections -------------------------------------------------------------------------- */

static struct line_head *head_of(struct tcp_serve *serve, enum line line)
{
	return line == LINE_DEMAND ? &serve->demand : &serve->prefetch;
}

static void leave_line(struct tcp_serve *serve, struct serve_conn *conn)
{
	if (conn->line != LINE_NONE)
		TAILQ_REMOVE(head_of(serve, conn->line), conn, link);
	conn->line = LINE_NONE;
}

/* Puts a connection at the end of its line if it has something to send and room to send it to. */
static void queue_up(struct tcp_serve *serve, struct serve_conn *conn)
{
	if (conn->line != LINE_NONE || conn->blocked || conn->rests_until_ms ||
	    !serve_conn_has_work(conn))
		return;
	conn->line = conn->peer.class == HELLO_DEMAND ? LINE_DEMAND : LINE_PREFETCH;
	TAILQ_INSERT_TAIL(head_of(serve, conn->line), conn, link);
}

static void watch_conn(struct tcp_serve *serve, struct serve_conn *conn)
{
	bool room = conn->count < TP_QUEUE_MAX && !conn->rests_until_ms;
	uint32_t events = (room ? EPOLLIN : 0) | (conn->blocked ? EPOLLOUT : 0);
	struct epoll_event event = {.events = events, .data.ptr = conn};

	if (events == conn->events)
		return;
	epoll_ctl(serve->epoll, EPOLL_CTL_MOD, conn->fd, &event);
	conn->events = events;
}

/* Closes at once: the bytes in the socket's buffer are thrown away. */
static void drop_conn(struct tcp_serve *serve, struct serve_conn *conn)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

	leave_line(serve, conn);
	if (conn->export)
		serve_conn_finish(conn);
	exports_forget_slot(&serve->exports, conn->slot);
	setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	/* While a child between fork and exec has a copy, close(2) leaves it in the epoll. */
	epoll_ctl(serve->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
	close(conn->fd);
	serve->conns[conn->slot] = NULL;
	serve->n_conns--;
	if (conn->weighs)
		cpu_weight_group(false);
	if (conn->peer.class == HELLO_PREFETCH)
		atomic_fetch_sub(&serve->prefetches, 1);
	serve->n_rest -= conn->rests_until_ms != 0;
	atomic_fetch_sub(&serve->connections, 1);
	free(conn);
}

static void reject_conn(struct tcp_serve *serve, struct serve_conn *conn, const char *reason)
{
	atomic_fetch_add(&serve->rejected, 1);
	log_warn("data connection with node %u at %s rejected: %s", conn->peer.node, conn->endpoint,
		 reason);
	drop_conn(serve, conn);
}

static void add_conn(struct tcp_serve *serve, int fd, const struct hello_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct serve_conn *conn = NULL;
	unsigned int slot = 0;

	while (slot < EXPORT_SLOTS && serve->conns[slot])
		slot++;
	if (slot < EXPORT_SLOTS)
		conn = calloc(1, sizeof(*conn));
	event.data.ptr = conn;
	if (!conn || epoll_ctl(serve->epoll, EPOLL_CTL_ADD, fd, &event)) {
		log_warn("data connection of node %u refused: %s", peer->node,
			 slot < EXPORT_SLOTS ? strerror(errno) : "there are too many");
		if (peer->class == HELLO_PREFETCH)
			atomic_fetch_sub(&serve->prefetches, 1);
		free(conn);
		close(fd);
		return;
	}
	conn->fd = fd;
	conn->slot = slot;
	conn->exports = &serve->exports;
	conn->counters = &serve->counters;
	conn->peer = *peer;
	conn->events = EPOLLIN;
	endpoint_text(fd, conn->endpoint);
	serve->conns[slot] = conn;
	serve->n_conns++;
	atomic_fetch_add(&serve->connections, 1);
}

void tcp_serve_take(struct tcp_serve *serve, int fd, const struct hello_peer *peer)
{
	struct taken *taken = malloc(sizeof(*taken));

	if (!taken) {
		close(fd);
		return;
	}
	taken->fd = fd;
	taken->peer = *peer;
	if (peer->class == HELLO_PREFETCH)
		atomic_fetch_add(&serve->prefetches, 1);
	pthread_mutex_lock(&serve->lock);
	STAILQ_INSERT_TAIL(&serve->taken, taken, link);
	pthread_mutex_unlock(&serve->lock);
	serve_wake(serve);
}

unsigned tcp_serve_prefetches(struct tcp_serve *serve)
{
	return atomic_load(&serve->prefetches);
}

/* Requests. */

static void read_requests(struct tcp_serve *serve, struct serve_conn *conn)
{
	size_t room;
	ssize_t n;

	do {
		room = sizeof(conn->in) - conn->in_len;
		n = recv(conn->fd, conn->in + conn->in_len, room, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			break;
		if (n <= 0) {
			if (n == 0 && conn->in_len)
				reject_conn(serve, conn, "it closed in the middle of a request");
			else
				drop_conn(serve, conn);
			return;
		}
		conn->in_len += (size_t)n;
		if (!serve_conn_requests(conn)) {
			reject_conn(serve, conn, "a request makes no sense");
			return;
		}
	} while ((size_t)n == room && conn->count < TP_QUEUE_MAX);
	queue_up(serve, conn);
	watch_conn(serve, conn);
}

/* Gives the threads more weight until the connection ends, if it brings what is not read ahead of a hand-over. */
static void weigh(struct serve_conn *conn)
{
	if (conn->weighs || conn->peer.class != HELLO_PREFETCH || !conn->hurries)
		return;
	conn->weighs = true;
	cpu_weight_group(true);
}

/* Gives a connection at the head of its line its turn, with that many bytes to send. Returns how many it
   did not need. */
static size_t take_turn(struct tcp_serve *serve, struct serve_conn *conn, size_t budget)
{
	int rc = 0;

	leave_line(serve, conn);
	serve_conn_cork(conn, true);
	while (!rc && budget > 0 && serve_conn_has_work(conn)) {
		if (!conn->header_left && !conn->export && serve_conn_next(conn) &&
		    conn->peer.class == HELLO_DEMAND)
			adaptive_poll_happened(&serve->poll, clock_us());
		weigh(conn);
		rc = serve_conn_send(conn, &budget);
	}
	if (rc == -ENOTCONN) {
		drop_conn(serve, conn);
		return budget;
	}
	/* There may be requests that the queue had no room for. */
	if (!serve_conn_requests(conn)) {
		reject_conn(serve, conn, "a request makes no sense");
		return budget;
	}
	if (!serve_conn_has_work(conn))
		serve_conn_cork(conn, false);
	if (conn->refused >= REFUSED_MAX) {
		conn->rests_until_ms = clock_ms() + REST_MS;
		serve->n_rest++;
	}
	queue_up(serve, conn);
	watch_conn(serve, conn);
	return budget;
}

/* Gives the first in the prefetch line its turn, as far as the limit goes. */
static void take_prefetch_turn(struct tcp_serve *serve, struct serve_conn *conn)
{
	uint64_t now_us = rate_get(serve->limit) ? clock_us() : 0;
	size_t budget = (size_t)rate_take(serve->limit, TCP_PIECE_BYTES, now_us);

	serve->limited_until_us = budget ? 0 : rate_due_us(serve->limit, now_us);
	if (!budget)
		return;
	kernel_rt_boost_while(&serve->boost, false);
	rate_put_back(serve->limit, take_turn(serve, conn, budget));
}

/* Lets connections continue that have rested. */
static void attend_rest(struct tcp_serve *serve)
{
	uint64_t now = serve->n_rest ? clock_ms() : 0;

	for (size_t i = 0; serve->n_rest && i < EXPORT_SLOTS; i++) {
		struct serve_conn *conn = serve->conns[i];

		if (!conn || !conn->rests_until_ms || now < conn->rests_until_ms)
			continue;
		conn->rests_until_ms = 0;
		serve->n_rest--;
		queue_up(serve, conn);
		watch_conn(serve, conn);
	}
}

/* ---- unexports ---------------------------------------------------------------------------- */

/* True: nothing of the export can leave any more through this connection. */
static bool conn_sent_all(const struct serve_conn *conn, struct export *export)
{
	int unacked = 0;

	if (export->ends[conn->slot] == 0)
		return true;
	if (ioctl(conn->fd, SIOCOUTQ, &unacked) ||
	    conn->written - (uint64_t)unacked < export->ends[conn->slot])
		return false;
	export->ends[conn->slot] = 0;
	return true;
}

static bool all_left(void *arg, struct export *export, bool late)
{
	struct tcp_serve *serve = arg;
	bool all = true;

	for (size_t i = 0; i < EXPORT_SLOTS; i++) {
		struct serve_conn *conn = serve->conns[i];

		if (!conn || conn_sent_all(conn, export))
			continue;
		if (!late) {
			all = false;
			continue;
		}
		atomic_fetch_add(&serve->cut, 1);
		log_info("data connection with node %u at %s cut: it is too slow to take the "
			 "last bytes of segment %llu",
			 conn->peer.node, conn->endpoint, (unsigned long long)export->key.segment);
		drop_conn(serve, conn);
	}
	return all;
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Takes the connections that other threads have left. False: stop. */
static bool attend_wake(struct tcp_serve *serve)
{
	struct taken *taken;
	uint64_t count;
	bool stop;

	(void)!read(serve->wake, &count, sizeof(count));
	do {
		pthread_mutex_lock(&serve->lock);
		stop = serve->stop;
		taken = STAILQ_FIRST(&serve->taken);
		if (taken)
			STAILQ_REMOVE_HEAD(&serve->taken, link);
		pthread_mutex_unlock(&serve->lock);
		if (taken)
			add_conn(serve, taken->fd, &taken->peer);
		free(taken);
	} while (taken);
	return !stop;
}

static void attend_conn(struct tcp_serve *serve, struct serve_conn *conn, uint32_t events)
{
	if (events & (EPOLLHUP | EPOLLERR)) {
		drop_conn(serve, conn);
		return;
	}
	if (events & EPOLLOUT) {
		conn->blocked = false;
		queue_up(serve, conn);
		watch_conn(serve, conn);
	}
	if (events & EPOLLIN)
		read_requests(serve, conn);
}

static bool run_lines(struct tcp_serve *serve)
{
	struct serve_conn *last = TAILQ_LAST(&serve->demand, line_head), *conn;
	bool end = !last;

	/* One turn for each that is in the demand line now. */
	while (!end) {
		conn = TAILQ_FIRST(&serve->demand);
		end = conn == last;
		take_turn(serve, conn, TCP_PIECE_BYTES);
	}
	conn = TAILQ_FIRST(&serve->prefetch);
	serve->limited_until_us = 0;
	if (conn && TAILQ_EMPTY(&serve->demand))
		take_prefetch_turn(serve, conn);
	return !TAILQ_EMPTY(&serve->demand) ||
	       (!TAILQ_EMPTY(&serve->prefetch) && !serve->limited_until_us);
}

static int may_sleep_ms(struct tcp_serve *serve, bool work, bool waiting)
{
	uint64_t now_us = work ? 0 : clock_us(), until_us = serve->limited_until_us;
	int limited_ms = until_us > now_us ? (int)((until_us - now_us) / 1000) + 1 : 1;

	return work ? 0
		    : adaptive_poll_wait_ms(&serve->poll, now_us,
					    waiting || serve->n_rest ? 1
					    : until_us		     ? limited_ms
								     : -1);
}

static void *serve_main(void *arg)
{
	struct tcp_serve *serve = arg;
	struct epoll_event events[EVENTS];
	bool work = false, waiting = false, go = true;

	cpu_weight_thread(true);
	kernel_slice_set(0, KERNEL_FAULT_SLICE_NS);
	while (go) {
		int wait_ms = may_sleep_ms(serve, work, waiting), n;

		kernel_rt_boost_while(&serve->boost, wait_ms != 0); /* while it sleeps: see above */
		n = epoll_wait(serve->epoll, events, EVENTS, wait_ms);
		if (n == 0 && !work && adaptive_poll_again(&serve->poll))
			continue;
		/* Each connection has one event at most, and is dropped only by its own event. */
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				attend_conn(serve, events[i].data.ptr, events[i].events);
			else
				go = attend_wake(serve);
		}
		waiting = exports_attend(&serve->exports, all_left, serve);
		attend_rest(serve);
		work = run_lines(serve);
	}
	for (size_t i = 0; i < EXPORT_SLOTS; i++)
		if (serve->conns[i])
			drop_conn(serve, serve->conns[i]);
	exports_attend(&serve->exports, all_left, serve);
	return NULL;
}

static void free_serve(struct tcp_serve *serve)
{
	struct taken *taken;

	exports_free(&serve->exports);
	while ((taken = STAILQ_FIRST(&serve->taken))) {
		STAILQ_REMOVE_HEAD(&serve->taken, link);
		close(taken->fd);
		free(taken);
	}
	if (serve->epoll >= 0)
		close(serve->epoll);
	if (serve->wake >= 0)
		close(serve->wake);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
}

int tcp_serve_start(struct tcp_serve **out, unsigned nth, struct rate *limit, struct ramp_err *err)
{
	char name[] = "serve-N";
	struct epoll_event event = {.events = EPOLLIN};
	struct tcp_serve *serve = calloc(1, sizeof(*serve));
	int rc = 0;

	if (!serve)
		return ramp_err_sys(err, ENOMEM, "serve thread");
	serve->limit = limit;
	TAILQ_INIT(&serve->demand);
	TAILQ_INIT(&serve->prefetch);
	STAILQ_INIT(&serve->taken);
	exports_init(&serve->exports);
	pthread_mutex_init(&serve->lock, NULL);
	serve->epoll = epoll_create1(EPOLL_CLOEXEC);
	serve->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (serve->epoll < 0 || serve->wake < 0 ||
	    epoll_ctl(serve->epoll, EPOLL_CTL_ADD, serve->wake, &event))
		rc = errno;
	if (!rc)
		rc = pthread_create(&serve->thread, NULL, serve_main, serve);
	if (rc) {
		free_serve(serve);
		return ramp_err_sys(err, rc, "serve thread");
	}
	name[sizeof(name) - 2] = (char)('1' + nth);
	pthread_setname_np(serve->thread, nth ? name : "serve");
	*out = serve;
	return 0;
}

void tcp_serve_stop(struct tcp_serve *serve)
{
	pthread_mutex_lock(&serve->lock);
	serve->stop = true;
	pthread_mutex_unlock(&serve->lock);
	serve_wake(serve);
	pthread_join(serve->thread, NULL);
	free_serve(serve);
}

void tcp_serve_stats(struct tcp_serve *serve, struct tp_stats *stats)
{
	stats->served_bytes += atomic_load(&serve->counters.bytes);
	stats->served_reads += atomic_load(&serve->counters.reads);
	stats->served_holes += atomic_load(&serve->counters.holes);
	stats->connections += atomic_load(&serve->connections);
	stats->cut += atomic_load(&serve->cut);
	stats->rejected += atomic_load(&serve->rejected);
}
