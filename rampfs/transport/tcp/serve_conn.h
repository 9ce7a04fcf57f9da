/*
 * One data connection at the source: its requests, and the reply under way.
 *
 * Thread-safety: the serve thread alone (tcp_serve.c); the counters are read by any thread.
 */
#ifndef RAMP_TCP_SERVE_CONN_H
#define RAMP_TCP_SERVE_CONN_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "export.h"
#include "tcp_wire.h"
#include "transport/endpoint.h"
#include "transport/hello.h"

struct read_request {
	struct tp_key key;
	uint64_t tag, offset;
	uint32_t len;
};

struct serve_counters {
	_Atomic uint64_t bytes, reads, holes;
};

/* The line in which a connection waits for its turn. */
enum line { LINE_NONE, LINE_DEMAND, LINE_PREFETCH };

struct serve_conn {
	TAILQ_ENTRY(serve_conn) link; /* in its line */
	enum line line;
	int fd;
	unsigned int slot;
	struct hello_peer peer;
	struct exports *exports;
	struct serve_counters *counters;
	char endpoint[ENDPOINT_TEXT_BYTES];
	uint32_t events;	 /* that epoll watches */
	bool blocked;		 /* the socket is full */
	unsigned int refused;	 /* requests in a row */
	uint64_t rests_until_ms; /* 0: it does not rest */

	uint8_t in[16 * TCP_REQUEST_BYTES];
	size_t in_len;
	struct read_request queue[TP_QUEUE_MAX];
	unsigned int first, count;

	/* The reply under way. */
	uint8_t header[TCP_REPLY_BYTES];
	size_t header_left;
	struct export *export; /* of the data; NULL: no data is left to send */
	const uint8_t *data;
	size_t data_len, data_pos;
	uint64_t written; /* bytes of the stream so far */
	bool corked;
	bool hurries; /* something that it has asked for was not read ahead of a hand-over */
	bool weighs;  /* counted by cpu_weight_group */
};

/* Takes whole requests out of `in`, as many as the queue has room for. False: one makes no
   sense. */
bool serve_conn_requests(struct serve_conn *conn);
/* True: there is something to send. */
bool serve_conn_has_work(const struct serve_conn *conn);
/* Makes the next reply to the first request. The request shrinks by it; the last reply removes it.
   True: the reply is no error. */
bool serve_conn_next(struct serve_conn *conn);
/* Sends at most *budget bytes of the reply under way. 0; -EAGAIN: the socket is full; -ENOTCONN:
   the connection is to be dropped. */
int serve_conn_send(struct serve_conn *conn, size_t *budget);
/* Gives the data of the reply under way back to its export, sent or not. */
void serve_conn_finish(struct serve_conn *conn);
/* Makes the kernel hold short packets back, or send them. Of prefetch connections only. */
void serve_conn_cork(struct serve_conn *conn, bool corked);

#endif
