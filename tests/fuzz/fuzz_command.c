/*
 * Commands and replies as in the log, and members' names as they are exchanged (command.c). The
 * first byte chooses which. Accepted bytes are encoded again byte for byte, and every string in
 * them is terminated; but the bytes of an older build are encoded longer.
 */
#include <string.h>

#include "base/wire.h"
#include "fuzz.h"
#include "meta/command.h"

static void take_command(const uint8_t *data, size_t size)
{
	uint8_t again[META_COMMAND_BYTES];
	struct meta_origin origin;
	struct meta_command c;
	size_t len;

	if (command_decode(data, size, &origin, &c))
		return;
	fuzz_rule(memchr(c.name, 0, sizeof(c.name)) && memchr(c.new_name, 0, sizeof(c.new_name)));
	fuzz_rule(memchr(c.address, 0, sizeof(c.address)));
	len = command_encode(&origin, &c, again, sizeof(again));
	fuzz_rule(len == size || (c.type == META_EXTENT && len > size));
	fuzz_rule(len != size || memcmp(again, data, size) == 0);
}

static void take_reply(const uint8_t *data, size_t size)
{
	uint8_t again[META_REPLY_BYTES];
	struct meta_reply r;

	if (command_reply_decode(data, size, &r))
		return;
	fuzz_rule(command_reply_encode(&r, again, sizeof(again)) == size);
	fuzz_rule(memcmp(again, data, size) == 0);
}

static void take_members(const uint8_t *data, size_t size)
{
	uint8_t again[16 + RAMP_NODE_NAME_MAX + RAMP_ADDRESS_MAX];
	struct node_row row;
	struct wire_w w;
	struct wire_r r;
	size_t from;

	wire_r_init(&r, data, size);
	for (from = 0; member_decode(&r, &row); from = r.pos) {
		fuzz_rule(memchr(row.name, 0, sizeof(row.name)) &&
			  memchr(row.address, 0, sizeof(row.address)));
		wire_w_init(&w, again, sizeof(again));
		member_encode(&w, &row);
		fuzz_rule(!w.bad && w.len == r.pos - from &&
			  memcmp(again, data + from, w.len) == 0);
	}
	fuzz_rule(r.bad || row.node == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] == 'r')
		take_reply(data + 1, size - 1);
	else if (data[0] == 'c')
		take_command(data + 1, size - 1);
	else if (data[0] == 'm')
		take_members(data + 1, size - 1);
	return 0;
}

void fuzz_seeds(void)
{
	static const enum meta_command_type types[] = {
		META_CREATE, META_RENAME, META_SETATTR,	 META_PREPARE, META_NODE_UP,
		META_EXTENT, META_UNLINK, META_LEVEL_UP, META_SET,     META_UNEXTENT};
	struct meta_origin origin = {.node = 1, .life = 2, .number = 3, .lowest = 3};
	struct meta_command c = {
		.cid = {1, 2},
		.id = 4097,
		.epoch = 5,
		.k = {6, 7},
		.node = 2,
		.src = 1,
		.node_inc = 8,
		.src_inc = 9,
		.name = "name",
		.new_name = "other",
		.address = "host:1",
		.instance = 13,
		.value = 1,
	};
	struct meta_reply reply = {.id = 4097, .epoch = 5};
	struct node_row member = {.node = 4, .name = "d", .address = "host:4"};
	uint8_t bytes[META_COMMAND_BYTES + 1];
	struct wire_w w;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		c.type = types[i];
		bytes[0] = 'c';
		fuzz_seed(command_name(c.type), bytes,
			  1 + command_encode(&origin, &c, bytes + 1, META_COMMAND_BYTES));
	}
	c.type = META_UNLINK;
	c.flags = META_IN_NODE | META_OF_OWNER;
	bytes[0] = 'c';
	fuzz_seed("limited", bytes, 1 + command_encode(&origin, &c, bytes + 1, META_COMMAND_BYTES));
	c.type = META_CREATE;
	c.flags = META_WITH_EXTENT;
	fuzz_seed("extent", bytes, 1 + command_encode(&origin, &c, bytes + 1, META_COMMAND_BYTES));
	bytes[0] = 'r';
	fuzz_seed("reply", bytes, 1 + command_reply_encode(&reply, bytes + 1, META_REPLY_BYTES));
	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u8(&w, 'm');
	member_encode(&w, &member);
	member.node = 70;
	member_encode(&w, &member);
	fuzz_seed("members", bytes, w.len);
}
