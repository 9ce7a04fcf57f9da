/*
 * Requests that go up: those of a tool, and a program's PUNCH (tool_requests.c). programs.h has the
 * rest.
 */
#ifndef RAMP_PROGRAMS_TOOL_REQUESTS_H
#define RAMP_PROGRAMS_TOOL_REQUESTS_H

#include <sys/types.h>

#include "base/session.h"

struct client_request;
struct programs;
struct session_conn;

struct tool_request *tool_begin(struct programs *p, struct session_conn *conn,
				const struct session_msg *msg, uid_t uid);
void tool_gone(struct tool_request *tool); /* it has hung up: cancels, sends nothing more */
void tool_cancel(struct tool_request *tool);
void tool_go(struct tool_request *tool, const struct session_msg *go);
/* On a worker. Takes the request over. */
void punch_begin(struct client_request *request);

#endif
