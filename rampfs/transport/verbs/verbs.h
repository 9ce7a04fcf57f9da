/*
 * The verbs transport: RDMA READs beside TCP. It wraps the TCP transport: reads that are covered by
 * regions which the source has told are READs, all others go over TCP, and so does all that concerns
 * a peer without an adapter.
 *
 *   message.c    its messages over the control connection
 *   proof.c      the proof of an RDMA connection
 *   keys.c       regions that a connection may read
 *   addresses.c  addresses that are never used twice
 *   device.c     this node's device and its protection domains
 *   accept.c     the source's side of connections
 *   regions.c    the source's registered memory
 *   queue.c      the reader's queue pair
 *   core.c       what all the following share
 *   queue_dial.c       a thread that connects a queue pair
 *   verbs_conn.c       the reader's connection: TCP and a queue pair
 *   verbs.c      the operations of transport.h, messages, the thread that looks after the device
 */
#ifndef RAMP_VERBS_H
#define RAMP_VERBS_H

#include "transport/transport.h"

/*
 * Wraps `tcp`, which it ends when it ends. `address` is this node's HOST:PORT; blocks to resolve it.
 * Where no device has it: -ENODEV if `must`, else the device is looked for every 10 s. On failure
 * `tcp` stays the caller's.
 */
int verbs_open(struct peers *peers, struct tp *tcp, const char *address, bool must, struct tp **out,
	       struct ramp_err *err);

#endif
