/*
 * The TCP transport.
 *
 *   export.c     the exports of a source
 *   serve_conn.c one data connection at the source
 *   tcp_serve.c  the source's side: a serve thread that answers reads
 *   serves.c     all serve threads
 *   tcp_read.c   the target's side: connections that post reads and receive into place
 *   tcp.c        the operations of transport.h over these
 */
#ifndef RAMP_TCP_H
#define RAMP_TCP_H

#include <stdatomic.h>

#include "transport/transport.h"

struct tcp_serves;

struct tcp {
	struct tp tp;
	struct peers *peers;
	struct tcp_serves *serves;
	_Atomic uint64_t read_bytes, reads;
};

/* Starts the transport with its serve threads, of which there are `streams` (0: its own choice); takes
   data connections from `peers`, which outlives it. All that it sends over connections for prefetch is
   limit_bytes_s a second at most (0: no limit). */
int tcp_open(struct peers *peers, unsigned streams, uint64_t limit_bytes_s, struct tp **out,
	     struct ramp_err *err);

#endif
