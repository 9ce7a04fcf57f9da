/*
 * A watch, for the calls that answer what it tells.
 */
#ifndef RAMP_API_WATCH_H
#define RAMP_API_WATCH_H

#include "base/session.h"
#include "handle.h"

/* Returns the mount that it watches. */
struct ramp_cluster *watch_cluster(const struct ramp_watch *watch);
/* Sends a message on its connection. 0; -ESTALE: the daemon has ended since; or another negative
   errno. */
int watch_send(struct ramp_watch *watch, const struct session_msg *msg);

#endif
