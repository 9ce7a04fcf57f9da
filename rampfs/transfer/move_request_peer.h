/*
 * Requests of other nodes to move the segments that this node owns.
 */
#ifndef RAMP_MOVE_REQUEST_PEER_H
#define RAMP_MOVE_REQUEST_PEER_H

#include "move_request_core.h"

/* That node has hung up: ends its requests that have no move yet. */
void move_requests_peer_down(struct transfers *t, ramp_node_t node);
void move_request_peer_listen(struct transfers *t);

#endif
