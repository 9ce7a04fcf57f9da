/*
 * The state machine: the cluster's rules about segments (fsm_members.c: about members). The phases
 * are drawn in fsm.h; one function a command, the rule that it obeys beside it (R1 to R13: DESIGN,
 * "Ownership records").
 *
 * The happy path: fsm_apply decodes the command, finds that it is new, and calls its function,
 * which reads the rows, checks, and writes the rows; the result is kept for retries.
 *
 * How it fails: a rule that forbids a command gives an errno as its result, and then nothing but
 * that result was written. Every function checks first and writes last.
 */
#include "fsm_rules.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "journal_nodes.h"
#include "journal_results.h"
#include "journal_segments.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1u << 0) /* linux/fs.h */
#endif

static int changed(struct apply *a, ramp_segment_t id, int rc)
{
	a->res->changed[a->res->changed[0] != 0] = id;
	return rc;
}

/* Writes the row of a's command; the reply names it. */
static int put(struct apply *a, const struct segment_row *row)
{
	a->res->reply.id = row->id;
	a->res->reply.epoch = row->epoch;
	a->res->reply.extent_addr = row->extent_addr;
	a->res->reply.extent_len = row->extent_len;
	return changed(a, row->id, journal_put_segment(a->j, row));
}

/* ---- nodes: who is current (R1) ------------------------------------------------------------ */

/* 1: this incarnation is the node's, and not over. 0: not, or no such node. */
static int is_current(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	struct node_row row;
	int rc = journal_get_node(j, node, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return inc != 0 && row.role != NODE_REMOVED && row.incarnation == inc && row.fenced != inc;
}

/* ---- names --------------------------------------------------------------------------------- */

/* 0: free. -EEXIST: a segment has it, or a prepare reserved it. */
static int name_free(struct journal *j, ramp_node_t node, const char *name)
{
	ramp_segment_t id;
	bool reserved;
	int rc = journal_get_name(j, node, name, &id, &reserved);

	if (rc == -ENOENT)
		return 0;
	return rc < 0 ? rc : -EEXIST;
}

/* A segment goes back to a directory where its name may have been given away meanwhile. */
static int name_again(struct journal *j, ramp_node_t node, struct segment_row *row)
{
	char name[RAMP_NAME_MAX + 1];
	int i, rc = name_free(j, node, row->name);

	for (i = 1; rc == -EEXIST; i++) {
		char tail[48];

		if (i == 1)
			snprintf(tail, sizeof(tail), "~%llu", (unsigned long long)row->id);
		else
			snprintf(tail, sizeof(tail), "~%llu~%d", (unsigned long long)row->id, i);
		snprintf(name, sizeof(name), "%.*s%s", (int)(RAMP_NAME_MAX - strlen(tail)),
			 row->name, tail);
		rc = name_free(j, node, name);
		if (rc == 0)
			memcpy(row->name, name, sizeof(name));
	}
	return rc;
}

/* ---- segments ------------------------------------------------------------------------------ */

static int do_create(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row = {.epoch = 1, .phase = SEGMENT_STABLE, .node = c->node};
	struct node_row node;
	int rc = journal_get_node(a->j, c->node, &node);

	if (rc < 0)
		return rc;
	if (node.role == NODE_REMOVED)
		return -ENOENT;
	if (node.incarnation == 0 || node.fenced == node.incarnation ||
	    (c->node_inc != 0 && c->node_inc != node.incarnation))
		return -EHOSTDOWN; /* the bytes would be nowhere */
	rc = name_free(a->j, c->node, c->name);
	rc = rc ? rc : journal_next_segment_id(a->j, &row.id);
	if (rc < 0)
		return rc;
	row.node_inc = node.incarnation;
	memcpy(row.name, c->name, sizeof(row.name));
	row.mode = c->attr.mode & 07777;
	row.uid = c->attr.uid;
	row.gid = c->attr.gid;
	row.atime = row.mtime = row.ctime = c->now;
	rc = journal_put_name(a->j, c->node, row.name, row.id, false);
	return rc ? rc : put(a, &row);
}

/* Nobody knows the segment by name any more. Its addresses stay its own until its owner says that
   nothing maps them (FREED), or is over (R12); in PULLING it goes on being pulled (R9). */
static int drop(struct apply *a, struct segment_row *row)
{
	int over, rc = row->unlinked ? 0 : journal_delete_name(a->j, row->node, row->name);

	if (rc < 0)
		return rc;
	row->epoch++;
	row->unlinked = true;
	if (row->phase == SEGMENT_PULLING)
		return changed(a, row->id, journal_put_segment(a->j, row));
	over = fsm_is_over(a->j, row->node, row->node_inc);
	if (over < 0)
		return over;
	if ((row->extent_len == 0 && row->extent_asked == 0) || over)
		return changed(a, row->id, journal_delete_segment(a->j, row->id));
	row->phase = SEGMENT_ORPHAN;
	row->src = 0;
	row->src_inc = 0;
	return changed(a, row->id, journal_put_segment(a->j, row));
}

/* 0: the row is still what the caller was let do it to (META_IN_NODE, META_OF_OWNER). */
static int check_row(const struct meta_command *c, const struct segment_row *row)
{
	if (c->flags & META_IN_NODE && row->node != c->node)
		return -ENOENT;
	return c->flags & META_OF_OWNER && row->uid != c->owner ? -EPERM : 0;
}

/* The row of a command that names a segment which is listed: -ENOENT, -EPERM, -EBUSY (MOVING). */
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

static int do_unlink(struct apply *a)
{
	struct segment_row row;
	int rc = listed(a, &row);

	if (rc < 0)
		return rc;
	if (strcmp(row.name, a->c->name) != 0)
		return -ENOENT;
	rc = drop(a, &row);
	a->res->reply.id = row.id;
	a->res->reply.epoch = row.epoch;
	return rc;
}

/* The segment that RENAME replaces goes as if unlinked. The directories are sticky: -EPERM where
   it is not whose it may be, made meanwhile by somebody else. -EBUSY: it moves, or only reserves.
 */
static int replace(struct apply *a, ramp_node_t node)
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
	return drop(a, &other);
}

static int do_rename(struct apply *a)
{
	struct segment_row row;
	int rc = listed(a, &row);

	if (rc < 0)
		return rc;
	if (strcmp(row.name, a->c->name) != 0)
		return -ENOENT;
	if (strcmp(row.name, a->c->new_name) == 0) {
		a->res->reply.id = row.id;
		a->res->reply.epoch = row.epoch;
		return a->c->flags & RENAME_NOREPLACE ? -EEXIST : 0;
	}
	rc = replace(a, row.node);
	rc = rc ? rc : journal_delete_name(a->j, row.node, row.name);
	if (rc < 0)
		return rc;
	memcpy(row.name, a->c->new_name, sizeof(row.name));
	row.epoch++;
	row.ctime = a->c->now;
	rc = journal_put_name(a->j, row.node, row.name, row.id, false);
	return rc ? rc : put(a, &row);
}

static bool is_later(struct meta_time a, struct meta_time b)
{
	return a.sec > b.sec || (a.sec == b.sec && a.nsec > b.nsec);
}

static bool is_as_seen(const struct meta_command *c, const struct segment_row *row)
{
	const struct meta_time *seen = &c->attr.ctime;

	return row->epoch == c->epoch &&
	       ((!seen->sec && !seen->nsec) || /* said by an older version */
		(seen->sec == row->ctime.sec && seen->nsec == row->ctime.nsec));
}

/* Sizes and times are hints here: the owner knows (R13). So this is no step of the row: the epoch
   stays. A hint that is late comes to another epoch, maybe to another owner, whose file would take
   the times of the past from the row. An open segment may be unlinked and still be written to. */
static int do_setattr(struct apply *a)
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
	if ((mask & META_AT_EPOCH) && !is_as_seen(a->c, &row))
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
	return put(a, &row);
}

/* A power of two, at least 64 MiB, at least four times the larger of size and mapping; what the
   user asked for counts where it is more. 0: no such number. */
static uint64_t extent_length(const struct meta_command *c, const struct segment_row *row)
{
	uint64_t need = row->size > c->map_len ? row->size : c->map_len;
	uint64_t len = RAMP_EXTENT_MIN;

	if (need > UINT64_C(1) << 60)
		return 0;
	need *= 4;
	if (c->length > need)
		need = c->length;
	if (row->extent_asked > need)
		need = row->extent_asked;
	while (len < need && len < UINT64_C(1) << 62)
		len *= 2;
	return len < need ? 0 : len;
}

/*
 * A segment's row went with its name, and its owner has it open still: the row is there again, so
 * that its addresses are its own until FREED, and go with that incarnation (R12). That the owner is
 * one its record says (R8); the epoch is above that of any attempt by which the segment came to it
 * (R7: a source of the past sees that it is none).
 */
static int orphan_again(struct apply *a, struct segment_row *row)
{
	const struct meta_command *c = a->c;
	int rc = c->node == 0 ? 0 : journal_segment_was(a->j, c->id);

	if (rc != 1)
		return rc < 0 ? rc : -ENOENT;
	rc = is_current(a->j, c->node, c->node_inc);
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

static int do_extent(struct apply *a)
{
	struct segment_row row;
	uint64_t len;
	int rc = journal_get_segment(a->j, a->c->id, &row);

	if (rc == -ENOENT)
		rc = orphan_again(a, &row);
	if (rc < 0)
		return rc;
	if (row.extent_len != 0) { /* for life, so that MOVING needn't say EBUSY */
		a->res->reply.id = row.id;
		a->res->reply.epoch = row.epoch;
		a->res->reply.extent_addr = row.extent_addr;
		a->res->reply.extent_len = row.extent_len;
		return 0;
	}
	if (row.phase == SEGMENT_MOVING)
		return -EBUSY;
	len = extent_length(a->c, &row);
	if (len == 0)
		return -ENOSPC;
	rc = journal_take_extent(a->j, row.id, len, &row.extent_addr);
	if (rc < 0)
		return rc;
	row.extent_len = len;
	return put(a, &row);
}

static int do_freed(struct apply *a)
{
	struct segment_row row;
	int rc = journal_get_segment(a->j, a->c->id, &row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row.phase != SEGMENT_ORPHAN)
		return -ESTALE;
	a->res->reply.id = row.id;
	return changed(a, row.id, journal_delete_segment(a->j, row.id));
}

/* ---- migration (R3: epoch and k are compared, each step raises the epoch) ------------------ */

/* 0: the prepare may be. Both ends must be current (R1), the row as the source knows it (R3). */
static int check_prepare(struct apply *a, const struct segment_row *row, const char *name)
{
	const struct meta_command *c = a->c;
	int rc;

	if (c->node == c->src)
		return -EINVAL;
	if (row->phase == SEGMENT_MOVING)
		return -EBUSY;
	if (row->phase != SEGMENT_STABLE || row->epoch != c->epoch || row->node != c->src ||
	    row->node_inc != c->src_inc)
		return -ESTALE;
	rc = is_current(a->j, c->src, c->src_inc);
	if (rc == 1)
		rc = is_current(a->j, c->node, c->node_inc);
	if (rc != 1)
		return rc < 0 ? rc : -EHOSTDOWN;
	return name_free(a->j, c->node, name);
}

static int do_prepare(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row;
	const char *name;
	int rc = journal_get_segment(a->j, c->id, &row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row.phase == SEGMENT_MOVING && ramp_attempt_equal(row.k, c->k) &&
	    row.k_epoch == c->epoch + 1) {
		a->res->reply.id = row.id;
		a->res->reply.epoch = row.epoch;
		return 0; /* it is this one */
	}
	name = c->new_name[0] ? c->new_name : row.name;
	rc = check_prepare(a, &row, name);
	if (rc < 0)
		return rc;
	rc = journal_put_name(a->j, c->node, name, row.id, true);
	if (rc < 0)
		return rc;
	memmove(row.dst_name, name, strlen(name) + 1);
	row.phase = SEGMENT_MOVING;
	row.dst = c->node;
	row.dst_inc = c->node_inc;
	row.k = c->k;
	row.k_epoch = ++row.epoch;
	return put(a, &row);
}

/* The row of a message of attempt k, in `phase`. */
static int of_attempt(struct apply *a, enum segment_phase phase, struct segment_row *row)
{
	int rc = journal_get_segment(a->j, a->c->id, row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row->phase != phase || row->k_epoch != a->c->epoch ||
	    !ramp_attempt_equal(row->k, a->c->k))
		return -ESTALE;
	return 0;
}

static void end_attempt(struct segment_row *row)
{
	row->dst = row->src = 0;
	row->dst_inc = row->src_inc = 0;
	row->dst_name[0] = '\0';
	row->k = (struct ramp_attempt){0};
	row->k_epoch = 0;
}

/* It can't fail (R11): the name is reserved and nothing else touches the row in MOVING. */
static int do_taken(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_MOVING, &row);

	rc = rc ? rc : journal_delete_name(a->j, row.node, row.name);
	rc = rc ? rc : journal_put_name(a->j, row.dst, row.dst_name, row.id, false);
	if (rc < 0)
		return rc;
	row.phase = SEGMENT_PULLING;
	row.src = row.node;
	row.src_inc = row.node_inc;
	row.node = row.dst;
	row.node_inc = row.dst_inc;
	row.dst = 0;
	row.dst_inc = 0;
	memcpy(row.name, row.dst_name, sizeof(row.name));
	row.dst_name[0] = '\0';
	row.epoch++;
	return put(a, &row);
}

static int do_settled(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_PULLING, &row);

	if (rc < 0)
		return rc;
	end_attempt(&row);
	row.phase = SEGMENT_STABLE;
	a->res->reply.id = row.id;
	if (row.unlinked) {
		rc = drop(a, &row);
		a->res->reply.epoch = row.epoch;
		return rc;
	}
	row.epoch++;
	return put(a, &row);
}

/* Back to the source, before the target has taken it. */
static int abort_moving(struct apply *a, struct segment_row *row)
{
	int rc = journal_delete_name(a->j, row->dst, row->dst_name);

	if (rc < 0)
		return rc;
	end_attempt(row);
	row->phase = SEGMENT_STABLE;
	row->epoch++;
	return put(a, row);
}

/* Back to the source from a target that is over (R5). */
static int abort_pulling(struct apply *a, struct segment_row *row)
{
	int rc = row->unlinked ? 0 : journal_delete_name(a->j, row->node, row->name);

	if (rc < 0)
		return rc;
	row->node = row->src;
	row->node_inc = row->src_inc;
	end_attempt(row);
	row->phase = SEGMENT_STABLE;
	if (row->unlinked) { /* R9: dropped there */
		a->res->reply.id = row->id;
		rc = drop(a, row);
		a->res->reply.epoch = row->epoch;
		return rc;
	}
	rc = name_again(a->j, row->node, row);
	rc = rc ? rc : journal_put_name(a->j, row->node, row->name, row->id, false);
	row->epoch++;
	return rc ? rc : put(a, row);
}

/* 0: the proof is one. PROOF_OVER must name an end of the row that is over (R1, R5). */
static int check_proof(struct apply *a, ramp_node_t node, ramp_incarnation_t inc)
{
	int rc;

	if (a->c->proof != PROOF_OVER)
		return 0;
	if (a->c->proof_node != node || a->c->proof_inc != inc)
		return -EPERM;
	rc = fsm_is_over(a->j, node, inc);
	return rc < 0 ? rc : rc == 1 ? 0 : -EPERM;
}

/* NONE and REFUSED are the word of an end that may give it (R4, R5, R6), and hold only until the
   target has taken the segment; past that only OVER does. */
static int do_abort(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_MOVING, &row);

	if (rc == 0) {
		/* The source may be the one that is over: the target gives up (R6). */
		rc = a->c->proof_node == row.node ? check_proof(a, row.node, row.node_inc)
						  : check_proof(a, row.dst, row.dst_inc);
		return rc ? rc : abort_moving(a, &row);
	}
	if (rc != -ESTALE)
		return rc;
	rc = of_attempt(a, SEGMENT_PULLING, &row);
	if (rc < 0)
		return rc;
	if (a->c->proof != PROOF_OVER)
		return -ESTALE;
	rc = check_proof(a, row.node, row.node_inc);
	return rc ? rc : abort_pulling(a, &row);
}

/* ---- apply --------------------------------------------------------------------------------- */

static int (*const commands[])(struct apply *a) = {
	[META_CREATE] = do_create,
	[META_UNLINK] = do_unlink,
	[META_RENAME] = do_rename,
	[META_SETATTR] = do_setattr,
	[META_EXTENT] = do_extent,
	[META_PREPARE] = do_prepare,
	[META_TAKEN] = do_taken,
	[META_SETTLED] = do_settled,
	[META_ABORT] = do_abort,
	[META_FREED] = do_freed,
	[META_NODE_UP] = fsm_node_up,
	[META_NODE_FENCE] = fsm_node_fence,
	[META_MEMBER_ADD] = fsm_member_add,
	[META_MEMBER_PROMOTE] = fsm_member_promote,
	[META_MEMBER_REMOVE] = fsm_member_remove,
};

/* 1: the command is below its node's floor, a late copy. 0: it is not, and the floor is raised. */
static int is_stale(struct journal *j, const struct meta_origin *o)
{
	uint64_t life, lowest;
	int rc;

	if (o->node == 0)
		return 0;
	rc = journal_get_floor(j, o->node, &life, &lowest);
	if (rc < 0)
		return rc;
	if (o->life < life || (o->life == life && o->number < lowest))
		return 1;
	if (o->life == life && o->lowest <= lowest)
		return 0;
	return journal_put_floor(j, o->node, o->life, o->lowest);
}

static int apply_command(struct journal *j, uint64_t index, const struct raft_entry *entry,
			 struct fsm_result *res)
{
	struct meta_command c;
	struct apply a = {.j = j, .c = &c, .res = res};
	int rc;

	if (command_decode(entry->data->bytes, entry->data->len, &res->origin, &c) < 0)
		return 0;
	rc = is_stale(j, &res->origin);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	res->command = true;
	res->cid = c.cid;
	res->type = c.type;
	rc = journal_get_result(j, c.cid, &res->reply);
	if (rc != -ENOENT) {
		/* A retry of MEMBER_* still waits for the configuration. */
		res->subject = res->reply.node;
		return rc;
	}
	res->first = true;
	memset(&res->reply, 0, sizeof(res->reply));
	res->reply.result = commands[c.type](&a);
	if (journal_dead(j))
		return -EIO;
	return journal_put_result(j, c.cid, &res->reply, index);
}

int fsm_apply(struct journal *j, uint64_t index, const struct raft_entry *entry,
	      struct fsm_result *result)
{
	struct raft_conf conf;

	memset(result, 0, sizeof(*result));
	if (entry->type != RAFT_NOOP && !entry->data)
		return 0;
	switch (entry->type) {
	case RAFT_COMMAND:
		return apply_command(j, index, entry, result);
	case RAFT_CONF:
		if (raft_conf_decode(entry->data->bytes, entry->data->len, &conf) < 0)
			return 0;
		result->members = true;
		return journal_put_members(j, &conf);
	default:
		return journal_dead(j) ? -EIO : 0;
	}
}
