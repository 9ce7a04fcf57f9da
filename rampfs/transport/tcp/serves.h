/*
 * The serve threads of a source: one, or as many as its `streams` allows.
 *
 * Thread-safety: any thread but a serve thread.
 */
#ifndef RAMP_TCP_SERVES_H
#define RAMP_TCP_SERVES_H

#include "transport/hello.h"
#include "transport/transport.h"

struct tcp_serves;

/* `wanted`, limit_bytes_s: of struct transport_config. */
int tcp_serves_start(struct tcp_serves **out, unsigned wanted, uint64_t limit_bytes_s,
		     struct ramp_err *err);
/* Ends the threads and their connections, and frees. */
void tcp_serves_stop(struct tcp_serves *serves);
/* Takes a data connection: a peers_take_data. `arg` is the struct tcp_serves. */
void tcp_serves_take(void *arg, int fd, const struct hello_peer *peer);
/* The operations of struct tp_ops. */
int tcp_serves_export(struct tcp_serves *serves, const struct tp_export *export,
		      struct ramp_err *err);
void tcp_serves_unexport(struct tcp_serves *serves, const struct tp_key *key);
/* Adds to *stats. */
void tcp_serves_stats(struct tcp_serves *serves, struct tp_stats *stats);

#endif
