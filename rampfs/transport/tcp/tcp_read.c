/*
 * The target's side of a data connection: posts reads, receives into place.
 *
 *   CONNECTING --the socket is connected--> HANDSHAKE --proved both ways--> READY
 *        |                                      |                             |
 *        +--------------- any error, time-out --+-----------------------------+--> FAILED
 *              [tcp_advance, by tcp_conn_go; FAILED by conn_failed]
 *
 * Happy path: tcp_read sends a request at once; tcp_reap reads a reply's header, finds the read
 * it belongs to, and receives the payload straight into that read's dst. All this is done by the
 * thread that owns the connection; nothing is allocated after tcp_connect, and nothing blocks.
 *
 * How it fails: every error ends the connection, and with it the reads in flight. So does a reply
 * that was not asked for: a reply must carry the tag of a read in flight, begin exactly where the
 * last reply to it ended, and stay inside it; only then is a byte of it stored, and only there.
 */
#include "tcp_read.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/wire.h"
#include "tcp.h"
#include "tcp_wire.h"
#include "transport/endpoint.h"
#include "transport/hello_io.h"
#include "transport/peers/peers_data.h"

#define PART_BYTES  TCP_PIECE_BYTES /* of a long reply, handed over before the rest has come */
#define LOWAT_BYTES (512u << 10)    /* that are sure to come: wake once for them, not eight times */

enum tcp_phase { TCP_CONNECTING, TCP_HANDSHAKE, TCP_READY, TCP_FAILED };

struct pending_read {
	bool used;
	uint32_t generation; /* of this slot: a reply to an earlier read does not match */
	struct tp_read read;
	uint64_t next; /* the offset that its next reply must have */
};

struct tcp_conn {
	struct tp_conn base;
	struct tcp *tcp;
	enum tcp_phase phase;
	struct stream stream; /* for the hello; later bytes go past it: stream.h */
	int fd;		      /* the stream's */
	uint64_t deadline_ms;
	struct hello hello;
	struct ramp_err err; /* why it has failed */
	struct endpoint_address to;
	char endpoint[ENDPOINT_TEXT_BYTES];

	struct pending_read pending[TP_QUEUE_MAX];
	unsigned int n_pending;
	uint8_t out[TP_QUEUE_MAX * TCP_REQUEST_BYTES];
	size_t out_len, out_pos;

	uint8_t header[TCP_REPLY_BYTES];
	size_t header_len;
	size_t ahead; /* bytes of the next header that came behind the reply under way */
	/* The reply whose header is whole; into == NULL: none. */
	struct pending_read *into;
	struct tp_done done;
	uint8_t *at; /* where its next byte lands */
	uint64_t left;
	uint32_t lowat; /* SO_RCVLOWAT: this many bytes make the socket readable */
};

static struct tcp_conn *conn_of(struct tp_conn *conn)
{
	return (struct tcp_conn *)conn;
}

#define PHASE(phase) (1u << (phase))

static const struct {
	const char *name;
	unsigned int next;
} tcp_phases[] = {
	[TCP_CONNECTING] = {"CONNECTING", PHASE(TCP_HANDSHAKE) | PHASE(TCP_FAILED)},
	[TCP_HANDSHAKE] = {"HANDSHAKE", PHASE(TCP_READY) | PHASE(TCP_FAILED)},
	[TCP_READY] = {"READY", PHASE(TCP_FAILED)},
	[TCP_FAILED] = {"FAILED", 0},
};

/* Changes the phase: the only function that does. Aborts on a step that the drawing lacks. */
static void tcp_conn_go(struct tcp_conn *conn, enum tcp_phase from, enum tcp_phase to)
{
	if (conn->phase != from || !(tcp_phases[from].next & PHASE(to))) {
		log_error("data connection with %s: no step from %s (expected %s) to %s",
			  conn->endpoint, tcp_phases[conn->phase].name, tcp_phases[from].name,
			  tcp_phases[to].name);
		abort();
	}
	log_debug("data connection with %s: %s -> %s", conn->endpoint, tcp_phases[from].name,
		  tcp_phases[to].name);
	conn->phase = to;
}

/* Ends the connection; conn->err says why already. Returns -ENOTCONN. */
static int conn_failed(struct tcp_conn *conn)
{
	if (conn->phase == TCP_CONNECTING)
		peers_address_failed(conn->tcp->peers, conn->hello.want_node, &conn->to);
	if (conn->phase != TCP_FAILED)
		tcp_conn_go(conn, conn->phase, TCP_FAILED);
	return -ENOTCONN;
}

int tcp_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		enum tp_class class, struct tp_conn **out, struct ramp_err *err)
{
	struct tcp *tcp = (struct tcp *)tp;
	struct endpoint_address to;
	struct tcp_conn *conn;

	if (peers_address(tcp->peers, node, &to))
		return ramp_err_set(err, EHOSTUNREACH, "the address of node %u is not known", node);
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return ramp_err_sys(err, ENOMEM, "data connection");
	conn->base.tp = tp;
	conn->tcp = tcp;
	conn->to = to;
	endpoint_address_text(&to, conn->endpoint);
	conn->fd = endpoint_connect(&to, err);
	conn->stream = stream_plain(conn->fd);
	if (conn->fd < 0) {
		int rc = conn->fd;

		peers_address_failed(tcp->peers, node, &to);
		free(conn);
		return rc;
	}
	conn->lowat = 1;
	conn->deadline_ms = clock_ms() + HELLO_TIMEOUT_MS;
	hello_dial(&conn->hello, peers_self(tcp->peers), node, incarnation,
		   class == TP_DEMAND ? HELLO_DEMAND : HELLO_PREFETCH);
	*out = &conn->base;
	return 0;
}

/*
 * Sets how many bytes make the socket readable. A wake-up costs both ends more than a piece of
 * prefetch itself, so of prefetch this is as much as the source has promised, but not more: bytes
 * that it has not promised might never come.
 */
static void watch_for_promised(struct tcp_conn *conn)
{
	uint64_t left = conn->into && conn->hello.want_class == HELLO_PREFETCH ? conn->left : 1;
	uint32_t lowat = left < LOWAT_BYTES ? (uint32_t)left : LOWAT_BYTES;

	if (lowat == conn->lowat)
		return;
	if (!setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat)))
		conn->lowat = lowat;
}

int tcp_fd(struct tp_conn *base, uint32_t *events)
{
	struct tcp_conn *conn = conn_of(base);

	switch (conn->phase) {
	case TCP_CONNECTING:
		*events = EPOLLOUT;
		break;
	case TCP_HANDSHAKE:
		*events = (uint32_t)hello_events(&conn->hello,
						 &conn->stream); /* poll's are epoll's */
		break;
	case TCP_READY:
		watch_for_promised(conn);
		*events = EPOLLIN | (conn->out_pos < conn->out_len ? EPOLLOUT : 0);
		break;
	default:
		*events = 0;
		break;
	}
	return conn->fd;
}

static bool is_connected(struct tcp_conn *conn)
{
	struct pollfd pollfd = {.fd = conn->fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int code = 0;

	if (poll(&pollfd, 1, 0) <= 0)
		return false;
	getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &code, &len);
	if (code) {
		ramp_err_sys(&conn->err, code, "connecting to %s", conn->endpoint);
		conn_failed(conn);
		return false;
	}
	return true;
}

static void tcp_advance(struct tcp_conn *conn)
{
	int rc;

	if (conn->phase == TCP_CONNECTING && is_connected(conn))
		tcp_conn_go(conn, TCP_CONNECTING, TCP_HANDSHAKE);
	if (conn->phase == TCP_HANDSHAKE) {
		rc = hello_run(&conn->hello, &conn->stream, &conn->err);
		if (rc == 0) {
			tcp_conn_go(conn, TCP_HANDSHAKE, TCP_READY);
		} else if (rc != -EAGAIN) {
			ramp_err_wrap(&conn->err, "data connection with %s", conn->endpoint);
			conn_failed(conn);
		}
	}
	if ((conn->phase == TCP_CONNECTING || conn->phase == TCP_HANDSHAKE) &&
	    clock_ms() >= conn->deadline_ms) {
		ramp_err_set(&conn->err, ETIMEDOUT,
			     "data connection with %s: no answer within %d s", conn->endpoint,
			     HELLO_TIMEOUT_MS / 1000);
		conn_failed(conn);
	}
}

enum tp_state tcp_state(struct tp_conn *base, struct ramp_err *err)
{
	struct tcp_conn *conn = conn_of(base);

	if (conn->phase == TCP_CONNECTING || conn->phase == TCP_HANDSHAKE)
		tcp_advance(conn);
	switch (conn->phase) {
	case TCP_READY:
		return TP_READY;
	case TCP_FAILED:
		if (err)
			*err = conn->err;
		return TP_FAILED;
	default:
		return TP_CONNECTING;
	}
}

ramp_incarnation_t tcp_incarnation(struct tp_conn *base)
{
	return conn_of(base)->hello.peer.incarnation;
}

/* ---- requests ----------------------------------------------------------------------------- */

static int flush_requests(struct tcp_conn *conn)
{
	while (conn->out_pos < conn->out_len) {
		ssize_t n = send(conn->fd, conn->out + conn->out_pos, conn->out_len - conn->out_pos,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0) {
			ramp_err_sys(&conn->err, errno, "sending to %s", conn->endpoint);
			return conn_failed(conn);
		}
		conn->out_pos += (size_t)n;
	}
	conn->out_len = conn->out_pos = 0;
	return 0;
}

static void put_request(struct tcp_conn *conn, const struct tp_read *read, uint64_t tag)
{
	struct wire_w w;

	if (sizeof(conn->out) - conn->out_len < TCP_REQUEST_BYTES) {
		/* Unsent requests belong to reads in flight, so there is room for one more. */
		conn->out_len -= conn->out_pos;
		memmove(conn->out, conn->out + conn->out_pos, conn->out_len);
		conn->out_pos = 0;
	}
	wire_w_init(&w, conn->out + conn->out_len, TCP_REQUEST_BYTES);
	wire_put_u32(&w, TCP_REQUEST_MAGIC);
	wire_put_u32(&w, read->len);
	wire_put_u64(&w, tag);
	wire_put_u64(&w, read->key.segment);
	wire_put_bytes(&w, read->key.grant, sizeof(read->key.grant));
	wire_put_u64(&w, read->offset);
	conn->out_len += w.len;
}

static bool is_valid(const struct tp_read *read)
{
	return read->len > 0 && read->len <= TP_READ_MAX_BYTES &&
	       read->len % RAMP_PAGE_BYTES == 0 && read->offset % RAMP_PAGE_BYTES == 0 &&
	       read->offset <= UINT64_MAX - read->len && read->dst;
}

void tcp_will_read(struct tp_conn *conn, const struct tp_key *key)
{
	(void)conn;
	(void)key;
}

size_t tcp_span(struct tp_conn *conn, const struct tp_key *key, uint64_t offset, size_t len)
{
	(void)conn;
	(void)key;
	(void)offset;
	return len;
}

/* The source holds nothing for a reader but what it is sending. */
void tcp_arrived(struct tp_conn *conn, const struct tp_key *key, uint64_t upto)
{
	(void)conn;
	(void)key;
	(void)upto;
}

bool tcp_lands(struct tp_conn *conn, const struct tp_key *key, uint64_t offset)
{
	(void)conn;
	(void)key;
	(void)offset;
	return false;
}

int tcp_read(struct tp_conn *base, const struct tp_read *read)
{
	struct tcp_conn *conn = conn_of(base);
	struct pending_read *pending;
	unsigned int slot = 0;

	if (conn->phase != TCP_READY)
		return -ENOTCONN;
	if (!is_valid(read))
		return -EINVAL;
	if (conn->n_pending == TP_QUEUE_MAX)
		return -EAGAIN;
	while (conn->pending[slot].used)
		slot++;
	pending = &conn->pending[slot];
	pending->used = true;
	pending->generation++;
	pending->read = *read;
	pending->next = read->offset;
	conn->n_pending++;
	put_request(conn, read, (uint64_t)pending->generation << 32 | slot);
	/* A failure shows at the next reap, like every failure after the post. */
	flush_requests(conn);
	return 0;
}

/* ---- replies ------------------------------------------------------------------------------ */

static int bad_reply(struct tcp_conn *conn, const char *what)
{
	ramp_err_set(&conn->err, EPROTO, "%s sent %s", conn->endpoint, what);
	return conn_failed(conn);
}

static struct pending_read *find_pending(struct tcp_conn *conn, uint64_t tag)
{
	uint32_t slot = (uint32_t)tag;
	struct pending_read *pending;

	if (slot >= TP_QUEUE_MAX)
		return NULL;
	pending = &conn->pending[slot];
	return pending->used && pending->generation == (uint32_t)(tag >> 32) ? pending : NULL;
}

/* Checks a reply's header against the read that it answers. Returns NULL, or what is wrong. */
static const char *reply_error(const struct pending_read *pending, const struct tp_done *done)
{
	uint64_t left = pending->read.offset + pending->read.len - pending->next;

	if (done->result)
		return done->len || done->more ? "an error that has bytes" : NULL;
	if (done->offset != pending->next)
		return "another offset than the next";
	if (done->len == 0 || done->len % RAMP_PAGE_BYTES)
		return "a length that is not of whole pages";
	if (done->kind == TP_DATA ? done->len > left : done->len > UINT64_MAX - done->offset)
		return "more than was asked";
	if (done->more != (done->len < left))
		return "a wrong word on whether more follows";
	return NULL;
}

static int take_header(struct tcp_conn *conn)
{
	struct pending_read *pending;
	uint32_t magic, code;
	const char *wrong;
	struct wire_r r;
	uint64_t tag;
	uint8_t kind, more;

	wire_r_init(&r, conn->header, TCP_REPLY_BYTES);
	magic = wire_get_u32(&r);
	code = wire_get_u32(&r);
	tag = wire_get_u64(&r);
	kind = wire_get_u8(&r);
	more = wire_get_u8(&r);
	if (wire_get_u16(&r) || wire_get_u32(&r) || magic != TCP_REPLY_MAGIC || code > 4095 ||
	    kind > TP_HOLE || more > 1)
		return bad_reply(conn, "something that is no reply");
	pending = find_pending(conn, tag);
	if (!pending)
		return bad_reply(conn, "a reply that was not asked for");
	conn->done = (struct tp_done){
		.cookie = pending->read.cookie,
		.result = -(int)code,
		.kind = (enum tp_kind)kind,
		.offset = wire_get_u64(&r),
		.len = wire_get_u64(&r),
		.more = more,
	};
	wrong = reply_error(pending, &conn->done);
	if (wrong)
		return bad_reply(conn, wrong);
	conn->into = pending;
	conn->left = !code && kind == TP_DATA ? conn->done.len : 0;
	conn->at = (uint8_t *)pending->read.dst + (pending->next - pending->read.offset);
	return 0;
}

/*
 * Receives up to `len` bytes to `at`, and behind them up to `more` to `then`; *got_more is how many
 * of the latter came. Returns how many of `len` came, 0 where none has, or -ENOTCONN.
 */
static ssize_t tcp_receive(struct tcp_conn *conn, void *at, size_t len, void *then, size_t more,
			   size_t *got_more)
{
	struct iovec iov[2] = {{at, len}, {then, more}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = more ? 2 : 1};

	for (;;) {
		ssize_t n = recvmsg(conn->fd, &msg, MSG_DONTWAIT);

		if (n > 0 && (size_t)n > len) {
			*got_more = (size_t)n - len;
			return (ssize_t)len;
		}
		if (n > 0)
			return n;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0)
			ramp_err_sys(&conn->err, errno, "receiving from %s", conn->endpoint);
		else
			ramp_err_set(&conn->err, ECONNRESET, "%s closed the data connection",
				     conn->endpoint);
		return conn_failed(conn);
	}
}

/*
 * Returns where the one page lands that is awaited; NULL: another number of reads or pages is. With
 * most page faults it is one, and then header and page are received by one call.
 */
static uint8_t *place_of_only_page(const struct tcp_conn *conn)
{
	for (size_t i = 0; conn->n_pending == 1 && i < TP_QUEUE_MAX; i++)
		if (conn->pending[i].used && conn->pending[i].read.len == RAMP_PAGE_BYTES)
			return conn->pending[i].read.dst;
	return NULL;
}

/* Receives a header, and bytes that come with it into *early. 1: the header is whole. */
static int receive_header(struct tcp_conn *conn, uint8_t **early, size_t *early_len)
{
	size_t wanted = TCP_REPLY_BYTES - conn->header_len;
	ssize_t n;

	*early = place_of_only_page(conn);
	*early_len = 0;
	n = tcp_receive(conn, conn->header + conn->header_len, wanted, *early,
			*early ? RAMP_PAGE_BYTES : 0, early_len);
	if (n > 0)
		conn->header_len += (size_t)n;
	return n <= 0 ? (int)n : conn->header_len == TCP_REPLY_BYTES;
}

/* Takes the header, and the bytes that came with it; wipes them where the header announces
   something else. */
static int take_early(struct tcp_conn *conn, uint8_t *early, size_t len)
{
	bool right = !take_header(conn);

	if (right && len <= conn->left) {
		conn->at += len;
		conn->left -= len;
		atomic_fetch_add_explicit(&conn->tcp->read_bytes, len, memory_order_relaxed);
		return 0;
	}
	if (len)
		memset(early, 0, len);
	return right ? bad_reply(conn, "more than was asked") : -ENOTCONN;
}

/* Hands a whole reply over. */
static void finish_reply(struct tcp_conn *conn, struct tp_done *done)
{
	struct pending_read *pending = conn->into;

	*done = conn->done;
	pending->next += conn->done.len;
	if (!conn->done.more) {
		pending->used = false;
		conn->n_pending--;
		atomic_fetch_add_explicit(&conn->tcp->reads, 1, memory_order_relaxed);
	}
	conn->into = NULL;
	conn->header_len = conn->ahead;
	conn->ahead = 0;
}

/* Hands over the whole pages that have come of a long reply. False: they are too few to be worth
   it. */
static bool take_part(struct tcp_conn *conn, struct tp_done *done)
{
	uint64_t came = (conn->done.len - conn->left) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;

	if (came < PART_BYTES)
		return false;
	*done = conn->done;
	done->len = came;
	done->more = true;
	conn->done.offset += came;
	conn->done.len -= came;
	conn->into->next += came;
	return true;
}

/*
 * Continues with the reply under way. 1: `done` is filled; 0: no more bytes have come, or *budget
 * is used up; -ENOTCONN. `last`: takes nothing of the reply behind it, since a whole header that
 * waits in conn->header makes no descriptor readable.
 */
static int reap_one(struct tcp_conn *conn, struct tp_done *done, size_t *budget, bool last)
{
	uint8_t *early = NULL;
	size_t early_len = 0;
	ssize_t n;

	while (!conn->into && conn->header_len < TCP_REPLY_BYTES) {
		int rc = receive_header(conn, &early, &early_len);

		if (rc <= 0)
			return rc;
	}
	if (!conn->into && take_early(conn, early, early_len))
		return -ENOTCONN;
	while (conn->left) {
		bool ahead;
		size_t len = conn->left < *budget ? (size_t)conn->left : *budget;

		if (len == 0)
			return take_part(conn, done);
		ahead = !last && len < *budget && len == conn->left;
		n = tcp_receive(conn, conn->at, len, conn->header, ahead ? TCP_REPLY_BYTES : 0,
				&conn->ahead);
		if (n <= 0)
			return take_part(conn, done) ? 1 : (int)n;
		conn->at += n;
		conn->left -= (uint64_t)n;
		*budget -= (size_t)n;
		atomic_fetch_add_explicit(&conn->tcp->read_bytes, (uint64_t)n,
					  memory_order_relaxed);
	}
	finish_reply(conn, done);
	return 1;
}

int tcp_reap(struct tp_conn *base, struct tp_done *done, int max, size_t max_bytes)
{
	struct tcp_conn *conn = conn_of(base);
	size_t budget = max_bytes ? max_bytes : SIZE_MAX;
	int n = 0;

	if (conn->phase == TCP_CONNECTING || conn->phase == TCP_HANDSHAKE)
		tcp_advance(conn);
	if (conn->phase == TCP_FAILED)
		return -ENOTCONN;
	if (conn->phase != TCP_READY)
		return 0;
	if (flush_requests(conn))
		return -ENOTCONN;
	while (n < max && budget > 0 && conn->phase == TCP_READY) {
		int rc = reap_one(conn, &done[n], &budget, n + 1 == max);

		if (rc < 0)
			return n ? n : rc; /* replies before the failure count */
		if (rc == 0)
			break;
		n++;
		if (conn->n_pending == 0)
			break; /* nothing more can come */
	}
	return n;
}

void tcp_close(struct tp_conn *base)
{
	struct tcp_conn *conn = conn_of(base);

	stream_close(&conn->stream);
	free(conn);
}
