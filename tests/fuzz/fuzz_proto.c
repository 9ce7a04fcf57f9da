/*
 * Control messages between daemons (proto.c, verbs/message.c): the first byte is the type, the rest the body.
 * The encoder gives a body that its decoder takes back byte for byte; nothing is kept of one that
 * the decoder refuses.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "transport/proto.h"
#include "transport/verbs/message.h"

static uint8_t again[PROTO_SMALL_BYTES + PROTO_RANGES_MAX * 16];

#define EACH_SMALL(DO)                                                                             \
	DO(PROTO_ACCEPT, accept)                                                                   \
	DO(PROTO_REFUSE, refuse)                                                                   \
	DO(PROTO_TRANSFER, transfer)                                                               \
	DO(PROTO_TAKEN, verdict)                                                                   \
	DO(PROTO_PULLED, pulled)                                                                   \
	DO(PROTO_LIMIT, limit)                                                                     \
	DO(PROTO_FIGURES, figures)                                                                 \
	DO(PROTO_MIGRATE, migrate)                                                                 \
	DO(PROTO_GIVE_BACK, give_back)                                                             \
	DO(PROTO_GIVE_BACK_SAID, give_back_said)                                                   \
	DO(PROTO_ANSWER, answer)                                                                   \
	DO(PROTO_PROGRESS, progress)                                                               \
	DO(PROTO_CANCEL, cancel)                                                                   \
	DO(PROTO_CLOCK, clock)                                                                     \
	DO(PROTO_CLOCKED, clocked)                                                                 \
	DO(PROTO_STORED, stored)                                                                   \
	DO(PROTO_ROUND, round)                                                                     \
	DO(PROTO_PREFILL, prefill)                                                                 \
	DO(PROTO_STEP, step)

#define BACK(type, name)                                                                           \
	case type: {                                                                               \
		struct msg_##name m;                                                               \
                                                                                                   \
		if (!proto_get_##name(&r, &m))                                                     \
			proto_put_##name(&w, &m);                                                  \
		else                                                                               \
			w.bad = true;                                                              \
		break;                                                                             \
	}

static void back_connect(struct wire_r *r, struct wire_w *w)
{
	struct msg_connect m;

	w->bad = proto_get_connect(r, &m) != 0;
	fuzz_rule(!w->bad || !m.ranges);
	if (w->bad)
		return;
	fuzz_rule(proto_name_ok(m.name) && proto_connect_bytes(&m) <= sizeof(again));
	proto_put_connect(w, &m);
	free(m.ranges);
}

#define EACH_OF_VERBS(DO)                                                                          \
	DO(PROTO_VERBS_AT, at)                                                                     \
	DO(PROTO_REGIONS_WANTED, wanted)                                                           \
	DO(PROTO_REGIONS_DONE, done)

#define BACK_OF_VERBS(type, name)                                                                  \
	case type: {                                                                               \
		struct message_##name m;                                                           \
                                                                                                   \
		if (!message_get_##name(&r, &m))                                                   \
			message_put_##name(&w, &m);                                                \
		else                                                                               \
			w.bad = true;                                                              \
		break;                                                                             \
	}

static void back_regions(struct wire_r *r, struct wire_w *w)
{
	struct message_regions m;
	uint64_t behind = 0;

	w->bad = message_get_regions(r, &m) != 0;
	fuzz_rule(!w->bad || !m.regions);
	if (w->bad)
		return;
	for (uint32_t i = 0; i < m.n; i++) {
		fuzz_rule(m.regions[i].offset >= behind);
		behind = m.regions[i].offset + m.regions[i].len;
	}
	fuzz_rule(message_regions_bytes(&m) <= sizeof(again));
	message_put_regions(w, &m);
	free(m.regions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_r r;
	struct wire_w w;

	if (size < 1)
		return 0;
	wire_r_init(&r, data + 1, size - 1);
	wire_w_init(&w, again, sizeof(again));
	switch (data[0]) {
	case PROTO_CONNECT:
		back_connect(&r, &w);
		break;
		EACH_SMALL(BACK)
		EACH_OF_VERBS(BACK_OF_VERBS)
	case PROTO_REGIONS:
		back_regions(&r, &w);
		break;
	default:
		return 0;
	}
	if (w.bad)
		return 0;
	fuzz_rule(w.len == size - 1 && memcmp(again, data + 1, w.len) == 0);
	fuzz_rule(data[0] == PROTO_CONNECT || data[0] == PROTO_REGIONS ||
		  w.len <= PROTO_SMALL_BYTES);
	return 0;
}

#define K                                                                                          \
	{                                                                                          \
		7, 8                                                                               \
	}

static void seed_verbs(void)
{
	struct message_region list[] = {{4096, 8192, 1 << 20, 5}, {16384, 4096, 1 << 21, 6}};
	struct message_regions regions = {.connection = 7, .life = 8, .whole = true, .n = 2};
	struct message_wanted wanted = {{4097, {1, 2}}, 9, TP_DEMAND};
	struct message_done done = {{4097, {1, 2}}, 8192};
	struct message_at at = {.life = 3, .port = 4, .reads = 16};
	struct wire_w w;

	at.address.ss_family = AF_INET;
	regions.key = done.key;
	regions.regions = list;
	wire_w_init(&w, again, sizeof(again));
	wire_put_u8(&w, PROTO_REGIONS);
	message_put_regions(&w, &regions);
	fuzz_seed("regions", again, w.len);
#define SEED_OF_VERBS(type, name)                                                                  \
	wire_w_init(&w, again, sizeof(again));                                                     \
	wire_put_u8(&w, type);                                                                     \
	message_put_##name(&w, &name);                                                             \
	fuzz_seed("verbs_" #name, again, w.len);
	EACH_OF_VERBS(SEED_OF_VERBS)
}

void fuzz_seeds(void)
{
	struct msg_range ranges[] = {{0, 4096}, {8192, 8192}};
	struct msg_connect connect = {4097, 7,	  3,	   16384, 4096,	   9, true,  true,
				      true, true, 2 << 20, 11,	  "cache", 2, ranges};
	struct msg_accept accept = {4097, 7, 8, 10};
	struct msg_refuse refuse = {4097, 7, 28, "no room"};
	struct msg_transfer transfer = {4097, K, 4, 16384, 9, 10, true, 7, 8, 3, 2};
	struct msg_verdict verdict = {4097, K, 4};
	struct msg_pulled pulled = {4097, K, 1, 4};
	struct msg_migrate migrate = {5,    4097, 2,	"cache", "old", 1,	 7, true,
				      true, true, true, true,	 5000,	2 << 20, 11};
	struct msg_limit limit = {2 << 20};
	struct msg_figures figures = {
		.id = 4097, .epoch = 7, .from = 1, .to = 2, .of_target = true};
	struct msg_answer answer = {5, 16, 6, "mapped by pid 1"};
	struct msg_give_back give_back = {5, 4097, 3, UINT64_C(1) << 45, 64 << 20};
	struct msg_give_back_said give_back_said = {5, 16, "process 1 (x) maps it"};
	struct msg_progress progress = {5, 1, 4, "pulling"};
	struct msg_cancel cancel = {5};
	struct msg_clock clock = {4097, 7, 8, true};
	struct msg_clocked clocked = {7, 8, 9, 10, 1, true};
	struct msg_stored stored = {4097, K, 2, 0, 4096, {1, 2}};
	struct msg_round round = {4097, K, 2, 1, 16384};
	struct msg_prefill prefill = {4097, K, true, false, 64 << 20, 11, "cache"};
	struct msg_step step = {7, 2, UINT64_MAX, 9, "TAKEN is recorded and sent"};
	struct wire_w w;

	wire_w_init(&w, again, sizeof(again));
	wire_put_u8(&w, PROTO_CONNECT);
	proto_put_connect(&w, &connect);
	fuzz_seed("connect", again, w.len);
#define SEED(type, name)                                                                           \
	wire_w_init(&w, again, sizeof(again));                                                     \
	wire_put_u8(&w, type);                                                                     \
	proto_put_##name(&w, &name);                                                               \
	fuzz_seed(#name, again, w.len);
	EACH_SMALL(SEED)
	seed_verbs();
}
