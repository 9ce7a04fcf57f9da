/*
 * What the files of the TCP transport share: the wire of a data connection, and who does what.
 *
 *   tcp.c        the operations of transport.h
 *   tcp_serve.c  the source's side: exports, and the serve thread that answers reads
 *   tcp_read.c   the target's side: connections that post reads and receive into place
 *
 * After its hello (hello.h) the target sends requests, and the source answers each with one or
 * more replies, in any order between requests, in rising offsets within one:
 *   request: u32 magic, u32 len, u64 tag, u64 segment, u64 k_epoch, u64 source_id, u64 ticket,
 *            u64 offset
 *   reply:   u32 magic, u32 errno, u64 tag, u8 kind, u8 more, u16 0, u32 0, u64 offset, u64 len,
 *            then len bytes where it is data
 */
#ifndef RAMP_TCP_IMPL_H
#define RAMP_TCP_IMPL_H

#include <stdatomic.h>

#include "transport/hello.h"
#include "transport/peers/peers_data.h"
#include "transport/transport.h"

#define TCP_REQUEST_MAGIC UINT32_C(0x51524d52) /* "RMRQ" */
#define TCP_REPLY_MAGIC	  UINT32_C(0x50524d52) /* "RMRP" */
#define TCP_REQUEST_BYTES 56
#define TCP_REPLY_BYTES	  40
#define TCP_PIECE_BYTES	  (64u << 10) /* of prefetch, before demand is looked at again */

struct tcp_serve;

struct tcp {
	struct tp tp;
	struct peers *peers;
	struct tcp_serve *serve;
	_Atomic uint64_t read_bytes, reads;
};

/* tcp_serve.c */
int tcp_serve_start(struct tcp_serve **out, struct ramp_err *err);
void tcp_serve_stop(struct tcp_serve *serve);
void tcp_serve_take(void *serve, int fd, const struct hello_peer *who); /* a peers_take_data */
int tcp_serve_export(struct tcp_serve *serve, const struct tp_key *key,
		     const struct tp_export_ops *ops, void *arg, struct ramp_err *err);
void tcp_serve_unexport(struct tcp_serve *serve, const struct tp_key *key);
void tcp_serve_stats(struct tcp_serve *serve, struct tp_stats *stats);

/* tcp_read.c: the operations of a struct tp_conn */
int tcp_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		enum tp_class class, struct tp_conn **out, struct ramp_err *err);
int tcp_fd(struct tp_conn *conn, uint32_t *events);
enum tp_state tcp_state(struct tp_conn *conn, struct ramp_err *err);
ramp_incarnation_t tcp_incarnation(struct tp_conn *conn);
int tcp_read(struct tp_conn *conn, const struct tp_read *read);
int tcp_reap(struct tp_conn *conn, struct tp_done *done, int max, size_t max_bytes);
void tcp_close(struct tp_conn *conn);

#endif
