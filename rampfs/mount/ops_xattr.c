/*
 * user.ramp.*: what a segment is and where it lies, and three things that may be asked of it.
 *
 * They are answered by name and not listed, so that cp and rsync with extended attributes do not
 * carry a segment's id and owner to its copies. Attributes of any other name are not supported.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "inode.h"
#include "memory/pages.h"
#include "ops.h"
#include "passthrough.h"
#include "ramp_files.h"

#define PREFIX	    "user.ramp."
#define VALUE_BYTES 4096

struct facts {
	struct mount *m;
	struct segment_row row;
	struct seg *seg;       /* NULL: no bytes of it are on this node */
	struct node_row *node; /* the one that was asked for last */
};

typedef void fact_fn(const struct facts *f, FILE *out);

static void fact_id(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.id);
}

static void fact_addr(const struct facts *f, FILE *out)
{
	if (f->row.extent_len)
		fprintf(out, "0x%" PRIx64, f->row.extent_addr);
	else
		fputs("none", out);
}

static void fact_extent(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.extent_len ? f->row.extent_len : f->row.extent_asked);
}

/* NULL: there is no such node. */
static const struct node_row *find_node(const struct facts *f, ramp_node_t node)
{
	if (!node || (f->node->node != node && meta_node(f->m->config.meta, node, f->node)))
		return NULL;
	return f->node;
}

static void put_node(const struct facts *f, ramp_node_t node, FILE *out)
{
	const struct node_row *row = find_node(f, node);

	fputs(row ? row->name : "none", out);
}

static void fact_owner(const struct facts *f, FILE *out)
{
	put_node(f, f->row.node, out);
}

static void fact_state(const struct facts *f, FILE *out)
{
	fputs(view_state(f->m, &f->row, find_node(f, f->row.node)), out);
}

static void fact_epoch(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.epoch);
}

static void fact_resident(const struct facts *f, FILE *out)
{
	struct stat st;
	uint64_t have = 0, missing;

	if (f->seg && seg_stat(f->seg, &st) == 0) {
		have = (uint64_t)st.st_blocks * 512; /* at a target: reserved before it is pulled */
		missing = pages_missing(f->seg) * RAMP_PAGE_BYTES;
		have = have > missing ? have - missing : 0;
	}
	fprintf(out, "%" PRIu64, have);
}

static void fact_source(const struct facts *f, FILE *out)
{
	put_node(f, f->row.phase == SEGMENT_PULLING ? f->row.src : 0, out);
}

/* The byte ranges that are lost: "0-4096 8192-12288", cut with "..." where there are too many. */
static void fact_lost(const struct facts *f, FILE *out)
{
	uint64_t page = 0, pages, n;
	enum page_state state;
	long begin;

	if (!f->seg || !pages_lost(f->seg)) {
		fputs("none", out);
		return;
	}
	begin = ftell(out);
	pages = (seg_size(f->seg) + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES;
	for (bool first = true; page < pages; page += n) {
		n = pages_run(f->seg, page, pages - page, &state);
		if (!n)
			break;
		if (state != PAGE_LOST)
			continue;
		if (ftell(out) - begin > VALUE_BYTES - 64) {
			fputs(" ...", out);
			break;
		}
		fprintf(out, "%s%" PRIu64 "-%" PRIu64, first ? "" : " ", page * RAMP_PAGE_BYTES,
			(page + n) * RAMP_PAGE_BYTES);
		first = false;
	}
}

static void fact_pages(const struct facts *f, FILE *out)
{
	static const char *const names[] = {"auto", "small", "huge"};

	fputs(f->row.pages < 3 ? names[f->row.pages] : "auto", out);
}

static void fact_mmap(const struct facts *f, FILE *out)
{
	fputs(f->row.mmap == SEGMENT_MMAP_PASSTHROUGH ? "passthrough" : "none", out);
}

static const struct {
	const char *name;
	fact_fn *get;
} facts[] = {
	{"id", fact_id},
	{"addr", fact_addr},
	{"extent", fact_extent},
	{"owner", fact_owner},
	{"state", fact_state},
	{"epoch", fact_epoch},
	{"resident_bytes", fact_resident},
	{"source", fact_source},
	{"lost", fact_lost},
	{"pages", fact_pages},
	{"mmap", fact_mmap},
};

static fact_fn *find_fact(const char *name)
{
	if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
		return NULL;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (strcmp(facts[i].name, name + sizeof(PREFIX) - 1) == 0)
			return facts[i].get;
	return NULL;
}

static int do_getxattr(struct mount *m, fuse_ino_t ino, const char *name, char **value, size_t *len)
{
	fact_fn *get = find_fact(name);
	struct node_row node = {0};
	struct facts f = {.m = m, .node = &node};
	FILE *out;
	int rc;

	if (inode_kind(ino) != INODE_IS_SEGMENT || !get)
		return -ENODATA;
	rc = meta_segment(m->config.meta, ino, &f.row);
	if (rc)
		return rc == -ENOENT ? -ENODATA : rc;
	out = open_memstream(value, len);
	if (!out)
		return -ENOMEM;
	f.seg = store_find(m->config.store, ino);
	get(&f, out);
	if (f.seg)
		seg_put(f.seg);
	return fclose(out) ? -ENOMEM : 0;
}

void facts_put_names(FILE *out)
{
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		fprintf(out, "\t%s", facts[i].name);
}

void facts_put(struct mount *m, const struct segment_row *row, struct seg *seg,
	       struct node_row *node, FILE *out)
{
	struct facts f = {.m = m, .row = *row, .seg = seg, .node = node};

	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		fputc('\t', out);
		facts[i].get(&f, out);
	}
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

/* ---- setxattr ------------------------------------------------------------------------------- */

/* Bytes with K, M, G or T behind them (powers of 1024), or 0x...; a power of two from 64 MiB on. */
static int parse_extent(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	unsigned shift = 0;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 0);
	if (errno || end == text || text[0] == '-')
		return -EINVAL;
	if (*end) {
		unit = strchr(units, *end);
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (v > UINT64_MAX >> shift)
		return -EINVAL;
	v <<= shift;
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

/* What the value asks of the row: flags and attr of a SETATTR. */
static int parse_set(struct mount *m, const char *name, const char *text,
		     struct meta_command *command)
{
	uint64_t addr, len;
	int rc;

	if (!find_fact(name))
		return -EOPNOTSUPP;
	name += sizeof(PREFIX) - 1;
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
	if (strcmp(name, "mmap") == 0) {
		command->flags = META_SET_MMAP;
		command->attr.mmap = SEGMENT_MMAP_NONE;
		if (strcmp(text, "passthrough") == 0) {
			command->attr.mmap = SEGMENT_MMAP_PASSTHROUGH;
			return pass_able(m) ? 0 : -EOPNOTSUPP; /* Linux before 6.9 */
		}
		return strcmp(text, "none") == 0 ? 0 : -EINVAL;
	}
	return -EPERM;
}

static void xattr_set(struct change *c)
{
	request_reply_err(&c->r, c->reply.result);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct meta_command parsed = {0};
	struct change *c;
	char text[64];
	int rc;

	if (inode_kind(ino) != INODE_IS_SEGMENT) {
		rc = -EOPNOTSUPP;
	} else if (size >= sizeof(text)) {
		rc = -EINVAL;
	} else {
		memcpy(text, value, size);
		text[size] = 0;
		rc = parse_set(mount_of(req), name, text, &parsed);
	}
	if (!rc && (flags & XATTR_CREATE))
		rc = -EEXIST; /* each of them always has a value */
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	c = change_new(req, sizeof(*c), META_SETATTR, xattr_set);
	if (!c)
		return;
	c->command.id = ino;
	c->command.flags = parsed.flags;
	c->command.attr = parsed.attr;
	change_propose(c);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	(void)ino;
	if (size == 0)
		fuse_reply_xattr(req, 0);
	else
		fuse_reply_buf(req, NULL, 0);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)ino;
	fuse_reply_err(req, find_fact(name) ? EPERM : ENODATA);
}
