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
	int old; /* one whose name is gone, until the connections that wait there are accepted; or -1 */
	unsigned old_seconds;
	int timer;
	/* Of fd; of timer: connections are accepted again when it fires. */
	uv_poll_t poll, rest;
	bool rests;		  /* nor are events of pending ones handled until then */
	uint64_t said_ms;	  /* when the log last said that there is no descriptor */
	struct throttle throttle; /* of the time that pending connections cost */
};

/* Opens the timer. The owner opens and closes both polls, and closes the timer. */
int pending_open(struct pending *pending, struct programs *programs, struct conns *conns, int fd,
		 struct ramp_err *err);
/* Begins to accept connections. */
void pending_start(struct pending *pending);
/* Takes another listening socket in the place of fd, under the same number; connections that wait at
   the old one are accepted, too. Closes `with` in any case. 0 or -errno: nothing has changed. */
int pending_replace(struct pending *pending, int with);
void pending_close_old(struct pending *pending);
/* Counts `us` of processor time that were spent on it, here or elsewhere. */
void pending_cost(struct session_conn *conn, uint64_t us);
/* The connection is of use: of the time that it has cost and will cost, one part in `parts`
   counts. */
void pending_counts(struct session_conn *conn, uint32_t parts);
/* Closes those that have sent nothing for FIRST_MESSAGE_MS, one after the other, and an old socket at
   which no connection waits any more. Once a second. */
void pending_expire(struct pending *pending);

#endif
