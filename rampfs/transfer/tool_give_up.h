/*
 * Requests of programs to give up the pages of a segment that have not come (libramp's ramp_give_up_rest).
 */
#ifndef RAMP_TOOL_GIVE_UP_H
#define RAMP_TOOL_GIVE_UP_H

#include "transfer_core.h"

/* Answers the request when they are given up; `transfers` is a struct transfers. It is not cancelled. */
void tool_give_up_asked(void *transfers, struct tool_request *request,
			const struct tool_give_up *what);

#endif
