/*
 * Joining (join.c, and mkfs.rampfs's plan.c over it). The first byte: which end gets the input, and
 * as what.
 *
 * STRANGER: the program at the address has not proved the key; the input is all that it sends.
 * ANSWER: a member has proved it; its answer is the input under a right MAC.
 * FRAME: the same, but the input is the whole frame, so that it has no right MAC.
 * REQUEST: a newcomer has proved it; its request is the input, and a member receives it.
 *
 * Nothing is taken of a frame that is not proved; a cluster.conf can be written of one that is
 * taken; no descriptor stays open.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wire.h"
#include "fuzz.h"
#include "mkfs.rampfs/plan.h"
#include "transport/endpoint.h"
#include "transport/hello_io.h"
#include "transport/peers/join.h"

#define ADDRESS	     "127.0.0.1:1"
#define LOOK_AGAIN   256 /* inputs between two looks at the open descriptors */
#define PREFIX_BYTES 4

enum what { STRANGER, ANSWER, FRAME, REQUEST, WHATS };

static const uint8_t key[HMAC_BYTES] = "the cluster's key";
static struct hello_self member_self, newcomer_self;

/* The member, on a thread of its own. */
static struct {
	enum what what;
	const uint8_t *bytes;
	size_t len;
	int fd;
	uint64_t began_ms; /* before either end did */
	struct join_request request;
	bool late; /* the newcomer had given up: the machine stood still for that long */
} member;
static int newcomers_end = -1;

/* ---- in place of endpoint.c ----------------------------------------------------------------- */

int endpoint_split(const char *address, char *host, size_t host_cap, char *port, size_t port_cap,
		   struct ramp_err *err)
{
	(void)err;
	fuzz_rule(strcmp(address, ADDRESS) == 0 && host_cap > 10 && port_cap > 2);
	strcpy(host, "127.0.0.1");
	strcpy(port, "1");
	return 0;
}

int endpoint_connect(const struct endpoint_address *to, struct ramp_err *err)
{
	(void)err;
	fuzz_rule(to->sa.ss_family == AF_INET && newcomers_end >= 0);
	return newcomers_end;
}

/* ---- */

static void send_all(int fd, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0)
			return; /* the other end has heard enough, and hangs up */
		at += n;
		len -= (size_t)n;
	}
}

/* Sends the body with its MAC. */
static void send_frame(int fd, const struct hello *hello, bool from_dialer, const char *label,
		       const uint8_t *body, size_t len)
{
	uint8_t head[PREFIX_BYTES], own[HMAC_BYTES], mac[HMAC_BYTES];
	struct wire_w w;

	wire_w_init(&w, head, sizeof(head));
	wire_put_u32(&w, (uint32_t)len);
	fuzz_rule(hello_session_key(hello, from_dialer, own) == 0);
	fuzz_rule(hmac_derive(own, label, body, len, mac) == 0);
	send_all(fd, head, sizeof(head));
	send_all(fd, body, len);
	send_all(fd, mac, sizeof(mac));
}

static int hello_on(struct hello *hello, int fd, struct ramp_err *err)
{
	struct stream stream = stream_plain(fd);

	return hello_run(hello, &stream, err);
}

static int say_hello(struct hello *hello, int fd)
{
	uint8_t byte;
	int rc;

	while ((rc = hello_on(hello, fd, NULL)) == -EAGAIN)
		(void)!recv(fd, &byte, 1, MSG_PEEK);
	return rc;
}

static void *be_member(void *unused)
{
	struct hello hello;

	(void)unused;
	hello_accept(&hello, &member_self, NULL, NULL);
	if (member.what != STRANGER && (say_hello(&hello, member.fd) ||
					join_receive(member.fd, &hello, &member.request, NULL))) {
		fuzz_rule(clock_ms() - member.began_ms >= HELLO_TIMEOUT_MS);
		member.late = true;
	} else if (member.what == ANSWER)
		send_frame(member.fd, &hello, false, "join answer", member.bytes, member.len);
	else
		send_all(member.fd, member.bytes, member.len);
	shutdown(member.fd, SHUT_WR);
	return NULL;
}

static void check_plan(const struct plan *plan)
{
	fuzz_rule(member.what == ANSWER && plan->founding.self);
	fuzz_rule(plan->config.n_nodes == plan->founding.n_nodes);
	fuzz_rule(config_name_ok(plan->config.name));
	for (size_t i = 0; i < plan->config.n_nodes; i++) {
		fuzz_rule(config_name_ok(plan->config.nodes[i].name));
		fuzz_rule(config_address_ok(plan->config.nodes[i].address));
		fuzz_rule(strcmp(plan->nodes[i].name, plan->config.nodes[i].name) == 0);
	}
	fuzz_rule(memcmp(plan->founding.cluster_id, member_self.cluster_id, HELLO_CLUSTER_BYTES) ==
		  0);
}

static void join(void)
{
	const struct mkfs_options o = {
		.join = ADDRESS, .node = "d", .address = "h:9", .capacity = "1G", .again = true};
	struct plan plan = {0};
	struct ramp_err err = {0};
	pthread_t thread;
	int pair[2];

	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	newcomers_end = pair[0]; /* which join.c closes */
	member.late = false;
	member.began_ms = clock_ms();
	member.fd = pair[1];
	fuzz_rule(pthread_create(&thread, NULL, be_member, NULL) == 0);
	if (plan_join(&o, key, &plan, &err) == 0)
		check_plan(&plan);
	else
		fuzz_rule(err.code && err.text[0]);
	plan_free(&plan);
	pthread_join(thread, NULL);
	close(pair[1]);
	fuzz_rule(member.what == STRANGER || member.late ||
		  (strcmp(member.request.name, "d") == 0 && member.request.kind == JOIN_AGAIN));
}

static void receive(void)
{
	struct hello newcomer, hello;
	struct join_request request;
	struct ramp_err err = {0};
	int pair[2], rc;

	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	hello_dial(&newcomer, &newcomer_self, 0, 0, HELLO_JOIN);
	hello_accept(&hello, &member_self, NULL, NULL);
	while (hello_on(&newcomer, pair[0], NULL) == -EAGAIN)
		(void)!hello_on(&hello, pair[1], NULL);
	send_frame(pair[0], &newcomer, true, "join request", member.bytes, member.len);
	shutdown(pair[0], SHUT_WR);
	rc = join_receive(pair[1], &hello, &request, &err);
	if (rc == 0)
		fuzz_rule(memchr(request.name, 0, sizeof(request.name)) &&
			  memchr(request.address, 0, sizeof(request.address)) &&
			  (request.kind == JOIN_NEW || request.kind == JOIN_AGAIN ||
			   request.kind == JOIN_KEPT));
	else
		fuzz_rule(err.code && err.text[0]);
	close(pair[0]);
	close(pair[1]);
}

static void start(void)
{
	memset(member_self.cluster_id, 0xc1, sizeof(member_self.cluster_id));
	member_self.node = 7;
	member_self.incarnation = 77;
	newcomer_self.incarnation = 78;
	fuzz_rule(hello_self_init(&member_self, key, NULL) == 0);
	fuzz_rule(hello_self_init(&newcomer_self, key, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned int inputs, open_before;
	struct fuzz_in in = {data, size};

	if (!member_self.node)
		start();
	member.what = fuzz_u8(&in) % WHATS;
	member.bytes = in.at;
	member.len = in.left;
	if (member.what == REQUEST)
		receive();
	else
		join();
	if (inputs++ % LOOK_AGAIN == 1) {
		fuzz_rule(!open_before || fuzz_open_files() == open_before);
		open_before = fuzz_open_files();
	}
	return 0;
}

/* ---- seeds ---------------------------------------------------------------------------------- */

static size_t put_answer(uint8_t *bytes, size_t cap, int result)
{
	struct wire_w w;

	wire_w_init(&w, bytes, cap);
	wire_put_u8(&w, ANSWER);
	wire_put_u32(&w, (uint32_t)-result);
	wire_put_str(&w, result ? "there is one already" : "");
	wire_put_u32(&w, result ? 0 : 4);
	wire_put_str(&w, "lab");
	wire_put_u64(&w, CONFIG_ARENA_ADDR);
	wire_put_u64(&w, CONFIG_ARENA_LEN);
	wire_put_u32(&w, result ? 0 : 2);
	for (uint32_t node = 1; !result && node <= 4; node += 3) {
		wire_put_u32(&w, node);
		wire_put_str(&w, node == 4 ? "d" : "a");
		wire_put_str(&w, "host:9");
		wire_put_u64(&w, 1 << 30);
		wire_put_u8(&w, node == 1);
	}
	return w.len;
}

void fuzz_seeds(void)
{
	static const uint8_t offer[] = {STRANGER, 0x52, 0x41, 0x4d, 0x50, PEER_VERSION, 0, 2, 64};
	static const uint8_t reject[] = {STRANGER,     0x52, 0x41, 0x4d, 0x50,
					 PEER_VERSION, 0,    5,	   1,	 3};
	uint8_t bytes[512] = {0};
	struct wire_w w;

	memcpy(bytes, offer, sizeof(offer));
	fuzz_seed("offer", bytes, 73);
	fuzz_seed("reject", reject, sizeof(reject));
	fuzz_seed("taken-in", bytes, put_answer(bytes, sizeof(bytes), 0));
	fuzz_seed("refused", bytes, put_answer(bytes, sizeof(bytes), -EEXIST));
	bytes[0] = FRAME;
	fuzz_seed("frame", bytes, 60);
	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u8(&w, REQUEST);
	wire_put_u8(&w, JOIN_NEW);
	wire_put_str(&w, "d");
	wire_put_str(&w, "host:9");
	wire_put_u64(&w, 1 << 30);
	fuzz_seed("request", bytes, w.len);
}
