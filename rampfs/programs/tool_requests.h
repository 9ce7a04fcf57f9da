/*
 * Requests that go up: those of a tool, and a program's PUNCH (tool_requests.c). programs.h has the
 * rest.
 */
#ifndef RAMP_PROGRAMS_TOOL_REQUESTS_H
#define RAMP_PROGRAMS_TOOL_REQUESTS_H

#include <sys/types.h>

#include "base/session.h"
#include "programs.h"

struct client_request;
struct session_conn;

/* Is told the answer of a request once. Control thread. */
typedef void tool_answered(void *arg, int result, const char *text);

/* One of a batch (tool_batch.c), which is the connection's; `answered` ends the pointer's use. NULL: no
   memory. */
struct tool_request *tool_begin_of(struct programs *p, const struct tool_migrate *what,
				   tool_answered *answered, void *arg);
struct tool_request *tool_begin(struct programs *p, struct session_conn *conn,
				const struct session_msg *msg, uid_t uid);
void tool_gone(struct tool_request *tool); /* it has hung up: cancels, sends nothing more */
void tool_cancel(struct tool_request *tool);
void tool_go(struct tool_request *tool, const struct session_msg *go);
/* On a worker. Takes the request over. */
void punch_begin(struct client_request *request);

#endif
