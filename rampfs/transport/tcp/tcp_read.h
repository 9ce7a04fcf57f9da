/*
 * The target's side of the TCP transport: the operations of struct tp_ops on a struct tp_conn.
 *
 * Thread-safety: a connection belongs to the thread that opened it.
 */
#ifndef RAMP_TCP_READ_H
#define RAMP_TCP_READ_H

#include "transport/transport.h"

int tcp_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		enum tp_class class, struct tp_conn **out, struct ramp_err *err);
int tcp_fd(struct tp_conn *conn, uint32_t *events);
enum tp_state tcp_state(struct tp_conn *conn, struct ramp_err *err);
ramp_incarnation_t tcp_incarnation(struct tp_conn *conn);
void tcp_will_read(struct tp_conn *conn, const struct tp_key *key);
size_t tcp_span(struct tp_conn *conn, const struct tp_key *key, uint64_t offset, size_t len);
void tcp_arrived(struct tp_conn *conn, const struct tp_key *key, uint64_t upto);
bool tcp_lands(struct tp_conn *conn, const struct tp_key *key, uint64_t offset);
int tcp_read(struct tp_conn *conn, const struct tp_read *read);
int tcp_reap(struct tp_conn *conn, struct tp_done *done, int max, size_t max_bytes);
void tcp_close(struct tp_conn *conn);

#endif
