/*
 * Names: lookups from this node's own tables, changes through the metadata.
 *
 * unlink and rename propose, besides the name, the segment's id, the directory, and the user that
 * must own it: other nodes' commands may come between the kernel's look and the commit, which
 * decides as the kernel would have then. The id is looked up after the kernel has looked, and the
 * name may have another by then.
 *
 * A request that is sent again may have happened already, and then its name is gone. It is proposed
 * all the same, since the command's id finds the first result.
 */
#include "ops_name.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "ask_leader.h"
#include "base/log.h"
#include "caller.h"
#include "inode.h"
#include "ops_move.h"
#include "orphans.h"
#include "propose.h"

struct lookup_request {
	struct parked_request r; /* first */
	fuse_ino_t parent;
	char name[RAMP_NAME_MAX + 1];
};

static int find_entry(struct mount *m, fuse_ino_t parent, const char *name,
		      struct fuse_entry_param *e)
{
	fuse_ino_t ino;
	int rc = inode_lookup(m, parent, name, &ino);

	return rc ? rc : inode_entry(m, ino, e);
}

static void lookup_again(struct parked_request *r)
{
	struct lookup_request *l = (struct lookup_request *)r;
	struct fuse_entry_param e;
	int rc = find_entry(r->mount, l->parent, l->name, &e);

	if (rc) {
		request_reply_err(r, rc);
		return;
	}
	request_finish(r);
	fuse_reply_entry(r->fuse, &e);
	request_end(r);
}

/* A name is not in the tables. */
static void lookup_absent(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct lookup_request *l;

	if (!ask_leader_helps(mount_of(req), parent)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	l = request_new(req, sizeof(*l));
	if (!l)
		return;
	l->parent = parent;
	strcpy(l->name, name);
	if (!ask_leader(&l->r, parent, lookup_again))
		lookup_again(&l->r);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int rc = find_entry(mount_of(req), parent, name, &e);

	if (rc == -ENOENT)
		lookup_absent(req, parent, name);
	else if (rc)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_entry(req, &e);
}

/* ---- unlink, rename in a directory ---------------------------------------------------------- */

static void name_changed(struct metadata_change *c)
{
	struct mount *m = c->r.mount;
	ramp_segment_t gone = c->command.type == META_UNLINK ? c->command.id : c->reply.other;

	if (!c->reply.result && gone) {
		orphan_goes(m, gone);
		orphan_forgotten(m, gone);
	}
	request_reply_err(&c->r, c->reply.result);
}

/* Limits the command to the owner: the directories are sticky and belong to root. */
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

/* Proposes the change of the name's row. A request that is sent again may find none (id 0). */
static void change_row(struct parked_request *r)
{
	struct metadata_change *c = (struct metadata_change *)r;
	struct segment_row row = {0};
	int rc = meta_lookup(r->mount->config.meta, c->command.node, c->command.name, &row);

	if (rc == -ENOENT && !r->resent) {
		if (!ask_leader(r, inode_of_node(c->command.node), change_row))
			request_reply_err(r, rc);
		return;
	}
	if (rc && rc != -ENOENT) {
		request_reply_err(r, rc);
		return;
	}
	c->command.id = row.id;
	limit_to_owner(r->fuse, &c->command, &row);
	propose_change(c);
}

/* Begins a change of a name in a node's directory; NULL after an error has been replied. */
static struct metadata_change *change_new(fuse_req_t req, enum meta_command_type type,
					  fuse_ino_t parent, const char *name)
{
	struct metadata_change *c = propose_new(req, sizeof(*c), type, name_changed);

	if (!c)
		return NULL;
	c->command.flags = META_IN_NODE;
	c->command.node = inode_node(parent);
	strcpy(c->command.name, name);
	return c;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct metadata_change *c;

	if (inode_kind(parent) != INODE_IS_NODE) {
		fuse_reply_err(req, EPERM);
	} else if (strlen(name) > RAMP_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
	} else {
		c = change_new(req, META_UNLINK, parent, name);
		if (c)
			change_row(&c->r);
	}
}

static void rename_here(fuse_req_t req, fuse_ino_t parent, const char *name, const char *newname,
			unsigned int flags)
{
	struct metadata_change *c = change_new(req, META_RENAME, parent, name);

	if (!c)
		return;
	c->command.flags |= flags;
	strcpy(c->command.new_name, newname);
	c->home = c->command.node; /* it answers for its own directory without a question */
	change_row(&c->r);
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
		rename_to_node(req, parent, name, newparent, newname);
	}
}

/* ---- not in a flat directory of segments ---------------------------------------------------- */

/*
 * link, symlink and mknod are EPERM, as their manual pages and POSIX have it for a filesystem that
 * lacks them and as vfat answers: programs look for that errno before they do without. No program
 * does without mkdir, and people take EPERM for a missing right: EOPNOTSUPP. rmdir is asked of a
 * node's directory alone, which is the cluster's and not a user's: EPERM.
 */

/* Says once in the log what mkdir's callers meet: a person reads it, and takes an errno for a
   missing right. */
static void hint_at_mkdir(struct mount *m, const char *name)
{
	if (!atomic_exchange(&m->mkdir_hinted, true))
		log_info(
			"mkdir %s: a node's directory is flat and holds segments alone; mkdir is "
			"EOPNOTSUPP. rampfs(8), \"WHAT PEOPLE TRY\", says what works instead (this "
			"line comes once)",
			name);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent;
	(void)mode;
	hint_at_mkdir(mount_of(req), name);
	fuse_reply_err(req, EOPNOTSUPP);
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

/* ---- forget: nothing is counted, but an unlinked segment may go now ------------------------- */

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
