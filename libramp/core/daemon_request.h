/*
 * Connections and requests to a daemon, which has to be root's.
 *
 * A process that listens at a session's socket commands the agent, and by that the program. The
 * socket's name comes from an ioctl on a file, and any user may mount a FUSE filesystem: so the
 * name counts only where root alone can have made it.
 */
#ifndef RAMP_DAEMON_REQUEST_H
#define RAMP_DAEMON_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"

/*
 * Returns a connected socket (close-on-exec, blocking; a send waits for at most patience_ms), or a
 * negative errno: as of session_connect; -ETIMEDOUT: the daemon accepts no connection; -EPERM: the
 * path is not directly below SESSION_DIR, or the listener is not root's. May be called wherever
 * session_connect may.
 */
int daemon_connect(const char *path, uint32_t patience_ms);
/* Whether this negative errno of a connection says that there is no daemon, or that it hung up. The
   next daemon may be asked. */
bool daemon_is_away(int rc);
/* Sends one request to the daemon that listens there and takes one answer, which replaces *msg.
   Returns 0 when a RESULT came (whatever it says); -EPIPE: the daemon is away; -ETIMEDOUT; or
   another negative errno. By the program's threads. */
int daemon_request(const char *path, struct session_msg *msg, uint64_t deadline_ms);

#endif
