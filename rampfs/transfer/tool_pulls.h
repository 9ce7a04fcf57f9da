/*
 * Requests of programs for pages that have not come yet (libramp's ramp_pull).
 */
#ifndef RAMP_TOOL_PULLS_H
#define RAMP_TOOL_PULLS_H

#include "transfer_core.h"

/* Answers the request when the range is here; `transfers` is a struct transfers. */
void tool_pull_asked(void *transfers, struct tool_request *request, const struct tool_pull *what);
/* Gives it up, if it is one of these. */
void tool_pull_cancel(struct transfers *t, struct tool_request *request);
/* Gives all up: programs ask the next daemon. */
void tool_pulls_close(struct transfers *t);

#endif
