/*
 * Opens and releases.
 */
#include "ops_open.h"

#include <errno.h>
#include <fcntl.h>

#include "inode.h"
#include "passthrough.h"
#include "ramp_files.h"
#include "request.h"

void ops_open_flags(struct fuse_file_info *fi)
{
	fi->fh = (uint64_t)(unsigned int)(fi->flags & (O_ACCMODE | O_APPEND));
	fi->direct_io = 1;
	fi->noflush = 1;
	fi->keep_cache = 0;
}

#define OPEN_MS 5000 /* as long as any change waits for a quorum */

struct opening {
	struct parked_request r; /* first */
	fuse_ino_t ino;
};

/* Waits until the segment has its file. ESTALE then makes the kernel open it again, on a fuse
   thread, which alone may grant a passthrough. */
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
	case INODE_IS_RAMP_FILE:
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
	if (inode_kind(ino) == INODE_IS_SEGMENT && passthrough_reply_open(req, ino, fi))
		return;
	ops_open_flags(fi);
	if (inode_kind(ino) == INODE_IS_RAMP_FILE)
		fi->fh = ramp_files_fh();
	fuse_reply_open(req, fi);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (inode_kind(ino) == INODE_IS_RAMP_FILE)
		ramp_files_released(mount_of(req), fi->fh);
	else
		passthrough_released(mount_of(req), fi->fh);
	fuse_reply_err(req, 0);
}
