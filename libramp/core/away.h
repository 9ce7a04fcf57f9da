/*
 * Page tables that a revoke moves away from their mapping, and back (RESERVE, MOVE and RETURN of
 * base/session.h).
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_AWAY_H
#define RAMP_AWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "agent_session.h"

/* Each returns 0 or a positive errno. */
int away_reserve(struct agent_session *session, const struct session_msg *msg);
int away_return(struct agent_session *session, const struct session_msg *msg);

/* Moves what was reserved in the message's ranges. Under table.lock. */
void away_move(struct agent_session *session, const struct session_msg *msg);
/* Finds the first part of [at, end) that was not moved. False: all of it was. */
bool away_gap(const struct agent_session *session, uint64_t segment, uint64_t at, uint64_t end,
	      uint64_t *from, uint64_t *to);

/* Whether page tables are away. */
bool away_any(const struct agent_session *session);
/* Lets go of what is away from a place where the program has nothing of the segment any more. After
   each command. */
void away_settle(struct agent_session *session);
/* Unmaps what was let go, until a message waits at the session's socket. */
void away_unmap(struct agent_session *session);
/* The session has hung up: gives places up that were only reserved, and keeps what is away. */
void away_hang_up(struct agent_session *session);
/* The daemon does not know MOVE: lets go of all that is away. */
void away_let_go(struct agent_session *session);

#endif
