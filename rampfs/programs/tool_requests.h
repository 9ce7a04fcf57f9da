/*
 * Requests that go up: a tool's and a program's PUNCH (tool_requests.c). The rest is in programs.h.
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
void tool_gone(struct tool_request *tool); /* hung up: cancels, never sends any more */
void tool_cancel(struct tool_request *tool);
/* On a worker; the request is its own. */
void punch_begin(struct client_request *request);

#endif
