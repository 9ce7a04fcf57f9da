/*
 * The source's side of the TCP transport: the serve thread.
 *
 * Thread-safety: any thread but the serve thread.
 */
#ifndef RAMP_TCP_SERVE_H
#define RAMP_TCP_SERVE_H

#include "transport/hello.h"
#include "transport/transport.h"

struct tcp_serve;

int tcp_serve_start(struct tcp_serve **out, struct ramp_err *err);
/* Ends the thread and its connections, and frees. */
void tcp_serve_stop(struct tcp_serve *serve);
/* Takes a data connection: a peers_take_data. `arg` is the struct tcp_serve. */
void tcp_serve_take(void *arg, int fd, const struct hello_peer *peer);
/* The operations of struct tp_ops. */
int tcp_serve_export(struct tcp_serve *serve, const struct tp_export *export, struct ramp_err *err);
void tcp_serve_unexport(struct tcp_serve *serve, const struct tp_key *key);
void tcp_serve_stats(struct tcp_serve *serve, struct tp_stats *stats);

#endif
