/*
 * Set-user-ID and set-group-ID, which a write by a process without CAP_FSETID clears.
 *
 * Before a truncate, a fallocate or a chown the kernel changes the mode by itself, except for a
 * set-group-ID without the group's x: it does not report that, so we check the caller, as we do for
 * a program's MADV_REMOVE, which the shim sends past the kernel. A write is only marked by the
 * kernel: the bits are looked up beside the bytes, which costs every such write next to nothing.
 * Where there are any the metadata clears them, and the write continues when this node's tables
 * show it.
 *
 * How it fails: the write fails with the metadata's error (EROFS without a quorum), since a file
 * with those bits must not change under them. While the segment is on the move the clearing waits,
 * as any write does.
 */
#include "ops_setid.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "caller.h"
#include "inode.h"
#include "propose.h"

struct setid_clearing {
	struct metadata_change c; /* first */
	ramp_segment_t id;
	void (*then)(void *arg, int rc);
	void *arg;
};

struct caller {
	pid_t pid; /* a thread, or a process */
	gid_t gid;
};

static struct caller caller_of(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct caller){.pid = ctx->pid, .gid = ctx->gid};
}

/* Returns whether the caller is in that group; false where /proc does not tell. */
static bool in_group(const struct caller *caller, gid_t gid)
{
	char *groups, *at, *end;
	bool is = caller->gid == gid;

	if (is)
		return true;
	groups = caller_status(caller->pid, "Groups:");
	for (at = groups; at && !is; at = end) {
		unsigned long group = strtoul(at, &end, 10);

		if (end == at)
			break;
		is = group == gid;
	}
	free(groups);
	return is;
}

/* Reads the owner beside the bytes; or in the row, where another node's chmod may not be beside the
   bytes yet. */
static struct seg_owner setid_owner_of(struct mount *m, struct seg *seg)
{
	struct seg_owner owner = seg_owner(seg);
	struct segment_row row;

	if (atomic_load_explicit(&m->rows_posted, memory_order_acquire) &&
	    meta_segment(m->config.meta, seg_id(seg), &row) == 0)
		owner = (struct seg_owner){.mode = row.mode, .uid = row.uid, .gid = row.gid};
	return owner;
}

/* Finds the owner; in the row for a segment that is another node's, or has no file yet. */
static bool setid_find_owner(struct mount *m, ramp_segment_t id, struct seg_owner *owner)
{
	struct seg *seg = store_find(m->config.store, id);
	struct segment_row row;

	if (seg) {
		*owner = setid_owner_of(m, seg);
		seg_put(seg);
		return true;
	}
	if (meta_segment(m->config.meta, id, &row))
		return false;
	*owner = (struct seg_owner){.mode = row.mode, .uid = row.uid, .gid = row.gid};
	return true;
}

uint32_t setid_unseen(fuse_req_t req, fuse_ino_t ino)
{
	struct caller caller = caller_of(req);
	struct seg_owner owner;

	if (!setid_find_owner(mount_of(req), ino, &owner) ||
	    (owner.mode & (S_ISGID | S_IXGRP)) != S_ISGID || in_group(&caller, owner.gid) ||
	    caller_has(caller.pid, CAP_FSETID))
		return 0;
	return META_CLEAR_SGID;
}

/* Returns the bits that a write by a caller without CAP_FSETID clears. */
static uint32_t setid_that_go(struct mount *m, const struct caller *caller, ramp_segment_t id)
{
	struct seg *seg = store_find(m->config.store, id);
	struct seg_owner owner;
	uint32_t which = 0;

	if (!seg)
		return 0;
	owner = setid_owner_of(m, seg);
	if (owner.mode & S_ISUID)
		which |= META_CLEAR_SUID;
	/* Without the group's x a set-group-ID has another meaning (mandatory locking), and a
	   member of the group may keep it. */
	if (owner.mode & S_ISGID && (owner.mode & S_IXGRP || !in_group(caller, owner.gid)))
		which |= META_CLEAR_SGID;
	seg_put(seg);
	return which;
}

uint32_t setid_goes(fuse_req_t req, fuse_ino_t ino)
{
	struct caller caller = caller_of(req);

	return setid_that_go(mount_of(req), &caller, ino);
}

uint32_t setid_punched(struct mount *m, const struct punch_request *punch, ramp_segment_t id)
{
	struct caller caller;
	bool keeps = punch_caller(punch, &caller.pid, &caller.gid);

	return keeps ? 0 : setid_that_go(m, &caller, id);
}

bool setid_kept(pid_t pid)
{
	return caller_has(pid, CAP_FSETID);
}

/* Clears the bits beside the bytes too, before the write can be answered; an unlinked file has them
   there alone. */
static void setid_note(struct mount *m, ramp_segment_t id, uint32_t which)
{
	struct seg *seg = store_find(m->config.store, id);
	struct seg_owner owner;

	if (!seg)
		return;
	owner = seg_owner(seg);
	if (which & META_CLEAR_SUID)
		owner.mode &= ~(uint32_t)S_ISUID;
	if (which & META_CLEAR_SGID)
		owner.mode &= ~(uint32_t)S_ISGID;
	seg_note_owner(seg, &owner);
	seg_put(seg);
}

static void setid_finish(struct setid_clearing *cl, int rc)
{
	void (*then)(void *arg, int rc) = cl->then;
	void *arg = cl->arg;

	cl->c.r.release = NULL;
	request_finish(&cl->c.r);
	request_end(&cl->c.r);
	then(arg, rc);
}

/* Reports -ESHUTDOWN: the park has closed, and the request is left to the next daemon. */
static void setid_abandon(struct parked_request *r)
{
	struct setid_clearing *cl = (struct setid_clearing *)r;

	cl->then(cl->arg, -ESHUTDOWN);
}

/* Proposes, under a new id of our own each time: under the request's id the metadata would find the
   first answer again. */
static void setid_propose(struct setid_clearing *cl)
{
	cl->c.command.cid = meta_own_command(cl->c.r.mount->config.meta);
	propose_change(&cl->c);
}

static enum park_verdict setid_try_again(struct parked *parked)
{
	struct setid_clearing *cl = (struct setid_clearing *)parked;
	struct segment_row row;
	int rc = -EAGAIN;

	if (meta_segment(cl->c.r.mount->config.meta, cl->id, &row) || row.phase != SEGMENT_MOVING) {
		setid_propose(cl);
		return PARK_DONE;
	}
	if (request_judge(&cl->c.r, &rc, true) == PARK_WAIT)
		return PARK_WAIT;
	setid_finish(cl, rc);
	return PARK_DONE;
}

static void setid_cleared(struct metadata_change *c)
{
	struct setid_clearing *cl = (struct setid_clearing *)c;
	int rc = c->reply.result;

	if (rc == -EBUSY) { /* the segment is on the move */
		c->r.parked.step = setid_try_again;
		c->r.gate_since_ms = 0;
		if (c->r.fuse)
			request_interruptible(&c->r);
		park_wait(c->r.mount->park, &c->r.parked, cl->id);
		return;
	}
	if (!rc || rc == -ENOENT) {
		setid_note(c->r.mount, cl->id, c->command.flags);
		rc = 0;
	}
	setid_finish(cl, rc == -ESHUTDOWN ? -EIO : rc);
}

void setid_clear(const struct parked_request *r, ramp_segment_t id, uint32_t which,
		 void (*then)(void *arg, int rc), void *arg)
{
	struct setid_clearing *cl = calloc(1, sizeof(*cl));

	if (!cl) {
		then(arg, -ENOMEM);
		return;
	}
	request_init_own(&cl->c.r, r->mount);
	cl->c.r.fuse = r->fuse; /* a closed park leaves the request to the next daemon */
	cl->c.r.caller = r->caller;
	propose_init(&cl->c, META_SETATTR, setid_cleared);
	cl->id = id;
	cl->then = then;
	cl->arg = arg;
	cl->c.r.release = setid_abandon;
	cl->c.command.id = id;
	cl->c.command.flags = which | META_SET_CTIME;
	cl->c.command.attr.ctime = cl->c.command.now;
	setid_propose(cl);
}
