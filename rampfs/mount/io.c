/*
 * Driver of the operations on a segment's bytes.
 *
 * Happy path: enter the segment's gate, ask the page states, do it to the store's file, leave the
 * gate, reply; all on the fuse thread. A closed gate, and pages that are still at the source, park
 * the request; it is tried again on the park thread when the segment has changed. An operation that
 * changes the file of a segment that a program may block, or that takes long, runs on a worker
 * (offload.c).
 *
 * A request that is sent again is carried out again. Exception: an append that was written is
 * answered as it was the first time, also where the segment has left since.
 *
 * How it fails: EREMOTE where the segment is another node's, EIO where bytes are lost, EHOSTDOWN
 * when the source has been silent for 5 s, EBUSY from a gate that does not open, EINTR. A program's
 * MADV_REMOVE that can't be answered within its patience is not carried out, and gets ETIMEDOUT.
 */
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuse_request.h"
#include "inode.h"
#include "ops_setid.h"

static int do_inside(struct io *io, struct seg *seg)
{
	int how, rc;

	if (!io->op->locks)
		return io->op->work(io, seg, OFFLOAD_DIRECT);
	how = offload_begin(&io->r, seg, io->op->is_long);
	if (how < 0)
		return how;
	rc = io->op->work(io, seg, how);
	offload_end(seg, how);
	return rc;
}

/* Tries it. -EAGAIN: park it. */
static int do_io(struct io *io)
{
	struct seg *seg;
	int rc;

	io->gate = io->r.needs_worker = false;
	if (io->op->was_done(io))
		return 0;
	/* A punch after its ETIMEDOUT could wipe bytes that the program has stored since. */
	if (io->punch && punch_is_late(io->punch))
		return -ETIMEDOUT;
	rc = inode_segment(io->r.mount, io->id, &seg);
	if (rc) {
		io->gate = rc == -EAGAIN;
		return rc;
	}
	rc = io->op->stores ? seg_enter_to_store(seg) : seg_enter(seg);
	if (rc) {
		io->gate = rc == -EAGAIN;
	} else {
		rc = do_inside(io, seg);
		seg_leave(seg);
	}
	seg_put(seg);
	return rc;
}

static void reply_io(struct io *io, int rc)
{
	if (io->punch)
		punch_answer(io->punch, rc);
	else if (rc)
		fuse_reply_err(io->r.fuse, -rc);
	else
		io->op->reply(io);
	io->op->over(io);
	io->append = NULL;
	io->punch = NULL;
}

static void release_io(struct parked_request *r)
{
	struct io *io = (struct io *)r;

	if (io->punch)
		punch_answer(io->punch, -ESHUTDOWN); /* dropped: the program tries again */
	free(io->copy);
}

static enum park_verdict io_step(struct parked *parked)
{
	struct io *io = (struct io *)parked;
	int rc = do_io(io);

	if (request_judge(&io->r, &rc, io->gate) == PARK_WAIT)
		return offload_later(&io->r);
	request_finish(&io->r);
	reply_io(io, rc);
	request_end(&io->r);
	return PARK_DONE;
}

static void park_io(struct io *io)
{
	io->r.parked.step = io_step;
	io->r.release = release_io;
	if (!io->punch)
		request_interruptible(&io->r);
	offload_wait(&io->r, io->id);
}

/* Moves a request from the stack to the heap, with its data. NULL after ENOMEM has been replied. */
static struct io *keep_io(struct io *on_stack)
{
	struct io *io = request_keep(&on_stack->r, sizeof(*io));

	if (io && io->data) {
		io->copy = malloc(io->len ? io->len : 1);
		if (io->copy) {
			memcpy(io->copy, io->data, io->len);
			io->data = io->copy;
			io->r.release = release_io;
		} else {
			request_reply_err(&io->r, -ENOMEM);
			io = NULL;
		}
	}
	/* Other requests would append behind the offset that an earlier daemon promised to this
	   one. */
	if (!io)
		on_stack->op->over(on_stack);
	return io;
}

void io_try(struct io *io)
{
	int rc = do_io(io);

	if (rc == -EAGAIN) {
		io = keep_io(io);
		if (io)
			park_io(io);
	} else {
		reply_io(io, rc);
	}
}

/* Continues when set-user-ID and set-group-ID are cleared, or replies the error. */
static void setid_gone(void *arg, int rc)
{
	struct io *io = arg;

	if (!rc) {
		park_io(io);
		return;
	}
	if (rc != -ESHUTDOWN) {
		request_finish(&io->r);
		reply_io(io, rc);
	}
	request_end(&io->r);
}

void io_begin(struct io *io, uint32_t which)
{
	if (which)
		setid_clear(&io->r, io->id, which, setid_gone, io);
	else
		park_io(io);
}

void io_try_write(struct io *io)
{
	uint32_t which = fuse_request_kills_setid() ? setid_goes(io->r.fuse, io->id) : 0;
	struct io *kept;

	if (!which) {
		io_try(io);
		return;
	}
	kept = keep_io(io);
	if (kept)
		io_begin(kept, which);
}

void io_init(struct io *io, fuse_req_t req, const struct io_op *op, fuse_ino_t ino)
{
	memset(io, 0, sizeof(*io));
	request_init(&io->r, req);
	io->op = op;
	io->id = ino;
}

struct io *io_new_punch(struct mount *m, struct punch_request *punch, const struct io_op *op)
{
	struct io *io = calloc(1, sizeof(*io));

	if (!io)
		return NULL;
	request_init_own(&io->r, m);
	io->r.release = release_io;
	io->punch = punch;
	io->op = op;
	return io;
}
