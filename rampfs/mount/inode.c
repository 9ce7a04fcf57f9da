/*
 * Attributes for stat(2): the row of the metadata, and at the owner the file's own size and times.
 */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "row_note.h"

static const struct {
	fuse_ino_t ino;
	const char *name;
} ramp_files[] = {
	{INODE_STATUS, "status"},
	{INODE_NODES, "nodes"},
	{INODE_METRICS, "metrics"},
	{INODE_SEGMENTS, "segments"},
};
#define N_RAMP_FILES (sizeof(ramp_files) / sizeof(ramp_files[0]))

enum inode_kind inode_kind(fuse_ino_t ino)
{
	if (ino >= RAMP_SEGMENT_ID_MIN)
		return INODE_IS_SEGMENT;
	if (ino > INODE_NODE)
		return INODE_IS_NODE;
	if (ino == INODE_ROOT)
		return INODE_IS_ROOT;
	if (ino == INODE_RAMP)
		return INODE_IS_RAMP;
	return inode_ramp_file_name(ino) ? INODE_IS_RAMP_FILE : INODE_IS_NONE;
}

const char *inode_ramp_file_name(fuse_ino_t ino)
{
	for (size_t i = 0; i < N_RAMP_FILES; i++)
		if (ramp_files[i].ino == ino)
			return ramp_files[i].name;
	return NULL;
}

/* ---- owner's attributes beside the bytes ---------------------------------------------------- */

void inode_note_owner(struct seg *seg, const struct segment_row *row)
{
	struct seg_owner owner = {.mode = row->mode, .uid = row->uid, .gid = row->gid};

	seg_note_owner(seg, &owner);
}

void inode_read_owner(struct seg *seg, struct segment_row *row)
{
	struct seg_owner owner = seg_owner(seg);

	row->mode = owner.mode;
	row->uid = owner.uid;
	row->gid = owner.gid;
}

/* ---- attributes ----------------------------------------------------------------------------- */

bool inode_is_local(struct seg *seg)
{
	struct record record;

	if (seg_damaged(seg))
		return false;
	record_get(seg, &record);
	return record_serves(&record);
}

static struct timespec to_timespec(struct meta_time t)
{
	return (struct timespec){.tv_sec = t.sec, .tv_nsec = t.nsec};
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static void attr_of_row(const struct segment_row *row, bool unlinked, struct stat *st)
{
	st->st_mode = S_IFREG | (row->mode & 07777);
	st->st_uid = row->uid;
	st->st_gid = row->gid;
	st->st_nlink = unlinked ? 0 : 1;
	st->st_size = (off_t)row->size;
	st->st_blocks = (blkcnt_t)((row->size + 511) / 512);
	st->st_atim = to_timespec(row->atime);
	st->st_mtim = to_timespec(row->mtime);
	st->st_ctim = to_timespec(row->ctime);
}

/* Takes size and times from the owner's file. ctime is the later of the file's and the row's, which
   chmod and chown raise. */
static void attr_of_file(struct seg *seg, struct stat *st)
{
	struct stat file;

	if (seg_stat(seg, &file))
		return;
	st->st_size = file.st_size;
	st->st_blocks = file.st_blocks;
	st->st_atim = file.st_atim;
	st->st_mtim = file.st_mtim;
	if (later(file.st_ctim, st->st_ctim))
		st->st_ctim = file.st_ctim;
}

static int segment_attr(struct mount *m, ramp_segment_t id, struct stat *st)
{
	struct segment_row row;
	struct seg *seg = store_find(m->config.store, id);
	bool local = seg && inode_is_local(seg);
	int rc = meta_segment(m->config.meta, id, &row);

	if (rc == -ENOENT && local) {
		memset(&row, 0, sizeof(row));
		inode_read_owner(seg, &row);
		attr_of_row(&row, true, st);
		rc = 0;
	} else if (rc == 0) {
		attr_of_row(&row, row.unlinked || row.phase == SEGMENT_ORPHAN, st);
	}
	if (rc == 0 && local)
		attr_of_file(seg, st);
	if (seg)
		seg_put(seg);
	return rc;
}

static void directory_attr(struct mount *m, mode_t mode, struct stat *st)
{
	st->st_mode = S_IFDIR | mode;
	st->st_nlink = 2;
	st->st_atim = st->st_mtim = st->st_ctim = m->born;
}

static int node_attr(struct mount *m, ramp_node_t node, struct stat *st)
{
	struct node_row row;
	int rc = meta_node(m->config.meta, node, &row);

	if (rc)
		return rc;
	if (row.role == NODE_REMOVED)
		return -ENOENT;
	directory_attr(m, 01777, st);
	return 0;
}

int inode_attr(struct mount *m, fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_blksize = RAMP_PAGE_BYTES;
	switch (inode_kind(ino)) {
	case INODE_IS_ROOT:
	case INODE_IS_RAMP:
		directory_attr(m, 0755, st);
		return 0;
	case INODE_IS_RAMP_FILE:
		st->st_mode = S_IFREG | 0444;
		st->st_nlink = 1;
		clock_gettime(CLOCK_REALTIME, &st->st_mtim);
		st->st_atim = st->st_ctim = st->st_mtim;
		return 0;
	case INODE_IS_NODE:
		return node_attr(m, inode_node(ino), st);
	case INODE_IS_SEGMENT:
		return segment_attr(m, ino, st);
	case INODE_IS_NONE:
		break;
	}
	return -ENOENT;
}

int inode_entry(struct mount *m, fuse_ino_t ino, struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = ino;
	e->generation = 1;
	return inode_attr(m, ino, &e->attr);
}

/* ---- names ---------------------------------------------------------------------------------- */

static int lookup_in_root(struct mount *m, const char *name, fuse_ino_t *ino)
{
	struct node_row row;
	int rc;

	if (strcmp(name, ".ramp") == 0) {
		*ino = INODE_RAMP;
		return 0;
	}
	rc = meta_node_by_name(m->config.meta, name, &row);
	if (rc || row.role == NODE_REMOVED)
		return rc ? rc : -ENOENT;
	*ino = inode_of_node(row.node);
	return 0;
}

int inode_lookup(struct mount *m, fuse_ino_t parent, const char *name, fuse_ino_t *ino)
{
	struct segment_row row;
	int rc;

	if (strlen(name) > RAMP_NAME_MAX)
		return -ENAMETOOLONG;
	switch (inode_kind(parent)) {
	case INODE_IS_ROOT:
		return lookup_in_root(m, name, ino);
	case INODE_IS_RAMP:
		for (size_t i = 0; i < N_RAMP_FILES; i++)
			if (strcmp(ramp_files[i].name, name) == 0) {
				*ino = ramp_files[i].ino;
				return 0;
			}
		return -ENOENT;
	case INODE_IS_NODE:
		rc = meta_lookup(m->config.meta, inode_node(parent), name, &row);
		*ino = row.id;
		return rc;
	default:
		return -ENOTDIR;
	}
}

/* ---- from number to bytes ------------------------------------------------------------------- */

/* Makes a row's file, with the row's owner, size and times, so that no hint needs to report a
   difference. */
static int begin_file(struct mount *m, const struct segment_row *row, struct seg **seg,
		      struct ramp_err *err)
{
	struct seg_dated dated = {.size = row->size,
				  .times = {to_timespec(row->atime), to_timespec(row->mtime)}};
	int rc = store_create_dated(m->config.store, row->id, RECORD_OWNED, row->epoch, &dated, seg,
				    err);

	if (!rc) {
		inode_note_owner(*seg, row);
		row_note_made(*seg, row);
	}
	return rc;
}

static bool same_meta_time(struct meta_time a, struct meta_time b)
{
	return a.sec == b.sec && a.nsec == b.nsec;
}

/* Returns whether a row without a file may be one whose file was never made: it was not moved and
   has no size, or it is as its create has made it (META_WITH_EXTENT). */
static bool is_unused(const struct segment_row *row)
{
	return row->phase == SEGMENT_STABLE && !row->k.source_id &&
	       (!row->size || (row->epoch == 1 && same_meta_time(row->atime, row->mtime) &&
			       same_meta_time(row->mtime, row->ctime)));
}

static bool is_short(int rc)
{
	return rc == -ENOSPC || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* Finds the slot of a doomed row; NULL: it is not doomed. m->make_lock is held. */
static ramp_segment_t *doomed_at(struct mount *m, ramp_segment_t id)
{
	for (unsigned int i = 0; i < DOOMED_MAX; i++)
		if (m->doomed[i] == id)
			return &m->doomed[i];
	return NULL;
}

/* Dooms a row. False: no slot is free, and the name stays. */
static bool doom(struct mount *m, ramp_segment_t id)
{
	ramp_segment_t *at = doomed_at(m, 0);

	if (at)
		*at = id;
	return at;
}

/*
 * Makes the file of a row of ours that has none. The file is looked up before the row is read: a
 * file that was there and went has left a newer row. Tables from before this life may be an old
 * copy (R8), in which the row may be another node's by now: they make no file. `made`: this node's
 * own command has just made the row. Where there is no room for its file the row is doomed under
 * the same lock, since a file that another request has made and written must not go with the name.
 */
static int make_missing(struct mount *m, ramp_segment_t id, bool *made, struct seg **seg)
{
	bool known = made || atomic_load(&m->caught_up);
	struct segment_row row;
	struct ramp_err err = {0};
	int rc;

	pthread_mutex_lock(&m->make_lock);
	*seg = store_find(m->config.store, id);
	rc = *seg ? 0 : meta_segment(m->config.meta, id, &row);
	if (*seg || rc)
		goto unlock;
	if (doomed_at(m, id)) {
		rc = -ENOENT;
	} else if (row.node != m->self) {
		rc = -EREMOTE;
	} else if (row.node_inc != m->incarnation || !is_unused(&row)) {
		rc = -EIO;
	} else if (!known) {
		rc = -EAGAIN;
	} else {
		rc = begin_file(m, &row, seg, &err);
		if (rc)
			log_warn("segment %llu (%s): %s", (unsigned long long)id, row.name,
				 err.text);
		if (made && is_short(rc))
			*made = doom(m, id);
	}
unlock:
	pthread_mutex_unlock(&m->make_lock);
	return rc;
}

static int find_segment(struct mount *m, ramp_segment_t id, bool *made, struct seg **seg)
{
	struct record record;
	struct segment_row row;

	*seg = store_find(m->config.store, id);
	if (!*seg)
		return make_missing(m, id, made, seg);
	record_get(*seg, &record);
	if (record.kind != RECORD_NONE || seg_damaged(*seg))
		return 0;
	/* The file is reserved for an attempt: until that is TAKEN the source owns the segment. */
	seg_put(*seg);
	*seg = NULL;
	return meta_segment(m->config.meta, id, &row) ? -ENOENT : -EREMOTE;
}

int inode_segment(struct mount *m, ramp_segment_t id, struct seg **seg)
{
	return find_segment(m, id, NULL, seg);
}

int inode_segment_made(struct mount *m, ramp_segment_t id, struct seg **seg, bool *doomed)
{
	*doomed = false;
	return find_segment(m, id, doomed, seg);
}

void inode_taken_back(struct mount *m, ramp_segment_t id)
{
	ramp_segment_t *at;

	pthread_mutex_lock(&m->make_lock);
	at = doomed_at(m, id);
	if (at)
		*at = 0;
	pthread_mutex_unlock(&m->make_lock);
}

int inode_openable(struct mount *m, ramp_segment_t id)
{
	struct seg *seg;
	int rc = inode_segment(m, id, &seg);

	if (rc == -EREMOTE)
		return 0; /* the segment may come here while it is open */
	if (rc)
		return rc;
	if (seg_damaged(seg) || transfers_rolled_back(m->config.transfers, id))
		rc = -EIO;
	seg_put(seg);
	return rc;
}
