/*
 * Taking over a living connection.
 */
#ifndef RAMP_FUSE_TAKEOVER_H
#define RAMP_FUSE_TAKEOVER_H

#include "mount_ref.h"

/* A buffer for any request that the kernel may send. */
#define RECEIVE_BYTES ((1u << 20) + 65536)

/*
 * Feeds libfuse the saved INIT, has the kernel send again the requests that the dead daemon had
 * read and not answered, and serves them. On a new connection no INIT is saved: it comes as to any
 * server. `buf` has RECEIVE_BYTES. Call it before the pool starts.
 */
int fuse_takeover(struct mount *m, uint8_t *buf, struct ramp_err *err);

#endif
