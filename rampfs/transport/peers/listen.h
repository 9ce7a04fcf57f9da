/*
 * Listening sockets: one for each address that a name has.
 *
 *   CLOSED --listen_open--> OPEN
 *   CLOSED --listen_later--> DUE --on_resolved--> OPEN
 *                            ^  |
 *                            +--+ it failed: again after LISTEN_RETRY_MS
 *
 * Thread-safety: the control loop's thread alone, or before the loop runs.
 */
#ifndef RAMP_LISTEN_H
#define RAMP_LISTEN_H

#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"

#define LISTENERS_MAX	4
#define LISTEN_RETRY_MS 1000

struct listen_resolve;

struct listeners {
	/* Set by the owner. */
	struct loop *loop;
	void (*accepted)(void *arg, int fd); /* takes a non-blocking socket */
	/* The struct is pointed to once more (each socket, and listen_later's name that is being
	   resolved), or once less: it must stay until each `opened` has its `closed`. */
	void (*opened)(void *arg);
	void (*closed)(void *arg);
	void *arg;

	struct {
		int fd;
		uv_poll_t poll;
	} at[LISTENERS_MAX];
	unsigned int n;
	uint16_t port; /* of the last socket (the address may say port 0) */

	/* listen_later's. */
	char address[RAMP_ADDRESS_MAX + 1]; /* "": nothing is due */
	struct listen_resolve *resolve;	    /* under way; NULL: none */
	uint64_t retry_at_ms;
	char failure[RAMP_ERR_TEXT_BYTES]; /* the last one that was logged */
};

/* Listens at HOST:PORT or [V6]:PORT; resolving it waits. On failure, too, listen_close is due. */
int listen_open(struct listeners *listeners, const char *address, struct ramp_err *err);
/* The same, and never waits or fails: a name is resolved by a worker, and a failure is logged once
   and tried again. */
void listen_later(struct listeners *listeners, const char *address);
/* Starts the sockets again that rest for want of descriptors or memory, and listen_later's tries. */
void listen_tick(struct listeners *listeners);
/* Closes the sockets, and ends listen_later's tries. */
void listen_close(struct listeners *listeners);

#endif
