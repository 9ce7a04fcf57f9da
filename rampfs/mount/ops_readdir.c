/*
 * Listings, from this node's own tables. The leader is asked before the first piece (ask_leader.h):
 * a name that the listing lacks is a negative answer, too.
 */
#include "ops_readdir.h"

#include <errno.h>

#include "ask_leader.h"
#include "fuse_request.h"
#include "inode.h"
#include "request.h"

/* A listing under way. A cookie is the id of the entry before it, so it means the same to every
   daemon. "." and ".." are 1 and 2, .ramp is 3 in the root, whichever inode number it has. */
struct listing {
	struct mount *m;
	fuse_req_t req;
	char *buf;
	size_t size, used;
	uint64_t after;
};

/* Adds an entry. Returns 1 if the buffer is full. */
static int add_entry(struct listing *l, const char *name, fuse_ino_t ino, mode_t type,
		     uint64_t cookie)
{
	struct stat st = {.st_ino = ino, .st_mode = type};
	size_t need;

	if (cookie <= l->after)
		return 0;
	need = fuse_add_direntry(l->req, l->buf + l->used, l->size - l->used, name, &st,
				 (off_t)cookie);
	if (need > l->size - l->used)
		return 1;
	l->used += need;
	return 0;
}

static int add_node_entry(void *arg, const struct node_row *row)
{
	fuse_ino_t ino = inode_of_node(row->node);

	return row->role == NODE_REMOVED ? 0 : add_entry(arg, row->name, ino, S_IFDIR, ino);
}

static int add_segment_entry(void *arg, const struct segment_row *row)
{
	if (row->unlinked || row->phase == SEGMENT_ORPHAN)
		return 0;
	return add_entry(arg, row->name, row->id, S_IFREG, row->id);
}

static void list_views(struct listing *l)
{
	for (fuse_ino_t ino = INODE_STATUS; inode_ramp_file_name(ino); ino++)
		if (add_entry(l, inode_ramp_file_name(ino), ino, S_IFREG, ino))
			return;
}

static int list(struct listing *l, fuse_ino_t ino)
{
	enum inode_kind kind = inode_kind(ino);
	int rc;

	if (kind != INODE_IS_ROOT && kind != INODE_IS_RAMP && kind != INODE_IS_NODE)
		return -ENOTDIR;
	if (add_entry(l, ".", ino, S_IFDIR, 1) || add_entry(l, "..", INODE_ROOT, S_IFDIR, 2))
		return 0;
	if (kind == INODE_IS_RAMP) {
		list_views(l);
		return 0;
	}
	if (kind == INODE_IS_ROOT) {
		if (add_entry(l, ".ramp", INODE_RAMP, S_IFDIR, 3))
			return 0;
		rc = meta_each_node(l->m->config.meta, add_node_entry, l);
	} else {
		rc = meta_each_segment(l->m->config.meta, inode_node(ino), l->after,
				       add_segment_entry, l);
	}
	return rc < 0 ? rc : 0;
}

struct readdir_request {
	struct parked_request r; /* first */
	fuse_ino_t ino;
	size_t size;
};

/* Lists what stands after the cookie `off`. The calling thread's reply buffer holds the listing. */
static void reply_listing(struct mount *m, fuse_req_t req, fuse_ino_t ino, size_t size, off_t off)
{
	struct listing l = {.m = m, .req = req, .after = (uint64_t)off};
	int rc;

	l.size = size < REPLY_BYTES ? size : REPLY_BYTES;
	l.buf = (char *)reply_buffer();
	rc = l.buf ? list(&l, ino) : -ENOMEM;
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, l.buf, l.used);
}

static void list_again(struct parked_request *r)
{
	struct readdir_request *d = (struct readdir_request *)r;

	request_finish(r);
	reply_listing(r->mount, r->fuse, d->ino, d->size, 0);
	request_end(r);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct readdir_request *d;

	(void)fi;
	if (off || !ask_leader_helps(mount_of(req), ino)) {
		reply_listing(mount_of(req), req, ino, size, off);
		return;
	}
	d = request_new(req, sizeof(*d));
	if (!d)
		return;
	d->ino = ino;
	d->size = size;
	if (!ask_leader(&d->r, ino, list_again))
		list_again(&d->r);
}
