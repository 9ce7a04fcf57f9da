/*
 * HELLO: how a session begins (session_start.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_SESSION_START_H
#define RAMP_PROGRAMS_SESSION_START_H

#include "base/session.h"
#include "client/broker.h"

struct session_conn;

/* Makes a connection that has said HELLO a session, or refuses it. */
void session_start(struct session_conn *conn, const struct session_msg *msg);
/* The broker's callbacks; their arg is the programs. */
extern const struct broker_ops session_broker_ops;

#endif
