/*
 * HELLO: how a session begins (session_start.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_SESSION_START_H
#define RAMP_PROGRAMS_SESSION_START_H

#include "base/session.h"
#include "client/broker.h"

struct session_conn;

/* A connection has said HELLO: makes it a session, or refuses it. */
void session_start(struct session_conn *conn, const struct session_msg *msg);
/* What comes from the broker; its arg is the programs. */
extern const struct broker_ops session_broker_ops;

#endif
