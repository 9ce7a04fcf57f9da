/*
 * Taking over a living connection.
 */
#ifndef RAMP_FUSE_TAKEOVER_H
#define RAMP_FUSE_TAKEOVER_H

#include "mount_ref.h"

/* A buffer for any request that the kernel may send. */
#define RECEIVE_BYTES ((1u << 20) + 65536)

/*
 * Feeds libfuse the INIT that was saved, has the kernel send again what the dead daemon had read
 * and not answered, and serves that. On a new connection there is none, and INIT comes as to any
 * server. `buf` of RECEIVE_BYTES. Before the pool starts.
 */
int fuse_takeover(struct mount *m, uint8_t *buf, struct ramp_err *err);

#endif
