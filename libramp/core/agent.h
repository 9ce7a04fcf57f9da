/*
 * The agent: the shim's thread in a program, one for each daemon whose segments it maps.
 *
 * An agent carries out what its daemon commands over the session (base/session.h): map, protect,
 * drop, gone, back, swap. Program threads ask the daemon, never the agent (attach.h).
 */
#ifndef RAMP_AGENT_H
#define RAMP_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"
#include "sys.h"

#define AGENTS_MAX 8 /* daemons of which one process may map segments */

struct agent_error {
	int code; /* a positive errno */
	char text[SESSION_TEXT_MAX];
};

/* The agent of the daemon that listens there: its index, or -EUSERS (too many daemons). The
   thread is not started by this. Under the attach lock (attach.c), like all below. */
int agent_of(const char *socket_path);
const char *agent_socket(int index);
/* A negative errno of a connection: no daemon, or one that hung up. The next one may be asked. */
bool agent_daemon_away(int rc);
/* Returns when the agent is ready, at once where it is already; waits at most some 10 s. A negative
   errno and the reason where it can't be had (-EPIPE: the daemon is away); the next call tries
   again. */
int agent_start(int index, struct agent_error *err);
/* In a fork's child, which has none of its parent's threads. */
void agents_reset(void);

#endif
