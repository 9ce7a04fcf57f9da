/*
 * Addresses and sockets of connections between nodes. See endpoint.h.
 */
#include "endpoint.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- text --------------------------------------------------------------------------------- */

void endpoint_address_text(const struct endpoint_address *address, char text[ENDPOINT_TEXT_BYTES])
{
	const struct sockaddr *sa = (const struct sockaddr *)&address->sa;
	char host[64], port[16];

	if (getnameinfo(sa, address->len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, ENDPOINT_TEXT_BYTES, "an unknown address");
	else
		snprintf(text, ENDPOINT_TEXT_BYTES, sa->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
			 host, port);
}

void endpoint_text(int fd, char text[ENDPOINT_TEXT_BYTES])
{
	struct endpoint_address address = {.len = sizeof(address.sa)};

	if (getpeername(fd, (struct sockaddr *)&address.sa, &address.len))
		snprintf(text, ENDPOINT_TEXT_BYTES, "an unknown address");
	else
		endpoint_address_text(&address, text);
}

int endpoint_split(const char *address, char *host, size_t host_cap, char *port, size_t port_cap,
		   struct ramp_err *err)
{
	const char *colon = strrchr(address, ':');
	const char *first = address;
	size_t host_len;

	if (!colon || colon == address || !colon[1])
		return ramp_err_set(err, EINVAL, "%s is not HOST:PORT", address);
	host_len = (size_t)(colon - address);
	if (address[0] == '[') {
		if (colon[-1] != ']' || host_len < 3)
			return ramp_err_set(err, EINVAL, "%s is not [HOST]:PORT", address);
		first++;
		host_len -= 2;
	} else if (memchr(address, ':', host_len)) {
		return ramp_err_set(err, EINVAL, "%s: write an IPv6 address as [HOST]:PORT",
				    address);
	}
	if (host_len >= host_cap || strlen(colon + 1) >= port_cap)
		return ramp_err_set(err, EINVAL, "%s is too long for HOST:PORT", address);
	memcpy(host, first, host_len);
	host[host_len] = 0;
	memcpy(port, colon + 1, strlen(colon + 1) + 1);
	return 0;
}

/* ---- sockets ------------------------------------------------------------------------------ */

void endpoint_tune(int fd)
{
	const int on = 1, idle_s = 4, interval_s = 1, probes = 4, unacked_ms = 8000;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
}

int endpoint_connect(const struct endpoint_address *to, struct ramp_err *err)
{
	int fd = socket(to->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char text[ENDPOINT_TEXT_BYTES];

	if (fd < 0)
		return ramp_err_sys(err, errno, "socket");
	endpoint_tune(fd);
	if (connect(fd, (const struct sockaddr *)&to->sa, to->len) && errno != EINPROGRESS) {
		int code = errno;

		endpoint_address_text(to, text);
		close(fd);
		return ramp_err_sys(err, code, "connecting to %s", text);
	}
	return fd;
}

int endpoint_listen(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* The dialer speaks first. A connection that says nothing, or is reset before that, is
	   known to the kernel alone (for a second). */
	setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof(on));
	if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, SOMAXCONN)) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	return fd;
}

uint16_t endpoint_port(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at = {0};
	socklen_t len = sizeof(at);

	if (getsockname(fd, &at.any, &len))
		return 0;
	return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}
