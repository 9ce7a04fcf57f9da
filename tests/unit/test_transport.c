/*
 * Control connections between nodes of one process, each with a loop and a thread of its own.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>

#include "lib/run_suite.h"
#include "transport/hello.h"
#include "transport_node.h"

#define HELLO_TO_SERVER 137 /* bytes of a hello; messages come after them */
#define HELLO_TO_CLIENT 164

static const struct node_identity ID_A = {.key = 'k', .cluster = 'c', .incarnation = 0xa1};
static const struct node_identity ID_B = {.key = 'k', .cluster = 'c', .incarnation = 0xb1};

static bool is_up(struct node *node, ramp_node_t other)
{
	return peer_up(node->peers, other);
}

/* ---- up and down ------------------------------------------------------------------------- */

START_TEST(up_both_ways)
{
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	ck_assert(!is_up(&a, 2));
	ck_assert_int_eq(peer_send(a.peers, 2, 1, "x", 1), -EHOSTUNREACH);
	ck_assert_int_eq(peer_send(a.peers, 9, 1, "x", 1), -EHOSTUNREACH);
	ck_assert_int_eq(peer_send(a.peers, 1, 1, "x", 1), -EHOSTUNREACH);

	nodes_join(&a, &b);

	ck_assert_uint_eq(peer_incarnation(a.peers, 2), 0xb1);
	ck_assert_uint_eq(peer_incarnation(b.peers, 1), 0xa1);
	ck_assert_uint_eq(peer_instance(a.peers, 2), 1002);
	ck_assert_uint_eq(peer_instance(b.peers, 1), 1001);
	wait_until(a.ups == 1 && b.ups == 1);
	ck_assert_uint_eq(a.downs + b.downs, 0);
	ck_assert_uint_eq(peers_rejected(a.peers) + peers_rejected(b.peers), 0);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(restart_with_another_incarnation)
{
	struct node_identity later = ID_B;
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);
	later.port = b.port;
	later.incarnation = 0xb2;

	node_stop(&b);
	wait_until(!is_up(&a, 2));
	b = (struct node){0};
	node_start(&b, 2, later);
	node_know(&b, 1, a.port);

	wait_until(is_up(&a, 2) && is_up(&b, 1));
	ck_assert_uint_eq(peer_incarnation(a.peers, 2), 0xb2);
	wait_until(a.ups == 2);
	ck_assert_uint_eq(a.downs, 1);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* The node with the smaller number, which dials, stops and starts again. */
START_TEST(restart_of_the_dialer)
{
	struct node_identity later = ID_A;
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);

	node_stop(&a);
	wait_until(!is_up(&b, 1));
	later.incarnation = 0xa2;
	a = (struct node){0};
	node_start(&a, 1, later);
	node_know(&a, 2, b.port);

	wait_until(is_up(&b, 1));
	ck_assert_uint_eq(peer_incarnation(b.peers, 1), 0xa2);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(dialed_before_it_is_there)
{
	struct node a = {0}, b = {0};
	uint16_t port;
	int fd = raw_listen(&port);
	struct node_identity id = ID_B;

	close(fd); /* the port is free, and no node listens there yet */
	node_start(&a, 1, ID_A);
	node_know(&a, 2, port);
	usleep(200000); /* some refused dials */
	ck_assert(!is_up(&a, 2));

	id.port = port;
	node_start(&b, 2, id);
	node_know(&b, 1, a.port);
	wait_until(is_up(&a, 2) && is_up(&b, 1));
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(members_only)
{
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	node_know(&a, 2, b.port); /* b does not know a */
	wait_until(peers_rejected(b.peers) > 0);
	ck_assert(!is_up(&a, 2));

	node_know(&b, 1, a.port);
	wait_until(is_up(&a, 2) && is_up(&b, 1));
	node_forget(&b, 1);
	wait_until(!is_up(&a, 2) && !is_up(&b, 1));
	ck_assert_int_eq(peer_send(b.peers, 1, 1, "x", 1), -EHOSTUNREACH);
	wait_until(b.downs == 1);

	node_know(&b, 1, a.port);
	wait_until(is_up(&a, 2) && is_up(&b, 1));
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(a_new_address_is_dialed)
{
	struct node a = {0}, b = {0}, moved = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	node_start(&moved, 2, (struct node_identity){'k', 'c', 0xb2, 0, NULL, 0});
	node_know(&moved, 1, a.port);
	nodes_join(&a, &b);

	node_know(&a, 2, moved.port);

	wait_until(is_up(&a, 2) && peer_incarnation(a.peers, 2) == 0xb2);
	wait_until(is_up(&moved, 1) && !is_up(&b, 1));
	node_stop(&a);
	node_stop(&b);
	node_stop(&moved);
}
END_TEST

START_TEST(host_names_and_ipv6)
{
	struct node_identity six = ID_B;
	struct node a = {0}, b = {0}, c = {0};
	struct addrinfo *found = NULL;
	const char *host = "localhost";
	char address[32];

	if (getaddrinfo(host, NULL, NULL, &found)) {
		fprintf(stderr,
			"this machine knows no name, not even its own (no /etc/hosts, as in "
			"a debootstrap chroot): only numbers are tried\n");
		host = "127.0.0.1";
	} else {
		freeaddrinfo(found);
	}

	node_start(&a, 1, ID_A);
	six.host = "[::1]";
	node_start(&b, 2, six);
	node_start(&c, 3, (struct node_identity){'k', 'c', 0xc1, 0, host, 0});
	node_know(&b, 1, a.port);
	node_know(&c, 1, a.port);
	snprintf(address, sizeof(address), "[::1]:%u", b.port);
	node_know_at(&a, 2, address);
	snprintf(address, sizeof(address), "%s:%u", host, c.port);
	node_know_at(&a, 3, address);

	wait_until(is_up(&a, 2) && is_up(&b, 1));
	wait_until(is_up(&a, 3) && is_up(&c, 1));
	node_stop(&a);
	node_stop(&b);
	node_stop(&c);
}
END_TEST

START_TEST(addresses_that_are_none)
{
	static const char *const bad[] = {
		"nowhere",   "127.0.0.1:", ":7000", "::1:7000", "no.such.host.invalid:7000",
		"[::1:7000", "127.0.0.1:x"};
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		node_know_at(&a, 2, bad[i]);
	ck_assert(!is_up(&a, 2));

	nodes_join(&a, &b); /* and is none the worse for it */
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(port_in_use)
{
	struct peers_config config = {.self = 2, .incarnation = 1};
	struct ramp_err err = {0};
	struct peers *peers;
	struct node a = {0};
	char address[32];

	node_start(&a, 1, ID_A);
	snprintf(address, sizeof(address), "127.0.0.1:%u", a.port);
	config.listen_address = address;
	ck_assert_int_eq(loop_open(&config.loop, &err), 0);

	ck_assert_int_eq(peers_open(&config, &peers, &err), -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(err.text, address));
	config.listen_address = "nonsense";
	ck_assert_int_eq(peers_open(&config, &peers, &err), -EINVAL);
	loop_close(config.loop);
	node_stop(&a);
}
END_TEST

/* ---- messages ---------------------------------------------------------------------------- */

#define SENDERS	 4
#define PER_SEND 2000

/* Checks each sender's numbers: in order, none twice. */
struct inbox {
	_Atomic uint64_t messages, bytes, wrong;
	_Atomic uint64_t next[SENDERS];
};

static void take_numbered(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			  struct wire_r *body)
{
	struct inbox *inbox = arg;
	uint32_t sender = wire_get_u32(body);
	uint64_t number = wire_get_u64(body);
	size_t len;
	const uint8_t *filler = wire_get_view(body, &len);

	(void)from;
	(void)incarnation;
	if (!wire_r_done(body) || sender >= SENDERS || number < inbox->next[sender] ||
	    (len && (filler[0] != (uint8_t)number || filler[len - 1] != (uint8_t)number)))
		atomic_fetch_add(&inbox->wrong, 1);
	else
		inbox->next[sender] = number + 1;
	atomic_fetch_add(&inbox->bytes, len);
	atomic_fetch_add(&inbox->messages, 1);
}

struct sender {
	pthread_t thread;
	struct node *node;
	ramp_node_t to;
	uint32_t number;
	unsigned int first, count; /* numbers that it sends */
	size_t most_bytes;
	uint64_t refused;
};

static int send_numbered(struct node *node, ramp_node_t to, uint32_t sender, uint64_t number,
			 size_t len)
{
	uint8_t *body = malloc(len + 16);
	struct wire_w w;
	int rc;

	memset(body, (uint8_t)number, len + 16);
	wire_w_init(&w, body, len + 16);
	wire_put_u32(&w, sender);
	wire_put_u64(&w, number);
	wire_put_u32(&w, (uint32_t)len);
	rc = peer_send(node->peers, to, 1, body, len + 16);
	free(body);
	return rc;
}

static void *sender_main(void *arg)
{
	struct sender *s = arg;

	for (unsigned int i = s->first; i < s->first + s->count; i++) {
		size_t len = s->most_bytes ? (i * 7919u) % s->most_bytes : 0;

		while (send_numbered(s->node, s->to, s->number, i, len) == -ENOBUFS) {
			s->refused++;
			usleep(100);
		}
	}
	return NULL;
}

static void send_from_many(struct sender *senders, struct node *node, ramp_node_t to,
			   unsigned int first, unsigned int count, size_t most_bytes)
{
	for (uint32_t i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){0, node, to, i, first, count, most_bytes, 0};
		ck_assert_int_eq(pthread_create(&senders[i].thread, NULL, sender_main, &senders[i]),
				 0);
	}
}

static void join_senders(struct sender *senders)
{
	for (uint32_t i = 0; i < SENDERS; i++)
		pthread_join(senders[i].thread, NULL);
}

START_TEST(many_threads_both_ways)
{
	struct inbox at_a = {0}, at_b = {0};
	struct sender from_a[SENDERS], from_b[SENDERS];
	struct node a = {.handler = take_numbered, .handler_arg = &at_a};
	struct node b = {.handler = take_numbered, .handler_arg = &at_b};
	struct peer_status status;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);

	send_from_many(from_a, &a, 2, 0, PER_SEND, 3000);
	send_from_many(from_b, &b, 1, 0, PER_SEND, 30000);
	join_senders(from_a);
	join_senders(from_b);

	wait_until(at_a.messages == SENDERS * PER_SEND && at_b.messages == SENDERS * PER_SEND);
	ck_assert_uint_eq(at_a.wrong + at_b.wrong, 0);
	ck_assert_uint_eq(a.downs + b.downs, 0);
	ck_assert_uint_eq(peers_status(a.peers, &status, 1), 1);
	ck_assert(status.up && status.node == 2 && status.rejected == 0);
	ck_assert_uint_ge(status.messages_in, SENDERS * PER_SEND);
	ck_assert_uint_ge(status.messages_out, SENDERS * PER_SEND);
	ck_assert_uint_gt(status.bytes_in, at_a.bytes);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

START_TEST(the_largest_message)
{
	struct inbox at_b = {0};
	struct node a = {0}, b = {.handler = take_numbered, .handler_arg = &at_b};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);

	ck_assert_int_eq(send_numbered(&a, 2, 0, 0, PEER_MESSAGE_MAX_BYTES - 15), -EMSGSIZE);
	for (uint64_t i = 0; i < 8; i++) {
		while (send_numbered(&a, 2, 0, i, PEER_MESSAGE_MAX_BYTES - 16) == -ENOBUFS)
			usleep(1000);
		while (send_numbered(&a, 2, 1, i, 0) == -ENOBUFS)
			usleep(1000);
	}
	wait_until(at_b.messages == 16);
	ck_assert_uint_eq(at_b.wrong, 0);
	ck_assert_uint_eq(at_b.bytes, 8 * (uint64_t)(PEER_MESSAGE_MAX_BYTES - 16));
	node_stop(&a);
	node_stop(&b);
}
END_TEST

static _Atomic bool hold;

static void hold_the_loop(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			  struct wire_r *body)
{
	while (hold)
		usleep(1000);
	take_numbered(arg, from, incarnation, body);
}

/* A peer that does not read: the sender is told, keeps its bound, and no message is lost but those
   that it was told of. */
START_TEST(a_peer_that_falls_behind)
{
	struct inbox at_b = {0};
	struct node a = {0}, b = {.handler = hold_the_loop, .handler_arg = &at_b};
	uint64_t sent = 0, refused = 0;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);
	hold = true;

	/* For less than 2 s: it would be down otherwise. */
	for (uint64_t i = 0; i < 100 && refused < 3; i++) {
		int rc = send_numbered(&a, 2, 0, i, 1 << 20);

		ck_assert_msg(rc == 0 || rc == -ENOBUFS, "%d", rc);
		if (rc)
			refused++;
		else
			sent++;
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_gt(sent, 10);
	hold = false;

	wait_until(at_b.messages == sent);
	ck_assert_uint_eq(at_b.wrong, 0);
	ck_assert_int_eq(send_numbered(&a, 2, 0, 1000, 10), 0);
	wait_until(at_b.messages == sent + 1);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

static _Atomic unsigned int malformed;

static void want_eight_bytes(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	(void)arg;
	(void)from;
	(void)incarnation;
	wire_get_u64(body);
	if (body->bad)
		malformed++;
}

START_TEST(messages_that_nobody_takes)
{
	struct node a = {0}, b = {.handler = want_eight_bytes};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);

	ck_assert_int_eq(peer_send(a.peers, 2, 200, "x", 1), 0);
	ck_assert_int_eq(peer_send(a.peers, 2, 1, "short", 5), 0);
	ck_assert_int_eq(peer_send(a.peers, 2, 1, NULL, 0), 0);
	wait_until(node_peer_rejected(&b, 1) == 3);
	ck_assert_uint_eq(malformed, 2);
	ck_assert(is_up(&b, 1)); /* the connection is sound */
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* Handlers and callbacks may call back, as the upper floors do. */
static void answer(void *arg, ramp_node_t from, ramp_incarnation_t incarnation, struct wire_r *body)
{
	struct node *node = arg;
	uint8_t bytes[8];
	struct wire_w w;
	uint64_t left = wire_get_u64(body);

	(void)incarnation;
	if (left == 0) {
		peers_remove(node->peers, from); /* ends the connection it is called from */
		return;
	}
	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u64(&w, left - 1);
	peer_send(node->peers, from, 1, bytes, sizeof(bytes));
}

static void greet(struct node *node, ramp_node_t peer, bool up)
{
	uint8_t bytes[8] = {200};

	if (up && node->id == 1)
		peer_send(node->peers, peer, 1, bytes, sizeof(bytes));
}

/* ---- what the loop's thread sends ---- */

static __thread unsigned int writes; /* by this thread */

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	writes++;
	return __real_sendmsg(fd, msg, flags);
}

#define AT_ONCE 64u

struct many {
	struct node *node;
	uint64_t first;
	bool stops; /* the loop, before it has written any */
	unsigned int writes;
};

static void send_many(void *arg)
{
	struct many *many = arg;

	many->writes = writes;
	for (uint64_t i = 0; i < AT_ONCE; i++)
		ck_assert_int_eq(send_numbered(many->node, 1, 0, many->first + i, 8), 0);
	if (many->stops)
		loop_stop(many->node->loop);
}

static void count_writes(void *arg)
{
	struct many *many = arg;

	many->writes = writes - many->writes;
}

/* Together, and in order; and none is lost where the daemon ends in the same turn. */
START_TEST(messages_of_one_turn_go_out_together)
{
	struct inbox inbox = {0};
	struct node a = {.handler = take_numbered, .handler_arg = &inbox}, b = {0};
	struct many many = {.node = &b};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	nodes_join(&a, &b);
	node_run(&b, send_many, &many);
	wait_until(inbox.messages == AT_ONCE);
	node_run(&b, count_writes, &many);
	ck_assert_uint_le(many.writes, AT_ONCE / 4);
	many.first = AT_ONCE;
	many.stops = true;
	node_run(&b, send_many, &many);
	node_stop(&b);
	wait_until(inbox.messages == UINT64_C(2) * AT_ONCE);
	ck_assert_uint_eq(inbox.wrong, 0);
	node_stop(&a);
}
END_TEST

START_TEST(calls_from_within_handlers)
{
	struct node a = {.handler = answer, .handler_arg = &a, .on_up = greet};
	struct node b = {.handler = answer, .handler_arg = &b};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	node_know(&b, 1, a.port);
	node_know(&a, 2, b.port);

	wait_until(b.downs == 1 && a.downs >= 1);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* Cuts each connection after some bytes, each after others. */
static bool cut_soon(void *arg, unsigned int connection, enum way way, uint64_t offset,
		     uint8_t *bytes, size_t *len, size_t cap)
{
	_Atomic bool *calm = arg;

	(void)way;
	(void)bytes;
	(void)cap;
	return *calm || offset + *len < 2000 + connection % 7 * 9000;
}

#define LAST (UINT64_C(1) << 30)

START_TEST(senders_while_the_connection_breaks)
{
	struct inbox at_a = {0}, at_b = {0};
	struct sender from_a[SENDERS], from_b[SENDERS];
	struct node a = {.handler = take_numbered, .handler_arg = &at_a};
	struct node b = {.handler = take_numbered, .handler_arg = &at_b};
	_Atomic bool calm = false;
	struct middle *middle;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	middle = middle_start(b.port, cut_soon, &calm);
	node_know(&b, 1, a.port);
	node_know(&a, 2, middle_port(middle));
	for (unsigned int first = 0; a.ups < 10; first += PER_SEND / 4) {
		send_from_many(from_a, &a, 2, first, PER_SEND / 4, 5000);
		send_from_many(from_b, &b, 1, first, PER_SEND / 4, 5000);
		join_senders(from_a);
		join_senders(from_b);
		usleep(1000);
	}
	calm = true;
	/* Messages that a broken connection has not delivered are lost; none comes twice, out of
	   order or altered. */
	wait_until(is_up(&a, 2) && is_up(&b, 1));
	for (uint64_t last = LAST; at_a.next[0] <= LAST || at_b.next[0] <= LAST; last++) {
		ck_assert_uint_lt(last, LAST + WAIT_MS);
		send_numbered(&a, 2, 0, last, 10);
		send_numbered(&b, 1, 0, last, 10);
		usleep(1000);
	}
	ck_assert_uint_eq(at_a.wrong + at_b.wrong, 0);
	ck_assert_uint_gt(at_a.messages, 0);
	ck_assert_uint_gt(at_b.messages, 0);
	ck_assert_uint_ge(a.downs, 9);
	middle_stop(middle);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* A node ends with everything under way that can be. */
START_TEST(closed_in_the_midst)
{
	struct node a = {0}, b = {0};
	uint16_t silent_port;
	int silent = raw_listen(&silent_port), idle[8];

	node_start(&b, 2, ID_B);
	node_start(&a, 1, ID_A);
	for (size_t i = 0; i < 8; i++)
		idle[i] = raw_connect(a.port);
	node_know(&a, 3, silent_port);
	node_know_at(&a, 4, "no.such.host.invalid:7000");
	node_know(&a, 5, 1); /* refused */
	nodes_join(&a, &b);
	for (uint64_t i = 0; i < 50; i++)
		send_numbered(&a, 2, 0, i, 100000);
	node_stop(&a);

	wait_until(!is_up(&b, 1));
	for (size_t i = 0; i < 8; i++)
		close(idle[i]);
	close(silent);
	node_stop(&b);
}
END_TEST

/* ---- connections that must be rejected ---------------------------------------------------- */

static void never_up(struct node_identity other)
{
	struct node a = {0}, b = {0};

	node_start(&a, 1, ID_A);
	node_start(&b, 2, other);
	node_know(&b, 1, a.port);
	node_know(&a, 2, b.port);
	/* a gets the reason in its dial, or b in its accept: each side counts. */
	wait_until(peers_rejected(a.peers) >= 2 && peers_rejected(b.peers) >= 2);
	ck_assert(!is_up(&a, 2) && !is_up(&b, 1));
	ck_assert_uint_eq(a.ups + b.ups, 0);
	ck_assert_uint_eq(peer_incarnation(a.peers, 2), 0);
	node_stop(&a);
	node_stop(&b);
}

START_TEST(wrong_key)
{
	never_up((struct node_identity){.key = 'x', .cluster = 'c', .incarnation = 0xb1});
}
END_TEST

START_TEST(another_cluster)
{
	never_up((struct node_identity){.key = 'k', .cluster = 'd', .incarnation = 0xb1});
}
END_TEST

/* Returns when the other side has closed. False: it continued to speak for 10 s. */
static bool closes(int fd, uint8_t *said, size_t *n_said, size_t cap)
{
	*n_said = 0;
	for (;;) {
		ssize_t n = recv(fd, said + *n_said, cap - *n_said, 0);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return true;
		if (n < 0)
			return false;
		*n_said += (size_t)n;
	}
}

START_TEST(strangers_learn_nothing)
{
	static const uint8_t http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	uint8_t frame[64] = {'R', 'A', 'M', 'P', PEER_VERSION + 1, 0, 1, 32}, said[256];
	struct node a = {0};
	size_t n;
	int fd;

	node_start(&a, 1, ID_A);
	fd = raw_connect(a.port);
	ck_assert_int_eq(send(fd, http, sizeof(http) - 1, 0), sizeof(http) - 1);
	ck_assert(closes(fd, said, &n, sizeof(said)));
	ck_assert_uint_le(n, 9);
	close(fd);

	fd = raw_connect(a.port);
	ck_assert_int_eq(send(fd, frame, 40, 0), 40);
	ck_assert(closes(fd, said, &n, sizeof(said)));
	ck_assert_uint_le(n, 9);
	if (n == 9)
		ck_assert_uint_eq(said[4], PEER_VERSION);
	close(fd);
	wait_until(peers_rejected(a.peers) == 2);
	node_stop(&a);
}
END_TEST

/* The log until log_read. */
struct kept_log {
	int file, stderr_was;
	char text[65536];
};

static void log_keep(struct kept_log *log)
{
	char name[] = "/tmp/test_transport.XXXXXX";

	*log = (struct kept_log){.file = mkstemp(name), .stderr_was = dup(STDERR_FILENO)};
	ck_assert_int_ge(log->file, 0);
	unlink(name);
	dup2(log->file, STDERR_FILENO);
}

static const char *log_read(struct kept_log *log)
{
	dup2(log->stderr_was, STDERR_FILENO);
	ck_assert_int_gt(pread(log->file, log->text, sizeof(log->text) - 1, 0), 0);
	close(log->file);
	close(log->stderr_was);
	return log->text;
}

/* A flood of strangers leaves a few lines in the log. */
START_TEST(the_log_is_not_flooded)
{
	static struct kept_log log;
	struct node a = {0};
	unsigned int lines = 0;
	const char *text;

	log_keep(&log);
	node_start(&a, 1, ID_A);
	for (unsigned int i = 0; i < 500; i++) {
		int fd = raw_connect(a.port);

		ck_assert_int_eq(send(fd, i % 2 ? "no hello" : "RAM", i % 2 ? 8 : 3, 0),
				 i % 2 ? 8 : 3);
		close(fd);
	}
	wait_until(peers_rejected(a.peers) == 500);
	node_stop(&a);

	text = log_read(&log);
	for (const char *at = text; (at = strstr(at, "rejected")); at++)
		lines++;
	ck_assert_uint_ge(lines, 2);
	ck_assert_uint_le(lines, 4);
	ck_assert_ptr_nonnull(strstr(text, "connection with 127.0.0.1:"));
	ck_assert_ptr_nonnull(strstr(text, "it does not speak rampfs's protocol"));
	ck_assert_ptr_nonnull(strstr(text, "in the middle of the hello"));
}
END_TEST

START_TEST(idlers_are_thrown_out)
{
	uint8_t said[16];
	struct node a = {0};
	size_t n;
	int fd;

	node_start(&a, 1, ID_A);
	fd = raw_connect(a.port);
	ck_assert_int_eq(send(fd, "RAMP", 4, 0), 4);
	ck_assert(closes(fd, said, &n, sizeof(said))); /* after 5 s; recv gives up after 10 */
	ck_assert_uint_eq(n, 0);
	close(fd);
	ck_assert_uint_eq(peers_rejected(a.peers), 1);
	node_stop(&a);
}
END_TEST

START_TEST(a_crowd_of_idlers_keeps_nobody_out)
{
	static struct kept_log log;
	struct node a = {0}, b = {0};
	int fds[200];

	log_keep(&log);
	node_start(&b, 2, ID_B);
	for (size_t i = 0; i < 200; i++)
		fds[i] = raw_connect(b.port);
	/* More where that has taken the others past their time limit. */
	wait_until(peers_rejected(b.peers) >= 200 - 64);
	ck_assert_ptr_nonnull(
		strstr(log_read(&log), "more than 64 connections have not proved themselves"));

	node_start(&a, 1, ID_A);
	nodes_join(&a, &b);
	for (size_t i = 0; i < 200; i++)
		close(fds[i]);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* A listener that takes connections and never says a word. */
START_TEST(a_silent_listener_is_given_up)
{
	struct node a = {0}, b = {0};
	uint16_t port;
	int fd = raw_listen(&port);

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	node_know(&b, 1, a.port);
	node_know(&a, 2, port);
	/* The second dial shows that the first one was given up. */
	for (int i = 0; i < 2; i++) {
		struct pollfd pollfd = {.fd = fd, .events = POLLIN};

		ck_assert_int_eq(poll(&pollfd, 1, 30000), 1);
		ck_assert_int_ge(accept(fd, NULL, NULL), 0);
	}
	node_know(&a, 2, b.port);
	wait_until(is_up(&a, 2));
	close(fd);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* ---- the man in the middle ---------------------------------------------------------------- */

enum deed { PASS, FLIP, DROP, CUT, REPEAT, GARBAGE, STALL };

struct plan {
	enum way way;
	uint64_t at;	  /* the byte of the stream where it happens */
	_Atomic int what; /* enum deed */
	_Atomic unsigned int happened;
	_Atomic bool once, again; /* again: connections after the first may pass */
};

static bool follow_plan(void *arg, unsigned int connection, enum way way, uint64_t offset,
			uint8_t *bytes, size_t *len, size_t cap)
{
	struct plan *plan = arg;
	int what = plan->what;
	size_t at;

	if (connection > 0 && !plan->again)
		return false; /* first the end of the first one is seen */
	if (what == STALL && plan->once) {
		*len = 0; /* swallows everything, and keeps the connection */
		return true;
	}
	if (way != plan->way || plan->at < offset || plan->at >= offset + *len || plan->once)
		return true;
	at = (size_t)(plan->at - offset);
	plan->once = true;
	plan->happened++;
	switch (what) {
	case FLIP:
		bytes[at] ^= 0x40;
		break;
	case DROP:
		memmove(bytes + at, bytes + at + 1, *len - at - 1);
		*len -= 1;
		break;
	case CUT:
		*len = at;
		return false;
	case REPEAT: /* everything in this chunk once more */
		ck_assert_uint_le(2 * *len, cap);
		memcpy(bytes + *len, bytes, *len);
		*len *= 2;
		break;
	case GARBAGE: /* a header that announces more than there may be */
		memset(bytes + at, 0xff, *len - at);
		break;
	case STALL:
		*len = at;
		break;
	default:
		break;
	}
	return true;
}

/* a dials b through the middle; messages flow both ways until the plan has happened. The bad
   connection must end with no wrong message delivered, and a new one must come up. */
static void meddle(struct plan *plan)
{
	struct inbox at_a = {0}, at_b = {0};
	struct node a = {.handler = take_numbered, .handler_arg = &at_a};
	struct node b = {.handler = take_numbered, .handler_arg = &at_b};
	struct middle *middle;
	uint64_t i = 0;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	middle = middle_start(b.port, follow_plan, plan);
	node_know(&b, 1, a.port);
	node_know(&a, 2, middle_port(middle));
	wait_until(is_up(&a, 2) && is_up(&b, 1));

	for (; !plan->happened && i < 10000; i++) {
		send_numbered(&a, 2, 0, i, 100);
		send_numbered(&b, 1, 0, i, 100);
		usleep(500);
	}
	ck_assert_uint_eq(plan->happened, 1);
	for (unsigned int k = 0; k < 50; k++, i++) { /* later messages would show a gap */
		send_numbered(&a, 2, 0, i, 100);
		send_numbered(&b, 1, 0, i, 100);
	}
	if (plan->way == TO_SERVER)
		wait_until(b.downs >= 1);
	else
		wait_until(a.downs >= 1);
	if (plan->what == STALL)
		plan->what = PASS;
	plan->again = true;
	wait_until(a.ups >= 2 && b.ups >= 2 && is_up(&a, 2) && is_up(&b, 1));
	ck_assert_uint_eq(at_a.wrong + at_b.wrong, 0);
	if (plan->what != PASS)
		ck_assert_uint_ge(peers_rejected(plan->way == TO_SERVER ? b.peers : a.peers), 1);
	middle_stop(middle);
	node_stop(&a);
	node_stop(&b);
}

/* Somewhere in the messages: in a header, a body, an HMAC, by the loop index. */
static uint64_t spot(enum way way, int i)
{
	/* A numbered message is 45 + 116 + 32 bytes; keep-alives shift it all the time. */
	return (way == TO_SERVER ? HELLO_TO_SERVER : HELLO_TO_CLIENT) + 400u + (uint64_t)i * 37;
}

#define MEDDLE(what_, name)                                                                        \
	START_TEST(name)                                                                           \
	{                                                                                          \
		struct plan plan = {.way = (enum way)(_i % 2),                                     \
				    .at = spot((enum way)(_i % 2), _i / 2),                        \
				    .what = what_};                                                \
		meddle(&plan);                                                                     \
	}                                                                                          \
	END_TEST

MEDDLE(FLIP, an_altered_message)
MEDDLE(DROP, a_missing_byte)
MEDDLE(REPEAT, a_replayed_message)
MEDDLE(GARBAGE, an_oversized_message)
MEDDLE(STALL, a_line_that_falls_silent)

/* Cut in the middle of a message; on a boundary it would be a plain end of file. */
START_TEST(a_truncated_message)
{
	struct plan plan = {.way = (enum way)(_i % 2), .what = CUT};

	/* The first message is whole or a keep-alive of 77 bytes: 20 is inside it either way. */
	plan.at = (plan.way == TO_SERVER ? HELLO_TO_SERVER : HELLO_TO_CLIENT) + 20;
	meddle(&plan);
}
END_TEST

/* Nothing but the length of the first message altered, to more than there may be. */
START_TEST(an_oversized_length)
{
	struct plan plan = {.way = (enum way)(_i % 2), .what = FLIP};

	plan.at = (plan.way == TO_SERVER ? HELLO_TO_SERVER : HELLO_TO_CLIENT) + 3;
	meddle(&plan);
}
END_TEST

/* The same, to 16 KiB more than it is: the receiver neither waits for as much nor swallows it. */
START_TEST(a_length_that_swallows)
{
	struct plan plan = {.way = (enum way)(_i % 2), .what = FLIP};

	plan.at = (plan.way == TO_SERVER ? HELLO_TO_SERVER : HELLO_TO_CLIENT) + 1;
	meddle(&plan);
}
END_TEST

/* Removes bytes 10,000 to 30,000 of those that the server should get. */
static bool take_the_middle(void *arg, unsigned int connection, enum way way, uint64_t offset,
			    uint8_t *bytes, size_t *len, size_t cap)
{
	size_t kept = 0;

	(void)arg;
	(void)cap;
	if (connection > 0 || way == TO_CLIENT)
		return true;
	for (size_t i = 0; i < *len; i++)
		if (offset + i < 10000 || offset + i >= 30000)
			bytes[kept++] = bytes[i];
	*len = kept;
	return true;
}

/* Keep-alives would fill it up in a minute: the receiver does not wait for them. */
START_TEST(a_long_message_that_lacks_its_middle)
{
	struct inbox at_b = {0};
	struct node a = {0}, b = {.handler = take_numbered, .handler_arg = &at_b};
	struct middle *middle;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	middle = middle_start(b.port, take_the_middle, NULL);
	node_know(&b, 1, a.port);
	node_know(&a, 2, middle_port(middle));
	wait_until(is_up(&a, 2) && is_up(&b, 1));

	send_numbered(&a, 2, 0, 0, 60000);
	wait_until(b.downs >= 1);

	ck_assert_uint_eq(at_b.messages, 0);
	ck_assert_uint_ge(node_peer_rejected(&b, 1), 1);
	wait_until(is_up(&a, 2) && is_up(&b, 1));
	middle_stop(middle);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* The bytes that a sent to b are sent back to a. */
struct mirror {
	uint8_t bytes[4096];
	_Atomic size_t len;
	_Atomic bool sent;
};

static bool hold_mirror(void *arg, unsigned int connection, enum way way, uint64_t offset,
			uint8_t *bytes, size_t *len, size_t cap)
{
	struct mirror *mirror = arg;

	(void)cap;
	if (connection > 0)
		return true;
	if (way == TO_SERVER && offset >= HELLO_TO_SERVER && !mirror->len) {
		memcpy(mirror->bytes, bytes, *len < 4096 ? *len : 4096);
		mirror->len = *len < 4096 ? *len : 4096;
	} else if (way == TO_CLIENT && offset >= HELLO_TO_CLIENT && mirror->len && !mirror->sent) {
		memcpy(bytes, mirror->bytes, mirror->len);
		*len = mirror->len;
		mirror->sent = true;
	}
	return true;
}

START_TEST(a_message_sent_back)
{
	struct mirror mirror = {0};
	struct inbox at_a = {0};
	struct node a = {.handler = take_numbered, .handler_arg = &at_a}, b = {0};
	struct middle *middle;

	node_start(&a, 1, ID_A);
	node_start(&b, 2, ID_B);
	middle = middle_start(b.port, hold_mirror, &mirror);
	node_know(&b, 1, a.port);
	node_know(&a, 2, middle_port(middle));
	wait_until(is_up(&a, 2) && is_up(&b, 1));

	send_numbered(&a, 2, 0, 0, 10);
	wait_until(mirror.len);
	send_numbered(&b, 1, 0, 0, 10);
	wait_until(mirror.sent && a.downs >= 1);

	ck_assert_uint_eq(at_a.messages, 0);
	ck_assert_uint_ge(node_peer_rejected(&a, 2), 1);
	wait_until(is_up(&a, 2));
	middle_stop(middle);
	node_stop(&a);
	node_stop(&b);
}
END_TEST

/* ---- three ------------------------------------------------------------------------------- */

START_TEST(three_nodes)
{
	struct inbox inboxes[3] = {0};
	struct node nodes[3];
	uint64_t at_two;

	for (uint32_t i = 0; i < 3; i++) {
		nodes[i] = (struct node){.handler = take_numbered, .handler_arg = &inboxes[i]};
		node_start(&nodes[i], i + 1,
			   (struct node_identity){'k', 'c', 0x100 + i, 0, NULL, 0});
	}
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t j = 0; j < i; j++)
			nodes_join(&nodes[i], &nodes[j]);

	for (uint64_t n = 0; n < 300; n++)
		for (uint32_t i = 0; i < 3; i++)
			for (uint32_t j = 0; j < 3; j++)
				if (i != j)
					ck_assert_int_eq(send_numbered(&nodes[i], j + 1, i, n, 50),
							 0);
	for (uint32_t i = 0; i < 3; i++) {
		wait_until(inboxes[i].messages == 600);
		ck_assert_uint_eq(inboxes[i].wrong, 0);
	}

	node_stop(&nodes[1]);
	wait_until(!is_up(&nodes[0], 2) && !is_up(&nodes[2], 2));
	at_two = inboxes[2].messages;
	ck_assert_int_eq(send_numbered(&nodes[0], 3, 0, 1000, 5), 0);
	wait_until(inboxes[2].messages == at_two + 1);
	node_stop(&nodes[0]);
	node_stop(&nodes[2]);
}
END_TEST

static TCase *in_the_middle(void)
{
	TCase *tc = tcase_create("man in the middle");

	tcase_add_loop_test(tc, an_altered_message, 0, 10);
	tcase_add_loop_test(tc, a_missing_byte, 0, 6);
	tcase_add_loop_test(tc, a_replayed_message, 0, 4);
	tcase_add_loop_test(tc, an_oversized_message, 0, 4);
	tcase_add_loop_test(tc, an_oversized_length, 0, 2);
	tcase_add_loop_test(tc, a_length_that_swallows, 0, 2);
	tcase_add_test(tc, a_long_message_that_lacks_its_middle);
	tcase_add_loop_test(tc, a_truncated_message, 0, 2);
	tcase_add_loop_test(tc, a_line_that_falls_silent, 0, 2);
	tcase_add_test(tc, a_message_sent_back);
	tcase_set_timeout(tc, 60);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("transport");
	TCase *tc = tcase_create("peers");

	tcase_add_test(tc, up_both_ways);
	tcase_add_test(tc, restart_with_another_incarnation);
	tcase_add_test(tc, restart_of_the_dialer);
	tcase_add_test(tc, dialed_before_it_is_there);
	tcase_add_test(tc, members_only);
	tcase_add_test(tc, a_new_address_is_dialed);
	tcase_add_test(tc, host_names_and_ipv6);
	tcase_add_test(tc, addresses_that_are_none);
	tcase_add_test(tc, port_in_use);
	tcase_add_test(tc, many_threads_both_ways);
	tcase_add_test(tc, the_largest_message);
	tcase_add_test(tc, a_peer_that_falls_behind);
	tcase_add_test(tc, messages_that_nobody_takes);
	tcase_add_test(tc, messages_of_one_turn_go_out_together);
	tcase_add_test(tc, calls_from_within_handlers);
	tcase_add_test(tc, senders_while_the_connection_breaks);
	tcase_add_test(tc, closed_in_the_midst);
	tcase_add_test(tc, the_log_is_not_flooded);
	tcase_add_test(tc, wrong_key);
	tcase_add_test(tc, another_cluster);
	tcase_add_test(tc, strangers_learn_nothing);
	tcase_add_test(tc, idlers_are_thrown_out);
	tcase_add_test(tc, a_crowd_of_idlers_keeps_nobody_out);
	tcase_add_test(tc, a_silent_listener_is_given_up);
	tcase_add_test(tc, three_nodes);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, in_the_middle());
	return run_suite(suite);
}
