/*
 * The port that control and data connections come in at.
 *
 * Happy path: listen_open resolves the address; `accepted` gets each connection that a listening
 * socket accepts.
 *
 * How it fails: a name that does not resolve, or a port that cannot be bound, fails listen_open.
 * Out of file descriptors or memory, the port rests until listen_tick.
 */
#include "listen.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ids.h"
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
	listeners->port = endpoint_port(fd);
	return uv_poll_start(poll, UV_READABLE, on_listener);
}

int listen_open(struct listeners *listeners, const char *address, struct ramp_err *err)
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
	for (at = found; at && listeners->n < LISTENERS_MAX; at = at->ai_next) {
		int one = listen_one(listeners, at);

		/* A name may have an address that this machine lacks. A port in use is final. */
		if (one == 0 || rc == -EADDRNOTAVAIL)
			rc = one;
		if (one && one != -EADDRNOTAVAIL && one != -EAFNOSUPPORT) {
			rc = one;
			break;
		}
	}
	freeaddrinfo(found);
	if (rc && (listeners->n == 0 || rc == -EADDRINUSE))
		return ramp_err_sys(err, -rc, "listening at %s", address);
	return 0;
}

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
}

void listen_close(struct listeners *listeners)
{
	unsigned int n = listeners->n;

	listeners->n = 0;
	for (unsigned int i = 0; i < n; i++) {
		uv_close((uv_handle_t *)&listeners->at[i].poll, on_listener_closed);
		close(listeners->at[i].fd);
	}
}
