/*
 * Peers, for transports: data connections that have proved themselves, this node's identity, and
 * where to dial another node.
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_PEERS_DATA_H
#define RAMP_PEERS_DATA_H

#include "base/ids.h"
#include "transport/endpoint.h"
#include "transport/hello.h"

struct peers;

/* Takes a data connection whose other end has proved to be `peer`; owns fd from then on. Control
   loop; must not call peers_on_data. */
typedef void peers_take_data(void *arg, int fd, const struct hello_peer *peer);

/* Sets the function that takes data connections; NULL: they are closed. Once this returns, the
   function that was set before runs no more. */
void peers_on_data(struct peers *peers, peers_take_data *take, void *arg);
/* Returns this node's identity, which lives as long as `peers`. */
const struct hello_self *peers_self(struct peers *peers);
/* Finds where to dial `node`. 0, or -EHOSTUNREACH: not known. */
int peers_address(struct peers *peers, ramp_node_t node, struct endpoint_address *out);
/* Says that `node` was not reached at `at`: the next caller of peers_address gets another one of
   its addresses. Of several connections that fail together, the first counts. */
void peers_address_failed(struct peers *peers, ramp_node_t node, const struct endpoint_address *at);

#endif
