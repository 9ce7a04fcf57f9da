/*
 * SWAP: puts a scratch mapping (replace.h) in its place: over the empty file, or (SESSION_REPLACE) over the
 * mapping with less access.
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_SWAP_H
#define RAMP_SWAP_H

#include <stdbool.h>

#include "agent_session.h"

/* Returns 0 or a positive errno. *hung_up: the session ended first, and the swap is still under
   way. */
int swap_run(struct agent_session *session, const struct session_msg *msg, bool *hung_up);
/* Waits for a swap that is under way. Returns false where the session hung up first. */
bool swap_finish(struct agent_session *session);

#endif
