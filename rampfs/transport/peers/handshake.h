/*
 * Connections in their hello, dialed or accepted. Control loop's thread alone.
 */
#ifndef RAMP_HANDSHAKE_H
#define RAMP_HANDSHAKE_H

#include "base/err.h"
#include "base/ids.h"

struct endpoint_address;
struct handshake;
struct peer;
struct peers;

/* Connects with the peer; ends in peer_events.connected or .dial_failed. A negative errno: neither
   is called. Sets peer->handshake. */
int handshake_dial(struct peer *peer, const struct endpoint_address *to, struct ramp_err *err);
/* Takes an accepted socket (`arg` is the struct peers): an accepted() of listen.h. */
void handshake_accepted(void *arg, int fd);
/* Closes the connection; no callback. */
void handshake_drop(struct handshake *handshake);
/* Drops accepted connections that have proved to be `node`. */
void handshakes_forget(struct peers *peers, ramp_node_t node);
/* Ends handshakes whose time is over. */
void handshakes_tick(struct peers *peers);
/* Drops all. */
void handshakes_close(struct peers *peers);

#endif
