/*
 * Subscribers: programs that hear when segments come to this node, are whole, and leave it.
 *
 * Control thread.
 */
#ifndef RAMP_SUBSCRIBERS_H
#define RAMP_SUBSCRIBERS_H

#include "base/session.h"
#include "programs.h"

struct session_conn;
struct subscriber;

/*
 * Begins a subscription for the connection, as its LISTEN says; the connection's user has been
 * charged for it. Answers with the first EVENT. NULL: no memory, or -EBUSY has been answered and
 * the connection is to be closed.
 */
struct subscriber *subscriber_begin(struct programs *programs, struct session_conn *conn,
				    const struct session_msg *listen);
/* The program has let go of a segment. */
void subscriber_answered(struct subscriber *subscriber, ramp_segment_t id);
/* Ends it: its connection has hung up. */
void subscriber_end(struct subscriber *subscriber);

#endif
