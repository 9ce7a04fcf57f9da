/*
 * The port that control and data connections come in at.
 *
 * Happy path: listen_open resolves the address; `accepted` gets each connection that a listening
 * socket accepts.
 *
 * How it fails: a name that does not resolve, or a port that cannot be bound, fails listen_open.
 * listen_later tries again and again: programs wait for a daemon that takes over from another,
 * and the other nodes dial again. Out of file descriptors or memory, the port rests until listen_tick.
 */
#include "listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/endpoint.h"

#define ACCEPT_TURN 16 /* connections accepted before other handles have their turn */

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct listeners *listeners = poll->data;
	uv_os_fd_t listener;

	(void)events;
	if (status < 0 || uv_fileno((uv_handle_t *)poll, &listener))
		return;
	for (int i = 0; i < ACCEPT_TURN; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			listeners->accepted(listeners->arg, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			log_error("accepting connections: %s", strerror(errno));
			uv_poll_stop(poll); /* listen_tick starts it again */
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static int listen_one(struct listeners *listeners, const struct addrinfo *at)
{
	uv_poll_t *poll = &listeners->at[listeners->n].poll;
	int fd = endpoint_listen(at), rc;

	if (fd < 0)
		return fd;
	rc = uv_poll_init(loop_uv(listeners->loop), poll, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	poll->data = listeners;
	listeners->at[listeners->n++].fd = fd;
	listeners->opened(listeners->arg);
	listeners->port = endpoint_port(fd);
	return uv_poll_start(poll, UV_READABLE, on_listener);
}

/* Listens at each address of `found`. */
static int listen_all(struct listeners *listeners, const char *address,
		      const struct addrinfo *found, struct ramp_err *err)
{
	int rc = -EADDRNOTAVAIL;

	for (const struct addrinfo *at = found; at && listeners->n < LISTENERS_MAX;
	     at = at->ai_next) {
		int one = listen_one(listeners, at);

		/* A name may have an address that this machine lacks. A port in use is final. */
		if (one == 0 || rc == -EADDRNOTAVAIL)
			rc = one;
		if (one && one != -EADDRNOTAVAIL && one != -EAFNOSUPPORT) {
			rc = one;
			break;
		}
	}
	if (rc && (listeners->n == 0 || rc == -EADDRINUSE))
		return ramp_err_sys(err, -rc, "listening at %s", address);
	return 0;
}

static int resolve(const char *address, int flags, struct addrinfo **found, struct ramp_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | flags};
	char host[RAMP_ADDRESS_MAX + 1], port[16];
	int rc = endpoint_split(address, host, sizeof(host), port, sizeof(port), err);

	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, found);
	if (!rc)
		return 0;
	*found = NULL;
	return ramp_err_set(err, EADDRNOTAVAIL, "listening address %s: %s", address,
			    gai_strerror(rc));
}

int listen_open(struct listeners *listeners, const char *address, struct ramp_err *err)
{
	struct addrinfo *found;
	int rc = resolve(address, 0, &found, err);

	if (rc)
		return rc;
	rc = listen_all(listeners, address, found, err);
	freeaddrinfo(found);
	return rc;
}

/* ---- later --------------------------------------------------------------------------------- */

/* A resolution under way. It outlives a listen_close (dropped then). */
struct listen_resolve {
	struct listeners *listeners;
	bool dropped; /* control loop */
	char address[RAMP_ADDRESS_MAX + 1];
	struct addrinfo *found;
	int rc;
	struct ramp_err err;
};

static void listen_failed(struct listeners *listeners, const struct ramp_err *err)
{
	if (strcmp(listeners->failure, err->text) != 0)
		log_warn("other nodes do not reach this one until this works: %s", err->text);
	snprintf(listeners->failure, sizeof(listeners->failure), "%s", err->text);
	listeners->retry_at_ms = clock_ms() + LISTEN_RETRY_MS;
}

/* Listens at what was found. One address of several will do. */
static void listen_found(struct listeners *listeners, const struct addrinfo *found)
{
	struct ramp_err err = {0};
	int rc = listen_all(listeners, listeners->address, found, &err);

	if (rc && listeners->n == 0) {
		listen_failed(listeners, &err);
		return;
	}
	if (rc)
		log_warn("not all addresses are listened at: %s", err.text);
	if (listeners->failure[0])
		log_info("listening at %s", listeners->address);
	listeners->address[0] = listeners->failure[0] = 0;
}

static void resolve_work(void *arg)
{
	struct listen_resolve *r = arg;

	r->rc = resolve(r->address, 0, &r->found, &r->err);
}

static void on_resolved(void *arg)
{
	struct listen_resolve *r = arg;
	struct listeners *listeners = r->listeners;

	if (!r->dropped) {
		listeners->resolve = NULL;
		if (r->rc)
			listen_failed(listeners, &r->err);
		else
			listen_found(listeners, r->found);
	}
	if (r->found)
		freeaddrinfo(r->found);
	free(r);
	listeners->closed(listeners->arg);
}

static void try_to_listen(struct listeners *listeners)
{
	struct listen_resolve *r;
	struct ramp_err err = {0};
	struct addrinfo *found;

	if (resolve(listeners->address, AI_NUMERICHOST | AI_NUMERICSERV, &found, &err) == 0) {
		listen_found(listeners, found);
		freeaddrinfo(found);
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r) {
		ramp_err_sys(&err, ENOMEM, "listening at %s", listeners->address);
		listen_failed(listeners, &err);
		return;
	}
	r->listeners = listeners;
	memcpy(r->address, listeners->address, sizeof(r->address));
	listeners->resolve = r;
	listeners->opened(listeners->arg);
	loop_work_slow(listeners->loop, resolve_work, on_resolved, r);
}

void listen_later(struct listeners *listeners, const char *address)
{
	snprintf(listeners->address, sizeof(listeners->address), "%s", address);
	try_to_listen(listeners);
}

/* ---- the clock, and closing ---------------------------------------------------------------- */

static void on_listener_closed(uv_handle_t *handle)
{
	struct listeners *listeners = handle->data;

	listeners->closed(listeners->arg);
}

void listen_tick(struct listeners *listeners)
{
	for (unsigned int i = 0; i < listeners->n; i++)
		if (!uv_is_active((uv_handle_t *)&listeners->at[i].poll))
			uv_poll_start(&listeners->at[i].poll, UV_READABLE, on_listener);
	if (listeners->address[0] && !listeners->resolve && clock_ms() >= listeners->retry_at_ms)
		try_to_listen(listeners);
}

void listen_close(struct listeners *listeners)
{
	unsigned int n = listeners->n;

	if (listeners->resolve)
		listeners->resolve->dropped = true;
	listeners->resolve = NULL;
	listeners->address[0] = 0;
	listeners->n = 0;
	for (unsigned int i = 0; i < n; i++) {
		uv_close((uv_handle_t *)&listeners->at[i].poll, on_listener_closed);
		close(listeners->at[i].fd);
	}
}
