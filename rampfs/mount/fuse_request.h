/*
 * The FUSE request that this thread is serving: facts that libfuse does not pass on, and the buffer
 * for its reply.
 */
#ifndef RAMP_FUSE_REQUEST_H
#define RAMP_FUSE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libfuse.h"

struct fuse_in_header;

/* Makes that the request that this thread serves. `kills_setid`: the kernel marked it as a write by
   a caller that may not keep set-user-ID and set-group-ID. */
void fuse_request_begin(const struct fuse_in_header *header, bool kills_setid);

/* Return facts of the request that this thread is serving. */
uint64_t fuse_request_unique(void); /* without the mark of a resend */
bool fuse_request_resent(void);
/* True: a write by a caller that may not keep set-user-ID and set-group-ID. */
bool fuse_request_kills_setid(void);

/* Answers the request that this thread is serving with a body that libfuse does not know, and frees
   it. -ENOENT: its caller waits no more. */
int fuse_request_reply(fuse_req_t req, const void *body, size_t len);
/* The same without a libfuse request. The caller logs errors. */
int fuse_request_write(const void *body, size_t len);

/* The largest read or write that the kernel is told to send; each thread keeps that much memory. On
   a kernel without preemption no other thread gets the processor while /dev/fuse copies one,
   whatever its priority. Measured at 512 KiB: p99 of other programs' page faults was a third longer
   beside a program that fills the store, and writes in large pieces were a sixth faster. */
#define REQUEST_BYTES (128u << 10)
#define REPLY_BYTES   (1u << 20)
/* Returns this thread's reply buffer of REPLY_BYTES. It is present and locked, since a kill in the
   middle of the kernel's copy from a missing page would make the request EIO. NULL: no memory. */
uint8_t *reply_buffer(void);
/* Makes such a buffer of any length, for receiving. */
void *locked_buffer(size_t len);

void reply_buffer_free(void);

#endif
