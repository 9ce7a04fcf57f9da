/*
 * The state machine's rules about segments that do not move. See fsm_segments.h. R1 to R13 are
 * defined in contrib/doc/design.md.
 *
 * How it fails: a rule that forbids a command gives an errno as its result, and nothing but that
 * result is written then. Every function checks first and writes last.
 */
#include "fsm_segments.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fsm_level.h"
#include "fsm_settings.h"
#include "journal_nodes.h"
#include "journal_segments.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1u << 0) /* linux/fs.h */
#endif

/* Returns the least power of two that is at least 64 MiB, what was asked for, and the larger of size
   and mapping: four times that where nothing was asked for, or (`old`) where less was. 0: there is
   no such number. */
static uint64_t extent_length(const struct meta_command *c, const struct segment_row *row, bool old)
{
	uint64_t need = row->size > c->map_len ? row->size : c->map_len;
	uint64_t asked = row->extent_asked > c->length ? row->extent_asked : c->length;
	uint64_t len = RAMP_EXTENT_MIN;

	if (need > UINT64_C(1) << 60)
		return 0;
	if (asked == 0 || old)
		need *= 4;
	if (asked > need)
		need = asked;
	while (len < need && len < UINT64_C(1) << 62)
		len *= 2;
	return len < need ? 0 : len;
}

/* Returns 0 where the user may have `len` more of the arena. */
static int check_use(struct apply *a, uint32_t uid, uint64_t len)
{
	uint64_t max = 0, used = 0;
	int rc;

	if (uid == 0)
		return 0;
	rc = fsm_arena_user_max(a->j, &max);
	rc = rc ? rc : journal_arena_use(a->j, uid, &used);
	if (rc < 0)
		return rc;
	return used > max || len > max - used ? -EDQUOT : 0;
}

/* Finds the extent of a row that has none, and that the user may have it. Nothing is written. */
static int find_extent(struct apply *a, struct segment_row *row)
{
	uint64_t level, len;
	bool old;
	int rc = fsm_level(a->j, &level);

	if (rc < 0)
		return rc;
	old = level < META_LEVEL_ARENA_USER;
	len = extent_length(a->c, row, old);
	if (len == 0)
		return -ENOSPC;
	rc = old ? 0 : check_use(a, row->uid, len);
	rc = rc ? rc : journal_find_extent(a->j, len, &row->extent_addr);
	row->extent_len = rc ? 0 : len;
	return rc;
}

static int put_extent(struct apply *a, const struct segment_row *row)
{
	return journal_put_extent(a->j, row->id, row->extent_addr, row->extent_len);
}

/* Fills the row of a CREATE from the command. */
static void fill_created(const struct meta_command *c, struct segment_row *row)
{
	memcpy(row->name, c->name, sizeof(row->name));
	row->mode = c->attr.mode & 07777;
	row->uid = c->attr.uid;
	row->gid = c->attr.gid;
	row->atime = row->mtime = row->ctime = c->now;
	if (!(c->flags & META_WITH_EXTENT))
		return;
	row->size = c->attr.size;
	row->extent_asked = c->attr.extent_asked;
	row->pages = c->attr.pages;
}

int fsm_create(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row = {.epoch = 1, .phase = SEGMENT_STABLE, .node = c->node};
	bool with_extent = c->flags & META_WITH_EXTENT;
	struct node_row node;
	int rc = journal_get_node(a->j, c->node, &node);

	if (rc < 0)
		return rc;
	if (node.role == NODE_REMOVED)
		return -ENOENT;
	if (node.incarnation == 0 || node.fenced == node.incarnation ||
	    (c->node_inc != 0 && c->node_inc != node.incarnation))
		return -EHOSTDOWN; /* no node would hold the bytes */
	row.node_inc = node.incarnation;
	fill_created(c, &row);
	rc = fsm_name_free(a->j, c->node, c->name);
	if (!rc && with_extent)
		rc = find_extent(a, &row);
	rc = rc ? rc : journal_next_segment_id(a->j, &row.id);
	if (!rc && with_extent)
		rc = put_extent(a, &row);
	rc = rc ? rc : journal_put_name(a->j, c->node, row.name, row.id, false);
	return rc ? rc : fsm_put(a, &row);
}

/* Returns 0 where the row still is as when the caller was permitted (META_IN_NODE,
   META_OF_OWNER). */
static int check_row(const struct meta_command *c, const struct segment_row *row)
{
	if (c->flags & META_IN_NODE && row->node != c->node)
		return -ENOENT;
	return c->flags & META_OF_OWNER && row->uid != c->owner ? -EPERM : 0;
}

/* Reads the row of a command on a listed segment. Returns 0, -ENOENT, -EPERM or -EBUSY (MOVING). */
static int listed(struct apply *a, struct segment_row *row)
{
	int rc = journal_get_segment(a->j, a->c->id, row);

	if (rc < 0)
		return rc;
	if (row->phase == SEGMENT_ORPHAN || row->unlinked)
		return -ENOENT;
	rc = check_row(a->c, row);
	if (rc < 0)
		return rc;
	return row->phase == SEGMENT_MOVING ? -EBUSY : 0;
}

/* The same, and the segment must still have the command's name; else -ENOENT. */
static int listed_by_name(struct apply *a, struct segment_row *row)
{
	int rc = listed(a, row);

	if (rc < 0)
		return rc;
	return strcmp(row->name, a->c->name) == 0 ? 0 : -ENOENT;
}

int fsm_unlink(struct apply *a)
{
	struct segment_row row;
	int rc = listed_by_name(a, &row);

	if (rc < 0)
		return rc;
	rc = fsm_drop(a, &row);
	fsm_reply(a, &row);
	return rc;
}

/* Unlinks the segment that RENAME replaces. The directories are sticky: -EPERM where its owner is
   not the expected one, since another user has made it meanwhile. -EBUSY: it moves, or the name is
   only reserved. */
static int rename_replace(struct apply *a, ramp_node_t node)
{
	struct segment_row other;
	ramp_segment_t id;
	bool reserved;
	int rc = journal_get_name(a->j, node, a->c->new_name, &id, &reserved);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (a->c->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (reserved)
		return -EBUSY;
	rc = journal_get_segment(a->j, id, &other);
	if (rc == 0 && a->c->flags & META_OF_OWNER && other.uid != a->c->other_owner)
		rc = -EPERM;
	if (rc == 0 && other.phase == SEGMENT_MOVING)
		rc = -EBUSY;
	if (rc < 0)
		return rc;
	a->res->reply.other = id;
	return fsm_drop(a, &other);
}

int fsm_rename(struct apply *a)
{
	struct segment_row row;
	int rc = listed_by_name(a, &row);

	if (rc < 0)
		return rc;
	if (strcmp(row.name, a->c->new_name) == 0) {
		fsm_reply(a, &row);
		return a->c->flags & RENAME_NOREPLACE ? -EEXIST : 0;
	}
	rc = rename_replace(a, row.node);
	rc = rc ? rc : journal_delete_name(a->j, row.node, row.name);
	if (rc < 0)
		return rc;
	memcpy(row.name, a->c->new_name, sizeof(row.name));
	row.epoch++;
	row.ctime = a->c->now;
	rc = journal_put_name(a->j, row.node, row.name, row.id, false);
	return rc ? rc : fsm_put(a, &row);
}

static bool is_later(struct meta_time a, struct meta_time b)
{
	return a.sec > b.sec || (a.sec == b.sec && a.nsec > b.nsec);
}

static bool is_unchanged(const struct meta_command *c, const struct segment_row *row)
{
	const struct meta_time *seen = &c->attr.ctime;

	return row->epoch == c->epoch &&
	       ((!seen->sec && !seen->nsec) || /* proposed by an older version */
		(seen->sec == row->ctime.sec && seen->nsec == row->ctime.nsec));
}

/* Sizes and times are hints here: the owner knows them (R13). So this is no step of the row, and
   the epoch is unchanged. A late hint meets another epoch, perhaps another owner, whose file would
   take old times from the row. An open segment may be unlinked and still be written to. */
int fsm_setattr(struct apply *a)
{
	const struct segment_row *v = &a->c->attr;
	uint32_t mask = a->c->flags;
	struct segment_row row;
	int rc = journal_get_segment(a->j, a->c->id, &row);

	rc = rc ? rc : check_row(a->c, &row);
	if (rc < 0)
		return rc;
	if (row.phase == SEGMENT_MOVING || ((mask & META_SET_EXTENT) && row.extent_len != 0))
		return -EBUSY;
	if ((mask & META_AT_EPOCH) && !is_unchanged(a->c, &row))
		return -ESTALE;
	if (mask & META_SET_MODE)
		row.mode = v->mode & 07777;
	if (mask & META_CLEAR_SUID)
		row.mode &= ~(uint32_t)S_ISUID;
	if (mask & META_CLEAR_SGID)
		row.mode &= ~(uint32_t)S_ISGID;
	if (mask & META_SET_UID)
		row.uid = v->uid;
	if (mask & META_SET_GID)
		row.gid = v->gid;
	if (mask & META_SET_SIZE)
		row.size = v->size;
	if (mask & META_SET_ATIME)
		row.atime = v->atime;
	if (mask & META_SET_MTIME)
		row.mtime = v->mtime;
	if (mask & META_SET_CTIME)
		row.ctime = v->ctime;
	if (mask & META_RAISE_CTIME && is_later(a->c->file_ctime, row.ctime))
		row.ctime = a->c->file_ctime;
	if (mask & META_SET_EXTENT)
		row.extent_asked = v->extent_asked;
	if (mask & META_SET_PAGES)
		row.pages = v->pages;
	if (mask & META_SET_MMAP)
		row.mmap = v->mmap;
	if (mask & META_SET_MOVE)
		row.move = v->move;
	if (mask & META_SET_PREFILL) {
		row.prefill = v->prefill;
		row.prefill_mib_s = v->prefill_mib_s;
	}
	return fsm_put(a, &row);
}

/*
 * Makes the row of a segment again that went with its name while its owner still has the file open.
 * So its addresses are its own until FREED, and go with that incarnation (R12). The owner's record
 * proves that it is the owner (R8). The epoch is above that of any attempt by which the segment
 * came to it, so that an earlier source sees that it is none any more (R7).
 */
static int orphan_recreate(struct apply *a, struct segment_row *row)
{
	const struct meta_command *c = a->c;
	int rc = c->node == 0 ? 0 : journal_segment_was(a->j, c->id);

	if (rc != 1)
		return rc < 0 ? rc : -ENOENT;
	rc = fsm_is_current(a->j, c->node, c->node_inc);
	if (rc != 1)
		return rc < 0 ? rc : -EHOSTDOWN;
	*row = c->attr;
	row->id = c->id;
	row->epoch = c->epoch + 1;
	row->phase = SEGMENT_ORPHAN;
	row->unlinked = true;
	row->node = c->node;
	row->node_inc = c->node_inc;
	return 0;
}

int fsm_extent(struct apply *a)
{
	struct segment_row row;
	int rc = journal_get_segment(a->j, a->c->id, &row);

	if (rc == -ENOENT)
		rc = orphan_recreate(a, &row);
	if (rc < 0)
		return rc;
	if (row.extent_len != 0) { /* stays in MOVING, which needn't refuse with EBUSY */
		fsm_reply_extent(a, &row);
		return 0;
	}
	if (row.phase == SEGMENT_MOVING)
		return -EBUSY;
	rc = find_extent(a, &row);
	rc = rc ? rc : put_extent(a, &row);
	return rc ? rc : fsm_put(a, &row);
}

/* The epoch is raised, so that a prepare by the row before is ESTALE, and its source looks again. */
int fsm_unextent(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row;
	int rc = journal_get_segment(a->j, c->id, &row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row.phase == SEGMENT_MOVING)
		return -EBUSY;
	if (row.phase != SEGMENT_STABLE || row.epoch != c->epoch)
		return -ESTALE;
	if (row.extent_len == 0)
		return -ENODATA;
	if (row.extent_addr != c->value)
		return -ESTALE;
	rc = journal_free_extent(a->j, row.extent_addr);
	if (rc < 0)
		return rc;
	row.extent_addr = row.extent_len = 0;
	row.epoch++;
	return fsm_put(a, &row);
}

int fsm_freed(struct apply *a)
{
	struct segment_row row;
	int rc = journal_get_segment(a->j, a->c->id, &row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row.phase != SEGMENT_ORPHAN)
		return -ESTALE;
	a->res->reply.id = row.id;
	return fsm_changed(a, row.id, journal_delete_segment(a->j, row.id));
}
