/*
 * Requests and replies of one data connection at the source. See serve_conn.h.
 */
#include "serve_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/wire.h"

/* Decodes a request. False: it makes no sense. */
static bool parse_request(struct read_request *request, const uint8_t *bytes)
{
	struct wire_r r;
	uint32_t magic;

	wire_r_init(&r, bytes, TCP_REQUEST_BYTES);
	magic = wire_get_u32(&r);
	request->len = wire_get_u32(&r);
	request->tag = wire_get_u64(&r);
	request->key.segment = wire_get_u64(&r);
	wire_get_bytes(&r, request->key.grant, sizeof(request->key.grant));
	request->offset = wire_get_u64(&r);
	return magic == TCP_REQUEST_MAGIC && request->len > 0 &&
	       request->len <= TP_READ_MAX_BYTES && request->len % RAMP_PAGE_BYTES == 0 &&
	       request->offset % RAMP_PAGE_BYTES == 0 &&
	       request->offset <= UINT64_MAX - request->len;
}

bool serve_conn_requests(struct serve_conn *conn)
{
	size_t pos = 0;

	while (conn->count < TP_QUEUE_MAX && conn->in_len - pos >= TCP_REQUEST_BYTES) {
		struct read_request *request =
			&conn->queue[(conn->first + conn->count) % TP_QUEUE_MAX];

		if (!parse_request(request, conn->in + pos))
			return false;
		conn->count++;
		pos += TCP_REQUEST_BYTES;
	}
	conn->in_len -= pos;
	if (pos && conn->in_len)
		memmove(conn->in, conn->in + pos, conn->in_len);
	return true;
}

void serve_conn_finish(struct serve_conn *conn)
{
	struct export *export = conn->export;

	conn->export = NULL;
	export->ops->done(export->arg, conn->data, conn->data_pos, conn->data_len - conn->data_pos);
}

bool serve_conn_has_work(const struct serve_conn *conn)
{
	return conn->header_left || conn->export || conn->count;
}

static void put_reply(struct serve_conn *conn, const struct read_request *request, int result,
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

/* Asks the export for the content at the request's offset. */
static int find_piece(const struct serve_conn *conn, const struct read_request *request,
		      struct export **out, const void **data, uint64_t *len)
{
	int rc;

	*out = exports_find(conn->exports, &request->key, conn->peer.node);
	if (!*out)
		return -EKEYREVOKED;
	/* It stays while piece runs: exports_remove waits for this thread. */
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

bool serve_conn_next(struct serve_conn *conn)
{
	struct read_request *request = &conn->queue[conn->first];
	uint64_t len, most = request->len;
	struct export *export;
	const void *data;
	bool more = false;
	int rc = find_piece(conn, request, &export, &data, &len);

	conn->refused = rc == -EKEYREVOKED ? conn->refused + 1 : 0;
	if (!rc && !conn->hurries)
		conn->hurries = !export->ops->ahead || !export->ops->ahead(export->arg);
	if (rc) {
		put_reply(conn, request, rc, TP_DATA, 0, false);
	} else if (!data) {
		more = len < most;
		if (len > UINT64_MAX - request->offset)
			len = UINT64_MAX - request->offset - RAMP_PAGE_BYTES + 1;
		put_reply(conn, request, 0, TP_HOLE, len, more);
		export->ends[conn->slot] = conn->written + TCP_REPLY_BYTES;
		atomic_fetch_add_explicit(&conn->counters->holes, 1, memory_order_relaxed);
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
		return !rc;
	}
	conn->first = (conn->first + 1) % TP_QUEUE_MAX;
	conn->count--;
	atomic_fetch_add_explicit(&conn->counters->reads, 1, memory_order_relaxed);
	return !rc;
}

static void serve_conn_took(struct serve_conn *conn, size_t n)
{
	size_t of_header = n < conn->header_left ? n : conn->header_left;

	conn->header_left -= of_header;
	conn->data_pos += n - of_header;
	conn->written += n;
	atomic_fetch_add_explicit(&conn->counters->bytes, n - of_header, memory_order_relaxed);
	if (conn->export && conn->data_pos == conn->data_len)
		serve_conn_finish(conn);
}

int serve_conn_send(struct serve_conn *conn, size_t *budget)
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
	/* Where more follows at once, the end of this need not leave in a short packet. */
	n = sendmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
	if (n >= 0) {
		*budget -= (size_t)n < *budget ? (size_t)n : *budget;
		serve_conn_took(conn, (size_t)n);
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
	return -ENOTCONN;
}

/*
 * Of a long row of replies no short packet leaves. MSG_MORE asks for that in one call only: the
 * kernel sends the end of a piece all the same when an acknowledgement or its pacing timer finds
 * it, and twice as many packets cost a third more.
 */
void serve_conn_cork(struct serve_conn *conn, bool corked)
{
	int on = corked;

	if (conn->peer.class != HELLO_PREFETCH || corked == conn->corked)
		return;
	setsockopt(conn->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	conn->corked = corked;
}
