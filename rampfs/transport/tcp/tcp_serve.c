/*
 * The source's side of the TCP transport: what is exported, and the thread that sends it.
 *
 * Happy path: the serve thread sleeps in epoll; a request comes, its key is looked up, the export
 * says where the bytes stand (piece), and they go to the socket straight from there. A connection
 * that has something to send is in one of two lines; each turn sends at most TCP_PIECE_BYTES.
 * Every connection in the demand line has its turn before one in the prefetch line has one, and
 * epoll is asked between turns, so a demand waits for one piece of prefetch at most.
 *
 * After a demand that it had data for it polls for a moment before it sleeps again (adaptive_poll.h). It
 * sleeps at real-time priority, so that nobody who computes keeps it from a demand until his time
 * slice is over, and is like others when it polls or has sent one piece of each demand.
 *
 * Never blocks: a socket that is full takes its connection out of the line until epoll says that
 * it has room again. So a slow reader holds up nobody.
 *
 * unexport: the export leaves the table, so no new piece of it begins; then the serve thread
 * waits until what was sent of it is acknowledged by the reader's kernel (each export knows the
 * position of its last byte in each connection), and cuts what has not come so far in
 * UNEXPORT_MS. Only acknowledged bytes cannot be sent again.
 *
 * Who is refused REFUSED_MAX times in a row, under keys that nothing is exported under, rests for
 * REST_MS after each turn: to refuse costs this thread as much as to serve.
 *
 * How it fails: an error of a socket, a request that makes no sense, or exported memory that
 * cannot be read (EFAULT: the file was cut) ends that connection; half a reply cannot be taken
 * back. What an export says goes to the reader as the reply's errno.
 */
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
#include <time.h>
#include <unistd.h>

#include "base/adaptive_poll.h"
#include "base/cpu_weight.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/wire.h"
#include "tcp_impl.h"

#define CONNS_MAX   256
#define BUCKETS	    256
#define EVENTS	    32
#define UNEXPORT_MS 250 /* longer than any kernel delays an acknowledgement */
#define IN_BYTES    (16 * TCP_REQUEST_BYTES)
#define REFUSED_MAX TP_QUEUE_MAX /* so many has a target under way whose source is not ready */
#define REST_MS	    10

struct export
{
	LIST_ENTRY(export) link;
	struct tp_key key;
	const struct tp_export_ops *ops;
	void *arg;
	/* Where its last byte stands, or will stand, in each connection's stream; 0: nothing
	   that could still leave. The serve thread's. */
	uint64_t ends[CONNS_MAX];
};

struct request {
	struct tp_key key;
	uint64_t tag, offset;
	uint32_t len;
};

/* The line that a connection stands in. */
enum line { LINE_NONE, LINE_DEMAND, LINE_PREFETCH };

struct conn {
	TAILQ_ENTRY(conn) link; /* in its line */
	enum line line;
	int fd;
	unsigned int slot;
	struct hello_peer who;
	char endpoint[ENDPOINT_TEXT_BYTES];
	uint32_t events;	 /* that epoll watches */
	bool blocked;		 /* the socket is full */
	unsigned int refused;	 /* requests in a row */
	uint64_t rests_until_ms; /* 0: it does not rest */

	uint8_t in[IN_BYTES];
	size_t in_len;
	struct request queue[TP_QUEUE_MAX];
	unsigned int first, count;

	/* The reply under way. */
	uint8_t header[TCP_REPLY_BYTES];
	size_t header_left;
	struct export *export; /* whose data it is; NULL: no data is left to send */
	const uint8_t *data;
	size_t data_len, data_pos;
	uint64_t written; /* bytes of the stream so far */
	bool corked;
};

struct taken {
	STAILQ_ENTRY(taken) link;
	int fd;
	struct hello_peer who;
};

/* One call of tcp_serve_unexport that waits; on its caller's stack. */
struct unexport {
	TAILQ_ENTRY(unexport) link;
	struct export *export;
	uint64_t deadline_ms;
	bool done;
};

struct tcp_serve {
	pthread_t thread;
	int epoll, wake;
	struct conn *conns[CONNS_MAX]; /* the serve thread's, as all that is not marked */
	unsigned int n_conns, n_rest;
	TAILQ_HEAD(line_head, conn) demand, prefetch;
	struct adaptive_poll poll; /* after a demand: another is likely to follow */
	struct kernel_rt_boost boost;

	pthread_mutex_t lock;
	pthread_cond_t unexported;
	LIST_HEAD(, export) exports[BUCKETS]; /* protected by lock */
	STAILQ_HEAD(, taken) taken;	      /* protected by lock */
	TAILQ_HEAD(, unexport) unexports;     /* protected by lock */
	bool stop;			      /* protected by lock */

	_Atomic uint64_t bytes, reads, holes, connections, cut, rejected;
};

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static uint64_t now_ms(void)
{
	return now_us() / 1000;
}

static void wake(struct tcp_serve *serve)
{
	/* Can only fail when the counter is full: it is awake then. */
	(void)!write(serve->wake, &(uint64_t){1}, sizeof(uint64_t));
}

/* Exports. */

static bool key_equal(const struct tp_key *a, const struct tp_key *b)
{
	return a->segment == b->segment && a->k_epoch == b->k_epoch &&
	       ramp_attempt_equal(a->k, b->k);
}

static unsigned int bucket_of(const struct tp_key *key)
{
	return (unsigned int)(key->segment * UINT64_C(0x9e3779b97f4a7c15) >> 56) % BUCKETS;
}

/* serve->lock held. */
static struct export *find_export(struct tcp_serve *serve, const struct tp_key *key)
{
	struct export *export;

	LIST_FOREACH (export, &serve->exports[bucket_of(key)], link)
		if (key_equal(&export->key, key))
			return export;
	return NULL;
}

int tcp_serve_export(struct tcp_serve *serve, const struct tp_key *key,
		     const struct tp_export_ops *ops, void *arg, struct ramp_err *err)
{
	struct export *export = calloc(1, sizeof(*export));
	bool twice;

	if (!export)
		return ramp_err_sys(err, ENOMEM, "export of segment %llu",
				    (unsigned long long)key->segment);
	export->key = *key;
	export->ops = ops;
	export->arg = arg;
	pthread_mutex_lock(&serve->lock);
	twice = find_export(serve, key) != NULL;
	if (!twice)
		LIST_INSERT_HEAD(&serve->exports[bucket_of(key)], export, link);
	pthread_mutex_unlock(&serve->lock);
	if (twice) {
		free(export);
		return ramp_err_set(err, EEXIST, "segment %llu is exported under this key already",
				    (unsigned long long)key->segment);
	}
	return 0;
}

void tcp_serve_unexport(struct tcp_serve *serve, const struct tp_key *key)
{
	struct unexport unexport = {.deadline_ms = now_ms() + UNEXPORT_MS};

	pthread_mutex_lock(&serve->lock);
	unexport.export = find_export(serve, key);
	if (unexport.export) {
		LIST_REMOVE(unexport.export, link);
		TAILQ_INSERT_TAIL(&serve->unexports, &unexport, link);
		wake(serve);
		while (!unexport.done)
			pthread_cond_wait(&serve->unexported, &serve->lock);
	}
	pthread_mutex_unlock(&serve->lock);
	free(unexport.export);
}

/* Connections. */

static struct line_head *head_of(struct tcp_serve *serve, enum line line)
{
	return line == LINE_DEMAND ? &serve->demand : &serve->prefetch;
}

static void leave_line(struct tcp_serve *serve, struct conn *conn)
{
	if (conn->line != LINE_NONE)
		TAILQ_REMOVE(head_of(serve, conn->line), conn, link);
	conn->line = LINE_NONE;
}

static bool has_work(const struct conn *conn)
{
	return conn->header_left || conn->export || conn->count;
}

/* Stands at the end of its line if it has something to send and room to send it to. */
static void queue_up(struct tcp_serve *serve, struct conn *conn)
{
	if (conn->line != LINE_NONE || conn->blocked || conn->rests_until_ms || !has_work(conn))
		return;
	conn->line = conn->who.class == HELLO_DEMAND ? LINE_DEMAND : LINE_PREFETCH;
	TAILQ_INSERT_TAIL(head_of(serve, conn->line), conn, link);
}

static void watch(struct tcp_serve *serve, struct conn *conn)
{
	bool room = conn->count < TP_QUEUE_MAX && !conn->rests_until_ms;
	uint32_t events = (room ? EPOLLIN : 0) | (conn->blocked ? EPOLLOUT : 0);
	struct epoll_event event = {.events = events, .data.ptr = conn};

	if (events == conn->events)
		return;
	epoll_ctl(serve->epoll, EPOLL_CTL_MOD, conn->fd, &event);
	conn->events = events;
}

static void finish_data(struct conn *conn)
{
	struct export *export = conn->export;

	conn->export = NULL;
	export->ops->done(export->arg, conn->data, conn->data_pos, conn->data_len - conn->data_pos);
}

/* Its slot's positions say nothing of the next connection that gets it. */
static void forget_slot(struct tcp_serve *serve, unsigned int slot)
{
	struct unexport *unexport;
	struct export *export;

	pthread_mutex_lock(&serve->lock);
	for (size_t i = 0; i < BUCKETS; i++)
		LIST_FOREACH (export, &serve->exports[i], link)
			export->ends[slot] = 0;
	TAILQ_FOREACH (unexport, &serve->unexports, link)
		unexport->export->ends[slot] = 0;
	pthread_mutex_unlock(&serve->lock);
}

/* Closes at once: what stands in the socket's buffer is thrown away. */
static void drop_conn(struct tcp_serve *serve, struct conn *conn)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

	leave_line(serve, conn);
	if (conn->export)
		finish_data(conn);
	forget_slot(serve, conn->slot);
	setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	/* While a child between fork and exec has a copy of it, close(2) leaves it in there. */
	epoll_ctl(serve->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
	close(conn->fd);
	serve->conns[conn->slot] = NULL;
	serve->n_conns--;
	if (conn->who.class == HELLO_PREFETCH)
		cpu_weight_group(false);
	serve->n_rest -= conn->rests_until_ms != 0;
	atomic_fetch_sub(&serve->connections, 1);
	free(conn);
}

static void reject(struct tcp_serve *serve, struct conn *conn, const char *reason)
{
	atomic_fetch_add(&serve->rejected, 1);
	log_warn("data connection with node %u at %s rejected: %s", conn->who.node, conn->endpoint,
		 reason);
	drop_conn(serve, conn);
}

static void add_conn(struct tcp_serve *serve, int fd, const struct hello_peer *who)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct conn *conn = NULL;
	unsigned int slot = 0;

	while (slot < CONNS_MAX && serve->conns[slot])
		slot++;
	if (slot < CONNS_MAX)
		conn = calloc(1, sizeof(*conn));
	event.data.ptr = conn;
	if (!conn || epoll_ctl(serve->epoll, EPOLL_CTL_ADD, fd, &event)) {
		log_warn("data connection of node %u refused: %s", who->node,
			 slot < CONNS_MAX ? strerror(errno) : "there are too many");
		free(conn);
		close(fd);
		return;
	}
	conn->fd = fd;
	conn->slot = slot;
	conn->who = *who;
	conn->events = EPOLLIN;
	endpoint_text(fd, conn->endpoint);
	serve->conns[slot] = conn;
	serve->n_conns++;
	if (who->class == HELLO_PREFETCH)
		cpu_weight_group(true);
	atomic_fetch_add(&serve->connections, 1);
}

void tcp_serve_take(void *arg, int fd, const struct hello_peer *who)
{
	struct tcp_serve *serve = arg;
	struct taken *taken = malloc(sizeof(*taken));

	if (!taken) {
		close(fd);
		return;
	}
	taken->fd = fd;
	taken->who = *who;
	pthread_mutex_lock(&serve->lock);
	STAILQ_INSERT_TAIL(&serve->taken, taken, link);
	pthread_mutex_unlock(&serve->lock);
	wake(serve);
}

/* Requests. */

/* False: it makes no sense. */
static bool parse_request(struct request *request, const uint8_t *bytes)
{
	struct wire_r r;
	uint32_t magic;

	wire_r_init(&r, bytes, TCP_REQUEST_BYTES);
	magic = wire_get_u32(&r);
	request->len = wire_get_u32(&r);
	request->tag = wire_get_u64(&r);
	request->key.segment = wire_get_u64(&r);
	request->key.k_epoch = wire_get_u64(&r);
	request->key.k.source_id = wire_get_u64(&r);
	request->key.k.ticket = wire_get_u64(&r);
	request->offset = wire_get_u64(&r);
	return magic == TCP_REQUEST_MAGIC && request->len > 0 &&
	       request->len <= TP_READ_MAX_BYTES && request->len % RAMP_PAGE_BYTES == 0 &&
	       request->offset % RAMP_PAGE_BYTES == 0 &&
	       request->offset <= UINT64_MAX - request->len;
}

/* Takes whole requests out of `in`, as many as the queue has room for; false: rejected. */
static bool take_requests(struct tcp_serve *serve, struct conn *conn)
{
	size_t pos = 0;

	while (conn->count < TP_QUEUE_MAX && conn->in_len - pos >= TCP_REQUEST_BYTES) {
		struct request *request = &conn->queue[(conn->first + conn->count) % TP_QUEUE_MAX];

		if (!parse_request(request, conn->in + pos)) {
			reject(serve, conn, "a request makes no sense");
			return false;
		}
		conn->count++;
		pos += TCP_REQUEST_BYTES;
	}
	conn->in_len -= pos;
	if (pos && conn->in_len)
		memmove(conn->in, conn->in + pos, conn->in_len);
	return true;
}

static void read_requests(struct tcp_serve *serve, struct conn *conn)
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
				reject(serve, conn, "it closed in the middle of a request");
			else
				drop_conn(serve, conn);
			return;
		}
		conn->in_len += (size_t)n;
		if (!take_requests(serve, conn))
			return;
	} while ((size_t)n == room && conn->count < TP_QUEUE_MAX);
	queue_up(serve, conn);
	watch(serve, conn);
}

/* Replies. */

static void put_reply(struct conn *conn, const struct request *request, int result,
		      enum tp_kind kind, uint64_t len, bool more)
{
	struct wire_w w;

	wire_w_init(&w, conn->header, sizeof(conn->header));
	wire_put_u32(&w, TCP_REPLY_MAGIC);
	wire_put_u32(&w, (uint32_t)-result);
	wire_put_u64(&w, request->tag);
	wire_put_u8(&w, (uint8_t)kind);
	wire_put_u8(&w, more);
	wire_put_u16(&w, 0);
	wire_put_u32(&w, 0);
	wire_put_u64(&w, request->offset);
	wire_put_u64(&w, len);
	conn->header_left = TCP_REPLY_BYTES;
}

/* Asks the export for what stands at the request's offset. */
static int find_piece(struct tcp_serve *serve, struct request *request, struct export **out,
		      const void **data, uint64_t *len)
{
	int rc;

	pthread_mutex_lock(&serve->lock);
	*out = find_export(serve, &request->key);
	pthread_mutex_unlock(&serve->lock);
	if (!*out)
		return -EKEYREVOKED;
	/* It stays while piece runs: tcp_serve_unexport waits for this thread. */
	*data = NULL;
	*len = 0;
	rc = (*out)->ops->piece((*out)->arg, request->offset, request->len, data, len);
	if (rc)
		return rc < 0 && rc >= -4095 ? rc : -EIO;
	if (*len > 0 && *len % RAMP_PAGE_BYTES == 0)
		return 0;
	if (*data)
		(*out)->ops->done((*out)->arg, *data, 0, request->len);
	return -EIO;
}

/* Makes the next reply to the first request; the request shrinks by it, and goes with the last. */
static void next_reply(struct tcp_serve *serve, struct conn *conn)
{
	struct request *request = &conn->queue[conn->first];
	uint64_t len, most = request->len;
	struct export *export;
	const void *data;
	bool more = false;
	int rc = find_piece(serve, request, &export, &data, &len);

	conn->refused = rc == -EKEYREVOKED ? conn->refused + 1 : 0;
	if (!rc && conn->who.class == HELLO_DEMAND)
		adaptive_poll_happened(&serve->poll, now_us());
	if (rc) {
		put_reply(conn, request, rc, TP_DATA, 0, false);
	} else if (!data) {
		more = len < most;
		if (len > UINT64_MAX - request->offset)
			len = UINT64_MAX - request->offset - RAMP_PAGE_BYTES + 1;
		put_reply(conn, request, 0, TP_HOLE, len, more);
		export->ends[conn->slot] = conn->written + TCP_REPLY_BYTES;
		atomic_fetch_add_explicit(&serve->holes, 1, memory_order_relaxed);
	} else {
		len = len < most ? len : most;
		more = len < request->len;
		put_reply(conn, request, 0, TP_DATA, len, more);
		export->ends[conn->slot] = conn->written + TCP_REPLY_BYTES + len;
		conn->export = export;
		conn->data = data;
		conn->data_len = (size_t)len;
		conn->data_pos = 0;
	}
	if (more) {
		request->offset += len;
		request->len -= (uint32_t)len;
		return;
	}
	conn->first = (conn->first + 1) % TP_QUEUE_MAX;
	conn->count--;
	atomic_fetch_add_explicit(&serve->reads, 1, memory_order_relaxed);
}

static void took(struct tcp_serve *serve, struct conn *conn, size_t n)
{
	size_t of_header = n < conn->header_left ? n : conn->header_left;

	conn->header_left -= of_header;
	conn->data_pos += n - of_header;
	conn->written += n;
	atomic_fetch_add_explicit(&serve->bytes, n - of_header, memory_order_relaxed);
	if (conn->export && conn->data_pos == conn->data_len)
		finish_data(conn);
}

/* Sends at most *budget bytes of the reply under way. 0; -EAGAIN: the socket is full; -ENOTCONN:
   the connection is dropped, and its memory gone. */
static int send_reply(struct tcp_serve *serve, struct conn *conn, size_t *budget)
{
	struct iovec iov[2] = {
		{conn->header + TCP_REPLY_BYTES - conn->header_left, conn->header_left},
	};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};
	bool more = conn->count > 0;
	ssize_t n;

	if (conn->export) {
		size_t left = conn->data_len - conn->data_pos;

		iov[1].iov_base = (void *)(uintptr_t)(conn->data + conn->data_pos);
		iov[1].iov_len = left < *budget ? left : *budget;
		msg.msg_iovlen = 2;
		more |= left > *budget;
	}
	/* Where something follows at once: no short packet for the end of this. */
	n = sendmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
	if (n >= 0) {
		*budget -= (size_t)n < *budget ? (size_t)n : *budget;
		took(serve, conn, (size_t)n);
		return 0;
	}
	if (errno == EINTR)
		return 0;
	if (errno == EAGAIN || errno == EWOULDBLOCK) {
		conn->blocked = true;
		return -EAGAIN;
	}
	if (errno == EFAULT)
		log_error("segment %llu: exported memory cannot be read",
			  (unsigned long long)conn->export->key.segment);
	drop_conn(serve, conn);
	return -ENOTCONN;
}

/*
 * Of what goes on and on no short packet leaves. MSG_MORE says that of one call only: the kernel
 * sends the end of a piece all the same when an acknowledgement or its pacing timer finds it, and
 * twice as many packets cost a third more.
 */
static void cork(struct conn *conn, bool corked)
{
	int on = corked;

	if (conn->who.class != HELLO_PREFETCH || corked == conn->corked)
		return;
	setsockopt(conn->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	conn->corked = corked;
}

/* One turn of a connection at the head of its line. */
static void take_turn(struct tcp_serve *serve, struct conn *conn)
{
	size_t budget = TCP_PIECE_BYTES;
	int rc = 0;

	leave_line(serve, conn);
	cork(conn, true);
	while (!rc && budget > 0 && has_work(conn)) {
		if (!conn->header_left && !conn->export)
			next_reply(serve, conn);
		rc = send_reply(serve, conn, &budget);
	}
	if (rc == -ENOTCONN)
		return;
	/* Requests that the queue had no room for. */
	if (!take_requests(serve, conn))
		return;
	if (!has_work(conn))
		cork(conn, false);
	if (conn->refused >= REFUSED_MAX) {
		conn->rests_until_ms = now_ms() + REST_MS;
		serve->n_rest++;
	}
	queue_up(serve, conn);
	watch(serve, conn);
}

/* Those that have rested go on. */
static void attend_rest(struct tcp_serve *serve)
{
	uint64_t now = serve->n_rest ? now_ms() : 0;

	for (size_t i = 0; serve->n_rest && i < CONNS_MAX; i++) {
		struct conn *conn = serve->conns[i];

		if (!conn || !conn->rests_until_ms || now < conn->rests_until_ms)
			continue;
		conn->rests_until_ms = 0;
		serve->n_rest--;
		queue_up(serve, conn);
		watch(serve, conn);
	}
}

/* Unexports. */

/* True: nothing of it can leave any more through this connection. */
static bool has_left(const struct conn *conn, struct export *export)
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

static bool all_left(struct tcp_serve *serve, struct unexport *unexport, uint64_t now)
{
	bool all = true;

	for (size_t i = 0; i < CONNS_MAX; i++) {
		struct conn *conn = serve->conns[i];

		if (!conn || has_left(conn, unexport->export))
			continue;
		if (now < unexport->deadline_ms) {
			all = false;
			continue;
		}
		atomic_fetch_add(&serve->cut, 1);
		log_info("data connection with node %u at %s cut: it is too slow to take the "
			 "last bytes of segment %llu",
			 conn->who.node, conn->endpoint,
			 (unsigned long long)unexport->export->key.segment);
		drop_conn(serve, conn);
	}
	return all;
}

/* Ends those that are over; true: some still wait. */
static bool attend_unexports(struct tcp_serve *serve)
{
	struct unexport *unexport, *next;
	uint64_t now;

	pthread_mutex_lock(&serve->lock);
	unexport = TAILQ_FIRST(&serve->unexports);
	pthread_mutex_unlock(&serve->lock);
	if (!unexport)
		return false;
	now = now_ms();
	/* Others only add at the end, and none goes but by us. */
	for (; unexport; unexport = next) {
		bool over = all_left(serve, unexport, now);

		pthread_mutex_lock(&serve->lock);
		next = TAILQ_NEXT(unexport, link);
		if (over) {
			TAILQ_REMOVE(&serve->unexports, unexport, link);
			unexport->done = true;
			pthread_cond_broadcast(&serve->unexported);
		}
		pthread_mutex_unlock(&serve->lock);
	}
	return true;
}

/* The thread. */

/* Takes what others left; false: stop. */
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
			add_conn(serve, taken->fd, &taken->who);
		free(taken);
	} while (taken);
	return !stop;
}

static void attend_conn(struct tcp_serve *serve, struct conn *conn, uint32_t events)
{
	if (events & (EPOLLHUP | EPOLLERR)) {
		drop_conn(serve, conn);
		return;
	}
	if (events & EPOLLOUT) {
		conn->blocked = false;
		queue_up(serve, conn);
		watch(serve, conn);
	}
	if (events & EPOLLIN)
		read_requests(serve, conn);
}

static bool run_lines(struct tcp_serve *serve)
{
	struct conn *last = TAILQ_LAST(&serve->demand, line_head), *conn;
	bool end = !last;

	/* One turn for each that stands in the demand line now. */
	while (!end) {
		conn = TAILQ_FIRST(&serve->demand);
		end = conn == last;
		take_turn(serve, conn);
	}
	if (TAILQ_EMPTY(&serve->demand)) {
		conn = TAILQ_FIRST(&serve->prefetch);
		if (conn) {
			kernel_rt_boost_while(&serve->boost, false);
			take_turn(serve, conn);
		}
	}
	return !TAILQ_EMPTY(&serve->demand) || !TAILQ_EMPTY(&serve->prefetch);
}

static int may_sleep_ms(struct tcp_serve *serve, bool work, bool waiting)
{
	return work ? 0
		    : adaptive_poll_wait_ms(&serve->poll, now_us(),
					    waiting || serve->n_rest ? 1 : -1);
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

		kernel_rt_boost_while(&serve->boost, wait_ms != 0); /* the pager says why not */
		n = epoll_wait(serve->epoll, events, EVENTS, wait_ms);
		if (n == 0 && !work && adaptive_poll_again(&serve->poll))
			continue;
		/* Each connection has one event at most, and is dropped only by its own. */
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				attend_conn(serve, events[i].data.ptr, events[i].events);
			else
				go = attend_wake(serve);
		}
		waiting = attend_unexports(serve);
		attend_rest(serve);
		work = run_lines(serve);
	}
	for (size_t i = 0; i < CONNS_MAX; i++)
		if (serve->conns[i])
			drop_conn(serve, serve->conns[i]);
	attend_unexports(serve);
	return NULL;
}

static void free_serve(struct tcp_serve *serve)
{
	struct export *export;
	struct taken *taken;

	for (size_t i = 0; i < BUCKETS; i++)
		while ((export = LIST_FIRST(&serve->exports[i]))) {
			LIST_REMOVE(export, link);
			free(export);
		}
	while ((taken = STAILQ_FIRST(&serve->taken))) {
		STAILQ_REMOVE_HEAD(&serve->taken, link);
		close(taken->fd);
		free(taken);
	}
	if (serve->epoll >= 0)
		close(serve->epoll);
	if (serve->wake >= 0)
		close(serve->wake);
	pthread_cond_destroy(&serve->unexported);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
}

int tcp_serve_start(struct tcp_serve **out, struct ramp_err *err)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct tcp_serve *serve = calloc(1, sizeof(*serve));
	int rc = 0;

	if (!serve)
		return ramp_err_sys(err, ENOMEM, "serve thread");
	TAILQ_INIT(&serve->demand);
	TAILQ_INIT(&serve->prefetch);
	STAILQ_INIT(&serve->taken);
	TAILQ_INIT(&serve->unexports);
	pthread_mutex_init(&serve->lock, NULL);
	pthread_cond_init(&serve->unexported, NULL);
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
	pthread_setname_np(serve->thread, "serve");
	*out = serve;
	return 0;
}

void tcp_serve_stop(struct tcp_serve *serve)
{
	pthread_mutex_lock(&serve->lock);
	serve->stop = true;
	pthread_mutex_unlock(&serve->lock);
	wake(serve);
	pthread_join(serve->thread, NULL);
	free_serve(serve);
}

void tcp_serve_stats(struct tcp_serve *serve, struct tp_stats *stats)
{
	stats->served_bytes = atomic_load(&serve->bytes);
	stats->served_reads = atomic_load(&serve->reads);
	stats->served_holes = atomic_load(&serve->holes);
	stats->connections = atomic_load(&serve->connections);
	stats->cut = atomic_load(&serve->cut);
	stats->rejected = atomic_load(&serve->rejected);
}
