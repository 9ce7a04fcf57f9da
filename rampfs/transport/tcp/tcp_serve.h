/*
 * The source's side of the TCP transport: one serve thread. serves.h has all of them.
 *
 * Thread-safety: any thread but the serve thread.
 */
#ifndef RAMP_TCP_SERVE_H
#define RAMP_TCP_SERVE_H

#include "base/rate.h"
#include "export.h"
#include "transport/hello.h"
#include "transport/transport.h"

struct tcp_serve;

/* `nth`: from 0 on, for its name. `limit`: of what it sends over connections for prefetch; outlives it. */
int tcp_serve_start(struct tcp_serve **out, unsigned nth, struct rate *limit, struct ramp_err *err);
/* Ends the thread and its connections, and frees. */
void tcp_serve_stop(struct tcp_serve *serve);
void tcp_serve_take(struct tcp_serve *serve, int fd, const struct hello_peer *peer);
/* Returns how many connections for prefetch it has, or is about to have. */
unsigned tcp_serve_prefetches(struct tcp_serve *serve);
/* The operations of struct tp_ops. tcp_serve_unexport only begins, so that several serve threads do it
   at once: tcp_serve_unexport_wait, with the same `unexport`, returns when it is done. */
int tcp_serve_export(struct tcp_serve *serve, const struct tp_export *export, struct ramp_err *err);
void tcp_serve_unexport(struct tcp_serve *serve, const struct tp_key *key,
			struct unexport *unexport);
void tcp_serve_unexport_wait(struct tcp_serve *serve, struct unexport *unexport);
/* Adds to *stats. */
void tcp_serve_stats(struct tcp_serve *serve, struct tp_stats *stats);

#endif
