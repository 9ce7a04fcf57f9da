/*
 * The request of a move, as MIGRATE and CONNECT of the session have it.
 *
 * Any thread may call it; it shares nothing.
 */
#ifndef RAMP_API_MOVE_H
#define RAMP_API_MOVE_H

#include "base/session.h"
#include "include/ramp.h"

/* Fills in what `call` of the API asks for. Returns 0, or error_set's result where that makes no
   sense. */
int move_put_request(struct session_msg *msg, const char *call, uint64_t id, const char *node,
		     const struct ramp_move_options *options);

#endif
