/*
 * Endpoints of TCP connections: addresses as text, sockets with the options that every connection
 * between nodes has, listening sockets.
 *
 * Thread-safety: any thread; nothing is kept here.
 */
#ifndef RAMP_ENDPOINT_H
#define RAMP_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

#define ENDPOINT_TEXT_BYTES 80

struct addrinfo;

struct endpoint_address {
	struct sockaddr_storage sa;
	socklen_t len;
};

/* Splits HOST:PORT or [V6]:PORT; nothing is resolved. -EINVAL. */
int endpoint_split(const char *address, char *host, size_t host_cap, char *port, size_t port_cap,
		   struct ramp_err *err);
/* Writes the numeric HOST:PORT of an address, or "an unknown address". */
void endpoint_address_text(const struct endpoint_address *address, char text[ENDPOINT_TEXT_BYTES]);
/* Writes the same of the other end of a connected socket. */
void endpoint_text(int fd, char text[ENDPOINT_TEXT_BYTES]);

/* Sets a connection's options: no delay, and an end when the other machine is gone. */
void endpoint_tune(int fd);
/* Returns a non-blocking socket that is connecting (writable: look at SO_ERROR), or -errno. */
int endpoint_connect(const struct endpoint_address *to, struct ramp_err *err);
/* Returns a non-blocking socket that listens at `at`, or -errno. */
int endpoint_listen(const struct addrinfo *at);
/* Returns the port that a socket is bound to; 0: unknown. */
uint16_t endpoint_port(int fd);

#endif
