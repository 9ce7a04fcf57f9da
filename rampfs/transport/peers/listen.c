/*
 * Connections whose two ends have not proved themselves yet, and the port that they come in at.
 *
 * Happy path: the port accepts, or greet_dial connects; hello.c runs over the socket; a control
 * connection becomes its peer's channel, a data connection goes through the door to tcp.c, that of
 * one who wants to become a member to whoever opened the peers.
 *
 * How it fails: a hello that ends badly or is not over in HELLO_TIMEOUT_MS; the connection is
 * closed, and nothing but its hello was read or answered. Of accepted ones there are at most
 * PEER_GREETS_MAX: one more pushes out the oldest, since an honest hello takes two round trips
 * and a crowd that only sits there must not lock others out. Out of file descriptors, the port
 * rests until the next tick.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "peer_impl.h"
#include "transport/hello_io.h"

#define ACCEPT_TURN 16 /* connections accepted before other handles have their turn */

struct greet {
	TAILQ_ENTRY(greet) link; /* peers->greets; accepted ones in the order they came */
	struct peers *peers;
	struct peer *peer; /* whom we dial; NULL: accepted */
	struct stream stream;
	uv_poll_t poll;
	int waits; /* UV_READABLE, UV_WRITABLE */
	bool connecting;
	uint64_t deadline_ms;
	struct hello hello;
	char endpoint[ENDPOINT_TEXT_BYTES];
};

static void on_greet(uv_poll_t *poll, int status, int events);
static void on_listener(uv_poll_t *poll, int status, int events);

/* The life of a greeting. */

static void on_greet_closed(uv_handle_t *handle)
{
	struct greet *greet = handle->data;
	struct peers *peers = greet->peers;

	free(greet);
	peers_release(peers);
}

/* Ends the greeting and gives its stream, which libuv no longer watches. */
static struct stream take_stream(struct greet *greet)
{
	struct stream stream = greet->stream;

	TAILQ_REMOVE(&greet->peers->greets, greet, link);
	if (!greet->peer)
		greet->peers->n_accepted--;
	uv_close((uv_handle_t *)&greet->poll, on_greet_closed);
	return stream;
}

void greet_drop(struct greet *greet)
{
	struct stream stream = take_stream(greet);

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

static void greet_failed(struct greet *greet, const struct ramp_err *err)
{
	struct peers *peers = greet->peers;
	struct peer *peer = greet->peer;

	if (!peer) {
		struct peer *claimed = peer_find(peers, greet->hello.peer.node);

		reject_count(peers, claimed, greet->endpoint, err->text);
	} else if (is_rejection(err->code)) {
		reject_count(peers, peer, greet->endpoint, err->text);
	}
	greet_drop(greet);
	if (peer)
		dial_failed(peer, err);
}

/* Called within the hello, when the other node has proved who it is. */
static int admit(void *arg, const struct hello_peer *who, struct ramp_err *err)
{
	struct greet *greet = arg;
	struct peer *peer = peer_find(greet->peers, who->node);

	if (who->class == HELLO_JOIN) {
		if (!greet->peers->join)
			return ramp_err_set(err, EACCES, "nobody joins here");
		return 0;
	}
	if (!peer || peer->removed)
		return ramp_err_set(err, EACCES, "node %u is no member here", who->node);
	if (who->class == HELLO_CONTROL && who->node > greet->peers->self.node)
		return ramp_err_set(err, EACCES, "node %u is not the one that dials", who->node);
	return 0;
}

static void give_to_door(struct peers *peers, int fd, const struct hello *hello)
{
	pthread_mutex_lock(&peers->door_lock);
	if (peers->take_data)
		peers->take_data(peers->take_arg, fd, &hello->peer);
	else
		close(fd); /* the transport has not started, or is over */
	pthread_mutex_unlock(&peers->door_lock);
}

static void greet_proved(struct greet *greet)
{
	struct peers *peers = greet->peers;
	struct hello hello = greet->hello;
	struct peer *peer = greet->peer;
	bool dialed = peer != NULL;
	struct stream stream = take_stream(greet);

	if (!dialed)
		peer = peer_find(peers, hello.peer.node);
	if (hello.peer.class == HELLO_CONTROL)
		peer_connected(peer, &stream, &hello, dialed);
	else if (hello.peer.class == HELLO_JOIN)
		peers->join(peers->arg, stream_take_fd(&stream), &hello);
	else
		give_to_door(peers, stream_take_fd(&stream), &hello);
}

static void greet_wait(struct greet *greet)
{
	short events = greet->connecting ? POLLOUT : hello_events(&greet->hello, &greet->stream);
	int waits = (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0);

	if (waits != greet->waits)
		uv_poll_start(&greet->poll, waits, on_greet);
	greet->waits = waits;
}

static void on_greet(uv_poll_t *poll, int status, int events)
{
	struct greet *greet = poll->data;
	int code = 0;
	socklen_t len = sizeof(code);
	struct ramp_err err;
	int rc;

	(void)events;
	if (greet->connecting) {
		getsockopt(greet->stream.fd, SOL_SOCKET, SO_ERROR, &code, &len);
		if (code) {
			ramp_err_sys(&err, code, "connecting to %s", greet->endpoint);
			greet_failed(greet, &err);
			return;
		}
		greet->connecting = false;
	}
	rc = hello_run(&greet->hello, &greet->stream, &err);
	if (rc == -EAGAIN &&
	    status < 0) /* libuv saw an error that neither read nor write reports */
		rc = ramp_err_set(&err, -status, "%s", uv_strerror(status));
	if (rc == -EAGAIN)
		greet_wait(greet);
	else if (rc)
		greet_failed(greet, &err);
	else
		greet_proved(greet);
}

/* Takes fd on success. */
static struct greet *new_greet(struct peers *peers, struct peer *peer, int fd, struct ramp_err *err)
{
	struct greet *greet = calloc(1, sizeof(*greet));
	int rc = greet ? uv_poll_init(loop_uv(peers->loop), &greet->poll, fd) : -ENOMEM;

	if (rc) {
		free(greet);
		ramp_err_sys(err, -rc, "greeting");
		return NULL;
	}
	peers_hold(peers);
	greet->poll.data = greet;
	greet->peers = peers;
	greet->peer = peer;
	greet->stream = stream_plain(fd);
	greet->deadline_ms = uv_now(loop_uv(peers->loop)) + HELLO_TIMEOUT_MS;
	TAILQ_INSERT_TAIL(&peers->greets, greet, link);
	return greet;
}

int greet_dial(struct peer *peer, const struct endpoint_address *to, struct ramp_err *err)
{
	struct peers *peers = peer->peers;
	int fd = endpoint_connect(to, err);
	struct greet *greet;

	if (fd < 0)
		return fd;
	greet = new_greet(peers, peer, fd, err);
	if (!greet) {
		close(fd);
		return -err->code;
	}
	greet->connecting = true;
	endpoint_address_text(to, greet->endpoint);
	hello_dial(&greet->hello, &peers->self, peer->node, 0, HELLO_CONTROL);
	peer->greet = greet;
	greet_wait(greet);
	return 0;
}

void greet_tick(struct peers *peers)
{
	uint64_t now_ms = uv_now(loop_uv(peers->loop));
	struct greet *greet, *next;
	struct ramp_err err;

	for (unsigned int i = 0; i < peers->n_listeners; i++)
		if (!uv_is_active((uv_handle_t *)&peers->listeners[i].poll))
			uv_poll_start(&peers->listeners[i].poll, UV_READABLE, on_listener);
	for (greet = TAILQ_FIRST(&peers->greets); greet; greet = next) {
		next = TAILQ_NEXT(greet, link);
		if (now_ms < greet->deadline_ms)
			continue;
		ramp_err_set(&err, ETIMEDOUT,
			     greet->connecting ? "no answer within %d s"
					       : "the hello was not over within %d s",
			     HELLO_TIMEOUT_MS / 1000);
		greet_failed(greet, &err);
		/* A dial that failed may have put the next one at the list's end: seen later. */
	}
}

void greet_forget_peer(struct peers *peers, ramp_node_t node)
{
	struct greet *greet, *next;

	for (greet = TAILQ_FIRST(&peers->greets); greet; greet = next) {
		next = TAILQ_NEXT(greet, link);
		if (!greet->peer && greet->hello.peer.node == node)
			greet_drop(greet);
	}
}

/* The port. */

static void push_out_oldest(struct peers *peers)
{
	struct greet *greet;
	struct ramp_err err;

	TAILQ_FOREACH (greet, &peers->greets, link)
		if (!greet->peer)
			break;
	ramp_err_set(&err, EMFILE, "more than %d connections have not proved themselves",
		     PEER_GREETS_MAX);
	greet_failed(greet, &err);
}

static void accepted(struct peers *peers, int fd)
{
	struct greet *greet;
	struct ramp_err err;

	if (peers->n_accepted >= PEER_GREETS_MAX)
		push_out_oldest(peers);
	endpoint_tune(fd);
	greet = new_greet(peers, NULL, fd, &err);
	if (!greet) {
		log_error("accepting a connection: %s", err.text);
		close(fd);
		return;
	}
	peers->n_accepted++;
	endpoint_text(fd, greet->endpoint);
	hello_accept(&greet->hello, &peers->self, admit, greet);
	greet_wait(greet);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct peers *peers = poll->data;
	uv_os_fd_t listener;

	(void)events;
	if (status < 0 || uv_fileno((uv_handle_t *)poll, &listener))
		return;
	for (int i = 0; i < ACCEPT_TURN; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			accepted(peers, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			log_error("accepting connections: %s", strerror(errno));
			uv_poll_stop(poll); /* greet_tick starts it again */
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static int listen_one(struct peers *peers, const struct addrinfo *at)
{
	uv_poll_t *poll = &peers->listeners[peers->n_listeners].poll;
	int fd = endpoint_listen(at), rc;

	if (fd < 0)
		return fd;
	rc = uv_poll_init(loop_uv(peers->loop), poll, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	poll->data = peers;
	peers_hold(peers);
	peers->listeners[peers->n_listeners++].fd = fd;
	peers->port = endpoint_port(fd);
	return uv_poll_start(poll, UV_READABLE, on_listener);
}

int greet_listen(struct peers *peers, const char *address, struct ramp_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found, *at;
	char host[RAMP_ADDRESS_MAX + 1], port[16];
	int rc = endpoint_split(address, host, sizeof(host), port, sizeof(port), err);

	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc)
		return ramp_err_set(err, EADDRNOTAVAIL, "listening address %s: %s", address,
				    gai_strerror(rc));
	rc = -EADDRNOTAVAIL;
	for (at = found; at && peers->n_listeners < PEER_LISTENERS_MAX; at = at->ai_next) {
		int one = listen_one(peers, at);

		/* A name may have an address that this machine lacks; a port in use is final. */
		if (one == 0 || rc == -EADDRNOTAVAIL)
			rc = one;
		if (one && one != -EADDRNOTAVAIL && one != -EAFNOSUPPORT) {
			rc = one;
			break;
		}
	}
	freeaddrinfo(found);
	if (rc && (peers->n_listeners == 0 || rc == -EADDRINUSE))
		return ramp_err_sys(err, -rc, "listening at %s", address);
	return 0;
}

static void on_listener_closed(uv_handle_t *handle)
{
	peers_release(handle->data);
}

void greet_close_all(struct peers *peers)
{
	struct greet *greet;

	while ((greet = TAILQ_FIRST(&peers->greets)))
		greet_drop(greet);
	for (unsigned int i = 0; i < peers->n_listeners; i++) {
		uv_close((uv_handle_t *)&peers->listeners[i].poll, on_listener_closed);
		close(peers->listeners[i].fd);
	}
	peers->n_listeners = 0;
}
