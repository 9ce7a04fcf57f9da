/*
 * New segments.
 *
 * A create commits the row, then makes the file (inode_segment_made), then answers. On a node that
 * has just started it first waits until the node's row names this incarnation, for up to 5 s. A
 * daemon killed between commit and file leaves a row without a file, which gets its file when it is
 * first used. Where the file can't be made the name is taken back.
 */
#include "ops_create.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "inode.h"
#include "ops_open.h"
#include "propose.h"

struct create_request {
	struct metadata_change c; /* first */
	bool opens;		  /* answered as an open of it, by fi; else with the result alone */
	struct fuse_file_info fi;
};

static void reply_create(struct create_request *cr, fuse_ino_t ino)
{
	struct parked_request *r = &cr->c.r;
	struct fuse_entry_param e;
	int rc = cr->opens ? inode_entry(r->mount, ino, &e) : 0;

	if (!rc)
		rc = inode_openable(r->mount, ino);
	if (rc || !cr->opens) {
		request_reply_err(r, rc);
		return;
	}
	ops_open_flags(&cr->fi);
	request_finish(r);
	fuse_reply_create(r->fuse, &e, &cr->fi);
	request_end(r);
}

struct take_back {
	struct mount *mount;
	ramp_segment_t id;
};

/* Lifts the doom when the name is gone. Where it is unknown whether the unlink happened it may
   happen yet: the row gets no file in this daemon's life. */
static void taken_back(void *arg, const struct meta_reply *reply)
{
	struct take_back *back = arg;

	if (reply->result == 0 || reply->result == -ENOENT)
		inode_taken_back(back->mount, back->id);
	free(back);
}

/* Unlinks the name again, since there was no room, memory or descriptor for the file. */
static void take_back(struct create_request *cr, ramp_segment_t id)
{
	struct mount *m = cr->c.r.mount;
	struct take_back *back = malloc(sizeof(*back));
	struct meta_command unlink = {
		.type = META_UNLINK,
		.id = id,
		.now = cr->c.command.now,
	};

	if (!back) {
		inode_taken_back(m, id); /* the name stays, and gets its file when it is used */
		return;
	}
	*back = (struct take_back){.mount = m, .id = id};
	unlink.cid = meta_own_command(m->config.meta);
	memcpy(unlink.name, cr->c.command.name, sizeof(unlink.name));
	meta_propose(m->config.meta, &unlink, taken_back, back);
}

static void segment_created(struct metadata_change *c)
{
	struct create_request *cr = (struct create_request *)c;
	struct mount *m = c->r.mount;
	struct seg *seg = NULL;
	bool doomed = false;
	fuse_ino_t ino;
	int rc = c->reply.result;

	/*
	 * Another node has put a segment there since the kernel looked. The kernel checks no
	 * permission of the inode that answers a create: ESTALE makes it look again, and check. A
	 * name that is not visible yet belongs to a move.
	 */
	if (rc == -EEXIST && cr->opens && !(cr->fi.flags & O_EXCL))
		rc = inode_lookup(m, inode_of_node(c->command.node), c->command.name, &ino)
			     ? -EBUSY
			     : -ESTALE;
	if (!rc)
		rc = inode_segment_made(m, c->reply.id, &seg, &doomed);
	if (seg)
		seg_put(seg);
	if (doomed)
		take_back(cr, c->reply.id);
	if (rc && rc != -EREMOTE)
		request_reply_err(&c->r, rc);
	else
		reply_create(cr, c->reply.id);
}

static int may_create(struct mount *m, fuse_ino_t parent, const char *name)
{
	if (inode_kind(parent) != INODE_IS_NODE)
		return -EPERM;
	if (strlen(name) > RAMP_NAME_MAX)
		return -ENAMETOOLONG;
	/* A segment is made on the node that will have its bytes. */
	return inode_node(parent) == m->self ? 0 : -EREMOTE;
}

#define UP_MS 5000 /* as long as any change waits for a quorum */

/* Returns true if the cluster knows this node's incarnation, so that segments can be made in its
   memory. */
static bool is_up(struct mount *m)
{
	struct node_row row;

	if (atomic_load(&m->up))
		return true;
	if (meta_node(m->config.meta, m->self, &row) || row.incarnation != m->incarnation)
		return false;
	atomic_store(&m->up, true);
	return true;
}

/* Returns false while the new file should wait for the memory of unlinked ones. A request that is
   sent again is proposed at once, since meta keeps results of the last life only for a while. */
static bool has_room(const struct metadata_change *c, uint64_t waited_ms)
{
	return c->r.resent || !store_awaits_memory(c->r.mount->config.store, waited_ms);
}

static enum park_verdict create_when_ready(struct parked *parked)
{
	struct metadata_change *c = (struct metadata_change *)parked;
	struct mount *m = c->r.mount;
	uint64_t waited_ms = park_now_ms() - parked->since_ms;
	bool up = is_up(m);

	if (up && has_room(c, waited_ms))
		propose_change(c);
	else if (request_interrupted(&c->r))
		request_reply_err(&c->r, -EINTR);
	else if (up || waited_ms < UP_MS)
		return PARK_WAIT;
	else
		request_reply_err(&c->r, meta_has_quorum(m->config.meta) ? -EHOSTDOWN : -EROFS);
	return PARK_DONE;
}

void create_segment(fuse_req_t req, fuse_ino_t parent, const char *name,
		    const struct meta_command *what, const struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct create_request *cr;
	int rc = may_create(mount_of(req), parent, name);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	cr = propose_new(req, sizeof(*cr), META_CREATE, segment_created);
	if (!cr)
		return;
	cr->opens = fi;
	if (fi)
		cr->fi = *fi;
	cr->c.command.node = inode_node(parent);
	cr->c.command.node_inc = mount_of(req)->incarnation;
	cr->c.command.flags = what->flags;
	cr->c.command.attr = what->attr;
	strcpy(cr->c.command.name, name);
	cr->c.command.attr.uid = ctx->uid;
	cr->c.command.attr.gid = ctx->gid;
	cr->c.command.attr.atime = cr->c.command.now;
	if (is_up(mount_of(req)) && has_room(&cr->c, 0)) {
		propose_change(&cr->c);
		return;
	}
	cr->c.r.parked.step = create_when_ready;
	request_interruptible(&cr->c.r);
	park_wait(mount_of(req)->park, &cr->c.r.parked, parent);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct meta_command what = {.attr.mode = mode & 07777};

	create_segment(req, parent, name, &what, fi);
}
