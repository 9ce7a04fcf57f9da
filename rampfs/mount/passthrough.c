/*
 * Passthrough opens: which process has one, by which backing id, and whether a segment may move.
 *
 * Happy path: the first open of a fully local segment registers the store's file with the kernel (a
 * backing id), is entered in the handover's file, and is answered. Opens after it get the same id,
 * as the kernel demands. With the last RELEASE the id is closed. A segment that is about to move
 * must have no such open, nor a mapping: a mapping outlives its file, and shows in /proc under the
 * mount's own device and the segment's number.
 *
 * How it fails: a daemon that is killed leaves the table, and an open that is sent again finds its
 * entry by `unique`. An id that was being made or closed when the daemon died is closed by the next
 * one: ids go upwards, so the last id made is right before the next one that is made. When keeper
 * and daemon both died, opens are dead with their connection, and mappings live on: they show under
 * the device of the earlier mount, which is remembered.
 *
 * Against a move: passthrough_check is called when it begins, and no open is granted from then on
 * until it has ended. Programs that come meanwhile get an open without a mapping, as for a segment
 * that is elsewhere (the kernel allows such opens before passthrough ones, not beside them). It is
 * called once more in the window, when the gate is closed, since an earlier daemon may have granted
 * some. While one open is a passthrough one the kernel accepts no other kind, so further ones are
 * granted, too: the check has failed then, or is about to.
 */
#include "passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "fuse_request.h"
#include "inode.h"
#include "keeper/protocol.h"
#include "memory/pages.h"
#include "mount_self.h"
#include "request.h"

#define FH_PASS		0x8000u /* above the access mode's bits; the request's number above it */
#define FH_UNIQUE_SHIFT 16
#define PROC_PATH	64

/* ---- the kernel's side ---------------------------------------------------------------------- */

bool passthrough_able(struct mount *m)
{
	struct fuse_init_out reply;
	size_t len;
	const void *saved = handover_reply(m->handover, &len);

	if (!saved || len < KERNEL_FUSE_INIT_OUT_FLAGS2_OFFSET + sizeof(uint32_t))
		return false;
	memset(&reply, 0, sizeof(reply));
	memcpy(&reply, saved, len < sizeof(reply) ? len : sizeof(reply));
	return reply.flags2 & KERNEL_FUSE2_PASSTHROUGH;
}

static int backing_open(int fd)
{
	struct kernel_fuse_backing_map map = {.fd = fd};
	int id = ioctl(KEEPER_FD_FUSE, KERNEL_FUSE_BACKING_OPEN, &map);

	return id < 0 ? -errno : id;
}

static void backing_close(uint32_t id)
{
	if (ioctl(KEEPER_FD_FUSE, KERNEL_FUSE_BACKING_CLOSE, &id) && errno != ENOENT)
		log_warn("passthrough: closing backing id %u: %s", id, strerror(errno));
}

/* ---- the table ------------------------------------------------------------------------------ */

static void passthrough_store(_Atomic uint64_t *at, uint64_t value)
{
	atomic_store_explicit(at, value, memory_order_release);
}

/* passthrough_lock is held here and below. */
static struct handover_passthrough *find_unique(struct handover_passthroughs *p, uint64_t unique)
{
	for (size_t i = 0; i < HANDOVER_PASSTHROUGHS; i++)
		if (p->opens[i].unique == unique)
			return &p->opens[i];
	return NULL;
}

static struct handover_passthrough *find_segment(struct handover_passthroughs *p, ramp_segment_t id)
{
	for (size_t i = 0; i < HANDOVER_PASSTHROUGHS; i++)
		if (p->opens[i].unique && p->opens[i].id == id)
			return &p->opens[i];
	return NULL;
}

static bool backing_used(const struct handover_passthroughs *p, uint32_t backing)
{
	for (size_t i = 0; i < HANDOVER_PASSTHROUGHS; i++)
		if (p->opens[i].unique && p->opens[i].backing == backing)
			return true;
	return false;
}

static void passthrough_drop(struct handover_passthroughs *p, struct handover_passthrough *open)
{
	uint32_t backing = open->backing;
	ramp_segment_t id = open->id;

	/* The kernel has let go of an inode's backing before it says RELEASE. */
	passthrough_store(&p->closing, backing);
	passthrough_store(&open->unique, 0);
	if (!find_segment(p, id))
		backing_close(backing);
	passthrough_store(&p->closing, 0);
}

/* Finishes what an earlier daemon left half done. */
static void recover(struct mount *m, int probe_fd)
{
	struct handover_passthroughs *p = handover_passthroughs(m->handover);
	int probe;

	if (p->closing && !backing_used(p, (uint32_t)p->closing))
		backing_close((uint32_t)p->closing);
	passthrough_store(&p->closing, 0);
	if (p->opening) {
		probe = backing_open(probe_fd);
		if (probe > 1 && !backing_used(p, (uint32_t)probe - 1))
			backing_close((uint32_t)probe - 1);
		if (probe > 0)
			backing_close((uint32_t)probe);
	}
	passthrough_store(&p->opening, 0);
}

/* ---- granting ------------------------------------------------------------------------------- */

static pid_t opener(fuse_req_t req)
{
	return fuse_req_ctx(req)->pid;
}

/* Enters a new open in the table, with the segment's backing id; NULL: it can't be granted. */
static struct handover_passthrough *passthrough_add(struct mount *m, fuse_req_t req,
						    struct seg *seg)
{
	struct handover_passthroughs *p = handover_passthroughs(m->handover);
	struct handover_passthrough *free_one = find_unique(p, 0),
				    *other = find_segment(p, seg_id(seg));
	int backing;

	m->passthrough_grants++;
	if (!p->dev)
		passthrough_store(&p->dev, mount_device(m));
	if (!free_one || !p->dev)
		return NULL;
	if (other) {
		backing = (int)other->backing;
	} else {
		/* Noted before the id is made: from here on a program may map it. */
		backing = seg_note_passed(seg, true);
		passthrough_store(&p->opening, 1);
		if (!backing)
			backing = backing_open(seg_fd(seg));
	}
	if (backing > 0) {
		free_one->id = seg_id(seg);
		free_one->backing = (uint32_t)backing;
		free_one->pid = (uint32_t)opener(req);
		passthrough_store(&free_one->unique, fuse_request_unique());
	} else {
		log_warn("segment %" PRIu64 ": no passthrough: %s", seg_id(seg),
			 strerror(-backing));
	}
	passthrough_store(&p->opening, 0);
	return backing > 0 ? free_one : NULL;
}

/* Returns true only where every page is here, and no move is about to take the segment away. */
static bool may_grant(struct mount *m, struct seg *seg)
{
	struct segment_row row;

	if (meta_segment(m->config.meta, seg_id(seg), &row) ||
	    row.mmap != SEGMENT_MMAP_PASSTHROUGH || row.phase == SEGMENT_MOVING)
		return false;
	if (!passthrough_able(m) || !inode_is_local(seg))
		return false;
	/* passthrough_lock is held: passthrough_check comes later, or has seen us. */
	if (seg_leaving(seg)) {
		log_info("segment %s is opened without passthrough: it is about to be moved",
			 row.name);
		return false;
	}
	if (pages_missing(seg) || pages_lost(seg)) {
		log_info("segment %s is opened without passthrough: not all of its pages are here",
			 row.name);
		return false;
	}
	return true;
}

/* Grants the first one, inside the gate, so that a freeze comes before it or after it. */
static struct handover_passthrough *grant_new(struct mount *m, fuse_req_t req, struct seg *seg)
{
	struct handover_passthrough *open = NULL;

	if (seg_enter(seg))
		return NULL;
	if (may_grant(m, seg))
		open = passthrough_add(m, req, seg);
	seg_leave(seg);
	return open;
}

static struct handover_passthrough *grant(struct mount *m, fuse_req_t req, ramp_segment_t id)
{
	struct handover_passthroughs *p = handover_passthroughs(m->handover);
	struct handover_passthrough *open =
		fuse_request_resent() ? find_unique(p, fuse_request_unique()) : NULL;
	struct seg *seg;

	if (open && open->id == id)
		return open;
	seg = store_find(m->config.store, id);
	if (!seg)
		return NULL;
	/* The kernel takes no other kind of open beside a passthrough one. */
	open = find_segment(p, id) ? passthrough_add(m, req, seg) : grant_new(m, req, seg);
	seg_put(seg);
	return open;
}

bool passthrough_reply_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO | KERNEL_FOPEN_NOFLUSH |
						  KERNEL_FOPEN_PASSTHROUGH};
	struct handover_passthrough *open;

	pthread_mutex_lock(&m->passthrough_lock);
	open = grant(m, req, ino);
	if (open) {
		int32_t backing = (int32_t)open->backing;

		out.fh = open->unique << FH_UNIQUE_SHIFT | FH_PASS |
			 (uint64_t)(unsigned int)(fi->flags & (O_ACCMODE | O_APPEND));
		/* backing_id is in the last four bytes, which were padding in headers before Linux
		   6.9. */
		memcpy((char *)&out + sizeof(out) - sizeof(backing), &backing, sizeof(backing));
		/* Where the opener has been killed meanwhile (ENOENT), or the kernel does not
		   accept the answer and has failed the open, no RELEASE will come. */
		if (fuse_request_reply(req, &out, sizeof(out)))
			passthrough_drop(handover_passthroughs(m->handover), open);
	}
	pthread_mutex_unlock(&m->passthrough_lock);
	return open != NULL;
}

void passthrough_dropped(struct mount *m, uint64_t unique)
{
	struct handover_passthroughs *p = handover_passthroughs(m->handover);
	struct handover_passthrough *open;

	pthread_mutex_lock(&m->passthrough_lock);
	open = find_unique(p, unique);
	if (open)
		passthrough_drop(p, open);
	pthread_mutex_unlock(&m->passthrough_lock);
}

void passthrough_released(struct mount *m, uint64_t fh)
{
	if (fh & FH_PASS)
		passthrough_dropped(m, fh >> FH_UNIQUE_SHIFT);
}

/* ---- a move --------------------------------------------------------------------------------- */

static int passthrough_busy(struct ramp_err *err, ramp_segment_t id, pid_t pid, const char *how)
{
	return ramp_err_set(err, EBUSY,
			    "process %d has segment %" PRIu64
			    " %s (user.ramp.mmap=passthrough), which can't be taken away",
			    (int)pid, id, how);
}

/* Devices of the mount, and of those before it (0: none). */
struct devices {
	uint64_t dev[HANDOVER_FORMER + 1];
};

static struct devices devices_of(const struct handover_passthroughs *p)
{
	struct devices of = {{p->dev}};

	for (size_t i = 0; i < HANDOVER_FORMER; i++)
		of.dev[i + 1] = p->former[i];
	return of;
}

static int check_mappings(const struct devices *of, ramp_segment_t id, struct ramp_err *err)
{
	pid_t pid = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < HANDOVER_FORMER + 1; i++)
		if (of->dev[i])
			rc = programs_maps_file((dev_t)of->dev[i], id, &pid);
	if (rc > 0)
		return passthrough_busy(err, id, pid, "mapped without the shim");
	if (rc == -EBUSY)
		return ramp_err_set(err, EBUSY, "process %d can't be looked into, and may map it",
				    (int)pid);
	return rc ? ramp_err_sys(err, -rc, "asking /proc which process maps segment %" PRIu64, id)
		  : 0;
}

/* Looks for mappings; not under passthrough_lock, which every open takes: a process can block a
   reader of its /proc files. */
static int check_passed(struct mount *m, struct seg *seg, const struct devices *of, uint64_t grants,
			struct ramp_err *err)
{
	int rc = check_mappings(of, seg_id(seg), err);

	if (rc)
		return rc;
	pthread_mutex_lock(&m->passthrough_lock);
	if (m->passthrough_grants == grants) /* else the next check looks once more */
		seg_note_passed(seg, false);
	pthread_mutex_unlock(&m->passthrough_lock);
	return 0;
}

int passthrough_check(void *mount, struct seg *seg, struct ramp_err *err)
{
	struct mount *m = mount;
	struct handover_passthroughs *p = handover_passthroughs(m->handover);
	struct handover_passthrough *open;
	struct devices of;
	uint64_t grants;
	int rc = 0;

	pthread_mutex_lock(&m->passthrough_lock);
	open = find_segment(p, seg_id(seg));
	if (open)
		rc = passthrough_busy(err, seg_id(seg), (pid_t)open->pid, "open for mapping");
	of = devices_of(p);
	grants = m->passthrough_grants;
	pthread_mutex_unlock(&m->passthrough_lock);
	return rc || !seg_passed(seg) ? rc : check_passed(m, seg, &of, grants, err);
}

/* ---- life ----------------------------------------------------------------------------------- */

int passthrough_open(struct mount *m, struct ramp_err *err)
{
	int fd;

	if (!passthrough_able(m))
		return 0;
	fd = store_open_private(m->config.store, "mount", O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return ramp_err_sys(err, -fd, "the mount's file in the store");
	recover(m, fd);
	close(fd);
	return 0;
}
