/*
 * Real-time priority for agents (agent_priority.c).
 */
#ifndef RAMP_PROGRAMS_AGENT_PRIORITY_H
#define RAMP_PROGRAMS_AGENT_PRIORITY_H

#include "programs/client/workers.h"

struct client;

/* Gives the client's agent real-time priority, and takes it from any other thread of that
   memory. */
void agent_raise(struct client *client);
/* Takes it away: the session is over. */
void agent_lower(struct client *client);
/* A worker's job, each second, with the programs as its argument: takes priority from agents that
   compute all the time, and ends short time slices (time_slice.c). */
worker_fn agents_watch;

#endif
