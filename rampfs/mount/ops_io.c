/*
 * Reads, writes and what changes a file's size or holes.
 *
 * The happy path: into the segment's gate, ask the page states, do it to the store's file, out of
 * the gate, reply; all on the fuse thread. A closed gate, and pages that are still at the source,
 * park the request; it is tried again on the park thread when the segment changed. What changes the
 * file of a segment that a program may hold up, and what takes long, is a worker's (spare.c).
 *
 * A request that is sent again is carried out again, but for an append that was written: that is
 * answered as it was, also where the segment has left since.
 *
 * How it fails: EREMOTE where the segment is another node's, EIO where bytes are lost, EHOSTDOWN
 * when the source has been silent for 5 s, EBUSY from a gate that does not open, EINTR; ETIMEDOUT
 * of a program's MADV_REMOVE, which is told within its patience or not carried out.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse_request.h"
#include "inode.h"
#include "memory/pages.h"
#include "memory/reserve.h"
#include "offload.h"
#include "ops.h"
#include "passthrough.h"
#include "ramp_files.h"

enum io_kind { IO_READ, IO_WRITE, IO_APPEND, IO_ALLOCATE, IO_PUNCH, IO_SEEK };

struct io {
	struct request r; /* first */
	enum io_kind kind;
	ramp_segment_t id;
	uint64_t offset, len;
	int mode;			/* fallocate's, or lseek's whence */
	const uint8_t *data;		/* IO_WRITE, IO_APPEND: libfuse's, or `copy` */
	uint8_t *copy;			/* ours, once parked */
	struct handover_append *append; /* its slot; given back with the reply */
	int64_t result;			/* IO_READ: bytes in reply_buffer(); IO_WRITE; IO_SEEK */
	bool gate;
	struct punch_request *punch; /* instead of a FUSE request */
};

/* ---- inside the gate ------------------------------------------------------------------------ */

static uint64_t first_page(uint64_t offset)
{
	return offset / RAMP_PAGE_BYTES;
}

static uint64_t count_pages(uint64_t offset, uint64_t len)
{
	return len ? first_page(offset + len - 1) - first_page(offset) + 1 : 0;
}

static int want_pages(struct io *io, struct seg *seg, uint64_t len)
{
	uint64_t first = first_page(io->offset), count = count_pages(io->offset, len);

	if (!count || pages_local(seg, first, count))
		return 0;
	return pull_want(io->r.mount->config.pull, seg, first, count);
}

/* What a write, a truncate or a punched hole replaces needs no pulling, but for its edges. */
struct cut {
	struct pull *pull; /* NULL: everything is LOCAL anyway */
	struct seg *seg;
	uint64_t offset, len;
};

static int cut_begin(struct cut *cut, struct mount *m, struct seg *seg, uint64_t offset,
		     uint64_t len)
{
	int rc;

	*cut = (struct cut){.seg = seg, .offset = offset, .len = len};
	if (!len || pages_local(seg, first_page(offset), count_pages(offset, len)))
		return 0;
	rc = pull_cut_begin(m->config.pull, seg, offset, len);
	if (!rc)
		cut->pull = m->config.pull;
	return rc;
}

/* Bytes [offset, offset + done) are as they should be. */
static void cut_end(struct cut *cut, uint64_t done)
{
	if (cut->pull)
		pull_cut_end(cut->pull, cut->seg, cut->offset, cut->len, done);
}

static int do_read(struct io *io, struct seg *seg)
{
	uint8_t *buf = reply_buffer();
	uint64_t size = seg_size(seg), len = io->len < REPLY_BYTES ? io->len : REPLY_BYTES;
	ssize_t n;
	int rc;

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
	cut_end(&cut, n > 0 ? (uint64_t)n : 0);
	io->result = n;
	return rc;
}

/* Where the owner's file ends, which the kernel may not know; and where a former daemon put it. One
   at a time: the caller sees to it. */
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
	/* One that fails has no place; a new one has none that is promised while it waits. */
	if (rc && io->append && (rc != -EAGAIN || state == HANDOVER_NEW)) {
		handover_append_end(io->append);
		io->append = NULL;
	}
	return rc;
}

/* Of a segment's errands there is one at a time, and the lock is other segments', too. */
static int do_append(struct io *io, struct seg *seg, int how)
{
	pthread_mutex_t *lock = &io->r.mount->append_lock[io->id % 64];
	int rc;

	if (how == SPARE_WORKER)
		return put_at_end(io, seg);
	pthread_mutex_lock(lock);
	rc = put_at_end(io, seg);
	pthread_mutex_unlock(lock);
	return rc;
}

static int do_punch(struct io *io, struct seg *seg)
{
	struct cut cut;
	uint64_t size = seg_size(seg), end = io->offset + io->len;
	int rc = 0;

	/* Pages end with the file's last one. */
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
	cut_end(&cut, rc ? 0 : cut.len);
	return rc;
}

static int do_seek(struct io *io, struct seg *seg)
{
	int64_t at = io->mode == SEEK_DATA ? room_seek_data(seg, io->offset)
					   : room_seek_hole(seg, io->offset);

	if (at < 0)
		return (int)at;
	io->result = at;
	return 0;
}

static int do_allocate(struct io *io, struct seg *seg)
{
	seg_take_small(seg, io->offset, io->len);
	seg_note_write(seg);
	room_keep(seg);
	return fallocate(seg_fd(seg), io->mode, (off_t)io->offset, (off_t)io->len) ? -errno : 0;
}

/* With the file's lock. */
static int do_locked(struct io *io, struct seg *seg, int how)
{
	switch (io->kind) {
	case IO_WRITE:
		return put_bytes(io, seg, io->offset);
	case IO_APPEND:
		return do_append(io, seg, how);
	case IO_ALLOCATE:
		return do_allocate(io, seg);
	case IO_PUNCH:
		return do_punch(io, seg);
	case IO_SEEK:
		return do_seek(io, seg);
	case IO_READ:
		break;
	}
	return -EINVAL;
}

/* fallocate(2) and punched holes take as long as there are pages. */
static bool is_long(const struct io *io)
{
	return io->kind == IO_ALLOCATE || io->kind == IO_PUNCH;
}

static int do_inside(struct io *io, struct seg *seg)
{
	int how, rc;

	if (io->kind == IO_READ)
		return do_read(io, seg);
	how = spare_begin(&io->r, seg, is_long(io));
	if (how < 0)
		return how;
	rc = do_locked(io, seg, how);
	spare_end(seg, how);
	return rc;
}

/* What it was answered, or would have been. */
static bool was_appended(struct io *io)
{
	uint64_t len;

	if (io->kind != IO_APPEND || !io->r.resent ||
	    !handover_append_done(io->r.mount->handover, io->r.unique, &len))
		return false;
	io->result = (int64_t)len;
	return true;
}

/* -EAGAIN: park. */
static int do_io(struct io *io)
{
	struct seg *seg;
	int rc;

	io->gate = io->r.spare = false;
	if (was_appended(io))
		return 0;
	/* What it stores once it has its answer must stand. */
	if (io->punch && punch_is_late(io->punch))
		return -ETIMEDOUT;
	rc = inode_segment(io->r.mount, io->id, &seg);
	if (rc) {
		io->gate = rc == -EAGAIN;
		return rc;
	}
	rc = seg_enter(seg);
	if (rc) {
		io->gate = rc == -EAGAIN;
	} else {
		rc = do_inside(io, seg);
		seg_leave(seg);
	}
	seg_put(seg);
	return rc;
}

/* ---- replies -------------------------------------------------------------------------------- */

static void reply_io(struct io *io, int rc)
{
	fuse_req_t req = io->r.fuse;

	if (io->punch)
		punch_answer(io->punch, rc);
	else if (rc)
		fuse_reply_err(req, -rc);
	else if (io->kind == IO_READ)
		fuse_reply_buf(req, (const char *)reply_buffer(), (size_t)io->result);
	else if (io->kind == IO_WRITE || io->kind == IO_APPEND)
		fuse_reply_write(req, (size_t)io->result);
	else if (io->kind == IO_SEEK)
		fuse_reply_lseek(req, io->result);
	else
		fuse_reply_err(req, 0);
	if (io->append)
		handover_append_end(io->append);
	else if (io->kind == IO_APPEND && io->r.resent)
		handover_append_drop(io->r.mount->handover, io->r.unique);
	io->append = NULL;
	io->punch = NULL;
}

static void release_io(struct request *r)
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
		return spare_later(&io->r);
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
	spare_wait(&io->r, io->id);
}

/* The stack's request moves to the heap, with its data. NULL after ENOMEM has been replied. */
static struct io *keep_io(const struct io *on_stack)
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
	/* Others would append behind the place that a former daemon promised to it. */
	if (!io && on_stack->kind == IO_APPEND && on_stack->r.resent)
		handover_append_drop(on_stack->r.mount->handover, on_stack->r.unique);
	return io;
}

static void try_io(struct io *io)
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

/* Set-user-ID and set-group-ID are gone, or can't go. */
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

static void try_write(struct io *io)
{
	uint32_t which = fuse_request_kills_setid() ? setid_goes(io->r.fuse, io->id) : 0;
	struct io *kept;

	if (!which) {
		try_io(io);
		return;
	}
	kept = keep_io(io);
	if (kept)
		setid_clear(&kept->r, kept->id, which, setid_gone, kept);
}

static void init_io(struct io *io, fuse_req_t req, enum io_kind kind, fuse_ino_t ino)
{
	memset(io, 0, sizeof(*io));
	request_init(&io->r, req);
	io->kind = kind;
	io->id = ino;
}

/* ---- handlers ------------------------------------------------------------------------------- */

void ops_open_flags(struct fuse_file_info *fi)
{
	fi->fh = (uint64_t)(unsigned int)(fi->flags & (O_ACCMODE | O_APPEND));
	fi->direct_io = 1;
	fi->noflush = 1;
	fi->keep_cache = 0;
}

#define OPEN_MS 5000 /* as any change waits for a quorum */

struct opening {
	struct request r; /* first */
	fuse_ino_t ino;
};

/* What it waits for is its file: ESTALE makes the kernel open it anew, from a fuse thread, which
   alone may grant a passthrough. */
static enum park_verdict open_step(struct parked *parked)
{
	struct opening *o = (struct opening *)parked;
	int rc = inode_openable(o->r.mount, o->ino);

	if (rc == -EAGAIN && request_interrupted(&o->r))
		rc = -EINTR;
	if (rc == -EAGAIN && park_now_ms() - parked->since_ms < OPEN_MS)
		return PARK_WAIT;
	if (rc == 0)
		rc = -ESTALE;
	request_reply_err(&o->r, rc == -EAGAIN ? -EROFS : rc);
	return PARK_DONE;
}

static void open_later(fuse_req_t req, fuse_ino_t ino)
{
	struct opening *o = request_new(req, sizeof(*o));

	if (!o)
		return;
	o->ino = ino;
	o->r.parked.step = open_step;
	request_interruptible(&o->r);
	park_wait(o->r.mount->park, &o->r.parked, ino);
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	int rc = 0;

	switch (inode_kind(ino)) {
	case INODE_IS_SEGMENT:
		rc = inode_openable(m, ino);
		break;
	case INODE_IS_VIEW:
		rc = (fi->flags & O_ACCMODE) == O_RDONLY ? 0 : -EACCES;
		break;
	default:
		rc = -ENOENT;
	}
	if (rc == -EAGAIN) {
		open_later(req, ino);
		return;
	}
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	if (inode_kind(ino) == INODE_IS_SEGMENT && pass_reply_open(req, ino, fi))
		return;
	ops_open_flags(fi);
	if (inode_kind(ino) == INODE_IS_VIEW)
		fi->fh = view_fh();
	fuse_reply_open(req, fi);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (inode_kind(ino) == INODE_IS_VIEW)
		view_released(mount_of(req), fi->fh);
	else
		pass_released(mount_of(req), fi->fh);
	fuse_reply_err(req, 0);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct io io;

	if (inode_kind(ino) == INODE_IS_VIEW) {
		view_read(req, ino, fi->fh, size, (uint64_t)off);
		return;
	}
	init_io(&io, req, IO_READ, ino);
	io.offset = (uint64_t)off;
	io.len = size;
	try_io(&io);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct io io;

	init_io(&io, req, fi->flags & O_APPEND ? IO_APPEND : IO_WRITE, ino);
	io.data = (const uint8_t *)buf;
	io.offset = (uint64_t)off;
	io.len = size;
	try_write(&io);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct io io;

	(void)fi;
	if (inode_kind(ino) != INODE_IS_SEGMENT || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	init_io(&io, req, IO_SEEK, ino);
	io.offset = (uint64_t)off;
	io.mode = whence;
	try_io(&io);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, 0); /* memory is all there is */
}

/* ---- fallocate ------------------------------------------------------------------------------ */

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	uint32_t which;
	struct io *io;

	(void)fi;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE)) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	io = request_new(req, sizeof(*io));
	if (!io)
		return;
	io->kind = mode & FALLOC_FL_PUNCH_HOLE ? IO_PUNCH : IO_ALLOCATE;
	io->id = ino;
	io->mode = mode;
	io->offset = (uint64_t)offset;
	io->len = (uint64_t)length;
	which = setid_unseen(req, ino);
	if (which)
		setid_clear(&io->r, ino, which, setid_gone, io);
	else
		park_io(io);
}

void ops_punch(void *mount, struct punch_request *punch, ramp_segment_t id, uint64_t offset,
	       uint64_t len)
{
	struct io *io = calloc(1, sizeof(*io));
	uint32_t which;

	if (!io) {
		punch_answer(punch, -ENOMEM);
		return;
	}
	request_init_own(&io->r, mount);
	io->r.release = release_io;
	io->punch = punch;
	io->kind = IO_PUNCH;
	io->id = id;
	io->offset = offset;
	io->len = len;
	which = setid_punched(mount, punch, id);
	if (which)
		setid_clear(&io->r, id, which, setid_gone, io);
	else
		park_io(io);
}

/* ---- truncate ------------------------------------------------------------------------------- */

static int cut_to(struct mount *m, struct seg *seg, uint64_t size)
{
	uint64_t old = seg_size(seg), end;
	struct cut cut = {0};
	int rc = 0;

	if (size < old) {
		end = (old + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
		rc = cut_begin(&cut, m, seg, size, end - size);
		if (rc)
			return rc;
	}
	seg_note_write(seg);
	if (ftruncate(seg_fd(seg), (off_t)size))
		rc = -errno;
	if (size < old)
		seg_layout_cut(seg);
	cut_end(&cut, rc ? 0 : cut.len);
	return rc;
}

static int cut_inside(struct request *r, struct seg *seg, uint64_t size)
{
	int how = spare_begin(r, seg, false), rc;

	if (how < 0)
		return how;
	rc = cut_to(r->mount, seg, size);
	spare_end(seg, how);
	return rc;
}

int ops_truncate(struct request *r, ramp_segment_t id, uint64_t size, bool *gate)
{
	struct seg *seg;
	int rc = inode_segment(r->mount, id, &seg);

	*gate = rc == -EAGAIN;
	if (rc)
		return rc;
	rc = seg_enter(seg);
	if (rc) {
		*gate = rc == -EAGAIN;
	} else {
		rc = cut_inside(r, seg, size);
		seg_leave(seg);
	}
	seg_put(seg);
	return rc;
}
