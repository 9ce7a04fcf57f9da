/*
 * Requests of other nodes to move what this node owns.
 */
#ifndef RAMP_MOVE_REQUEST_PEER_H
#define RAMP_MOVE_REQUEST_PEER_H

#include "move_request_core.h"

/* That node has hung up: ends what is not under way yet. */
void move_requests_peer_down(struct transfers *t, ramp_node_t node);
void move_request_peer_listen(struct transfers *t);

#endif
