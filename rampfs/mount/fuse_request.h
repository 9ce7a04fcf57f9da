/*
 * The FUSE request that this thread is serving: what libfuse does not say of it, and the memory that
 * it is answered from.
 */
#ifndef RAMP_FUSE_REQUEST_H
#define RAMP_FUSE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libfuse.h"

struct fuse_in_header;

/* This thread serves the request with that header from now on. `kills_setid`: the kernel marked it
   as a write by somebody who may not keep set-user-ID and set-group-ID. */
void fuse_request_begin(const struct fuse_in_header *header, bool kills_setid);

/* Of the request that this thread is serving. */
uint64_t fuse_request_unique(void); /* without the mark of a resend */
bool fuse_request_resent(void);
/* A write by somebody who may not keep set-user-ID and set-group-ID. */
bool fuse_request_kills_setid(void);

/* Answers the request that this thread is serving with a body that libfuse does not know, and frees
   it. -ENOENT: nobody waits for it any more. */
int fuse_request_reply(fuse_req_t req, const void *body, size_t len);
/* The same without a libfuse request; the caller logs. */
int fuse_request_write(const void *body, size_t len);

/* The largest read or write that the kernel is told to send: each thread keeps that much memory. On
   a kernel without preemption nobody gets the processor while /dev/fuse copies one, whatever his
   priority: at 512 KiB, p99 of others' page faults was a third longer beside who fills the store,
   and writes in large pieces a sixth faster. */
#define REQUEST_BYTES (128u << 10)
#define REPLY_BYTES   (1u << 20)
/* This thread's reply buffer of REPLY_BYTES: present and locked, since a kill in the middle of the
   kernel's copy from a missing page would make the request EIO. NULL: no memory. */
uint8_t *reply_buffer(void);
/* As reply_buffer, of any length: for receiving. */
void *locked_buffer(size_t len);

void reply_buffer_free(void);

#endif
