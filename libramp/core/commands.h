/*
 * Runs the daemon's commands (base/session.h) in this process.
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_COMMANDS_H
#define RAMP_COMMANDS_H

#include <stdbool.h>

#include "agent_session.h"

/* Returns 0 or a positive errno; *done gets the other fields of DONE. `fd` is the descriptor that
   came with the command, or -1; it stays the caller's. *hung_up: the session ended first. */
int command_run(struct agent_session *session, const struct session_msg *msg, int fd,
		struct session_msg *done, bool *hung_up);

#endif
