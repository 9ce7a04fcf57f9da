/*
 * Listening sockets: one for each address that a name has.
 *
 * Thread-safety: the control loop's thread alone, or before the loop runs.
 */
#ifndef RAMP_LISTEN_H
#define RAMP_LISTEN_H

#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

#define LISTENERS_MAX 4

struct listeners {
	/* Set by the owner. */
	struct loop *loop;
	void (*accepted)(void *arg, int fd); /* takes a non-blocking socket */
	void (*closed)(void *arg); /* after listen_close, once for each of the n sockets */
	void *arg;

	struct {
		int fd;
		uv_poll_t poll;
	} at[LISTENERS_MAX];
	unsigned int n;
	uint16_t port; /* of the last socket (the address may say port 0) */
};

/* Listens at HOST:PORT or [V6]:PORT; resolving it waits. On failure, too, listen_close is due. */
int listen_open(struct listeners *listeners, const char *address, struct ramp_err *err);
/* Starts the sockets again that rest for want of descriptors or memory. */
void listen_tick(struct listeners *listeners);
/* Closes the sockets. The struct must stay until the last `closed`. */
void listen_close(struct listeners *listeners);

#endif
