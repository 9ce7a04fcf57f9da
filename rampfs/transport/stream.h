/*
 * A stream of bytes over a non-blocking socket. Its operations are the place where TLS fits under
 * the hello and the control connection; today there is one kind, the plain socket.
 *
 * After the hello the data path (tcp/, and join.c's caller) uses stream.fd itself: sendmsg,
 * recvmsg, SIOCOUTQ. A kind that changes bytes must have handed its keys to the kernel by then
 * (kTLS), so that it costs the data path nothing.
 *
 * A struct stream is a value: it may be copied to another place, and the copy is the one to use.
 * Thread-safety: one reader and one writer at a time, which may be two threads.
 */
#ifndef RAMP_STREAM_H
#define RAMP_STREAM_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct stream;

/* No slot is NULL. */
struct stream_ops {
	/* Reads at most `len` bytes. Returns how many, 0 at the end of the stream, -EAGAIN where
	   none has come, or another negative errno. */
	ssize_t (*read)(struct stream *stream, void *buf, size_t len);
	/* Writes as many of the bytes as fit, without SIGPIPE. Returns how many, -EAGAIN where none
	   fits, or another negative errno. */
	ssize_t (*writev)(struct stream *stream, const struct iovec *iov, size_t n);
	/* Returns which of POLLIN and POLLOUT to wait for on stream->fd before calling read
	   (`want` has POLLIN) or writev (POLLOUT) again. */
	short (*wants)(const struct stream *stream, short want);
	/* Closes the socket and frees `state`. */
	void (*close)(struct stream *stream);
};

struct stream {
	const struct stream_ops *ops;
	int fd;
	void *state; /* of the ops; NULL: a plain socket */
};

/* Returns a stream over a connected (or connecting) socket, which it owns from then on. */
struct stream stream_plain(int fd);
/* Returns the socket, and leaves the stream without one: see above on kTLS. */
int stream_take_fd(struct stream *stream);

static inline ssize_t stream_read(struct stream *stream, void *buf, size_t len)
{
	return stream->ops->read(stream, buf, len);
}

static inline ssize_t stream_writev(struct stream *stream, const struct iovec *iov, size_t n)
{
	return stream->ops->writev(stream, iov, n);
}

static inline short stream_wants(const struct stream *stream, short want)
{
	return stream->ops->wants(stream, want);
}

static inline void stream_close(struct stream *stream)
{
	stream->ops->close(stream);
}

#endif
