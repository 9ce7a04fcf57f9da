/*
 * Carries bytes between a hello and its stream.
 *
 * Happy path: the bytes that the hello has to send are written; as many as its next frame lacks are
 * read and fed to it; and so on, until both ends have proved themselves or the stream is empty.
 *
 * How it fails: an error of the stream, its end, or an error of hello_feed. In the last case the
 * REJECT that the hello may have for the other end is sent as far as the socket takes it at once:
 * it is a courtesy, and the end of the connection says enough. Nothing is retried here.
 */
#include "hello_io.h"

#include <errno.h>
#include <poll.h>

static int hello_flush(struct hello *hello, struct stream *stream, struct ramp_err *err)
{
	const uint8_t *out;
	size_t len;
	int rc;

	while ((rc = hello_next(hello, &out, &len, err)) == 0 && len) {
		struct iovec iov = {(void *)(uintptr_t)out, len};
		ssize_t n = stream_writev(stream, &iov, 1);

		if (n == -EAGAIN)
			return -EAGAIN;
		if (n < 0)
			return ramp_err_sys(err, (int)-n, "sending the hello");
		hello_sent(hello, (size_t)n);
	}
	return rc;
}

static int hello_receive(struct hello *hello, struct stream *stream, struct ramp_err *err)
{
	uint8_t bytes[HELLO_FRAME_MAX_BYTES];
	ssize_t n = stream_read(stream, bytes, hello_needs(hello));
	size_t taken;
	int rc;

	if (n == -EAGAIN)
		return -EAGAIN;
	if (n < 0)
		return ramp_err_sys(err, (int)-n, "reading the hello");
	if (n == 0)
		return ramp_err_set(err, ECONNRESET, "it closed in the middle of the hello");
	rc = hello_feed(hello, bytes, (size_t)n, &taken, err);
	if (rc)
		hello_flush(hello, stream, NULL); /* a REJECT, perhaps */
	return rc;
}

int hello_run(struct hello *hello, struct stream *stream, struct ramp_err *err)
{
	int rc;

	for (;;) {
		switch (hello_state(hello)) {
		case HELLO_SENDING:
			rc = hello_flush(hello, stream, err);
			break;
		case HELLO_RECEIVING:
			rc = hello_receive(hello, stream, err);
			break;
		case HELLO_FAILED:
			return ramp_err_set(err, EPROTO, "the hello has failed");
		default:
			return 0;
		}
		if (rc)
			return rc;
	}
}

short hello_events(const struct hello *hello, const struct stream *stream)
{
	return stream_wants(stream, hello_state(hello) == HELLO_SENDING ? POLLOUT : POLLIN);
}
