/*
 * Resolving the address of a peer, and dialing it. Control loop's thread alone.
 */
#ifndef RAMP_DIAL_H
#define RAMP_DIAL_H

#include "base/err.h"

struct peer;

/* Resolves and dials, where nothing of that is under way and, for a peer that this node dials, no
   channel is up. */
void dial_start(struct peer *peer);
/* Stops; forgets the back-off. */
void dial_stop(struct peer *peer);
/* Says that the handshake has become a channel. */
void dial_done(struct peer *peer);
/* Says that the handshake has failed: tries the next address, or waits. */
void dial_failed(struct peer *peer, const struct ramp_err *err);
/* Makes the address that fd is connected with the one to give to transports. */
void dial_prefer(struct peer *peer, int fd);

#endif
