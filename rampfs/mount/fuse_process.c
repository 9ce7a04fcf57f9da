/*
 * One request: from /dev/fuse's bytes to libfuse, and INIT, which outlives the daemon.
 */
#include "fuse_process.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "fuse_request.h"
#include "keeper/protocol.h"
#include "ops.h"

static __thread const struct fuse_buf *current_buf; /* while INIT is being processed */
static __thread bool swallow;

/* ---- callbacks of libfuse ------------------------------------------------------------------- */

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len);
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct mount *m = userdata;
	ssize_t len = 0;

	for (int i = 0; i < count; i++)
		len += (ssize_t)iov[i].iov_len;
	/* An INIT that fails with ENOMEM would break the mount for good: libfuse would answer every
	   request EIO, or the kernel would accept no request any more. The next daemon gets the
	   INIT again. */
	if ((swallow || current_buf) && count == 1 &&
	    ((const struct fuse_out_header *)iov[0].iov_base)->error == -ENOMEM)
		abort();
	if (swallow)
		return len;
	if (current_buf && count == 2) {
		handover_patch_reply(current_buf->mem, current_buf->size, iov[1].iov_base,
				     iov[1].iov_len);
		handover_save_reply(m->handover, iov[1].iov_base, iov[1].iov_len);
	}
	return writev(fd, iov, count);
}

/* ---- one request ---------------------------------------------------------------------------- */

/* Answers an INIT that came again: the answer was saved, and maybe not written. */
static void answer_init_again(struct mount *m)
{
	size_t len;
	const void *reply = handover_reply(m->handover, &len);
	int rc = fuse_request_write(reply, len);

	if (rc)
		log_warn("answering INIT again: %s", strerror(-rc));
}

static void process_init(struct mount *m, const struct fuse_buf *buf)
{
	size_t len;

	if (handover_reply(m->handover, &len)) {
		answer_init_again(m);
		return;
	}
	if (handover_save_init(m->handover, buf->mem, buf->size))
		log_warn("INIT has %zu bytes: the next daemon can't take this mount over",
			 buf->size);
	current_buf = buf;
	fuse_session_process_buf(m->session, buf);
	current_buf = NULL;
}

/* Reads a mark that libfuse does not pass on: the kernel marks a direct write that has to clear
   set-user-ID and set-group-ID, and leaves the clearing to us. */
static bool kills_setid(const struct fuse_in_header *header, const struct fuse_buf *buf)
{
	struct fuse_write_in in;

	if (header->opcode != FUSE_WRITE || buf->size < sizeof(*header) + sizeof(in))
		return false;
	memcpy(&in, (const uint8_t *)buf->mem + sizeof(*header), sizeof(in));
	return in.write_flags & FUSE_WRITE_KILL_SUIDGID;
}

void fuse_process(struct mount *m, const struct fuse_buf *buf)
{
	struct fuse_in_header header;

	if (buf->size < sizeof(header))
		return;
	memcpy(&header, buf->mem, sizeof(header));
	fuse_request_begin(&header, kills_setid(&header, buf));
	atomic_fetch_add_explicit(&m->requests, 1, memory_order_relaxed);
	if (fuse_request_resent())
		atomic_fetch_add_explicit(&m->resent, 1, memory_order_relaxed);
	if (header.opcode == FUSE_INIT)
		process_init(m, buf);
	else
		fuse_session_process_buf(m->session, buf);
}

int fuse_process_saved_init(struct mount *m, struct ramp_err *err)
{
	uint8_t bytes[HANDOVER_INIT_BYTES];
	struct fuse_buf buf = {.mem = bytes};
	size_t len;
	const void *init = handover_init(m->handover, &len);
	struct fuse_in_header *header = (struct fuse_in_header *)bytes;

	memcpy(bytes, init, len);
	header->unique &= ~KERNEL_FUSE_UNIQUE_RESEND;
	buf.size = len;
	fuse_request_begin(header, false);
	swallow = true;
	fuse_session_process_buf(m->session, &buf);
	swallow = false;
	if (fuse_session_exited(m->session))
		return ramp_err_set(err, EPROTO, "libfuse does not accept the saved INIT");
	return 0;
}

int fuse_process_open(struct mount *m, struct ramp_err *err)
{
	static const struct fuse_custom_io io = {.read = io_read, .writev = io_writev};
	char *argv[] = {(char *)(uintptr_t) "rampfs", (char *)(uintptr_t) "-d", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(m->config.debug ? 2 : 1, argv);
	int rc;

	m->session = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), m);
	fuse_opt_free_args(&args);
	if (!m->session)
		return ramp_err_set(err, EIO, "libfuse makes no session");
	rc = fuse_session_custom_io(m->session, &io, KEEPER_FD_FUSE);
	if (rc)
		return ramp_err_set(err, rc < 0 ? -rc : rc,
				    "libfuse does not accept our read and write");
	return 0;
}
