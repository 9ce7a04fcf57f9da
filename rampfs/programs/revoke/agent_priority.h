/*
 * Real-time priority for agents (agent_priority.c).
 */
#ifndef RAMP_PROGRAMS_AGENT_PRIORITY_H
#define RAMP_PROGRAMS_AGENT_PRIORITY_H

#include "programs/client/workers.h"

struct space;

/* Gives the client's agent real-time priority, and takes it from any other of that memory. */
void agent_raise(struct space *client);
/* Its session is over. */
void agent_lower(struct space *client);
/* A worker's job, each second, of the programs: who computes all the time loses it; and short
   slices end (time_slice.c). */
worker_fn agents_watch;

#endif
