/*
 * Connections of the shim to a daemon, which is to be root's.
 *
 * Whoever listens at a session's socket commands the agent, and by that the program. What names the
 * socket is an ioctl on a file, and FUSE filesystems are anybody's: so it counts only where root
 * alone can have made it.
 */
#ifndef RAMP_LISTENER_H
#define RAMP_LISTENER_H

#include <stdint.h>

/*
 * A connected socket (close-on-exec, blocking; whoever has it sends for at most patience_ms), or a
 * negative errno: as of session_connect; -ETIMEDOUT: the daemon takes nobody; -EPERM: the path is
 * not directly below SESSION_DIR, or who listens there is not root. May be called wherever
 * session_connect may.
 */
int listener_connect(const char *path, uint32_t patience_ms);

#endif
