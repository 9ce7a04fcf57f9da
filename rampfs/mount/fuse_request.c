/*
 * The FUSE request that this thread is serving.
 */
#include "fuse_request.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "base/kernel.h"
#include "base/log.h"
#include "keeper/protocol.h"

#define LOCKED_BYTES (REQUEST_BYTES + 65536)

static __thread struct fuse_in_header current;
static __thread bool current_kills_setid;
static __thread uint8_t *own_reply;

void fuse_request_begin(const struct fuse_in_header *header, bool kills_setid)
{
	current = *header;
	current_kills_setid = kills_setid;
}

uint64_t fuse_request_unique(void)
{
	return current.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
}

bool fuse_request_resent(void)
{
	return (current.unique & KERNEL_FUSE_UNIQUE_RESEND) != 0;
}

bool fuse_request_kills_setid(void)
{
	return current_kills_setid;
}

int fuse_request_write(const void *body, size_t len)
{
	struct fuse_out_header header = {.len = (uint32_t)(sizeof(header) + len),
					 .unique = current.unique};
	struct iovec iov[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)body, len}};

	return writev(KEEPER_FD_FUSE, iov, 2) < 0 ? -errno : 0;
}

int fuse_request_reply(fuse_req_t req, const void *body, size_t len)
{
	int rc = fuse_request_write(body, len);

	if (rc && rc != -ENOENT)
		log_warn("answering a request: %s", strerror(-rc));
	fuse_reply_none(req);
	return rc;
}

/* A request behind the first LOCKED_BYTES comes only on a connection that an older daemon opened
   with larger requests. That part gets its memory when it is used. */
void *locked_buffer(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t locked = len < LOCKED_BYTES ? len : LOCKED_BYTES;

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, locked, MADV_POPULATE_WRITE) || mlock(p, locked))
		log_debug("a buffer is not locked: %s", strerror(errno));
	return p;
}

uint8_t *reply_buffer(void)
{
	if (!own_reply)
		own_reply = locked_buffer(REPLY_BYTES);
	return own_reply;
}

void reply_buffer_free(void)
{
	if (own_reply)
		munmap(own_reply, REPLY_BYTES);
	own_reply = NULL;
}
