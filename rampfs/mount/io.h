/*
 * Driver of the operations on a segment's bytes (ops_io.c).
 */
#ifndef RAMP_IO_H
#define RAMP_IO_H

#include "offload.h"
#include "request.h"

struct io;

/* A kind of operation: one line of the table in ops_io.c. */
struct io_op {
	/* Carries it out inside the segment's gate. Returns 0 (io->result is set), -EAGAIN where it
	   has to wait for pages, or -errno. `how`: if it locks, an enum offload_how. */
	int (*work)(struct io *io, struct seg *seg, int how);
	/* Replies to its FUSE request after success. */
	void (*reply)(struct io *io);
	/* Returns true if an earlier daemon has carried it out; io->result is its answer then. */
	bool (*was_done)(struct io *io);
	/* Releases what the operation holds beyond the reply, once it has been answered. */
	void (*over)(struct io *io);
	bool locks;   /* takes the lock of the segment's file (offload.h) */
	bool stores;  /* changes bytes: waits while the segment is closed to stores */
	bool is_long; /* takes as long as there are pages */
};

/* One operation. */
struct io {
	struct parked_request r; /* first */
	const struct io_op *op;
	ramp_segment_t id;
	uint64_t offset, len;
	int mode;			/* fallocate's, or lseek's whence */
	const uint8_t *data;		/* of a write: libfuse's, or `copy` */
	uint8_t *copy;			/* our own, once parked */
	struct handover_append *append; /* its slot; given back with the reply */
	int64_t result; /* bytes read to reply_buffer(), or written; the offset of a seek */
	bool gate;
	struct punch_request *punch; /* a program's MADV_REMOVE, instead of a FUSE request */
};

/* Initialises one on the stack, for io_try. */
void io_init(struct io *io, fuse_req_t req, const struct io_op *op, fuse_ino_t ino);
/* Carries it out and replies, or parks a copy of it on the heap. Fuse thread. */
void io_try(struct io *io);
/* The same for a write, before which set-user-ID and set-group-ID may have to be cleared. */
void io_try_write(struct io *io);
/* Parks one that is on the heap, after set-user-ID and set-group-ID (META_CLEAR_* `which`; 0: none)
   have been cleared. */
void io_begin(struct io *io, uint32_t which);
/* Makes one for a program's MADV_REMOVE, without a FUSE request. The caller fills it in and calls
   io_begin. NULL: no memory. */
struct io *io_new_punch(struct mount *m, struct punch_request *punch, const struct io_op *op);

#endif
