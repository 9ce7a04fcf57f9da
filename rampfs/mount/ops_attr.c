/*
 * Attributes and statfs.
 *
 * setattr works in the order in which it may have to wait. First set-user-ID and set-group-ID that
 * go with a new size (ops_setid.c: a file with them must not change under them). Then the size at
 * the owner; it parks while the gate is closed, pages are in flight, or a program may hold the
 * file's lock (offload.c). Then the times at the owner's own file, without a quorum. Then the
 * metadata's part (mode, uid, gid, and times from other nodes) in one proposal. Then the answer.
 * Each step is idempotent, so a request that is sent again goes through all of them again.
 *
 * The kernel has checked the caller against the owner that it knew: from before another node's
 * chown, or for an open file from its last look, however long ago. So the proposal names the user
 * that must own the segment, and changes that are not proposed are checked here: EPERM.
 */
#include "ops_attr.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/statvfs.h>

#include "caller.h"
#include "inode.h"
#include "offload.h"
#include "ops_setid.h"
#include "propose.h"
#include "truncate.h"

/* ---- getattr, setattr ----------------------------------------------------------------------- */

static void reply_attr(fuse_req_t req, fuse_ino_t ino)
{
	struct stat st;
	int rc = inode_attr(mount_of(req), ino, &st);

	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_attr(req, &st, 0);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	reply_attr(req, ino);
}

struct setattr {
	struct metadata_change c; /* first */
	ramp_segment_t id;
	int to_set;	/* FUSE_SET_ATTR_*: not done yet */
	uint32_t clear; /* META_CLEAR_* */
	struct stat attr;
	bool limited; /* only if command.owner owns it */
	bool gate;
};

#define TIME_BITS                                                                                  \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |                     \
	 FUSE_SET_ATTR_MTIME_NOW)
#define CHOWN_BITS  (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
#define STRIPS_MODE (FUSE_SET_ATTR_SIZE | CHOWN_BITS)
#define SETID_BITS  ((uint32_t)(S_ISUID | S_ISGID))

static void finish_setattr(struct setattr *sa, int rc)
{
	struct parked_request *r = &sa->c.r;

	request_finish(r);
	if (rc)
		fuse_reply_err(r->fuse, -rc);
	else
		reply_attr(r->fuse, sa->id);
	request_end(r);
}

/* Reads owner and mode from the row, or for an open file without a row from beside the bytes. */
static bool read_owner(const struct setattr *sa, struct segment_row *row)
{
	struct seg *seg;

	if (meta_segment(sa->c.r.mount->config.meta, sa->id, row) == 0)
		return true;
	seg = store_find(sa->c.r.mount->config.store, sa->id);
	if (!seg)
		return false;
	inode_read_owner(seg, row);
	seg_put(seg);
	return true;
}

/* Returns 0, or -EPERM where the caller does not own it any more. */
static int check_owner(const struct setattr *sa)
{
	struct segment_row row;

	if (!sa->limited || !read_owner(sa, &row) || row.uid == sa->c.command.owner)
		return 0;
	return -EPERM;
}

/* Sets owner and mode beside the bytes, where the next write looks (setid_goes); row_sync would do
   it slightly later. An open file without a row has them there alone. */
static int set_beside(struct setattr *sa)
{
	const struct segment_row *want = &sa->c.command.attr;
	struct segment_row row = {.id = sa->id};
	struct seg *seg;
	int rc = inode_segment(sa->c.r.mount, sa->id, &seg);

	if (rc)
		return rc;
	inode_read_owner(seg, &row);
	if (sa->c.command.flags & META_SET_MODE)
		row.mode = want->mode;
	if (sa->c.command.flags & META_CLEAR_SUID)
		row.mode &= ~(uint32_t)S_ISUID;
	if (sa->c.command.flags & META_CLEAR_SGID)
		row.mode &= ~(uint32_t)S_ISGID;
	if (sa->c.command.flags & META_SET_UID)
		row.uid = want->uid;
	if (sa->c.command.flags & META_SET_GID)
		row.gid = want->gid;
	inode_note_owner(seg, &row);
	seg_put(seg);
	return 0;
}

/* The same for an open file without a row, after a check of its owner. */
static int set_beside_alone(struct setattr *sa)
{
	int rc = check_owner(sa);

	return rc ? rc : set_beside(sa);
}

static void row_set(struct metadata_change *c)
{
	struct setattr *sa = (struct setattr *)c;
	int rc = c->reply.result;

	if (rc == 0)
		set_beside(sa);
	finish_setattr(sa, rc == -ENOENT ? set_beside_alone(sa) : rc);
}

static struct timespec one_time(int to_set, int bit, int now_bit, struct timespec given)
{
	if (to_set & now_bit)
		return (struct timespec){.tv_nsec = UTIME_NOW};
	if (to_set & bit)
		return given;
	return (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(struct setattr *sa, struct seg *seg, const struct timespec times[2])
{
	int how = offload_begin(&sa->c.r, seg, false), done;

	if (how < 0)
		return how;
	done = seg_set_times(seg, times) == 0;
	offload_end(seg, how);
	return done;
}

/* Returns 1 where this node has the file and has set its times, 0 where the metadata will. The
   owner of a request that is sent again was checked the first time. -EAGAIN as offload_begin. */
static int set_times_here(struct setattr *sa)
{
	struct timespec times[2];
	struct seg *seg;
	int done = 0;

	if (inode_segment(sa->c.r.mount, sa->id, &seg))
		return 0;
	times[0] = one_time(sa->to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW,
			    sa->attr.st_atim);
	times[1] = one_time(sa->to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW,
			    sa->attr.st_mtim);
	if (inode_is_local(seg)) {
		done = sa->c.r.resent ? 0 : check_owner(sa);
		done = done ? done : set_times(sa, seg, times);
	}
	seg_put(seg);
	return done;
}

static struct meta_time time_of(struct timespec t, bool now, struct meta_time clock)
{
	return now ? clock : (struct meta_time){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

static void fill_command(struct setattr *sa)
{
	struct meta_command *c = &sa->c.command;
	int to_set = sa->to_set;

	c->id = sa->id;
	c->attr.mode = sa->attr.st_mode & 07777;
	c->attr.uid = sa->attr.st_uid;
	c->attr.gid = sa->attr.st_gid;
	c->attr.ctime = c->now;
	c->attr.atime = time_of(sa->attr.st_atim, to_set & FUSE_SET_ATTR_ATIME_NOW, c->now);
	c->attr.mtime = time_of(sa->attr.st_mtim, to_set & FUSE_SET_ATTR_MTIME_NOW, c->now);
	if (to_set & FUSE_SET_ATTR_MODE)
		c->flags |= META_SET_MODE;
	if (to_set & FUSE_SET_ATTR_UID)
		c->flags |= META_SET_UID;
	if (to_set & FUSE_SET_ATTR_GID)
		c->flags |= META_SET_GID;
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW))
		c->flags |= META_SET_ATIME;
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))
		c->flags |= META_SET_MTIME;
	c->flags |= sa->clear;
	if (c->flags)
		c->flags |= META_SET_CTIME | (sa->limited ? META_OF_OWNER : 0);
}

/* Does the file's part. -EAGAIN: wait. 0: the metadata's part is next. */
static int do_setattr(struct setattr *sa)
{
	int rc;

	sa->gate = sa->c.r.needs_worker = false;
	if (sa->to_set & FUSE_SET_ATTR_SIZE) {
		rc = truncate_segment(&sa->c.r, sa->id, (uint64_t)sa->attr.st_size, &sa->gate);
		if (rc)
			return rc;
		sa->to_set &= ~FUSE_SET_ATTR_SIZE;
	}
	if (sa->to_set & TIME_BITS) {
		rc = set_times_here(sa);
		if (rc < 0)
			return rc;
		if (rc)
			sa->to_set &= ~TIME_BITS;
	}
	fill_command(sa);
	return 0;
}

static void setattr_continue(struct setattr *sa, int rc)
{
	if (!rc && sa->c.command.flags)
		propose_change(&sa->c);
	else
		finish_setattr(sa, rc);
}

static enum park_verdict setattr_step(struct parked *parked)
{
	struct setattr *sa = (struct setattr *)parked;
	int rc = do_setattr(sa);

	if (request_judge(&sa->c.r, &rc, sa->gate) == PARK_WAIT)
		return offload_later(&sa->c.r);
	setattr_continue(sa, rc);
	return PARK_DONE;
}

static void wait_for_file(struct setattr *sa)
{
	sa->c.r.parked.step = setattr_step;
	request_interruptible(&sa->c.r);
	offload_wait(&sa->c.r, sa->id);
}

/* Continues when set-user-ID and set-group-ID are cleared, or replies the error. */
static void setid_gone(void *arg, int rc)
{
	struct setattr *sa = arg;

	if (rc == -ESHUTDOWN) {
		request_end(&sa->c.r);
	} else if (rc) {
		finish_setattr(sa, rc);
	} else {
		sa->clear = 0;
		wait_for_file(sa);
	}
}

/* Returns the error that needs no look at the bytes, as EREMOTE: then no bit is cleared. */
static int may_cut(const struct setattr *sa)
{
	struct seg *seg;
	int rc = inode_segment(sa->c.r.mount, sa->id, &seg);

	if (rc)
		return rc;
	rc = seg_enter(seg);
	if (!rc)
		seg_leave(seg);
	seg_put(seg);
	return rc;
}

static void clear_and_cut(struct setattr *sa)
{
	int rc = may_cut(sa);

	if (rc && rc != -EAGAIN)
		finish_setattr(sa, rc);
	else
		setid_clear(&sa->c.r, sa->id, sa->clear, setid_gone, sa);
}

static uint32_t clears(mode_t mode)
{
	return (mode & S_ISUID ? 0 : META_CLEAR_SUID) | (mode & S_ISGID ? 0 : META_CLEAR_SGID);
}

/*
 * Takes the set-user-ID and set-group-ID bits that the kernel clears by itself: in a chown, a
 * truncate, or (the mode alone, for any writer) before a fallocate. The kernel sends the whole mode
 * that it knew, or nothing where it knew of no such bit. The mode may have changed since, so only
 * those bits are cleared.
 */
static void take_stripped(struct setattr *sa, const struct segment_row *row)
{
	uint32_t mode = sa->attr.st_mode & 07777;
	uint32_t gone = row->mode & ~mode;
	bool bits = gone && !(gone & ~SETID_BITS) && !(mode & ~row->mode);

	if (sa->to_set & CHOWN_BITS)
		sa->clear |= (row->mode & (S_ISGID | S_IXGRP)) == S_ISGID
				     ? META_CLEAR_SUID
				     : META_CLEAR_SUID | META_CLEAR_SGID;
	if (!(sa->to_set & FUSE_SET_ATTR_MODE) || (!bits && !(sa->to_set & STRIPS_MODE)))
		return;
	sa->clear |= clears(mode);
	sa->to_set &= ~FUSE_SET_ATTR_MODE;
}

/* Returns true if only the owner may do it, as setattr_prepare in the kernel: a process that may
   write may change the size, and set both times to now. */
static bool is_owners(int to_set)
{
	const int both = FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;

	if (to_set & FUSE_SET_ATTR_SIZE)
		return false;
	if (to_set & (FUSE_SET_ATTR_MODE | CHOWN_BITS))
		return true;
	return (to_set & TIME_BITS) && (to_set & both) != both;
}

/* Finds out which user must own the segment, and which bits go. */
static void look_at_row(fuse_req_t req, struct setattr *sa)
{
	int cap = sa->to_set & CHOWN_BITS ? CAP_CHOWN : CAP_FOWNER;
	struct segment_row row;
	const struct segment_row *seen = read_owner(sa, &row) ? &row : NULL;

	if (seen)
		take_stripped(sa, seen);
	if (is_owners(sa->to_set))
		sa->limited = caller_is_limited(req, cap, seen, &sa->c.command.owner);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct setattr *sa;
	int rc;

	(void)fi;
	if (inode_kind(ino) != INODE_IS_SEGMENT) {
		fuse_reply_err(req, EPERM);
		return;
	}
	sa = propose_new(req, sizeof(*sa), META_SETATTR, row_set);
	if (!sa)
		return;
	sa->id = ino;
	sa->attr = *attr;
	sa->to_set = to_set;
	if (to_set & STRIPS_MODE)
		sa->clear = setid_unseen(req, ino);
	look_at_row(req, sa);
	if (sa->to_set & FUSE_SET_ATTR_SIZE && sa->clear) {
		clear_and_cut(sa);
		return;
	}
	rc = do_setattr(sa);
	if (rc == -EAGAIN)
		wait_for_file(sa);
	else
		setattr_continue(sa, rc);
}

/* ---- statfs --------------------------------------------------------------------------------- */

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct store_space space;
	struct statvfs st = {.f_bsize = RAMP_PAGE_BYTES,
			     .f_frsize = RAMP_PAGE_BYTES,
			     .f_namemax = RAMP_NAME_MAX};

	(void)ino;
	store_space(mount_of(req)->config.store, &space);
	st.f_blocks = space.capacity_bytes / RAMP_PAGE_BYTES;
	st.f_bfree = st.f_bavail = space.free_bytes / RAMP_PAGE_BYTES;
	fuse_reply_statfs(req, &st);
}
