/*
 * Replies on a data connection (tcp_read.c): a source that has proved itself answers three reads
 * with the input. Not a byte lands outside of a read, and the completions match the reads.
 *
 * The input: a byte (whether each header's first bytes are made right), then headers and data.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "fuzz.h"
#include "transport/endpoint.h"
#include "transport/hello_io.h"
#include "transport/peers/peers_data.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_read.h"
#include "transport/tcp/tcp_wire.h"

#define READS	   3
#define READ_BYTES 8192u

static int source; /* the other end of the socket that endpoint_connect gave */

/* ---- in place of peers_data.c, endpoint.c and hello.c: connected, and proved ------------------ */

int peers_address(struct peers *peers, ramp_node_t node, struct endpoint_address *to)
{
	(void)peers;
	(void)node;
	*to = (struct endpoint_address){0};
	return 0;
}

void peers_address_failed(struct peers *peers, ramp_node_t node, const struct endpoint_address *at)
{
	(void)peers;
	(void)node;
	(void)at;
}

const struct hello_self *peers_self(struct peers *peers)
{
	(void)peers;
	return NULL;
}

int endpoint_connect(const struct endpoint_address *to, struct ramp_err *err)
{
	int pair[2];

	(void)to;
	(void)err;
	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	source = pair[1];
	return pair[0];
}

void endpoint_address_text(const struct endpoint_address *address, char text[ENDPOINT_TEXT_BYTES])
{
	(void)address;
	strcpy(text, "the fuzzer");
}

void hello_dial(struct hello *hello, const struct hello_self *self, ramp_node_t want_node,
		ramp_incarnation_t want_incarnation, enum hello_class class)
{
	(void)self;
	(void)want_node;
	(void)want_incarnation;
	(void)class;
	*hello = (struct hello){.step = HELLO_STEP_PROVED};
}

int hello_run(struct hello *hello, struct stream *stream, struct ramp_err *err)
{
	(void)hello;
	(void)stream;
	(void)err;
	return 0;
}

short hello_events(const struct hello *hello, const struct stream *stream)
{
	(void)hello;
	(void)stream;
	return POLLIN;
}

/* ---- */

static struct tp_conn *ask(struct tcp *tcp, struct tp_read reads[READS])
{
	struct tp_conn *conn;

	fuzz_rule(tcp_connect(&tcp->tp, 2, 9, TP_DEMAND, &conn, NULL) == 0);
	fuzz_rule(tcp_state(conn, NULL) == TP_READY);
	for (unsigned int i = 0; i < READS; i++) {
		reads[i] = (struct tp_read){
			.key = {4097, "a grant to read"},
			.offset = i * 65536,
			.len = READ_BYTES,
			.dst = malloc(
				READ_BYTES), /* one each: AddressSanitizer shows bytes beyond it */
			.cookie = i,
		};
		fuzz_rule(reads[i].dst && tcp_read(conn, &reads[i]) == 0);
	}
	return conn;
}

static void reap(struct tp_conn *conn, const struct tp_read reads[READS])
{
	uint64_t next[READS];
	bool over[READS] = {0};
	struct tp_done done[2];
	struct ramp_err err = {0};
	int n;

	for (int i = 0; i < READS; i++)
		next[i] = reads[i].offset;
	while ((n = tcp_reap(conn, done, 2, 1000)) > 0) {
		for (int i = 0; i < n; i++) {
			uint64_t c = done[i].cookie;

			fuzz_rule(c < READS && !over[c] && done[i].result <= 0);
			over[c] = !done[i].more;
			if (done[i].result)
				continue;
			fuzz_rule(done[i].offset == next[c] && done[i].len > 0);
			next[c] += done[i].len;
			fuzz_rule(done[i].kind == TP_HOLE ||
				  next[c] <= reads[c].offset + READ_BYTES);
		}
	}
	fuzz_rule(n == 0 || (n == -ENOTCONN && tcp_state(conn, &err) == TP_FAILED && err.text[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tcp tcp;
	struct tp_read reads[READS];
	struct fuzz_in in = {data, size};
	uint8_t made_right = fuzz_u8(&in), bytes[32768];
	size_t len = in.left < sizeof(bytes) ? in.left : sizeof(bytes);
	struct tp_conn *conn = ask(&tcp, reads);
	struct wire_w w;

	if (len)
		memcpy(bytes, in.at, len);
	if (made_right && len >= 16) {
		wire_w_init(&w, bytes, 16);
		wire_put_u32(&w, TCP_REPLY_MAGIC);
		wire_put_u32(&w, 0);
		wire_put_u64(&w, UINT64_C(1) << 32 | (made_right & 3));
	}
	fuzz_rule(send(source, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
	shutdown(source, SHUT_WR);
	reap(conn, reads);
	tcp_close(conn);
	close(source);
	for (int i = 0; i < READS; i++)
		free(reads[i].dst);
	return 0;
}

static void put(struct wire_w *w, uint32_t slot, uint32_t code, uint8_t kind, uint8_t more,
		uint64_t offset, uint64_t len)
{
	wire_put_u32(w, TCP_REPLY_MAGIC);
	wire_put_u32(w, code);
	wire_put_u64(w, UINT64_C(1) << 32 | slot);
	wire_put_u8(w, kind);
	wire_put_u8(w, more);
	wire_put_u16(w, 0);
	wire_put_u32(w, 0);
	wire_put_u64(w, offset);
	wire_put_u64(w, len);
}

void fuzz_seeds(void)
{
	static uint8_t bytes[8192] = {0};
	struct wire_w w;

	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u8(&w, 0);
	put(&w, 1, 0, TP_HOLE, 0, 65536, 1 << 20);
	put(&w, 2, ENOENT, TP_DATA, 0, 131072, 0);
	put(&w, 0, 0, TP_HOLE, 1, 0, 4096);
	fuzz_seed("holes", bytes, w.len);
	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u8(&w, 0);
	put(&w, 0, 0, TP_DATA, 1, 0, 4096);
	fuzz_seed("data-to-come", bytes, w.len + 300);
}
