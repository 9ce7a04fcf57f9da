/*
 * The bytes of commands and replies. See command.h.
 *
 * Each type of command has a line in `commands`: the fields of struct meta_command that it carries.
 * One function walks that line in both directions, so encoder and decoder can't differ.
 */
#include "command.h"

#include <errno.h>
#include <string.h>

#include "base/transfer_mode.h"
#include "base/wire.h"

#define COMMAND_VERSION 1

enum field {
	F_ID = 1 << 0,
	F_EPOCH = 1 << 1,
	F_K = 1 << 2,
	F_NODE = 1 << 3,
	F_NODE_INC = 1 << 4,
	F_SRC = 1 << 5, /* src, src_inc */
	F_PROOF = 1 << 6,
	F_FLAGS = 1 << 7,
	F_NAME = 1 << 8,
	F_NEW_NAME = 1 << 9,
	F_ADDRESS = 1 << 10,
	F_OWNERSHIP = 1 << 11, /* attr: mode, uid, gid */
	F_ATTR = 1 << 12,      /* attr: the rest that SETATTR can set */
	F_LENGTH = 1 << 13,    /* length, map_len */
	F_INSTANCE = 1 << 14,
	F_CAPACITY = 1 << 15,
	F_VALUE = 1 << 16,
	F_SETTING = 1 << 17,
};

static const struct {
	const char *name;
	unsigned int fields;
} commands[] = {
	[META_CREATE] = {"CREATE", F_NODE | F_NODE_INC | F_NAME | F_OWNERSHIP},
	[META_UNLINK] = {"UNLINK", F_ID | F_NAME},
	[META_RENAME] = {"RENAME", F_ID | F_NAME | F_NEW_NAME | F_FLAGS},
	[META_SETATTR] = {"SETATTR", F_ID | F_FLAGS | F_OWNERSHIP | F_ATTR},
	[META_EXTENT] = {"EXTENT",
			 F_ID | F_LENGTH | F_EPOCH | F_NODE | F_NODE_INC | F_OWNERSHIP | F_ATTR},
	[META_PREPARE] = {"PREPARE",
			  F_ID | F_EPOCH | F_K | F_NODE | F_NODE_INC | F_SRC | F_NEW_NAME},
	[META_TAKEN] = {"TAKEN", F_ID | F_EPOCH | F_K},
	[META_SETTLED] = {"SETTLED", F_ID | F_EPOCH | F_K},
	[META_ABORT] = {"ABORT", F_ID | F_EPOCH | F_K | F_PROOF},
	[META_FREED] = {"FREED", F_ID},
	[META_NODE_UP] = {"NODE_UP", F_NODE | F_NODE_INC | F_INSTANCE | F_ADDRESS | F_CAPACITY},
	[META_NODE_FENCE] = {"NODE_FENCE", F_NODE | F_NODE_INC},
	[META_MEMBER_ADD] = {"MEMBER_ADD", F_NEW_NAME | F_ADDRESS | F_CAPACITY},
	[META_MEMBER_PROMOTE] = {"MEMBER_PROMOTE", F_NODE},
	[META_MEMBER_REMOVE] = {"MEMBER_REMOVE", F_NODE},
	[META_LEVEL_UP] = {"LEVEL_UP", F_VALUE},
	[META_SET] = {"SET", F_SETTING | F_VALUE},
	[META_RECOVERED] = {"RECOVERED", F_ID | F_EPOCH | F_K | F_NODE | F_NODE_INC | F_SRC |
						 F_NEW_NAME | F_OWNERSHIP | F_ATTR},
	[META_MEMBER_AGAIN] = {"MEMBER_AGAIN", F_NODE | F_NODE_INC | F_INSTANCE},
	[META_UNEXTENT] = {"UNEXTENT", F_ID | F_EPOCH | F_VALUE},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

const char *command_name(enum meta_command_type type)
{
	return (size_t)type < N_COMMANDS && commands[type].name ? commands[type].name : "?";
}

uint64_t command_level(const struct meta_command *c)
{
	if (c->type == META_SETATTR && c->flags & META_SET_PREFILL)
		return META_LEVEL_PREFILL;
	if (c->type == META_SETATTR && c->flags & META_SET_MOVE)
		return META_LEVEL_MOVE;
	if (c->type == META_UNEXTENT)
		return META_LEVEL_UNEXTENT;
	if (c->type == META_CREATE && c->flags)
		return META_LEVEL_CREATE_EXTENT;
	return c->type == META_SET ? META_LEVEL_ARENA_USER : 0;
}

/* One direction or the other: exactly one of w and r is set. */
struct codec {
	struct wire_w *w;
	struct wire_r *r;
	bool bad;
};

static void code_u64(struct codec *c, uint64_t *v)
{
	if (c->w)
		wire_put_u64(c->w, *v);
	else
		*v = wire_get_u64(c->r);
}

static void code_u32(struct codec *c, uint32_t *v)
{
	if (c->w)
		wire_put_u32(c->w, *v);
	else
		*v = wire_get_u32(c->r);
}

static void code_u8(struct codec *c, uint8_t *v)
{
	if (c->w)
		wire_put_u8(c->w, *v);
	else
		*v = wire_get_u8(c->r);
}

/* Returns true for a name that is not empty, "." or "..", and has no slash. */
static bool name_ok(const char *s)
{
	return s[0] != '\0' && strcmp(s, ".") != 0 && strcmp(s, "..") != 0 && !strchr(s, '/');
}

static void code_str(struct codec *c, char *s, size_t cap)
{
	if (c->w && strnlen(s, cap) == cap)
		c->bad = true;
	else if (c->w)
		wire_put_str(c->w, s);
	else
		wire_get_str(c->r, s, cap);
}

static void code_time(struct codec *c, struct meta_time *t)
{
	uint64_t sec = (uint64_t)t->sec;

	code_u64(c, &sec);
	code_u32(c, &t->nsec);
	t->sec = (int64_t)sec;
	if (t->nsec >= 1000000000)
		c->bad = true;
}

static void code_names(struct codec *c, unsigned int f, struct meta_command *m)
{
	if (f & F_NAME)
		code_str(c, m->name, sizeof(m->name));
	if (f & F_NEW_NAME)
		code_str(c, m->new_name, sizeof(m->new_name));
	if (f & F_ADDRESS)
		code_str(c, m->address, sizeof(m->address));
	if (c->bad || (c->r && c->r->bad))
		return;
	if ((f & F_NAME) && !name_ok(m->name))
		c->bad = true;
	/* PREPARE without a new name keeps the segment's name; RECOVERED need not know one. */
	if ((f & F_NEW_NAME) && !name_ok(m->new_name) &&
	    !((m->type == META_PREPARE || m->type == META_RECOVERED) && m->new_name[0] == '\0'))
		c->bad = true;
}

static void code_pages(struct codec *c, struct segment_row *a)
{
	code_u8(c, &a->pages);
	if (a->pages > SEGMENT_PAGES_HUGE)
		c->bad = true;
}

static void code_attr(struct codec *c, unsigned int f, struct segment_row *a)
{
	uint64_t asked;
	uint8_t ways;

	if (f & F_OWNERSHIP) {
		code_u32(c, &a->mode);
		code_u32(c, &a->uid);
		code_u32(c, &a->gid);
	}
	if (!(f & F_ATTR))
		return;
	ways = segment_ways(a);
	asked = segment_asked(a);
	code_u64(c, &a->size);
	code_time(c, &a->atime);
	code_time(c, &a->mtime);
	code_time(c, &a->ctime);
	code_u64(c, &asked);
	segment_set_asked(a, asked);
	code_pages(c, a);
	code_u8(c, &ways);
	segment_set_ways(a, ways);
	if (a->mmap > SEGMENT_MMAP_PASSTHROUGH || a->move > TRANSFER_MODES)
		c->bad = true;
}

static void code_proof(struct codec *c, struct meta_command *m)
{
	uint8_t proof = (uint8_t)m->proof;

	code_u8(c, &proof);
	m->proof = (enum meta_proof)proof;
	code_u32(c, &m->proof_node);
	code_u64(c, &m->proof_inc);
	if (proof > PROOF_OVER)
		c->bad = true;
}

/* Codes flags behind everything else, and only where there are some: so a command without has the
   bytes that it had before its type could have any. */
static void code_late_flags(struct codec *c, struct meta_command *m)
{
	if (c->w ? m->flags == 0 : c->r->pos == c->r->len)
		return;
	code_u32(c, &m->flags);
	if (!m->flags)
		c->bad = true;
}

/* Codes what a CREATE with an extent has more. No other flag of it exists. */
static void code_with_extent(struct codec *c, struct meta_command *m)
{
	code_late_flags(c, m);
	if (!m->flags)
		return;
	if (m->flags != META_WITH_EXTENT)
		c->bad = true;
	code_u64(c, &m->attr.size);
	code_u64(c, &m->attr.extent_asked);
	code_pages(c, &m->attr);
}

/* Codes the conditions, in the same way. */
static void code_conditions(struct codec *c, struct meta_command *m)
{
	if (m->type == META_UNLINK)
		code_late_flags(c, m);
	if (m->flags & META_RAISE_CTIME)
		code_time(c, &m->file_ctime);
	if (m->flags & META_IN_NODE)
		code_u32(c, &m->node);
	if (m->flags & META_OF_OWNER)
		code_u32(c, &m->owner);
	if (m->flags & META_OF_OWNER && m->type == META_RENAME)
		code_u32(c, &m->other_owner);
}

static void code_setting(struct codec *c, struct meta_command *m)
{
	uint32_t setting = (uint32_t)m->setting;

	code_u32(c, &setting);
	m->setting = (enum meta_setting)setting;
	if (setting >= META_SETTINGS)
		c->bad = true;
}

static void code_fields(struct codec *c, unsigned int f, struct meta_command *m)
{
	if (f & F_ID)
		code_u64(c, &m->id);
	if (f & F_EPOCH)
		code_u64(c, &m->epoch);
	if (f & F_K) {
		code_u64(c, &m->k.source_id);
		code_u64(c, &m->k.ticket);
	}
	if (f & F_NODE)
		code_u32(c, &m->node);
	if (f & F_NODE_INC)
		code_u64(c, &m->node_inc);
	if (f & F_SRC) {
		code_u32(c, &m->src);
		code_u64(c, &m->src_inc);
	}
	if (f & F_PROOF)
		code_proof(c, m);
	if (f & F_FLAGS)
		code_u32(c, &m->flags);
	if (m->type == META_SETATTR && m->flags & META_AT_EPOCH)
		code_u64(c, &m->epoch);
	if (f & F_LENGTH) {
		code_u64(c, &m->length);
		code_u64(c, &m->map_len);
	}
	if (f & F_INSTANCE)
		code_u64(c, &m->instance);
	if (f & F_CAPACITY)
		code_u64(c, &m->capacity);
	if (f & F_SETTING)
		code_setting(c, m);
	if (f & F_VALUE)
		code_u64(c, &m->value);
	code_attr(c, f, &m->attr);
	code_names(c, f, m);
	if (m->type == META_CREATE)
		code_with_extent(c, m);
	if (m->type == META_UNLINK || m->type == META_RENAME || m->type == META_SETATTR)
		code_conditions(c, m);
}

#define OLD_EXTENT_FIELDS (F_ID | F_LENGTH)
#define OLD_EXTENT_BYTES  24 /* their length */

/* Returns the fields to decode. Before EXTENT could be asked for orphans it carried only the old
   fields, under the same version, and a journal may hold such a command, not yet applied. The state
   machine takes it as it was meant: the row exists, or ENOENT. */
static unsigned int fields_left(uint8_t type, const struct wire_r *r)
{
	if (type == META_EXTENT && r->len - r->pos == OLD_EXTENT_BYTES)
		return OLD_EXTENT_FIELDS;
	return commands[type].fields;
}

static void code_origin(struct codec *c, struct meta_origin *o)
{
	code_u32(c, &o->node);
	code_u64(c, &o->life);
	code_u64(c, &o->number);
	code_u64(c, &o->lowest);
	if (o->lowest > o->number)
		c->bad = true;
}

size_t command_encode(const struct meta_origin *origin, const struct meta_command *command,
		      void *buf, size_t cap)
{
	struct meta_origin o = *origin;
	struct meta_command m = *command;
	struct wire_w w;
	struct codec c = {.w = &w};

	if ((size_t)m.type >= N_COMMANDS || !commands[m.type].name)
		return 0;
	wire_w_init(&w, buf, cap);
	wire_put_u8(&w, COMMAND_VERSION);
	wire_put_u8(&w, (uint8_t)m.type);
	code_origin(&c, &o);
	code_u64(&c, &m.cid.client);
	code_u64(&c, &m.cid.unique);
	code_time(&c, &m.now);
	code_fields(&c, commands[m.type].fields, &m);
	return w.bad || c.bad ? 0 : w.len;
}

int command_decode(const void *buf, size_t len, struct meta_origin *origin, struct meta_command *m)
{
	struct wire_r r;
	struct codec c = {.r = &r};
	uint8_t version, type;

	memset(origin, 0, sizeof(*origin));
	memset(m, 0, sizeof(*m));
	wire_r_init(&r, buf, len);
	version = wire_get_u8(&r);
	type = wire_get_u8(&r);
	if (r.bad || version != COMMAND_VERSION || type >= N_COMMANDS || !commands[type].name)
		return -EPROTO;
	m->type = (enum meta_command_type)type;
	code_origin(&c, origin);
	code_u64(&c, &m->cid.client);
	code_u64(&c, &m->cid.unique);
	code_time(&c, &m->now);
	code_fields(&c, fields_left(type, &r), m);
	return !c.bad && wire_r_done(&r) ? 0 : -EPROTO;
}

size_t command_reply_encode(const struct meta_reply *reply, void *buf, size_t cap)
{
	struct wire_w w;

	wire_w_init(&w, buf, cap);
	wire_put_u8(&w, COMMAND_VERSION);
	wire_put_u32(&w, (uint32_t)-reply->result);
	wire_put_u64(&w, reply->id);
	wire_put_u64(&w, reply->other);
	wire_put_u32(&w, reply->node);
	wire_put_u64(&w, reply->epoch);
	wire_put_u64(&w, reply->extent_addr);
	wire_put_u64(&w, reply->extent_len);
	return w.bad ? 0 : w.len;
}

int command_reply_decode(const void *buf, size_t len, struct meta_reply *reply)
{
	struct wire_r r;
	uint32_t error;
	uint8_t version;

	memset(reply, 0, sizeof(*reply));
	wire_r_init(&r, buf, len);
	version = wire_get_u8(&r);
	error = wire_get_u32(&r);
	reply->id = wire_get_u64(&r);
	reply->other = wire_get_u64(&r);
	reply->node = wire_get_u32(&r);
	reply->epoch = wire_get_u64(&r);
	reply->extent_addr = wire_get_u64(&r);
	reply->extent_len = wire_get_u64(&r);
	if (!wire_r_done(&r) || version != COMMAND_VERSION || error > 4095)
		return -EPROTO;
	reply->result = -(int)error;
	return 0;
}

void member_encode(struct wire_w *w, const struct node_row *row)
{
	wire_put_u32(w, row->node);
	wire_put_str(w, row->name);
	wire_put_str(w, row->address);
}

bool member_decode(struct wire_r *r, struct node_row *row)
{
	memset(row, 0, sizeof(*row));
	if (r->pos == r->len)
		return false;
	row->node = wire_get_u32(r);
	wire_get_str(r, row->name, sizeof(row->name));
	wire_get_str(r, row->address, sizeof(row->address));
	return !r->bad && row->node != 0;
}
