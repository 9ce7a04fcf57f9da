/*
 * The agent: our thread in a program, one for each daemon from which the process maps segments.
 *
 * An agent carries out its daemon's commands, which come over the session (base/session.h): map,
 * protect, drop, gone, back, swap. Program threads ask the daemon (daemon_request.h), never the
 * agent.
 */
#ifndef RAMP_AGENT_H
#define RAMP_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"
#include "lock.h"

#define AGENTS_MAX 8 /* daemons of which one process may map segments */

/* Serialises attaches, starts of agents and forks. May be held while a daemon answers; no agent
   ever takes it. Taken before table.lock. */
extern struct futex_lock attach_lock;

struct agent_error {
	int code; /* a positive errno */
	char text[SESSION_TEXT_MAX];
};

/* ---- under attach_lock ---- */

/* Returns the index of the agent of the daemon that listens there, or -EUSERS (too many daemons).
   Does not start its thread. */
int agent_of(const char *socket_path);
const char *agent_socket(int index);
/* Returns 0 when the agent is ready, at once where it is already; waits some 10 s at most. Returns
   a negative errno and the reason where the agent can't be had (-EPIPE: the daemon is away); the
   next call tries again. */
int agent_start(int index, struct agent_error *err);
/* In a fork's child, which has none of its parent's threads. */
void agents_reset(void);

/* ---- under table.lock ---- */

/* Whether that daemon is to be asked (GROW) before one of its mappings grows: *session says in which session,
   for agent_note_grown. */
bool agent_asks_growth(int index, uint32_t *session);
/* It was asked, in that session, and agrees. */
void agent_note_grown(int index, uint32_t session);

#endif
