/*
 * Reads, writes, seeks and changes of holes: each is one line of the table at the end, and its
 * functions are together. io.h says how they are driven.
 */
#include "ops_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "cut.h"
#include "fuse_request.h"
#include "inode.h"
#include "io.h"
#include "memory/pages.h"
#include "memory/reserve.h"
#include "memory/stores.h"
#include "ops_setid.h"
#include "ramp_files.h"

enum io_kind { IO_READ, IO_WRITE, IO_APPEND, IO_ALLOCATE, IO_PUNCH, IO_SEEK, IO_KINDS };

static const struct io_op io_ops[IO_KINDS]; /* at the end */

/* ---- common --------------------------------------------------------------------------------- */

static bool never_done(struct io *io)
{
	(void)io;
	return false;
}

static void nothing_left(struct io *io)
{
	(void)io;
}

static void reply_done(struct io *io)
{
	fuse_reply_err(io->r.fuse, 0);
}

static void reply_written(struct io *io)
{
	fuse_reply_write(io->r.fuse, (size_t)io->result);
}

/* ---- read ----------------------------------------------------------------------------------- */

static int want_pages(struct io *io, struct seg *seg, uint64_t len)
{
	uint64_t first = first_page(io->offset), count = count_pages(io->offset, len);

	if (!count || pages_local(seg, first, count))
		return 0;
	return pull_want(io->r.mount->config.pull, seg, first, count);
}

static int do_read(struct io *io, struct seg *seg, int how)
{
	uint8_t *buf = reply_buffer();
	uint64_t size = seg_size(seg), len = io->len < REPLY_BYTES ? io->len : REPLY_BYTES;
	ssize_t n;
	int rc;

	(void)how;
	if (!buf)
		return -ENOMEM;
	if (io->offset >= size) {
		io->result = 0;
		return 0;
	}
	if (len > size - io->offset)
		len = size - io->offset;
	rc = want_pages(io, seg, len);
	if (rc)
		return rc;
	n = pread(seg_fd(seg), buf, len, (off_t)io->offset);
	if (n < 0)
		return -errno;
	io->result = n;
	return 0;
}

static void reply_read(struct io *io)
{
	fuse_reply_buf(io->r.fuse, (const char *)reply_buffer(), (size_t)io->result);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct io io;

	if (inode_kind(ino) == INODE_IS_RAMP_FILE) {
		ramp_files_read(req, ino, fi->fh, size, (uint64_t)off);
		return;
	}
	io_init(&io, req, &io_ops[IO_READ], ino);
	io.offset = (uint64_t)off;
	io.len = size;
	io_try(&io);
}

/* ---- write, append -------------------------------------------------------------------------- */

static int put_bytes(struct io *io, struct seg *seg, uint64_t offset)
{
	struct cut cut;
	ssize_t n;
	int rc = cut_begin(&cut, io->r.mount, seg, offset, io->len);

	if (rc)
		return rc;
	seg_take_small(seg, offset, io->len);
	seg_note_write(seg);
	n = pwrite(seg_fd(seg), io->data, io->len, (off_t)offset);
	if (n < 0)
		rc = -errno;
	else
		stores_note(seg, offset, (uint64_t)n);
	cut_end(&cut, n > 0 ? (uint64_t)n : 0);
	io->result = n;
	return rc;
}

static int do_write(struct io *io, struct seg *seg, int how)
{
	(void)how;
	return put_bytes(io, seg, io->offset);
}

/* Appends at the end of the owner's file, which the kernel may not know; or at the offset where an
   earlier daemon did. The caller makes sure that appends run one at a time. */
static int put_at_end(struct io *io, struct seg *seg)
{
	struct mount *m = io->r.mount;
	uint64_t at;
	int rc, state;

	state = handover_append_begin(m->handover, io->r.unique, io->id, seg_size(seg), io->len,
				      &io->append, &at);
	rc = state < 0 ? state : 0;
	if (!rc)
		rc = put_bytes(io, seg, at);
	if (!rc)
		handover_append_written(io->append, (uint64_t)io->result);
	/* A failed append gives its offset back, and so does a new one that has to wait. */
	if (rc && io->append && (rc != -EAGAIN || state == HANDOVER_NEW)) {
		handover_append_end(io->append);
		io->append = NULL;
	}
	return rc;
}

/* Offloaded requests of one segment already run one at a time. append_lock is shared by hash, so
   taking it there could block another segment. */
static int do_append(struct io *io, struct seg *seg, int how)
{
	pthread_mutex_t *lock = &io->r.mount->append_lock[io->id % 64];
	int rc;

	if (how == OFFLOAD_WORKER)
		return put_at_end(io, seg);
	pthread_mutex_lock(lock);
	rc = put_at_end(io, seg);
	pthread_mutex_unlock(lock);
	return rc;
}

/* Returns true if an earlier daemon has written it, with the answer. */
static bool was_appended(struct io *io)
{
	uint64_t len;

	if (!io->r.resent || !handover_append_done(io->r.mount->handover, io->r.unique, &len))
		return false;
	io->result = (int64_t)len;
	return true;
}

static void append_over(struct io *io)
{
	if (io->append)
		handover_append_end(io->append);
	else if (io->r.resent)
		handover_append_drop(io->r.mount->handover, io->r.unique);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct io io;

	io_init(&io, req, &io_ops[fi->flags & O_APPEND ? IO_APPEND : IO_WRITE], ino);
	io.data = (const uint8_t *)buf;
	io.offset = (uint64_t)off;
	io.len = size;
	io_try_write(&io);
}

/* ---- holes, space --------------------------------------------------------------------------- */

static int do_punch(struct io *io, struct seg *seg, int how)
{
	struct cut cut;
	uint64_t size = seg_size(seg), end = io->offset + io->len;
	int rc = 0;

	(void)how;
	/* There are no pages behind the file's last one. */
	if (end > size)
		end = size;
	rc = cut_begin(&cut, io->r.mount, seg, io->offset, end > io->offset ? end - io->offset : 0);
	if (rc)
		return rc;
	seg_note_write(seg);
	if (fallocate(seg_fd(seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)io->offset,
		      (off_t)io->len))
		rc = -errno;
	seg_layout_cut(seg);
	stores_note(seg, io->offset, end > io->offset ? end - io->offset : 0);
	cut_end(&cut, rc ? 0 : cut.len);
	return rc;
}

static int do_allocate(struct io *io, struct seg *seg, int how)
{
	(void)how;
	seg_take_small(seg, io->offset, io->len);
	seg_note_write(seg);
	reserve_keep(seg);
	return fallocate(seg_fd(seg), io->mode, (off_t)io->offset, (off_t)io->len) ? -errno : 0;
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	struct io *io;

	(void)fi;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE)) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	io = request_new(req, sizeof(*io));
	if (!io)
		return;
	io->op = &io_ops[mode & FALLOC_FL_PUNCH_HOLE ? IO_PUNCH : IO_ALLOCATE];
	io->id = ino;
	io->mode = mode;
	io->offset = (uint64_t)offset;
	io->len = (uint64_t)length;
	io_begin(io, setid_unseen(req, ino));
}

void ops_punch(void *mount, struct punch_request *punch, ramp_segment_t id, uint64_t offset,
	       uint64_t len)
{
	struct io *io = io_new_punch(mount, punch, &io_ops[IO_PUNCH]);

	if (!io) {
		punch_answer(punch, -ENOMEM);
		return;
	}
	io->id = id;
	io->offset = offset;
	io->len = len;
	io_begin(io, setid_punched(mount, punch, id));
}

/* ---- seek ----------------------------------------------------------------------------------- */

static int do_seek(struct io *io, struct seg *seg, int how)
{
	int64_t at = io->mode == SEEK_DATA ? populated_seek_data(seg, io->offset)
					   : populated_seek_hole(seg, io->offset);

	(void)how;
	if (at < 0)
		return (int)at;
	io->result = at;
	return 0;
}

static void reply_seek(struct io *io)
{
	fuse_reply_lseek(io->r.fuse, io->result);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct io io;

	(void)fi;
	if (inode_kind(ino) != INODE_IS_SEGMENT || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	io_init(&io, req, &io_ops[IO_SEEK], ino);
	io.offset = (uint64_t)off;
	io.mode = whence;
	io_try(&io);
}

/* ---- fsync ---------------------------------------------------------------------------------- */

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, 0); /* a segment is in memory alone */
}

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct io_op io_ops[IO_KINDS] = {
	/*               work         reply          was_done      over          locks  stores is_long */
	[IO_READ]     = {do_read,     reply_read,    never_done,   nothing_left, false, false, false},
	[IO_WRITE]    = {do_write,    reply_written, never_done,   nothing_left, true,  true,  false},
	[IO_APPEND]   = {do_append,   reply_written, was_appended, append_over,  true,  true,  false},
	[IO_ALLOCATE] = {do_allocate, reply_done,    never_done,   nothing_left, true,  true,  true},
	[IO_PUNCH]    = {do_punch,    reply_done,    never_done,   nothing_left, true,  true,  true},
	[IO_SEEK]     = {do_seek,     reply_seek,    never_done,   nothing_left, true,  false, false},
};
/* clang-format on */
