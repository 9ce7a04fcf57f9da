/*
 * Raft's messages and configurations (raft_wire.c, raft_conf.c). The first byte chooses which.
 * Bytes that a decoder accepts are encoded again byte for byte; of refused ones nothing is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "meta/raft_log.h"
#include "meta/raft_wire.h"

static void take_message(const uint8_t *data, size_t size)
{
	struct raft_message m;
	uint8_t *again;
	size_t cap;

	if (raft_message_decode(data, size, &m)) {
		fuzz_rule(!m.conf && !m.n_entries);
		return;
	}
	cap = raft_message_size(&m);
	again = malloc(cap);
	fuzz_rule(again && raft_message_encode(&m, again, cap) == size);
	fuzz_rule(memcmp(again, data, size) == 0);
	raft_message_release(&m);
	free(again);
}

static void take_conf(const uint8_t *data, size_t size)
{
	struct raft_data *again;
	struct raft_conf conf;

	if (raft_conf_decode(data, size, &conf))
		return;
	fuzz_rule(conf.n <= RAFT_NODES_MAX && raft_conf_voters(&conf) <= conf.n);
	again = raft_conf_encode(&conf);
	fuzz_rule(again && again->len == size && memcmp(again->bytes, data, size) == 0);
	raft_data_unref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] == 'c')
		take_conf(data + 1, size - 1);
	else if (data[0] == 'm')
		take_message(data + 1, size - 1);
	return 0;
}

static void seed(const char *name, char kind, const void *bytes, size_t len)
{
	uint8_t with[1024] = {(uint8_t)kind};

	memcpy(with + 1, bytes, len);
	fuzz_seed(name, with, len + 1);
}

void fuzz_seeds(void)
{
	struct raft_conf conf = {.n = 2, .member = {{1, RAFT_VOTER}, {2, RAFT_VOTER}}};
	struct raft_data *encoded = raft_conf_encode(&conf);
	struct raft_data *command = raft_data_make("command", 7);
	struct raft_message append = {
		.type = RAFT_APPEND,
		.term = 3,
		.index = 9,
		.log_term = 2,
		.leader_commit = 8,
		.round = 4,
		.n_entries = 3,
		.entries = {{.term = 2, .type = RAFT_NOOP},
			    {.term = 3, .type = RAFT_COMMAND, .data = command},
			    {.term = 3, .type = RAFT_CONF, .data = encoded}},
	};
	struct raft_message snapshot = {
		.type = RAFT_SNAPSHOT,
		.term = 3,
		.index = 9,
		.log_term = 2,
		.conf_index = 1,
		.conf = encoded,
		.bytes = (const uint8_t *)"piece",
		.len = 5,
		.done = true,
	};
	struct raft_message vote = {.type = RAFT_VOTE, .term = 3, .index = 9, .transfer = true};
	uint8_t bytes[512];

	seed("conf", 'c', encoded->bytes, encoded->len);
	seed("append", 'm', bytes, raft_message_encode(&append, bytes, sizeof(bytes)));
	seed("snapshot", 'm', bytes, raft_message_encode(&snapshot, bytes, sizeof(bytes)));
	seed("vote", 'm', bytes, raft_message_encode(&vote, bytes, sizeof(bytes)));
	raft_data_unref(command);
	raft_data_unref(encoded);
}
