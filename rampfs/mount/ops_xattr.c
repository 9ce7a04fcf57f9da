/*
 * user.ramp.*: facts of a segment (facts.c), five of which can be set, and three of which can be removed:
 * the extent, which gives the segment's addresses back, the mode of its moves, and the node that is kept near.
 *
 * They are answered by name and not listed, so that cp and rsync with extended attributes do not
 * carry a segment's id and owner to its copies; user.ramp.prefill alone is, where it was set.
 * user.ramp.hint is set alone: a range to be fetched first.
 * Attributes of any other name are not supported, but for ramp.alloc of a directory (ops_alloc.h).
 */
#include "ops_xattr.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "base/page.h"
#include "base/rate.h"
#include "base/transfer_mode.h"
#include "base/visible.h"
#include "caller.h"
#include "facts.h"
#include "inode.h"
#include "ops_alloc.h"
#include "passthrough.h"
#include "propose.h"
#include "pull/pull.h"

#define HINT	FACTS_PREFIX "hint"
#define PREFILL FACTS_PREFIX "prefill"

static int do_getxattr(struct mount *m, fuse_ino_t ino, const char *name, char **value, size_t *len)
{
	struct segment_row row;
	struct seg *seg;
	FILE *out;
	int rc;

	if (inode_kind(ino) != INODE_IS_SEGMENT || !facts_has(name))
		return -ENODATA;
	rc = meta_segment(m->config.meta, ino, &row);
	if (rc)
		return rc == -ENOENT ? -ENODATA : rc;
	if (!row.prefill && strcmp(name, PREFILL) == 0)
		return -ENODATA;
	out = open_memstream(value, len);
	if (!out)
		return -ENOMEM;
	seg = store_find(m->config.store, ino);
	facts_put_one(m, &row, seg, name, out);
	if (seg)
		seg_put(seg);
	return fclose(out) ? -ENOMEM : 0;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char *value = NULL;
	size_t len = 0;
	int rc = do_getxattr(mount_of(req), ino, name, &value, &len);

	if (rc)
		fuse_reply_err(req, -rc);
	else if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
	free(value);
}

#define VALUE_BYTES 96 /* a node's name, and a number */

/* ---- setxattr ------------------------------------------------------------------------------- */

/* Parses bytes with K, M, G or T behind them (powers of 1024), or 0x...; *rest: what follows. */
static int parse_bytes(const char *text, uint64_t *out, const char **rest)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	unsigned shift = 0;
	uint64_t v;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 0);
	if (errno || end == text)
		return -EINVAL;
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (v > UINT64_MAX >> shift)
		return -EINVAL;
	*out = v << shift;
	*rest = end;
	return 0;
}

/* The value is a power of two from 64 MiB on. */
static int parse_extent(const char *text, uint64_t *out)
{
	const char *rest;
	uint64_t v;
	int rc = parse_bytes(text, &v, &rest);

	if (rc || *rest)
		return -EINVAL;
	if (v < RAMP_EXTENT_MIN || (v & (v - 1)))
		return -EINVAL;
	*out = v;
	return 0;
}

static int parse_pages(const char *text, uint8_t *out)
{
	if (strcmp(text, "auto") == 0)
		*out = SEGMENT_PAGES_AUTO;
	else if (strcmp(text, "small") == 0)
		*out = SEGMENT_PAGES_SMALL;
	else if (strcmp(text, "huge") == 0)
		*out = SEGMENT_PAGES_HUGE;
	else
		return -EINVAL;
	return 0;
}

/* Parses the name of a mode; NULL: the default again. */
static int parse_move_mode(fuse_ino_t ino, const char *text, struct meta_command *command)
{
	int mode = text && strcmp(text, "default") != 0 ? transfer_mode_of(text) : -1;
	char shown[4 * VALUE_BYTES];

	command->flags = META_SET_MOVE;
	command->attr.move = (uint8_t)(mode + 1);
	if (mode != -EINVAL)
		return 0;
	visible(shown, sizeof(shown), text);
	log_info("segment %llu: user.ramp.mode does not take \"%s\" (" TRANSFER_MODE_NAMES
		 ", default)",
		 (unsigned long long)ino, shown);
	return -EINVAL;
}

/* Says in the log why a value of prefill is refused: setxattr(2) returns a number alone. */
static int refuse_prefill(fuse_ino_t ino, const char *text, int rc, const char *why)
{
	char shown[4 * VALUE_BYTES];

	visible(shown, sizeof(shown), text);
	log_info("segment %llu: user.ramp.prefill does not take \"%s\": %s",
		 (unsigned long long)ino, shown, why);
	return rc;
}

/* Parses "NODE", or "NODE LIMIT" with bytes a second; "none": none any more. */
static int parse_prefill(struct mount *m, fuse_ino_t ino, const char *text,
			 struct meta_command *command)
{
	char name[VALUE_BYTES];
	const char *limit = strchr(text, ' ');
	size_t len = limit ? (size_t)(limit - text) : strlen(text);
	struct node_row node;
	uint64_t bytes_s = 0;
	int rc;

	command->flags = META_SET_PREFILL;
	if (!limit && (!len || strcmp(text, "none") == 0))
		return 0;
	memcpy(name, text, len);
	name[len] = 0;
	if (limit && rate_parse(limit + 1, &bytes_s))
		return refuse_prefill(ino, text, -EINVAL,
				      "a limit is bytes a second, as 200M, at least 1M");
	rc = meta_node_by_name(m->config.meta, name, &node);
	if (rc && rc != -ENOENT)
		return refuse_prefill(ino, text, rc, strerror(-rc));
	if (rc || node.role == NODE_REMOVED)
		return refuse_prefill(ino, text, -ENOENT, "no such node");
	if (node.node > SEGMENT_PREFILL_NODES)
		return refuse_prefill(ino, text, -EOVERFLOW, "the node's number is too large");
	command->attr.prefill = node.node;
	bytes_s >>= 20;
	command->attr.prefill_mib_s =
		(uint16_t)(bytes_s < SEGMENT_PREFILL_MIB_S ? bytes_s : SEGMENT_PREFILL_MIB_S);
	return 0;
}

/* Parses the value into flags and attr of a SETATTR. */
static int parse_set(struct mount *m, fuse_ino_t ino, const char *name, const char *text,
		     struct meta_command *command)
{
	uint64_t addr, len;
	int rc;

	if (!facts_has(name))
		return -EOPNOTSUPP;
	name += sizeof(FACTS_PREFIX) - 1;
	if (strcmp(name, "extent") == 0) {
		command->flags = META_SET_EXTENT;
		rc = parse_extent(text, &command->attr.extent_asked);
		meta_arena(m->config.meta, &addr, &len);
		return rc ? rc : command->attr.extent_asked > len ? -EINVAL : 0;
	}
	if (strcmp(name, "pages") == 0) {
		command->flags = META_SET_PAGES;
		return parse_pages(text, &command->attr.pages);
	}
	if (strcmp(name, "mode") == 0)
		return parse_move_mode(ino, text, command);
	if (strcmp(name, "prefill") == 0)
		return parse_prefill(m, ino, text, command);
	if (strcmp(name, "mmap") == 0) {
		command->flags = META_SET_MMAP;
		command->attr.mmap = SEGMENT_MMAP_NONE;
		if (strcmp(text, "passthrough") == 0) {
			command->attr.mmap = SEGMENT_MMAP_PASSTHROUGH;
			return passthrough_able(m) ? 0 : -EOPNOTSUPP; /* Linux before 6.9 */
		}
		return strcmp(text, "none") == 0 ? 0 : -EINVAL;
	}
	return -EPERM;
}

/* Parses "OFFSET LENGTH"; without a length, or with 0: to the end. */
static int parse_range(const char *text, uint64_t *offset, uint64_t *len)
{
	const char *rest;
	int rc = parse_bytes(text, offset, &rest);

	*len = 0;
	if (!rc && *rest == ' ')
		rc = parse_bytes(rest + 1, len, &rest);
	return rc || *rest ? -EINVAL : 0;
}

static int set_hint(struct mount *m, fuse_ino_t ino, const char *text)
{
	uint64_t offset, len, first;
	struct seg *seg;
	bool local;

	if (parse_range(text, &offset, &len))
		return -EINVAL;
	seg = store_find(m->config.store, ino);
	local = seg && inode_is_local(seg);
	first = offset / RAMP_PAGE_BYTES;
	if (local && (!len || len > UINT64_MAX - offset))
		pull_hint(m->config.pull, seg, first, UINT64_MAX);
	else if (local)
		pull_hint(m->config.pull, seg, first, page_count(offset + len) - first);
	if (seg)
		seg_put(seg);
	return local ? 0 : -EREMOTE;
}

static void xattr_set(struct metadata_change *c)
{
	request_reply_err(&c->r, c->reply.result);
}

/* A prefill takes room and bandwidth of another node for the segment: it is for its owner to wish, as a move is.
   Returns 0 where the caller may, and flags of setxattr(2) are met. */
static int may_prefill(fuse_req_t req, fuse_ino_t ino, int flags)
{
	struct segment_row row;
	uint32_t owner;
	int rc = meta_segment(mount_of(req)->config.meta, ino, &row);

	if (rc)
		return rc;
	if (caller_is_limited(req, CAP_FOWNER, &row, &owner) && owner != row.uid)
		return -EPERM;
	if (flags & XATTR_CREATE && row.prefill)
		return -EEXIST;
	return flags & XATTR_REPLACE && !row.prefill ? -ENODATA : 0;
}

static void propose_set(fuse_req_t req, fuse_ino_t ino, const struct meta_command *parsed)
{
	struct metadata_change *c = propose_new(req, sizeof(*c), META_SETATTR, xattr_set);

	if (!c)
		return;
	c->command.id = ino;
	c->command.flags = parsed->flags;
	c->command.attr = parsed->attr;
	propose_change(c);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct meta_command parsed = {0};
	char text[VALUE_BYTES];
	bool prefill = false;
	int rc;

	if (inode_kind(ino) == INODE_IS_NODE && strcmp(name, ALLOC_ATTRIBUTE) == 0) {
		op_alloc(req, ino, value, size);
		return;
	}
	if (inode_kind(ino) != INODE_IS_SEGMENT) {
		rc = -EOPNOTSUPP;
	} else if (size >= sizeof(text)) {
		rc = -EINVAL;
	} else {
		memcpy(text, value, size);
		text[size] = 0;
		if (strcmp(name, HINT) == 0) {
			fuse_reply_err(req, -set_hint(mount_of(req), ino, text));
			return;
		}
		prefill = strcmp(name, PREFILL) == 0;
		rc = prefill ? may_prefill(req, ino, flags) : 0;
		if (!rc)
			rc = parse_set(mount_of(req), ino, name, text, &parsed);
	}
	if (!rc && !prefill && (flags & XATTR_CREATE))
		rc = -EEXIST; /* each of the others always has a value */
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	propose_set(req, ino, &parsed);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct segment_row row;
	size_t len = 0;

	if (inode_kind(ino) == INODE_IS_SEGMENT &&
	    !meta_segment(mount_of(req)->config.meta, ino, &row) && row.prefill)
		len = sizeof(PREFILL);
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, len ? PREFILL : NULL, len);
}

/* ---- removexattr ---------------------------------------------------------------------------- */

struct give_back {
	struct parked_request r; /* first */
	ramp_segment_t id;
};

/* Control loop. */
static void gave_back(void *arg, int result, const char *text)
{
	struct give_back *g = arg;

	/* An earlier daemon may have done it, and was killed before it answered. */
	if (result == -ENODATA && g->r.resent)
		result = 0;
	if (result)
		log_info("segment %llu keeps its addresses: %s", (unsigned long long)g->id,
			 *text ? text : strerror(-result));
	if (!g->r.mount->stopped) {
		request_reply_err(&g->r, result);
		return;
	}
	request_finish(&g->r);
	fuse_reply_none(g->r.fuse); /* the next daemon has it sent again */
	request_end(&g->r);
}

/* Returns 0 where the caller may give the segment's addresses back, and this node can. */
static int check_give_back(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = mount_of(req);
	struct segment_row row;
	uint32_t owner;
	int rc = meta_segment(m->config.meta, ino, &row);

	if (rc)
		return rc;
	if (caller_is_limited(req, CAP_FOWNER, &row, &owner) && owner != row.uid)
		return -EPERM;
	return row.node == m->self ? 0 : -EREMOTE;
}

static void remove_extent(fuse_req_t req, fuse_ino_t ino)
{
	struct give_back *g;
	int rc = check_give_back(req, ino);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	g = request_new(req, sizeof(*g));
	if (!g)
		return;
	g->id = ino;
	transfers_give_back(g->r.mount->config.transfers, ino, gave_back, g);
}

static void remove_prefill(fuse_req_t req, fuse_ino_t ino)
{
	const struct meta_command none = {.flags = META_SET_PREFILL};
	int rc = may_prefill(req, ino, XATTR_REPLACE);

	if (rc)
		fuse_reply_err(req, -rc);
	else
		propose_set(req, ino, &none);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct meta_command parsed = {0};

	if (inode_kind(ino) != INODE_IS_SEGMENT || !facts_has(name)) {
		fuse_reply_err(req, ENODATA);
	} else if (strcmp(name, FACTS_PREFIX "extent") == 0) {
		remove_extent(req, ino);
	} else if (strcmp(name, FACTS_PREFIX "mode") == 0) {
		parse_move_mode(ino, NULL, &parsed);
		propose_set(req, ino, &parsed);
	} else if (strcmp(name, PREFILL) == 0) {
		remove_prefill(req, ino);
	} else {
		fuse_reply_err(req, EPERM);
	}
}
