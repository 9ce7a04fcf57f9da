/*
 * The stream of a plain socket: each operation is one system call, repeated after EINTR.
 */
#include "stream.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t plain_result(ssize_t n)
{
	if (n >= 0)
		return n;
	return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static ssize_t plain_read(struct stream *stream, void *buf, size_t len)
{
	ssize_t n;

	do
		n = recv(stream->fd, buf, len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return plain_result(n);
}

static ssize_t plain_writev(struct stream *stream, const struct iovec *iov, size_t n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n};
	ssize_t sent;

	do
		sent = sendmsg(stream->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return plain_result(sent);
}

static short plain_wants(const struct stream *stream, short want)
{
	(void)stream;
	return want;
}

static void plain_close(struct stream *stream)
{
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}

static const struct stream_ops plain_ops = {
	.read = plain_read,
	.writev = plain_writev,
	.wants = plain_wants,
	.close = plain_close,
};

struct stream stream_plain(int fd)
{
	return (struct stream){.ops = &plain_ops, .fd = fd};
}

int stream_take_fd(struct stream *stream)
{
	int fd = stream->fd;

	stream->fd = -1;
	return fd;
}
