/*
 * Requests to move a segment, at the node that owns it and at the node that is asked.
 */
#ifndef RAMP_MOVE_REQUEST_H
#define RAMP_MOVE_REQUEST_H

#include "move_request_core.h"

/* Hooks of transfer_core.h. */
void move_request_begin(struct move_request *req);
void move_request_tick(struct move_request *req);
void move_requests_admit(struct transfers *t);

/* The segment's row has changed, or its move has ended: also a hook. */
void move_requests_look(struct transfers *t, ramp_segment_t id);
/* The client of a move in steps lets it go as far as `step`; SESSION_HOLD: it waits for hold_ms from now
   on (0: the usual time). */
void move_request_go_on(struct move_request *req, enum session_step step, uint32_t hold_ms);
/* Cancels: before GIVEN the request fails, after it the request ends as the move does. */
void move_request_cancel(struct move_request *req);

#endif
