/*
 * Connections whose two ends have not proved themselves yet.
 *
 * Happy path: the port accepts (listen.c), or handshake_dial connects; the hello runs over the
 * stream. Then a control connection becomes its peer's channel (peer_events.connected), a data
 * connection goes to the transport (peers_on_data), and the connection of a node that wants to
 * become a member goes to peers_config.join.
 *
 * How it fails: a hello that ends badly or is not over in HELLO_TIMEOUT_MS. The connection is
 * closed, and nothing but its hello was read or answered. Of accepted ones there are at most
 * HANDSHAKES_MAX: one more pushes out the oldest, since an honest hello takes two round trips
 * and a crowd that only sits there must not lock others out.
 */
#include "handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "peer.h"
#include "peer_core.h"
#include "transport/hello_io.h"

#define HANDSHAKES_MAX 64 /* accepted connections that have not proved themselves */

struct handshake {
	TAILQ_ENTRY(handshake) link; /* peers->handshakes; accepted ones in the order they came */
	struct peers *peers;
	struct peer *peer; /* the dialed one; NULL: accepted */
	struct stream stream;
	uv_poll_t poll;
	int waits; /* UV_READABLE, UV_WRITABLE */
	bool connecting;
	uint64_t deadline_ms;
	struct hello hello;
	char endpoint[ENDPOINT_TEXT_BYTES];
};

static void on_handshake(uv_poll_t *poll, int status, int events);

static void on_handshake_closed(uv_handle_t *handle)
{
	struct handshake *handshake = handle->data;
	struct peers *peers = handshake->peers;

	free(handshake);
	peers_release(peers);
}

/* Ends the handshake and returns its stream, which libuv no longer watches. */
static struct stream take_stream(struct handshake *handshake)
{
	struct stream stream = handshake->stream;

	TAILQ_REMOVE(&handshake->peers->handshakes, handshake, link);
	if (handshake->peer)
		handshake->peer->handshake = NULL;
	else
		handshake->peers->n_accepted--;
	uv_close((uv_handle_t *)&handshake->poll, on_handshake_closed);
	return stream;
}

void handshake_drop(struct handshake *handshake)
{
	struct stream stream = take_stream(handshake);

	stream_close(&stream);
}

static bool is_rejection(int code)
{
	switch (code) {
	case EKEYREJECTED:
	case EPROTONOSUPPORT:
	case EPROTO:
	case EPERM:
	case ENODEV:
	case EACCES:
		return true;
	default:
		return false;
	}
}

static void handshake_failed(struct handshake *handshake, const struct ramp_err *err)
{
	struct peers *peers = handshake->peers;
	struct peer *peer = handshake->peer;

	if (!peer) {
		struct peer *claimed = peer_find(peers, handshake->hello.peer.node);

		peer_rejected(peers, claimed, handshake->endpoint, err->text);
	} else if (is_rejection(err->code)) {
		peer_rejected(peers, peer, handshake->endpoint, err->text);
	}
	handshake_drop(handshake);
	if (peer)
		peers->events->dial_failed(peer, err);
}

/* Tells whether a node may connect; called within the hello, when it has proved the key. */
static int handshake_admit(void *arg, const struct hello_peer *other, struct ramp_err *err)
{
	struct handshake *handshake = arg;
	struct peer *peer = peer_find(handshake->peers, other->node);

	if (other->class == HELLO_JOIN) {
		if (!handshake->peers->join)
			return ramp_err_set(err, EACCES, "no node joins here");
		return 0;
	}
	if (!peer || peer->removed)
		return ramp_err_set(err, EACCES, "node %u is no member here", other->node);
	if (other->class == HELLO_CONTROL && other->node > handshake->peers->self.node)
		return ramp_err_set(err, EACCES, "node %u is not the one that dials", other->node);
	return 0;
}

static void give_data(struct peers *peers, int fd, const struct hello *hello)
{
	pthread_mutex_lock(&peers->data_lock);
	if (peers->on_data)
		peers->on_data(peers->data_arg, fd, &hello->peer);
	else
		close(fd); /* the transport has not started, or is over */
	pthread_mutex_unlock(&peers->data_lock);
}

static void handshake_proved(struct handshake *handshake)
{
	struct peers *peers = handshake->peers;
	struct hello hello = handshake->hello;
	struct peer *peer = handshake->peer;
	bool dialed = peer != NULL;
	struct stream stream = take_stream(handshake);

	if (!dialed)
		peer = peer_find(peers, hello.peer.node);
	if (hello.peer.class == HELLO_CONTROL)
		peers->events->connected(peer, &stream, &hello, dialed);
	else if (hello.peer.class == HELLO_JOIN)
		peers->join(peers->arg, stream_take_fd(&stream), &hello);
	else
		give_data(peers, stream_take_fd(&stream), &hello);
}

static void handshake_wait(struct handshake *handshake)
{
	short events = handshake->connecting ? POLLOUT
					     : hello_events(&handshake->hello, &handshake->stream);
	int waits = (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0);

	if (waits != handshake->waits)
		uv_poll_start(&handshake->poll, waits, on_handshake);
	handshake->waits = waits;
}

static void on_handshake(uv_poll_t *poll, int status, int events)
{
	struct handshake *handshake = poll->data;
	int code = 0;
	socklen_t len = sizeof(code);
	struct ramp_err err;
	int rc;

	(void)events;
	if (handshake->connecting) {
		getsockopt(handshake->stream.fd, SOL_SOCKET, SO_ERROR, &code, &len);
		if (code) {
			ramp_err_sys(&err, code, "connecting to %s", handshake->endpoint);
			handshake_failed(handshake, &err);
			return;
		}
		handshake->connecting = false;
	}
	rc = hello_run(&handshake->hello, &handshake->stream, &err);
	/* libuv saw an error that neither read nor write reports. */
	if (rc == -EAGAIN && status < 0)
		rc = ramp_err_set(&err, -status, "%s", uv_strerror(status));
	if (rc == -EAGAIN)
		handshake_wait(handshake);
	else if (rc)
		handshake_failed(handshake, &err);
	else
		handshake_proved(handshake);
}

/* Makes a handshake; takes fd on success. */
static struct handshake *new_handshake(struct peers *peers, struct peer *peer, int fd,
				       struct ramp_err *err)
{
	struct handshake *handshake = calloc(1, sizeof(*handshake));
	int rc = handshake ? uv_poll_init(loop_uv(peers->loop), &handshake->poll, fd) : -ENOMEM;

	if (rc) {
		free(handshake);
		ramp_err_sys(err, -rc, "handshake");
		return NULL;
	}
	peers_hold(peers);
	handshake->poll.data = handshake;
	handshake->peers = peers;
	handshake->peer = peer;
	handshake->stream = stream_plain(fd);
	handshake->deadline_ms = uv_now(loop_uv(peers->loop)) + HELLO_TIMEOUT_MS;
	TAILQ_INSERT_TAIL(&peers->handshakes, handshake, link);
	return handshake;
}

int handshake_dial(struct peer *peer, const struct endpoint_address *to, struct ramp_err *err)
{
	struct peers *peers = peer->peers;
	int fd = endpoint_connect(to, err);
	struct handshake *handshake;

	if (fd < 0)
		return fd;
	handshake = new_handshake(peers, peer, fd, err);
	if (!handshake) {
		close(fd);
		return -err->code;
	}
	handshake->connecting = true;
	endpoint_address_text(to, handshake->endpoint);
	hello_dial(&handshake->hello, &peers->self, peer->node, 0, HELLO_CONTROL);
	peer->handshake = handshake;
	handshake_wait(handshake);
	return 0;
}

void handshakes_tick(struct peers *peers)
{
	uint64_t now_ms = uv_now(loop_uv(peers->loop));
	struct handshake *handshake, *next;
	struct ramp_err err;

	for (handshake = TAILQ_FIRST(&peers->handshakes); handshake; handshake = next) {
		next = TAILQ_NEXT(handshake, link);
		if (now_ms < handshake->deadline_ms)
			continue;
		ramp_err_set(&err, ETIMEDOUT,
			     handshake->connecting ? "no answer within %d s"
						   : "the hello was not over within %d s",
			     HELLO_TIMEOUT_MS / 1000);
		handshake_failed(handshake, &err);
		/* A failed dial may have put its next handshake at the end of the list: it is seen
		   later in this loop. */
	}
}

void handshakes_forget(struct peers *peers, ramp_node_t node)
{
	struct handshake *handshake, *next;

	for (handshake = TAILQ_FIRST(&peers->handshakes); handshake; handshake = next) {
		next = TAILQ_NEXT(handshake, link);
		if (!handshake->peer && handshake->hello.peer.node == node)
			handshake_drop(handshake);
	}
}

static void push_out_oldest(struct peers *peers)
{
	struct handshake *handshake;
	struct ramp_err err;

	TAILQ_FOREACH (handshake, &peers->handshakes, link)
		if (!handshake->peer)
			break;
	ramp_err_set(&err, EMFILE, "more than %d connections have not proved themselves",
		     HANDSHAKES_MAX);
	handshake_failed(handshake, &err);
}

void handshake_accepted(void *arg, int fd)
{
	struct peers *peers = arg;
	struct handshake *handshake;
	struct ramp_err err;

	if (peers->n_accepted >= HANDSHAKES_MAX)
		push_out_oldest(peers);
	endpoint_tune(fd);
	handshake = new_handshake(peers, NULL, fd, &err);
	if (!handshake) {
		log_error("accepting a connection: %s", err.text);
		close(fd);
		return;
	}
	peers->n_accepted++;
	endpoint_text(fd, handshake->endpoint);
	hello_accept(&handshake->hello, &peers->self, handshake_admit, handshake);
	handshake_wait(handshake);
}

void handshakes_close(struct peers *peers)
{
	struct handshake *handshake;

	while ((handshake = TAILQ_FIRST(&peers->handshakes)))
		handshake_drop(handshake);
}
