/*
 * The session protocol (session.c): messages that programs and tools send to the daemon, and the
 * daemon to agents. An accepted message comes back byte for byte; every text is terminated.
 */
#include <errno.h>
#include <string.h>

#include "base/session.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SESSION_PACKET_MAX];
	struct session_msg msg;
	int rc;

	if (size > SESSION_PACKET_MAX)
		return 0; /* recvmsg reports MSG_TRUNC for these */
	rc = session_decode(data, size, &msg);
	fuzz_rule(rc == 0 || rc == -EBADMSG || rc == -EPROTO);
	fuzz_rule(memchr(msg.text, 0, sizeof(msg.text)) && memchr(msg.node, 0, sizeof(msg.node)));
	fuzz_rule(memchr(msg.name, 0, sizeof(msg.name)) && msg.count <= SESSION_RANGES_MAX);
	if (rc == 0) {
		fuzz_rule(session_encode(&msg, again, sizeof(again)) == (int)size);
		fuzz_rule(memcmp(again, data, size) == 0);
	}
	return 0;
}

void fuzz_seeds(void)
{
	struct session_msg msg = {
		.serial = 1,
		.result = 2,
		.flags = SESSION_WAIT,
		.tid = 3,
		.segment = 4097,
		.addr = 0x200000000000,
		.len = 4096,
		.offset = 8192,
		.scratch = 0x7f0000000000,
		.prot = 3,
		.token = {5, 6},
		.done = 7,
		.all = 8,
		.mode = 1,
		.step = 2,
		.rounds = 3,
		.node = "b",
		.name = "cache",
		.text = "rampfs: a/cache is now on node b",
		.count = 2,
		.ranges = {{4096, 4096}, {16384, 8192}},
	};
	uint8_t packet[SESSION_PACKET_MAX];
	char name[] = "type-00";
	int len;

	for (msg.type = 1; msg.type < SESSION_TYPES; msg.type++) {
		name[5] = (char)('0' + msg.type / 10);
		name[6] = (char)('0' + msg.type % 10);
		len = session_encode(&msg, packet, sizeof(packet));
		fuzz_rule(len > 0);
		fuzz_seed(name, packet, (size_t)len);
	}
}
