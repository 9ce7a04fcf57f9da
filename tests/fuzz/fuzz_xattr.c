/*
 * Extended attributes from users (ops_xattr.c, ops_alloc.c, facts.c): names and values of setfattr, names of
 * getfattr. The ops are called as libfuse calls them; this file answers their calls to libfuse,
 * meta and the store. Each request is answered exactly once, and proposed values are in range.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/transfer_mode.h"
#include "fuzz.h"
#include "memory/pages.h"
#include "mount/inode.h"
#include "mount/ops_create.h"
#include "mount/ops_xattr.h"
#include "mount/propose.h"

#define ARENA_LEN (UINT64_C(32) << 40)

static struct mount mount;
static unsigned int answers;
static uint8_t row_kind;

/* ---- libfuse -------------------------------------------------------------------------------- */

void *fuse_req_userdata(fuse_req_t req)
{
	(void)req;
	return &mount;
}

int fuse_reply_err(fuse_req_t req, int err)
{
	(void)req;
	fuzz_rule(err >= 0 && err < 4096);
	answers++;
	return 0;
}

int fuse_reply_xattr(fuse_req_t req, size_t count)
{
	(void)req;
	fuzz_rule(count <= XATTR_SIZE_MAX);
	answers++;
	return 0;
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	(void)req;
	fuzz_rule(!size || memchr(buf, 0, size) == NULL);
	answers++;
	return 0;
}

/* ---- the floors below ----------------------------------------------------------------------- */

int meta_segment(struct meta *meta, ramp_segment_t id, struct segment_row *row)
{
	(void)meta;
	*row = (struct segment_row){
		.id = id, .node = 1, .epoch = 3, .pages = row_kind, .prefill = row_kind & 16};
	if (row_kind & 1)
		row->extent_addr = row->extent_len = UINT64_C(1) << 45;
	return row_kind == 255 ? -ENOENT : 0;
}

int meta_node(struct meta *meta, ramp_node_t node, struct node_row *row)
{
	(void)meta;
	*row = (struct node_row){.node = node, .name = "a"};
	return 0;
}

int meta_node_by_name(struct meta *meta, const char *name, struct node_row *row)
{
	(void)meta;
	fuzz_rule(strlen(name) < 128);
	*row = (struct node_row){.node = name[0] ? (unsigned char)name[0] : 1};
	if (name[0] == 'r')
		row->role = NODE_REMOVED;
	if (name[0] == 'l')
		row->node = UINT32_MAX;
	return name[0] == 'x' ? -ENOENT : 0;
}

void meta_arena(struct meta *meta, uint64_t *addr, uint64_t *len)
{
	(void)meta;
	*addr = UINT64_C(1) << 45;
	*len = ARENA_LEN;
}

struct seg *store_find(struct store *store, ramp_segment_t id)
{
	(void)store;
	(void)id;
	return NULL;
}

bool inode_is_local(struct seg *seg)
{
	(void)seg;
	return true;
}

void pull_hint(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	(void)pull;
	(void)seg;
	fuzz_rule(count && count <= UINT64_MAX / RAMP_PAGE_BYTES + 2 &&
		  first <= UINT64_MAX / RAMP_PAGE_BYTES);
}

bool peer_up(struct peers *peers, ramp_node_t node)
{
	(void)peers;
	(void)node;
	return row_kind & 4;
}

bool transfers_rolled_back(struct transfers *transfers, ramp_segment_t id)
{
	(void)transfers;
	(void)id;
	return row_kind & 8;
}

bool transfers_move(struct transfers *transfers, ramp_segment_t id, struct transfer_move *out)
{
	(void)transfers;
	*out = (struct transfer_move){.from = 1, .to = 2, .state = "pre-copying", .since_ms = id};
	out->in_rounds = row_kind & 2;
	return row_kind & 8;
}

bool transfers_prefill(struct transfers *transfers, ramp_segment_t id, struct transfer_prefill *out)
{
	(void)transfers;
	*out = (struct transfer_prefill){.node = 2, .state = "waiting", .since_ms = id};
	strcpy(out->why, "the node is down");
	return row_kind & 8;
}

bool transfers_figures(struct transfers *transfers, ramp_segment_t id, struct msg_figures *out)
{
	(void)transfers;
	if (row_kind & 8)
		*out = (struct msg_figures){.id = id,
					    .epoch = 2,
					    .from = 1,
					    .to = 2,
					    .of_source = true,
					    .of_target = true};
	return row_kind & 8;
}

/* passthrough.c: whether the kernel supports it. */
bool passthrough_able(struct mount *m);
bool passthrough_able(struct mount *m)
{
	(void)m;
	return row_kind & 2;
}

enum inode_kind inode_kind(fuse_ino_t ino)
{
	return ino < RAMP_SEGMENT_ID_MIN ? INODE_IS_NODE : INODE_IS_SEGMENT;
}

void request_reply_err(struct parked_request *r, int rc)
{
	fuzz_rule(rc <= 0 && rc > -4096);
	answers++;
	free(r);
}

void *request_new(fuse_req_t fuse, size_t size)
{
	struct parked_request *r = calloc(1, size);

	(void)fuse;
	fuzz_rule(r != NULL);
	r->mount = &mount;
	return r;
}

void request_finish(struct parked_request *r)
{
	(void)r;
}

void request_end(struct parked_request *r)
{
	free(r);
}

void fuse_reply_none(fuse_req_t req)
{
	(void)req;
	answers++;
}

bool caller_is_limited(fuse_req_t req, int cap, const struct segment_row *seen, uint32_t *owner)
{
	(void)req;
	(void)cap;
	*owner = seen->uid + (row_kind >> 4 & 1);
	return row_kind & 32;
}

void transfers_give_back(struct transfers *transfers, ramp_segment_t id, migrate_done *done,
			 void *arg)
{
	(void)transfers;
	fuzz_rule(id >= RAMP_SEGMENT_ID_MIN);
	done(arg, row_kind & 64 ? -EBUSY : 0, row_kind & 128 ? "process 1 (x) maps it" : "");
}

void *propose_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		  void (*done)(struct metadata_change *c))
{
	struct metadata_change *c = calloc(1, size);

	(void)fuse;
	fuzz_rule(c && type == META_SETATTR && done);
	return c;
}

void propose_change(struct metadata_change *c)
{
	uint64_t asked = c->command.attr.extent_asked;

	switch (c->command.flags) {
	case META_SET_MOVE:
		fuzz_rule(c->command.attr.move <= TRANSFER_MODES);
		break;
	case META_SET_PREFILL:
		fuzz_rule(c->command.attr.prefill <= SEGMENT_PREFILL_NODES);
		fuzz_rule(c->command.attr.prefill_mib_s <= SEGMENT_PREFILL_MIB_S);
		break;
	case META_SET_EXTENT:
		fuzz_rule(asked >= RAMP_EXTENT_MIN && asked <= ARENA_LEN && !(asked & (asked - 1)));
		break;
	case META_SET_PAGES:
		fuzz_rule(c->command.attr.pages <= SEGMENT_PAGES_HUGE);
		break;
	default:
		fuzz_rule(c->command.flags == META_SET_MMAP);
	}
	answers++;
	free(c);
}

void create_segment(fuse_req_t req, fuse_ino_t parent, const char *name,
		    const struct meta_command *what, const struct fuse_file_info *fi)
{
	uint64_t asked = what->attr.extent_asked;

	(void)req;
	fuzz_rule(parent == 16 && !fi && what->flags == META_WITH_EXTENT);
	fuzz_rule(name[0] && strlen(name) <= RAMP_NAME_MAX && !strchr(name, '/'));
	fuzz_rule(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	fuzz_rule(what->attr.size && what->attr.size <= INT64_MAX - 4096);
	fuzz_rule(!asked ||
		  (asked >= RAMP_EXTENT_MIN && asked <= ARENA_LEN && !(asked & (asked - 1))));
	fuzz_rule(what->attr.mode <= 07777 && what->attr.pages <= SEGMENT_PAGES_HUGE);
	answers++;
}

/* No request is behind it: the ops only pass it on. */
#define REQ ((fuse_req_t)(uintptr_t)&mount)

/* The input: two bytes of choices, a name that ends in a zero, a value. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	fuse_ino_t ino = fuzz_u8(&in) & 1 ? 16 : 4097;
	char name[XATTR_NAME_MAX + 1] = "", *value;
	size_t len = 0;

	row_kind = fuzz_u8(&in);
	while (in.left && len < XATTR_NAME_MAX && (name[len] = (char)fuzz_u8(&in)))
		len++;
	name[len] = 0;
	value = malloc(in.left ? in.left
			       : 1); /* an allocation of its own, so that a read beyond it shows */
	memcpy(value, in.left ? (const char *)in.at : "", in.left);
	answers = 0;
	op_setxattr(REQ, ino, name, value, in.left, 0);
	fuzz_rule(answers == 1);
	op_setxattr(REQ, ino, name, value, in.left, XATTR_CREATE);
	fuzz_rule(answers == 2);
	op_getxattr(REQ, ino, name, 0);
	fuzz_rule(answers == 3);
	op_getxattr(REQ, ino, name, row_kind);
	fuzz_rule(answers == 4);
	op_removexattr(REQ, ino, name);
	fuzz_rule(answers == 5);
	op_setxattr(REQ, ino, name, value, in.left, XATTR_REPLACE);
	fuzz_rule(answers == 6);
	free(value);
	return 0;
}

void fuzz_seeds(void)
{
	static const char extent[] = "\0\0user.ramp.extent\0"
				     "256M";
	static const char hex[] = "\0\1user.ramp.extent\0"
				  "0x10000000";
	static const char pages[] = "\0\1user.ramp.pages\0small";
	static const char map[] = "\0\1user.ramp.mmap\0none";
	static const char mode[] = "\0\1user.ramp.mode\0precopy";
	static const char prefill[] = "\0\1user.ramp.prefill\0"
				      "b 200M";
	static const char lost[] = "\0\40user.ramp.lost";
	static const char hint[] = "\0\0user.ramp.hint\0"
				   "1M 0x10000";
	static const char addr[] = "\0\41user.ramp.addr";

	static const char alloc[] = "\1\0ramp.alloc\0"
				    "size=4096 extent=67108864 mode=600 pages=small name=a b";

	fuzz_seed("alloc", alloc, sizeof(alloc) - 1);
	fuzz_seed("extent", extent, sizeof(extent) - 1);
	fuzz_seed("hex", hex, sizeof(hex) - 1);
	fuzz_seed("pages", pages, sizeof(pages) - 1);
	fuzz_seed("mmap", map, sizeof(map) - 1);
	fuzz_seed("mode", mode, sizeof(mode) - 1);
	fuzz_seed("prefill", prefill, sizeof(prefill) - 1);
	fuzz_seed("lost", lost, sizeof(lost) - 1);
	fuzz_seed("hint", hint, sizeof(hint) - 1);
	fuzz_seed("addr", addr, sizeof(addr) - 1);
}
