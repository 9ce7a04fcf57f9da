/*
 * Names: lookups and listings from this node's own tables, changes through the metadata.
 *
 * create: commit, then the file (inode_segment makes it), then the answer; on a node that has just
 * started not before its row names this memory, for 5 s. A daemon killed between the two leaves a
 * row without a file, which gets its file when it is first used. Where the file can't be made the
 * name is taken back. unlink and rename name the segment's id besides its name, the directory, and
 * whose it must be: other nodes' commands may come between what the kernel has looked at and the
 * commit, which decides as the kernel would have then. The id is looked up after the kernel did,
 * and may be another's already.
 *
 * A request that is sent again may have happened already, and then its name is gone: it is proposed
 * all the same, since the command's id finds the first result. A move is no command: which segment
 * it is about is handed over, and whether that is where it was to go tells whether it happened. One
 * that has gone on from there before it is looked at, within the daemon's restart, is ENOENT.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "caller.h"
#include "fuse_request.h"
#include "inode.h"
#include "ops.h"
#include "orphans.h"

static int fill_entry(struct mount *m, fuse_ino_t ino, struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = ino;
	e->generation = 1;
	return inode_attr(m, ino, &e->attr);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	struct fuse_entry_param e;
	fuse_ino_t ino;
	int rc = inode_lookup(m, parent, name, &ino);

	if (!rc)
		rc = fill_entry(m, ino, &e);
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_entry(req, &e);
}

/* ---- create --------------------------------------------------------------------------------- */

struct create {
	struct change c; /* first */
	struct fuse_file_info fi;
};

static void reply_create(struct create *cr, fuse_ino_t ino)
{
	struct request *r = &cr->c.r;
	struct fuse_entry_param e;
	int rc = fill_entry(r->mount, ino, &e);

	if (!rc)
		rc = inode_openable(r->mount, ino);
	if (rc) {
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

/* Where nobody knows whether it happened it may happen yet: no file in this daemon's life. */
static void taken_back(void *arg, const struct meta_reply *reply)
{
	struct take_back *back = arg;

	if (reply->result == 0 || reply->result == -ENOENT)
		inode_taken_back(back->mount, back->id);
	free(back);
}

/* No room, no memory or no descriptor for the file: the name goes again. */
static void take_back(struct create *cr, ramp_segment_t id)
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

static void created(struct change *c)
{
	struct create *cr = (struct create *)c;
	struct mount *m = c->r.mount;
	struct seg *seg = NULL;
	bool doomed = false;
	fuse_ino_t ino;
	int rc = c->reply.result;

	/*
	 * Another node has put a segment there since the kernel looked. The kernel checks no
	 * permission of what a create answers with: ESTALE makes it look again, and check. A name
	 * that is not to be seen yet is a move's.
	 */
	if (rc == -EEXIST && !(cr->fi.flags & O_EXCL))
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
	/* A segment is made where its bytes will lie. */
	return inode_node(parent) == m->self ? 0 : -EREMOTE;
}

#define UP_MS 5000 /* as any change waits for a quorum */

/* Something can be made in this memory: the cluster knows that it is this node's. */
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

/* It is to be filled: what was unlinked before is to be free again by then. What is sent again is
   proposed at once, since meta keeps results of the last life only so long. */
static bool has_room(const struct change *c, uint64_t waited_ms)
{
	return c->r.resent || !store_makes_room(c->r.mount->config.store, waited_ms);
}

static enum park_verdict create_when_ready(struct parked *parked)
{
	struct change *c = (struct change *)parked;
	struct mount *m = c->r.mount;
	uint64_t waited_ms = park_now_ms() - parked->since_ms;
	bool up = is_up(m);

	if (up && has_room(c, waited_ms))
		change_propose(c);
	else if (request_interrupted(&c->r))
		request_reply_err(&c->r, -EINTR);
	else if (up || waited_ms < UP_MS)
		return PARK_WAIT;
	else
		request_reply_err(&c->r, meta_has_quorum(m->config.meta) ? -EHOSTDOWN : -EROFS);
	return PARK_DONE;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct create *cr;
	int rc = may_create(mount_of(req), parent, name);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	cr = change_new(req, sizeof(*cr), META_CREATE, created);
	if (!cr)
		return;
	cr->fi = *fi;
	cr->c.command.node = inode_node(parent);
	cr->c.command.node_inc = mount_of(req)->incarnation;
	strcpy(cr->c.command.name, name);
	cr->c.command.attr.mode = mode & 07777;
	cr->c.command.attr.uid = ctx->uid;
	cr->c.command.attr.gid = ctx->gid;
	cr->c.command.attr.atime = cr->c.command.now;
	if (is_up(mount_of(req)) && has_room(&cr->c, 0)) {
		change_propose(&cr->c);
		return;
	}
	cr->c.r.parked.step = create_when_ready;
	request_interruptible(&cr->c.r);
	park_wait(mount_of(req)->park, &cr->c.r.parked, parent);
}

/* ---- unlink, rename in a directory ---------------------------------------------------------- */

static void name_changed(struct change *c)
{
	struct mount *m = c->r.mount;
	ramp_segment_t gone = c->command.type == META_UNLINK ? c->command.id : c->reply.other;

	if (!c->reply.result && gone) {
		orphan_goes(m, gone);
		orphan_forgotten(m, gone);
	}
	request_reply_err(&c->r, c->reply.result);
}

/* The row behind a name; for a request that is sent again, none is an answer too (id 0). */
static int named_row(fuse_req_t req, fuse_ino_t parent, const char *name, struct segment_row *row)
{
	int rc;

	memset(row, 0, sizeof(*row));
	if (inode_kind(parent) != INODE_IS_NODE)
		return -EPERM;
	if (strlen(name) > RAMP_NAME_MAX)
		return -ENAMETOOLONG;
	rc = meta_lookup(mount_of(req)->config.meta, inode_node(parent), name, row);
	return rc == -ENOENT && fuse_request_resent() ? 0 : rc;
}

/* The directories are sticky, and root's. */
static void limit_to_owner(fuse_req_t req, struct meta_command *c, const struct segment_row *row)
{
	struct meta *meta = mount_of(req)->config.meta;
	struct segment_row other;

	if (!caller_is_limited(req, CAP_FOWNER, row, &c->owner))
		return;
	c->flags |= META_OF_OWNER;
	if (c->type != META_RENAME)
		return;
	if (meta_lookup(meta, c->node, c->new_name, &other) ||
	    !caller_is_limited(req, CAP_FOWNER, &other, &c->other_owner))
		c->other_owner = fuse_req_ctx(req)->uid;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct segment_row row;
	struct change *c;
	int rc = named_row(req, parent, name, &row);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	c = change_new(req, sizeof(*c), META_UNLINK, name_changed);
	if (!c)
		return;
	c->command.id = row.id;
	c->command.flags = META_IN_NODE;
	c->command.node = inode_node(parent);
	strcpy(c->command.name, name);
	limit_to_owner(req, &c->command, &row);
	change_propose(c);
}

static void rename_here(fuse_req_t req, fuse_ino_t parent, const char *name, const char *newname,
			unsigned int flags)
{
	struct segment_row row;
	struct change *c;
	int rc = named_row(req, parent, name, &row);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	c = change_new(req, sizeof(*c), META_RENAME, name_changed);
	if (!c)
		return;
	c->command.id = row.id;
	c->command.flags = flags | META_IN_NODE;
	c->command.node = inode_node(parent);
	strcpy(c->command.name, name);
	strcpy(c->command.new_name, newname);
	limit_to_owner(req, &c->command, &row);
	change_propose(c);
}

/* ---- rename to another node: the migration -------------------------------------------------- */

#define MOVE_MS 5000 /* mv holds the kernel's rename lock of the whole mount */

struct move {
	struct request r; /* first */
	struct migrate_request what;
	ramp_node_t from;
	char name[RAMP_NAME_MAX + 1];
	bool limited; /* to what is this owner's */
	uint32_t owner;
	uint64_t handle; /* atomic; 0: not begun */
	uint32_t refs;	 /* atomic: who began it, and who is told the result */
};

static void put_move(struct move *mv)
{
	if (__atomic_sub_fetch(&mv->refs, 1, __ATOMIC_ACQ_REL) == 0)
		request_end(&mv->r);
}

static void on_move_interrupt(fuse_req_t fuse, void *data)
{
	struct move *mv = data;
	uint64_t handle;

	(void)fuse;
	__atomic_store_n(&mv->r.parked.interrupted, true, __ATOMIC_SEQ_CST);
	handle = __atomic_load_n(&mv->handle, __ATOMIC_SEQ_CST);
	if (handle)
		transfers_cancel(mv->r.mount->config.transfers, handle);
}

static void moved(void *arg, int result, const char *text)
{
	struct move *mv = arg;

	if (result)
		log_info("%s to node %u: %s", mv->name, mv->what.dst,
			 text && *text ? text : strerror(result < 0 ? -result : result));
	request_finish(&mv->r);
	if (mv->r.mount->stopped)
		fuse_reply_none(mv->r.fuse); /* the next daemon has it sent again, and looks */
	else
		fuse_reply_err(mv->r.fuse, result < 0 ? -result : result);
	put_move(mv);
}

static void begin_move(struct move *mv)
{
	struct transfers *transfers = mv->r.mount->config.transfers;
	uint64_t handle;

	handover_move_begin(mv->r.mount->handover, mv->r.unique, mv->what.id);
	mv->r.interruptible = true;
	fuse_req_interrupt_func(mv->r.fuse, on_move_interrupt, mv);
	handle = transfers_migrate(transfers, &mv->what, moved, mv);
	__atomic_store_n(&mv->handle, handle, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&mv->r.parked.interrupted, __ATOMIC_SEQ_CST))
		transfers_cancel(transfers, handle);
	put_move(mv);
}

/* Sent again, and not where it was. 1: it is where it was to go, by what a former daemon began.
   Anywhere else it is by another's move, or by one after this. */
static int look_where_it_went(const struct move *mv, ramp_segment_t id)
{
	struct segment_row row;
	int rc = meta_segment(mv->r.mount->config.meta, id, &row);

	if (rc)
		return rc;
	return row.node == mv->what.dst && strcmp(row.name, mv->what.dst_name) == 0 ? 1 : -ENOENT;
}

/* 0: to be moved; 1: it is there already (sent again); -EAGAIN: sent again, and on its way. */
static int look_before_move(struct move *mv)
{
	struct meta *meta = mv->r.mount->config.meta;
	ramp_segment_t begun = handover_move(mv->r.mount->handover, mv->r.unique);
	struct segment_row row, there;
	int rc = meta_lookup(meta, mv->from, mv->name, &row);

	if (begun && (rc == -ENOENT || (!rc && row.id != begun)))
		return look_where_it_went(mv, begun);
	if (rc)
		return rc;
	if (mv->limited && row.uid != mv->owner)
		return -EPERM; /* the name is another's since the kernel looked */
	/* Between the two looks it may have gone there. */
	if (meta_lookup(meta, mv->what.dst, mv->what.dst_name, &there) == 0)
		return there.id == row.id ? look_before_move(mv) : -EEXIST;
	mv->what.id = row.id;
	return row.phase == SEGMENT_MOVING && mv->r.resent ? -EAGAIN : 0;
}

/* The daemon that began the move has died: its attempt is given up, or goes through. */
static enum park_verdict move_step(struct parked *parked)
{
	struct move *mv = (struct move *)parked;
	int rc = look_before_move(mv);

	if (rc == -EAGAIN && park_now_ms() - parked->since_ms < MOVE_MS)
		return PARK_WAIT;
	if (rc == 0) {
		begin_move(mv);
		return PARK_DONE;
	}
	request_finish(&mv->r);
	fuse_reply_err(mv->r.fuse, rc == -EAGAIN ? EINPROGRESS : rc < 0 ? -rc : 0);
	request_end(&mv->r);
	return PARK_DONE;
}

static void rename_away(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
			const char *newname)
{
	struct move *mv = request_new(req, sizeof(*mv));
	struct segment_row row;
	int rc;

	if (!mv)
		return;
	mv->refs = 2;
	mv->from = inode_node(parent);
	strcpy(mv->name, name);
	rc = meta_lookup(mv->r.mount->config.meta, mv->from, name, &row);
	/* Whoever is found under that name only later is looked at, too. */
	mv->limited = caller_is_limited(req, CAP_FOWNER, rc ? NULL : &row, &mv->owner);
	mv->what.from = mv->from;
	strcpy(mv->what.from_name, name);
	mv->what.dst = inode_node(newparent);
	strcpy(mv->what.dst_name, newname);
	mv->what.mode = TRANSFER_LAZY;
	mv->what.timeout_ms = MOVE_MS;
	rc = look_before_move(mv);
	if (rc == -EAGAIN) {
		mv->r.parked.step = move_step;
		park_wait(mv->r.mount->park, &mv->r.parked, mv->what.id);
	} else if (rc) {
		fuse_reply_err(req, rc < 0 ? -rc : 0);
		request_end(&mv->r);
	} else {
		begin_move(mv);
	}
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags)
{
	if (flags & ~(unsigned int)RENAME_NOREPLACE) {
		fuse_reply_err(req, EINVAL);
	} else if (inode_kind(parent) != INODE_IS_NODE || inode_kind(newparent) != INODE_IS_NODE) {
		fuse_reply_err(req, EPERM);
	} else if (strlen(name) > RAMP_NAME_MAX || strlen(newname) > RAMP_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
	} else if (parent == newparent) {
		rename_here(req, parent, name, newname, flags);
	} else {
		rename_away(req, parent, name, newparent, newname);
	}
}

/* ---- readdir -------------------------------------------------------------------------------- */

/* A cookie is the id of the entry that it stands behind: it means the same to every daemon. "." and
   ".." are 1 and 2, .ramp is 3 in the root, whatever its inode is. */
struct listing {
	struct mount *m;
	fuse_req_t req;
	char *buf;
	size_t size, used;
	uint64_t after;
};

/* 1: the buffer is full. */
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

static int add_node(void *arg, const struct node_row *row)
{
	fuse_ino_t ino = inode_of_node(row->node);

	return row->role == NODE_REMOVED ? 0 : add_entry(arg, row->name, ino, S_IFDIR, ino);
}

static int add_segment(void *arg, const struct segment_row *row)
{
	if (row->unlinked || row->phase == SEGMENT_ORPHAN)
		return 0;
	return add_entry(arg, row->name, row->id, S_IFREG, row->id);
}

static void list_views(struct listing *l)
{
	for (fuse_ino_t ino = INODE_STATUS; inode_view_name(ino); ino++)
		if (add_entry(l, inode_view_name(ino), ino, S_IFREG, ino))
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
		rc = meta_each_node(l->m->config.meta, add_node, l);
	} else {
		rc = meta_each_segment(l->m->config.meta, inode_node(ino), l->after, add_segment,
				       l);
	}
	return rc < 0 ? rc : 0;
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing l = {.m = mount_of(req), .req = req, .after = (uint64_t)off};
	int rc;

	(void)fi;
	l.size = size < REPLY_BYTES ? size : REPLY_BYTES;
	l.buf = (char *)reply_buffer();
	rc = l.buf ? list(&l, ino) : -ENOMEM;
	if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_buf(req, l.buf, l.used);
}

/* ---- what a flat directory of segments has not ---------------------------------------------- */

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent;
	(void)name;
	(void)mode;
	fuse_reply_err(req, EPERM);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fuse_reply_err(req, EPERM);
}

void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	(void)link;
	(void)parent;
	(void)name;
	fuse_reply_err(req, EPERM);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	(void)ino;
	(void)newparent;
	(void)newname;
	fuse_reply_err(req, EPERM);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)rdev;
	fuse_reply_err(req, EPERM);
}

/* ---- forget: there are no counts, but an unlinked segment may go now ------------------------ */

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)nlookup;
	orphan_forgotten(mount_of(req), ino);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		orphan_forgotten(mount_of(req), forgets[i].ino);
	fuse_reply_none(req);
}
