/*
 * Joining a cluster: the two frames that follow a hello of class JOIN. See join.h.
 *
 * Happy path: join_ask resolves and connects, runs the hello, sends its request and waits for the
 * answer; the member's worker calls join_receive and join_reply.
 *
 * How it fails: no node listens there, a hello that ends badly (hello.c words it), a frame that is
 * too long, not whole in time, or has a wrong MAC; the connection is of no use then. A refusal by
 * the member comes as an answer.
 */
#include "join.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/wire.h"
#include "transport/endpoint.h"
#include "transport/hello_io.h"

#define FRAME_MAX_BYTES (256u << 10)
#define ERRNO_MAX	4095

static const char label_request[] = "join request";
static const char label_answer[] = "join answer";

/* Waits until the stream may be read (POLLIN) or written (POLLOUT). 0, or -ETIMEDOUT. */
static int join_wait(const struct stream *stream, short want, uint64_t deadline_ms)
{
	struct pollfd pfd = {.fd = stream->fd, .events = stream_wants(stream, want)};
	uint64_t now = clock_ms();

	if (now >= deadline_ms)
		return -ETIMEDOUT;
	if (poll(&pfd, 1, (int)(deadline_ms - now)) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

/* ---- frames --------------------------------------------------------------------------------- */

/* Counts the n bytes that went or came; waits where it is -EAGAIN. */
static int join_advance(const struct stream *stream, ssize_t n, short want, uint64_t deadline_ms,
			size_t *done)
{
	if (n == -EAGAIN)
		return join_wait(stream, want, deadline_ms);
	if (n < 0)
		return (int)n;
	*done += (size_t)n;
	return 0;
}

static int send_all(struct stream *stream, const uint8_t *bytes, size_t len, uint64_t deadline_ms)
{
	size_t done = 0;
	int rc = 0;

	while (!rc && done < len) {
		struct iovec iov = {(void *)(uintptr_t)(bytes + done), len - done};
		ssize_t n = stream_writev(stream, &iov, 1);

		rc = join_advance(stream, n ? n : -EAGAIN, POLLOUT, deadline_ms, &done);
	}
	return rc;
}

static int recv_all(struct stream *stream, uint8_t *bytes, size_t len, uint64_t deadline_ms,
		    size_t *done)
{
	int rc = 0;

	*done = 0;
	while (!rc && *done < len) {
		ssize_t n = stream_read(stream, bytes + *done, len - *done);

		rc = join_advance(stream, n ? n : -ECONNRESET, POLLIN, deadline_ms, done);
	}
	return rc;
}

/* Computes the MAC of a frame: over its label and body, under the key of its direction. */
static int frame_mac(const struct hello *hello, const char *label, const void *body, size_t len,
		     uint8_t mac[HMAC_BYTES])
{
	uint8_t key[HMAC_BYTES];
	int rc = hello_session_key(hello, label == label_request, key);

	if (!rc)
		rc = hmac_derive(key, label, body, len, mac);
	hmac_wipe(key, sizeof(key));
	return rc;
}

static int send_frame(struct stream *stream, const struct hello *hello, const char *label,
		      const struct wire_w *w, struct ramp_err *err)
{
	uint64_t deadline_ms = clock_ms() + HELLO_TIMEOUT_MS;
	uint8_t head[4], mac[HMAC_BYTES];
	struct wire_w length;
	int rc = w->bad ? -EMSGSIZE : frame_mac(hello, label, w->buf, w->len, mac);

	wire_w_init(&length, head, sizeof(head));
	wire_put_u32(&length, (uint32_t)w->len);
	if (!rc)
		rc = send_all(stream, head, sizeof(head), deadline_ms);
	if (!rc)
		rc = send_all(stream, w->buf, w->len, deadline_ms);
	if (!rc)
		rc = send_all(stream, mac, sizeof(mac), deadline_ms);
	return rc ? ramp_err_sys(err, -rc, "sending the %s", label) : 0;
}

/* Receives a frame's body into `buf` (FRAME_MAX_BYTES); returns its length. -ENOMSG: a newcomer has
   closed, and sent no request. */
static int recv_frame(struct stream *stream, const struct hello *hello, const char *label,
		      uint64_t patience_ms, uint8_t *buf, struct ramp_err *err)
{
	uint64_t deadline_ms = clock_ms() + patience_ms;
	uint8_t head[4], mac[HMAC_BYTES], sent[HMAC_BYTES];
	struct wire_r length;
	uint32_t len = 0;
	size_t done;
	int rc = recv_all(stream, head, sizeof(head), deadline_ms, &done);

	if (rc == -ECONNRESET && done == 0 && label == label_request)
		return ramp_err_set(err, ENOMSG, "no %s came", label);
	wire_r_init(&length, head, sizeof(head));
	if (!rc)
		len = wire_get_u32(&length);
	if (len > FRAME_MAX_BYTES)
		return ramp_err_set(err, EPROTO, "a %s of %u bytes is too long", label, len);
	if (!rc)
		rc = recv_all(stream, buf, len, deadline_ms, &done);
	if (!rc)
		rc = recv_all(stream, sent, sizeof(sent), deadline_ms, &done);
	if (!rc)
		rc = frame_mac(hello, label, buf, len, mac);
	if (rc)
		return ramp_err_sys(err, -rc, "receiving the %s", label);
	if (!hmac_equal(mac, sent))
		return ramp_err_set(err, EPROTO, "the %s was altered on its way", label);
	return (int)len;
}

/* ---- the member ----------------------------------------------------------------------------- */

int join_receive(int fd, const struct hello *hello, struct join_request *request,
		 struct ramp_err *err)
{
	struct stream stream = stream_plain(fd); /* never closed: the socket stays the caller's */
	uint8_t *buf = malloc(FRAME_MAX_BYTES);
	struct wire_r r;
	uint8_t kind;
	int len;

	if (!buf)
		return ramp_err_sys(err, ENOMEM, "a join");
	len = recv_frame(&stream, hello, label_request, HELLO_TIMEOUT_MS, buf, err);
	wire_r_init(&r, buf, len < 0 ? 0 : (size_t)len);
	kind = wire_get_u8(&r);
	wire_get_str(&r, request->name, sizeof(request->name));
	wire_get_str(&r, request->address, sizeof(request->address));
	request->capacity_bytes = wire_get_u64(&r);
	request->kind = kind >= JOIN_NEW && kind <= JOIN_KEPT ? (enum join_kind)kind : JOIN_NEW;
	if (request->kind == JOIN_KEPT) {
		request->incarnation = wire_get_u64(&r);
		request->instance = wire_get_u64(&r);
	}
	if (len >= 0 && (!wire_r_done(&r) || kind != request->kind))
		len = ramp_err_set(err, EPROTO, "the join request is malformed");
	free(buf);
	return len < 0 ? len : 0;
}

int join_reply(int fd, const struct hello *hello, const struct join_answer *answer,
	       struct ramp_err *err)
{
	struct stream stream = stream_plain(fd); /* never closed: the socket stays the caller's */
	uint8_t *buf = malloc(FRAME_MAX_BYTES);
	struct wire_w w;
	int rc;

	if (!buf)
		return ramp_err_sys(err, ENOMEM, "a join");
	wire_w_init(&w, buf, FRAME_MAX_BYTES);
	wire_put_u32(&w, (uint32_t)-answer->result);
	wire_put_str(&w, answer->text);
	wire_put_u32(&w, answer->node);
	wire_put_str(&w, answer->cluster);
	wire_put_u64(&w, answer->arena_addr);
	wire_put_u64(&w, answer->arena_len);
	wire_put_u32(&w, (uint32_t)answer->n_members);
	for (size_t i = 0; i < answer->n_members; i++) {
		const struct join_member *m = &answer->members[i];

		wire_put_u32(&w, m->node);
		wire_put_str(&w, m->name);
		wire_put_str(&w, m->address);
		wire_put_u64(&w, m->capacity_bytes);
		wire_put_u8(&w, m->voter);
	}
	if (answer->life)
		wire_put_u64(&w, answer->life);
	rc = send_frame(&stream, hello, label_answer, &w, err);
	free(buf);
	return rc;
}

/* ---- the newcomer --------------------------------------------------------------------------- */

/* Returns the error of a wait that is over: whether the other end has taken the connection. */
static int timed_out(const struct stream *stream, struct ramp_err *err)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	if (getpeername(stream->fd, (struct sockaddr *)&peer, &len) < 0)
		return ramp_err_set(err, EHOSTUNREACH, "connecting: no answer within %d s",
				    HELLO_TIMEOUT_MS / 1000);
	return ramp_err_sys(err, ETIMEDOUT, "the hello");
}

static int run_hello(struct stream *stream, struct hello *hello, struct ramp_err *err)
{
	uint64_t deadline_ms = clock_ms() + HELLO_TIMEOUT_MS;
	int code = 0, rc = join_wait(stream, POLLOUT, deadline_ms);
	socklen_t len = sizeof(code);

	/* connect(2) is over when the socket can be written to. */
	if (!rc && !getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &code, &len))
		rc = -code;
	if (rc)
		return ramp_err_sys(err, -rc, "connecting");
	while ((rc = hello_run(hello, stream, err)) == -EAGAIN) {
		rc = join_wait(stream, hello_state(hello) == HELLO_SENDING ? POLLOUT : POLLIN,
			       deadline_ms);
		if (rc == -ETIMEDOUT)
			return timed_out(stream, err);
		if (rc)
			return ramp_err_sys(err, -rc, "the hello");
	}
	return rc;
}

static int connect_any(const char *at, struct stream *stream, struct hello *hello,
		       const struct hello_self *self, struct ramp_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL, *to;
	char host[RAMP_ADDRESS_MAX + 1], port[16];
	int rc = endpoint_split(at, host, sizeof(host), port, sizeof(port), err);

	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc)
		return ramp_err_set(err, EHOSTUNREACH, "%s does not resolve: %s", at,
				    gai_strerror(rc));
	rc = -EHOSTUNREACH;
	for (to = found; to && rc; to = to->ai_next) {
		struct endpoint_address address = {.len = to->ai_addrlen};

		memcpy(&address.sa, to->ai_addr, to->ai_addrlen);
		rc = endpoint_connect(&address, err);
		if (rc < 0)
			continue;
		*stream = stream_plain(rc);
		hello_dial(hello, self, 0, 0, HELLO_JOIN);
		rc = run_hello(stream, hello, err);
		if (rc)
			stream_close(stream);
	}
	freeaddrinfo(found);
	return rc ? ramp_err_wrap(err, "%s", at) : 0;
}

static int send_request(struct stream *stream, const struct hello *hello,
			const struct join_request *request, struct ramp_err *err)
{
	uint8_t buf[32 + sizeof(*request)];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, (uint8_t)request->kind);
	wire_put_str(&w, request->name);
	wire_put_str(&w, request->address);
	wire_put_u64(&w, request->capacity_bytes);
	if (request->kind == JOIN_KEPT) {
		wire_put_u64(&w, request->incarnation);
		wire_put_u64(&w, request->instance);
	}
	return send_frame(stream, hello, label_request, &w, err);
}

static int take_answer(const uint8_t *buf, size_t len, struct join_answer *answer,
		       struct ramp_err *err)
{
	struct wire_r r;
	uint32_t n, result;

	wire_r_init(&r, buf, len);
	result = wire_get_u32(&r);
	wire_get_str(&r, answer->text, sizeof(answer->text));
	answer->node = wire_get_u32(&r);
	wire_get_str(&r, answer->cluster, sizeof(answer->cluster));
	answer->arena_addr = wire_get_u64(&r);
	answer->arena_len = wire_get_u64(&r);
	n = wire_get_u32(&r);
	if (n > JOIN_MEMBERS_MAX || result > ERRNO_MAX || (result && !answer->text[0]))
		return ramp_err_set(err, EPROTO, "the join answer is malformed");
	answer->members = calloc(n ? n : 1, sizeof(*answer->members));
	if (!answer->members)
		return ramp_err_sys(err, ENOMEM, "a join");
	for (uint32_t i = 0; i < n; i++) {
		struct join_member *m = &answer->members[i];

		m->node = wire_get_u32(&r);
		wire_get_str(&r, m->name, sizeof(m->name));
		wire_get_str(&r, m->address, sizeof(m->address));
		m->capacity_bytes = wire_get_u64(&r);
		m->voter = wire_get_u8(&r) != 0;
	}
	answer->n_members = n;
	if (!r.bad && r.pos < r.len)
		answer->life = wire_get_u64(&r);
	if (!wire_r_done(&r))
		return ramp_err_set(err, EPROTO, "the join answer is malformed");
	return result ? ramp_err_set(err, (int)result, "%s", answer->text) : 0;
}

int join_ask(const char *at, const uint8_t cluster_key[HMAC_BYTES],
	     const struct join_request *request, struct join_answer *answer, struct ramp_err *err)
{
	struct hello_self self = {.incarnation = ramp_random64()}; /* it has none yet */
	uint8_t *buf = malloc(FRAME_MAX_BYTES);
	struct hello hello;
	struct stream stream = stream_plain(-1);
	int rc = buf ? hello_self_init(&self, cluster_key, err) : -ENOMEM;

	memset(answer, 0, sizeof(*answer));
	if (!buf)
		return ramp_err_sys(err, ENOMEM, "a join");
	if (!rc)
		rc = connect_any(at, &stream, &hello, &self, err);
	if (!rc)
		rc = send_request(&stream, &hello, request, err);
	if (!rc)
		rc = recv_frame(&stream, &hello, label_answer, JOIN_PATIENCE_MS, buf, err);
	if (rc >= 0)
		rc = take_answer(buf, (size_t)rc, answer, err);
	if (!rc)
		memcpy(answer->cluster_id, hello.peer.cluster_id, sizeof(answer->cluster_id));
	else
		answer->result = rc;
	if (rc) {
		free(answer->members);
		answer->members = NULL;
		answer->n_members = 0;
	}
	stream_close(&stream);
	free(buf);
	hmac_wipe(&self, sizeof(self));
	return rc;
}

int join_probe(const char *at, const uint8_t cluster_key[HMAC_BYTES],
	       uint8_t cluster_id[HELLO_CLUSTER_BYTES], struct ramp_err *err)
{
	struct hello_self self = {.incarnation = ramp_random64()};
	struct stream stream = stream_plain(-1);
	struct hello hello;
	int rc = hello_self_init(&self, cluster_key, err);

	if (!rc)
		rc = connect_any(at, &stream, &hello, &self, err);
	if (!rc)
		memcpy(cluster_id, hello.peer.cluster_id, HELLO_CLUSTER_BYTES);
	stream_close(&stream);
	hmac_wipe(&self, sizeof(self));
	return rc;
}
