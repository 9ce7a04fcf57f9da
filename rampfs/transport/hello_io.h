/*
 * Runs a hello over a stream, without blocking.
 *
 * Thread-safety: the caller's.
 */
#ifndef RAMP_HELLO_IO_H
#define RAMP_HELLO_IO_H

#include "hello.h"
#include "stream.h"

/*
 * Sends and receives as far as the stream lets it, and reads no byte behind the hello. 0: both
 * ends have proved themselves; -EAGAIN: call again when the socket shows hello_events; else the
 * hello is over, with the error of hello_feed or of the stream. -ECONNRESET: the other end
 * closed in the middle of it. `err` may be NULL.
 */
int hello_run(struct hello *hello, struct stream *stream, struct ramp_err *err);
/* Returns the events to wait for after -EAGAIN: POLLIN, POLLOUT. */
short hello_events(const struct hello *hello, const struct stream *stream);

#endif
