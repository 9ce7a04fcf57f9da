/*
 * Frames on a control connection (channel.c): a peer that has proved itself sends the input, cut
 * into messages with right counters and HMACs; some are altered, replayed, oversized or cut. Each
 * that is whole and in turn reaches its handler once, decoded by proto.c; the first that is not
 * ends the connection.
 *
 * The input, again and again: how (a byte), the type, the length (two bytes), the body.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "transport/peers/channel.h"
#include "transport/peers/peer_core.h"
#include "transport/proto.h"

#define HEADER_BYTES 13 /* and its HMAC */

enum how { RIGHT, ALTERED, REPLAYED, OVERSIZED, CUT, HOWS };

static struct loop *loop;
static struct peers peers;
static struct peer peer;
static unsigned int handled, expected;
static bool ended;

/* ---- in place of peer.c, peer_core.c, endpoint.c and hello.c ------------------------------- */

void peers_hold(struct peers *p)
{
	p->handles++;
}

void peers_release(struct peers *p)
{
	p->handles--;
}

void peer_rejected(struct peers *p, struct peer *from, const char *endpoint, const char *reason)
{
	(void)p;
	(void)from;
	fuzz_rule(endpoint && reason[0]);
}

void endpoint_text(int fd, char text[ENDPOINT_TEXT_BYTES])
{
	(void)fd;
	strcpy(text, "the fuzzer");
}

int hello_session_key(const struct hello *hello, bool from_dialer, uint8_t key[HMAC_BYTES])
{
	(void)hello;
	memset(key, from_dialer, HMAC_BYTES);
	return 0;
}

int hello_secret(const struct hello *hello, uint8_t secret[HMAC_BYTES])
{
	(void)hello;
	memset(secret, 2, HMAC_BYTES);
	return 0;
}

static void disconnected(struct peer *p, const char *reason)
{
	struct channel *channel = p->channel;

	fuzz_rule(reason && !ended);
	ended = true;
	pthread_mutex_lock(&p->lock);
	p->channel = NULL;
	pthread_mutex_unlock(&p->lock);
	channel_close(channel);
}

static const struct peer_events events = {.disconnected = disconnected};

/* ---- */

static void handle(void *arg, ramp_node_t from, ramp_incarnation_t incarnation, struct wire_r *r)
{
	struct msg_connect connect;

	(void)arg;
	fuzz_rule(from == 2 && incarnation == 9);
	handled++;
	if (proto_get_connect(r, &connect) == 0)
		free(connect.ranges);
}

static void start(void)
{
	fuzz_rule(loop_open(&loop, NULL) == 0);
	peers.loop = loop;
	peers.events = &events;
	for (size_t i = 1; i < 256; i++)
		peers.handlers[i].fn = i % 8 ? handle : NULL;
	peer.peers = &peers;
	peer.node = 2;
	atomic_store(&peer.incarnation, 9);
	pthread_mutex_init(&peer.lock, NULL);
}

/* The HMAC of all that was put so far. */
static void prove(struct wire_w *w, struct hmac *mac)
{
	uint8_t proof[HMAC_BYTES];

	hmac_begin(mac);
	hmac_add(mac, w->buf, w->len);
	fuzz_rule(hmac_end(mac, proof) == 0);
	wire_put_bytes(w, proof, sizeof(proof));
}

/* One message of the input; false: nothing that comes after it counts. */
static bool send_one(struct fuzz_in *in, int fd, struct hmac *mac, uint64_t *count)
{
	enum how how = fuzz_u8(in) % HOWS;
	uint8_t frame[HEADER_BYTES + 2048 + 2 * HMAC_BYTES], type = fuzz_u8(in);
	size_t len = fuzz_u16(in) % 2048;
	struct wire_w w;

	len = len < in->left ? len : in->left;
	wire_w_init(&w, frame, sizeof(frame));
	wire_put_u32(&w, how == OVERSIZED ? PEER_MESSAGE_MAX_BYTES + 1 : (uint32_t)len);
	wire_put_u64(&w, how == REPLAYED ? *count : ++*count);
	wire_put_u8(&w, type);
	prove(&w, mac);
	wire_put_bytes(&w, in->at, len);
	in->at += len;
	in->left -= len;
	prove(&w, mac);
	if (how == ALTERED)
		frame[type * 7u % w.len] ^= 1;
	if (how == CUT)
		w.len -= 1 + type % HMAC_BYTES;
	fuzz_rule(send(fd, frame, w.len, MSG_NOSIGNAL) == (ssize_t)w.len);
	if (how == RIGHT && type % 8)
		expected++;
	return how == RIGHT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size < 65536 ? size : 65536};
	uint8_t key[HMAC_BYTES];
	struct hmac *mac;
	uint64_t count = 0;
	struct stream stream;
	int pair[2];

	if (!loop)
		start();
	handled = expected = 0;
	ended = false;
	memset(key, 1, sizeof(key));
	fuzz_rule(hmac_open(&mac, key, sizeof(key)) == 0);
	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	stream = stream_plain(pair[0]);
	fuzz_rule(channel_open(&peer, &stream, NULL, false, NULL) == 0);
	channel_start(peer.channel);
	while (in.left && send_one(&in, pair[1], mac, &count))
		uv_run(loop_uv(loop), UV_RUN_NOWAIT);
	shutdown(pair[1], SHUT_WR);
	while (!ended || peers.handles)
		uv_run(loop_uv(loop), UV_RUN_ONCE);
	fuzz_rule(handled == expected);
	close(pair[1]);
	hmac_close(mac);
	return 0;
}

void fuzz_seeds(void)
{
	uint8_t bytes[700] = {0};
	struct msg_connect connect = {4097,  7,	    3, 16384, 4096,    9, true, true,
				      false, false, 0, 0,     "cache", 0, NULL};
	struct wire_w w;
	size_t at;

	wire_w_init(&w, bytes, sizeof(bytes));
	for (enum how how = RIGHT; how < HOWS; how++) {
		w.len = 0;
		for (int i = 0; i < 2; i++) {
			wire_put_u8(&w, i ? (uint8_t)how : 0);
			wire_put_u8(&w, PROTO_CONNECT + 1);
			at = w.len;
			wire_put_u16(&w, 0);
			proto_put_connect(&w, &connect);
			bytes[at] = (uint8_t)(w.len - at - 2);
		}
		fuzz_seed((const char *[]){"right", "altered", "replayed", "oversized", "cut"}[how],
			  bytes, w.len);
	}
}
