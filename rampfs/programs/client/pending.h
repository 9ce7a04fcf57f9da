/*
 * Connections to the session socket that are not settled yet (pending.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_PENDING_H
#define RAMP_PROGRAMS_PENDING_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "base/throttle.h"
#include "conn.h"

struct pending {
	struct programs *programs;
	struct conns *conns;
	int fd; /* the session socket */
	int timer;
	uv_poll_t poll, rest;	  /* of fd, and of timer: when connections are accepted again */
	bool rests;		  /* they are not attended either, until then */
	uint64_t said_ms;	  /* when it was last said that there is no descriptor */
	struct throttle throttle; /* of what pending connections cost */
};

/* Opens the timer. The owner opens and closes both polls, and closes the timer. */
int pending_open(struct pending *pending, struct programs *programs, struct conns *conns, int fd,
		 struct ramp_err *err);
/* From now on they are accepted. */
void pending_start(struct pending *pending);
/* So much was done for it, here or elsewhere. */
void pending_cost(struct session_conn *conn, uint64_t us);
/* It is no mere noise: of what it has cost and will, one part in so many counts. */
void pending_counts(struct session_conn *conn, uint32_t parts);
/* Those that have had their time are closed, one after the other. */
void pending_expire(struct pending *pending);

#endif
