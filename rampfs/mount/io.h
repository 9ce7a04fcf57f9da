/*
 * Driver of the operations on a segment's bytes (ops_io.c).
 */
#ifndef RAMP_IO_H
#define RAMP_IO_H

#include "offload.h"
#include "request.h"

struct io;

/* A kind of operation. */
struct io_op {
	/* Carries it out inside the segment's gate: 0, with io->result; -EAGAIN where it has to
	   wait for pages; or -errno. `how`: an enum offload_how, for one that locks. */
	int (*work)(struct io *io, struct seg *seg, int how);
	/* Replies to its FUSE request when that went well. */
	void (*reply)(struct io *io);
	/* True: a former daemon has carried it out; io->result is what it answered, or would have. */
	bool (*was_done)(struct io *io);
	/* It has been answered. */
	void (*over)(struct io *io);
	bool locks;   /* takes the lock of the segment's file (offload.h) */
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
	uint8_t *copy;			/* ours, once parked */
	struct handover_append *append; /* its slot; given back with the reply */
	int64_t result;			/* a read's bytes in reply_buffer(); a write's; a seek's */
	bool gate;
	struct punch_request *punch; /* instead of a FUSE request */
};

/* One on the stack, for io_try. */
void io_init(struct io *io, fuse_req_t req, const struct io_op *op, fuse_ino_t ino);
/* Carries it out and replies, or parks a copy of it on the heap. Fuse thread. */
void io_try(struct io *io);
/* The same for a write, before which set-user-ID and set-group-ID may have to go. */
void io_try_write(struct io *io);
/* Parks one on the heap, after META_CLEAR_* `which` (0: none) is done. */
void io_begin(struct io *io, uint32_t which);
/* Instead of a FUSE request: a program's; the caller fills it in and calls io_begin. NULL: no
   memory. */
struct io *io_new_punch(struct mount *m, struct punch_request *punch, const struct io_op *op);

#endif
