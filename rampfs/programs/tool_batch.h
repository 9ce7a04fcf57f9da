/*
 * A tool's request of many moves at once (SESSION BATCH). Control thread.
 */
#ifndef RAMP_PROGRAMS_TOOL_BATCH_H
#define RAMP_PROGRAMS_TOOL_BATCH_H

#include "base/session.h"

struct session_conn;
struct tool_batch;

/* Begins with the segments of the first message. NULL: no memory. */
struct tool_batch *tool_batch_begin(struct session_conn *conn, const struct session_msg *msg);
/* Adds those of another one. False: none was to follow. */
bool tool_batch_add(struct tool_batch *batch, const struct session_msg *msg);
void tool_batch_cancel(struct tool_batch *batch);
/* The tool has hung up: cancels, says nothing more. */
void tool_batch_gone(struct tool_batch *batch);

#endif
