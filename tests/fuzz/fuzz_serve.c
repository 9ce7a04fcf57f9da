/*
 * Requests on a data connection (tcp_serve.c): a peer that has proved itself sends the input. The
 * serve thread may hang up; its answers are whole replies, and every piece that it took of the
 * export is given back.
 *
 * The input: a byte (the class of the connection; whether requests get a right magic; whether the
 * peer is another node than the export's reader), then the
 * bytes, in requests of 48.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "fuzz.h"
#include "transport/endpoint.h"
#include "transport/tcp/tcp_serve.h"
#include "transport/tcp/tcp_wire.h"

#define SEGMENT_BYTES (1u << 20)
#define READER	      2u
#define SEED_GRANT    "a grant to read"

enum choice { PREFETCH = 1, AS_IT_IS = 2, ANOTHER_READER = 4 };

static struct tcp_serve *serve;
static struct rate limit;
static uint8_t *segment;
static atomic_int out; /* pieces */

/* In place of endpoint.c's: a socket pair has no address. */
void endpoint_text(int fd, char text[ENDPOINT_TEXT_BYTES])
{
	(void)fd;
	strcpy(text, "the fuzzer");
}

static int piece(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len)
{
	(void)arg;
	fuzz_rule(len > 0 && len % RAMP_PAGE_BYTES == 0 && offset % RAMP_PAGE_BYTES == 0);
	if (offset >= SEGMENT_BYTES)
		return -ERANGE;
	*out_len = SEGMENT_BYTES - offset < len ? SEGMENT_BYTES - offset : len;
	if (offset / RAMP_PAGE_BYTES % 4 == 3) {
		*out_len = RAMP_PAGE_BYTES;
		return 0;
	}
	*data = segment + offset;
	atomic_fetch_add(&out, 1);
	return 0;
}

static void done(void *arg, const void *data, size_t len, size_t left)
{
	(void)arg;
	(void)data;
	(void)len;
	(void)left;
	atomic_fetch_sub(&out, 1);
}

static int next_run(void *arg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	(void)arg;
	(void)from;
	(void)offset;
	(void)len;
	fuzz_rule(!"TCP asks piece");
	return 0;
}

static void start(void)
{
	static const struct tp_export_ops ops = {
		.piece = piece, .done = done, .next_run = next_run};
	static const struct tp_export export = {
		.key = {.segment = 4097, .grant = SEED_GRANT},
		.reader = READER,
		.map_fd = -1,
		.size = SEGMENT_BYTES,
		.ops = &ops,
	};

	segment = calloc(1, SEGMENT_BYTES);
	rate_init(&limit, 0);
	fuzz_rule(segment && tcp_serve_start(&serve, 0, &limit, NULL) == 0);
	fuzz_rule(tcp_serve_export(serve, &export, NULL) == 0);
}

/* libFuzzer's alarm cuts a read short. False: the other end has hung up. */
static bool receive(int fd, uint8_t *bytes, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = recv(fd, bytes + got, len - got, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/* Reads replies until the other end hangs up. */
static void read_replies(int fd, uint8_t choices)
{
	static uint8_t bytes[TP_READ_MAX_BYTES];
	struct wire_r r;

	while (receive(fd, bytes, TCP_REPLY_BYTES)) {
		uint32_t code;
		uint8_t kind;
		uint64_t len;

		wire_r_init(&r, bytes, TCP_REPLY_BYTES);
		fuzz_rule(wire_get_u32(&r) == TCP_REPLY_MAGIC);
		code = wire_get_u32(&r);
		wire_get_u64(&r);
		kind = wire_get_u8(&r);
		r.pos = TCP_REPLY_BYTES - 8;
		len = wire_get_u64(&r);
		fuzz_rule(code < 4096 && kind <= TP_HOLE && (!code || !len));
		fuzz_rule(code || !(choices & ANOTHER_READER));
		if (kind == TP_HOLE || !len)
			continue;
		fuzz_rule(len <= TP_READ_MAX_BYTES);
		if (!receive(fd, bytes, len))
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello_peer peer = {.node = READER, .incarnation = 9, .class = HELLO_DEMAND};
	struct fuzz_in in = {data, size};
	uint8_t choices = fuzz_u8(&in), bytes[4096];
	size_t len = in.left < sizeof(bytes) ? in.left : sizeof(bytes);
	struct wire_w w;
	int pair[2];

	if (!serve)
		start();
	if (len)
		memcpy(bytes, in.at, len);
	for (size_t at = 0; at + TCP_REQUEST_BYTES <= len && !(choices & AS_IT_IS);
	     at += TCP_REQUEST_BYTES) {
		wire_w_init(&w, bytes + at, 4);
		wire_put_u32(&w, TCP_REQUEST_MAGIC);
	}
	if (choices & ANOTHER_READER)
		peer.node++;
	if (choices & PREFETCH)
		peer.class = HELLO_PREFETCH;
	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	fuzz_rule(send(pair[1], bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
	/* Its end comes with the input's: a thread that has read both hangs up. */
	shutdown(pair[1], SHUT_WR);
	tcp_serve_take(serve, pair[0], &peer);
	read_replies(pair[1], choices);
	close(pair[1]);
	fuzz_rule(atomic_load(&out) == 0);
	return 0;
}

void fuzz_seeds(void)
{
	static const struct {
		uint64_t segment, offset;
		uint32_t len;
	} asks[] = {
		{4097, 0, 8192}, {4097, 12288, 4096}, {4097, 1 << 19, 1 << 18}, {4098, 0, 4096}};
	uint8_t bytes[1 + 4 * TCP_REQUEST_BYTES] = {0};
	struct wire_w w;

	wire_w_init(&w, bytes + 1, sizeof(bytes) - 1);
	for (int i = 0; i < 4; i++) {
		wire_put_u32(&w, TCP_REQUEST_MAGIC);
		wire_put_u32(&w, asks[i].len);
		wire_put_u64(&w, (uint64_t)i);
		wire_put_u64(&w, asks[i].segment);
		wire_put_bytes(&w, SEED_GRANT, TP_GRANT_BYTES);
		wire_put_u64(&w, asks[i].offset);
	}
	fuzz_seed("demand", bytes, sizeof(bytes));
	bytes[0] = PREFETCH;
	fuzz_seed("prefetch", bytes, sizeof(bytes));
	bytes[0] = ANOTHER_READER;
	fuzz_seed("another-reader", bytes, sizeof(bytes));
	bytes[0] = AS_IT_IS;
	fuzz_seed("cut", bytes, sizeof(bytes) - 5);
}
