/*
 * Requests to the node that owns a segment.
 */
#ifndef RAMP_MOVE_REQUEST_REMOTE_H
#define RAMP_MOVE_REQUEST_REMOTE_H

#include "move_request_core.h"

#define REMOTE_AGAIN_MS 1000u /* MIGRATE and CANCEL are repeated */

/* The row is another node's: asks it, or answers why not. */
void move_request_ask_owner(struct move_request *req, const struct segment_row *row);
/* REMOTE: repeats MIGRATE, and CANCEL where it is cancelled. */
void move_request_send(struct move_request *req);
void move_request_send_cancel(struct move_request *req);
/* It is cancelled, and the node that could say more is down: answers that. */
void move_request_cancelled_unseen(struct move_request *req);
/* SEEING: answers where our tables have come as far as the answerer's. */
void move_request_seeing_look(struct move_request *req);
/* That node is connected again: requests in REMOTE are repeated to it at once. */
void move_requests_peer_up(struct transfers *t, ramp_node_t node);
void move_request_remote_listen(struct transfers *t);

#endif
