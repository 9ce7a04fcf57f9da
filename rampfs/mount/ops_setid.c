/*
 * Set-user-ID and set-group-ID, which go when somebody writes who has no CAP_FSETID.
 *
 * Before a truncate, a fallocate or a chown the kernel changes the mode by itself, but for a
 * set-group-ID without the group's x: of that it says nothing, so we look who asks. A write it only
 * marks: the bits are looked for beside the bytes, which costs every such write next to nothing;
 * where there are any the metadata clears them, and the write goes on when this node's tables have
 * it.
 *
 * How it fails: the write fails with what the metadata says (EROFS without a quorum), since a file
 * with those bits must not change under them. While the segment is on the move it waits, as any
 * write does.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "inode.h"
#include "ops.h"

#define GROUPS_LOOKED 1024 /* who is in more is in none of the others */

struct clear {
	struct change c; /* first */
	ramp_segment_t id;
	void (*then)(void *arg, int rc);
	void *arg;
};

/* Whether the caller is of that group; where /proc does not tell, not. */
static bool in_group(fuse_req_t req, gid_t gid)
{
	gid_t groups[GROUPS_LOOKED];
	int n;

	if (fuse_req_ctx(req)->gid == gid)
		return true;
	n = fuse_req_getgroups(req, GROUPS_LOOKED, groups);
	for (int i = 0; i < n && i < GROUPS_LOOKED; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* By the row where another node's chmod may not stand beside the bytes yet. */
static struct seg_owner look(struct mount *m, struct seg *seg)
{
	struct seg_owner owner = seg_owner(seg);
	struct segment_row row;

	if (__atomic_load_n(&m->rows_posted, __ATOMIC_ACQUIRE) &&
	    meta_segment(m->config.meta, seg_id(seg), &row) == 0)
		owner = (struct seg_owner){.mode = row.mode, .uid = row.uid, .gid = row.gid};
	return owner;
}

static bool in_our_user_namespace(pid_t pid)
{
	struct stat theirs, ours;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat(path, &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
	       theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

/* A capability of another user namespace is none here; where /proc does not tell, neither. */
static bool may_keep_setid(pid_t pid)
{
	unsigned long long effective = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	fclose(f);
	return effective >> CAP_FSETID & 1 && in_our_user_namespace(pid);
}

/* The row says it of a segment that is another node's, or has no file yet. */
static bool look_up(struct mount *m, ramp_segment_t id, struct seg_owner *owner)
{
	struct seg *seg = store_find(m->config.store, id);
	struct segment_row row;

	if (seg) {
		*owner = look(m, seg);
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
	struct seg_owner owner;

	if (!look_up(mount_of(req), ino, &owner) || (owner.mode & (S_ISGID | S_IXGRP)) != S_ISGID ||
	    in_group(req, owner.gid) || may_keep_setid(fuse_req_ctx(req)->pid))
		return 0;
	return META_CLEAR_SGID;
}

uint32_t setid_goes(fuse_req_t req, fuse_ino_t ino)
{
	struct seg *seg = store_find(mount_of(req)->config.store, ino);
	struct seg_owner owner;
	uint32_t which = 0;

	if (!seg)
		return 0;
	owner = look(mount_of(req), seg);
	if (owner.mode & S_ISUID)
		which |= META_CLEAR_SUID;
	/* Without the group's x it means something else, which the group may keep. */
	if (owner.mode & S_ISGID && (owner.mode & S_IXGRP || !in_group(req, owner.gid)))
		which |= META_CLEAR_SGID;
	seg_put(seg);
	return which;
}

/* Beside the bytes too, of an unlinked file there alone, before the write can be answered. */
static void note(struct mount *m, ramp_segment_t id, uint32_t which)
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

static void finish(struct clear *cl, int rc)
{
	void (*then)(void *arg, int rc) = cl->then;
	void *arg = cl->arg;

	cl->c.r.release = NULL;
	request_end(&cl->c.r);
	then(arg, rc);
}

/* The park has closed; the request has been left to the next daemon. */
static void abandon(struct request *r)
{
	struct clear *cl = (struct clear *)r;

	cl->then(cl->arg, -ESHUTDOWN);
}

/* By an id of our own each time: the request's would find the first answer again. */
static void propose(struct clear *cl)
{
	cl->c.command.cid = meta_own_command(cl->c.r.mount->config.meta);
	change_propose(&cl->c);
}

static enum park_verdict try_again(struct parked *parked)
{
	struct clear *cl = (struct clear *)parked;
	struct segment_row row;

	if (meta_segment(cl->c.r.mount->config.meta, cl->id, &row) == 0 &&
	    row.phase == SEGMENT_MOVING) {
		if (park_now_ms() - parked->since_ms < REQUEST_GATE_MS)
			return PARK_WAIT;
		finish(cl, -EBUSY);
	} else {
		propose(cl);
	}
	return PARK_DONE;
}

static void cleared(struct change *c)
{
	struct clear *cl = (struct clear *)c;
	int rc = c->reply.result;

	if (rc == -EBUSY) { /* on the move */
		c->r.parked.step = try_again;
		park_wait(c->r.mount->park, &c->r.parked, cl->id);
		return;
	}
	if (!rc || rc == -ENOENT) {
		note(c->r.mount, cl->id, c->command.flags);
		rc = 0;
	}
	finish(cl, rc == -ESHUTDOWN ? -EIO : rc);
}

void setid_clear(fuse_req_t req, fuse_ino_t ino, uint32_t which, void (*then)(void *arg, int rc),
		 void *arg)
{
	struct clear *cl = change_new(req, sizeof(*cl), META_SETATTR, cleared);

	if (!cl) {
		then(arg, -ESHUTDOWN);
		return;
	}
	cl->id = ino;
	cl->then = then;
	cl->arg = arg;
	cl->c.r.release = abandon;
	cl->c.command.id = ino;
	cl->c.command.flags = which | META_SET_CTIME;
	cl->c.command.attr.ctime = cl->c.command.now;
	propose(cl);
}
