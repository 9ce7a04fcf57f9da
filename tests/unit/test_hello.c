/*
 * The hello between two ends whose bytes pass through the test: every one of them altered, cut,
 * replayed, turned back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>

#include "lib/run_suite.h"
#include "transport/hello_io.h"

#define DIALER_BYTES   137 /* OPEN and PROVE */
#define ACCEPTOR_BYTES 164 /* OFFER and WELCOME */
#define OPEN_BYTES     40
#define OFFER_BYTES    72

enum { FROM_DIALER = 0, FROM_ACCEPTOR = 1 };

/* A dialer (0) and an acceptor (1), each with a socket; the test has the other end. */
struct pair {
	struct hello_self selves[2];
	struct hello hellos[2];
	int theirs[2], ours[2];
	int results[2]; /* -EAGAIN: not over */
	struct ramp_err errs[2];
	/* The bytes that have passed, and where to change them. */
	uint8_t said[2][512];
	size_t n_said[2];
	int flip_way; /* -1: none */
	size_t flip_at, cut_at;
	int cut_way; /* -1: none */
};

static int hello_on(struct hello *hello, int fd, struct ramp_err *err)
{
	struct stream stream = stream_plain(fd);

	return hello_run(hello, &stream, err);
}

static void init_self(struct hello_self *self, ramp_node_t node, uint8_t key, uint8_t cluster)
{
	uint8_t cluster_key[HMAC_BYTES];

	memset(self, 0, sizeof(*self));
	memset(cluster_key, key, sizeof(cluster_key));
	memset(self->cluster_id, cluster, sizeof(self->cluster_id));
	self->node = node;
	self->incarnation = 0x1111 * node;
	self->instance = 0x2222 * node;
	ck_assert_int_eq(hello_self_init(self, cluster_key, NULL), 0);
}

static void pair_open(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	init_self(&pair->selves[0], 1, 'k', 'c');
	init_self(&pair->selves[1], 2, 'k', 'c');
	pair->flip_way = pair->cut_way = -1;
	for (int i = 0; i < 2; i++) {
		int fds[2];

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		pair->theirs[i] = fds[0];
		pair->ours[i] = fds[1];
		pair->results[i] = -EAGAIN;
	}
	hello_dial(&pair->hellos[0], &pair->selves[0], 2, 0, HELLO_DEMAND);
	hello_accept(&pair->hellos[1], &pair->selves[1], NULL, NULL);
}

static void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		close(pair->theirs[i]);
		close(pair->ours[i]);
	}
}

/* Carries the bytes that one end has sent to the other. False: there were none. */
static bool carry(struct pair *pair, int way)
{
	uint8_t *bytes = pair->said[way] + pair->n_said[way];
	size_t room = sizeof(pair->said[way]) - pair->n_said[way], before = pair->n_said[way];
	ssize_t n = recv(pair->ours[way], bytes, room, MSG_DONTWAIT);

	if (n <= 0)
		return false;
	pair->n_said[way] += (size_t)n;
	if (pair->flip_way == way && pair->flip_at >= before && pair->flip_at < pair->n_said[way])
		pair->said[way][pair->flip_at] ^= 0x10;
	if (pair->cut_way == way && pair->n_said[way] > pair->cut_at)
		n = pair->cut_at > before ? (ssize_t)(pair->cut_at - before) : 0;
	if (n)
		ck_assert_int_eq(send(pair->ours[!way], bytes, (size_t)n, MSG_NOSIGNAL), n);
	if (pair->cut_way == way && pair->n_said[way] > pair->cut_at)
		shutdown(pair->ours[!way], SHUT_WR);
	return true;
}

/* An end that has failed closes its socket, as the real ones do. */
static void step(struct pair *pair, int end)
{
	if (pair->results[end] != -EAGAIN)
		return;
	pair->results[end] = hello_on(&pair->hellos[end], pair->theirs[end], &pair->errs[end]);
	if (pair->results[end] < 0 && pair->results[end] != -EAGAIN)
		shutdown(pair->theirs[end], SHUT_RDWR);
}

static void pair_run(struct pair *pair)
{
	bool moved;

	do {
		step(pair, 0);
		step(pair, 1);
		moved = carry(pair, FROM_DIALER);
		moved |= carry(pair, FROM_ACCEPTOR);
	} while (moved);
	/* An end that still waits learns that the other one is gone. */
	for (int end = 0; end < 2; end++) {
		shutdown(pair->ours[end], SHUT_RDWR);
		step(pair, end);
	}
}

START_TEST(both_prove_themselves)
{
	uint8_t keys[4][HMAC_BYTES];
	struct pair pair;

	pair_open(&pair);
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], 0);
	ck_assert_int_eq(pair.results[1], 0);
	ck_assert_uint_eq(pair.n_said[FROM_DIALER], DIALER_BYTES);
	ck_assert_uint_eq(pair.n_said[FROM_ACCEPTOR], ACCEPTOR_BYTES);
	ck_assert_uint_eq(pair.hellos[0].peer.node, 2);
	ck_assert_uint_eq(pair.hellos[0].peer.incarnation, 0x2222);
	ck_assert_uint_eq(pair.hellos[0].peer.instance, 0x4444);
	ck_assert_uint_eq(pair.hellos[1].peer.node, 1);
	ck_assert_uint_eq(pair.hellos[1].peer.incarnation, 0x1111);
	ck_assert_uint_eq(pair.hellos[1].peer.instance, 0x2222);
	ck_assert_int_eq(pair.hellos[1].peer.class, HELLO_DEMAND);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(hello_session_key(&pair.hellos[i / 2], i % 2, keys[i]), 0);
	ck_assert(hmac_equal(keys[0], keys[2]));
	ck_assert(hmac_equal(keys[1], keys[3]));
	ck_assert(!hmac_equal(keys[0], keys[1]));
	pair_close(&pair);
}
END_TEST

START_TEST(two_hellos_share_nothing)
{
	uint8_t keys[2][HMAC_BYTES];
	struct pair pairs[2];

	for (int i = 0; i < 2; i++) {
		pair_open(&pairs[i]);
		pair_run(&pairs[i]);
		ck_assert_int_eq(hello_session_key(&pairs[i].hellos[0], true, keys[i]), 0);
		pair_close(&pairs[i]);
	}

	ck_assert(!hmac_equal(keys[0], keys[1]));
	ck_assert_mem_ne(pairs[0].said[0] + 8, pairs[1].said[0] + 8, HELLO_NONCE_BYTES);
	ck_assert_mem_ne(pairs[0].said[1] + 8, pairs[1].said[1] + 8, HELLO_NONCE_BYTES);
}
END_TEST

/* The end that gets an altered byte does not accept the hello, and neither does the other one. */
START_TEST(no_byte_may_change)
{
	static const size_t lengths[2] = {DIALER_BYTES, ACCEPTOR_BYTES};

	for (int way = 0; way < 2; way++)
		for (size_t at = 0; at < lengths[way]; at++) {
			struct pair pair;

			pair_open(&pair);
			pair.flip_way = way;
			pair.flip_at = at;
			pair_run(&pair);
			ck_assert_msg(pair.results[!way] < 0 && pair.results[!way] != -EAGAIN,
				      "byte %zu of way %d altered: %d", at, way,
				      pair.results[!way]);
			/* The dialer is never content; the acceptor only where nothing but its
			   own last word was altered. */
			ck_assert_int_lt(pair.results[0], 0);
			if (way == FROM_DIALER || at < OFFER_BYTES)
				ck_assert_int_lt(pair.results[1], 0);
			pair_close(&pair);
		}
}
END_TEST

START_TEST(no_byte_may_be_missing)
{
	static const size_t lengths[2] = {DIALER_BYTES, ACCEPTOR_BYTES};

	for (int way = 0; way < 2; way++)
		for (size_t at = 0; at < lengths[way]; at++) {
			struct pair pair;

			pair_open(&pair);
			pair.cut_way = way;
			pair.cut_at = at;
			pair_run(&pair);
			ck_assert_int_eq(pair.results[!way], -ECONNRESET);
			ck_assert_int_ne(pair.results[way], -EAGAIN);
			pair_close(&pair);
		}
}
END_TEST

START_TEST(wrong_key)
{
	struct pair pair;

	pair_open(&pair);
	init_self(&pair.selves[0], 1, 'x', 'c');
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], -EKEYREJECTED);
	ck_assert_int_eq(pair.results[1], -EACCES);
	/* Neither end has named itself. */
	ck_assert_uint_lt(pair.n_said[FROM_DIALER], OPEN_BYTES + 16);
	ck_assert_uint_eq(pair.n_said[FROM_ACCEPTOR], OFFER_BYTES);
	pair_close(&pair);
}
END_TEST

START_TEST(acceptor_checks_the_key_too)
{
	static const size_t mac_first = DIALER_BYTES - HMAC_BYTES;
	struct pair pair;

	/* A dialer that ignores the acceptor's proof, and makes up its own. */
	pair_open(&pair);
	pair.flip_way = FROM_DIALER;
	pair.flip_at = mac_first;
	pair_run(&pair);

	ck_assert_int_eq(pair.results[1], -EKEYREJECTED);
	/* All that the acceptor has said is its offer, and a REJECT. */
	ck_assert_uint_eq(pair.n_said[FROM_ACCEPTOR], OFFER_BYTES + 9);
	pair_close(&pair);
}
END_TEST

START_TEST(other_cluster)
{
	struct pair pair;

	pair_open(&pair);
	init_self(&pair.selves[0], 1, 'k', 'd');
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], -EACCES);
	ck_assert_int_eq(pair.results[1], -EPERM);
	ck_assert_ptr_nonnull(strstr(pair.errs[0].text, "another cluster"));
	pair_close(&pair);
}
END_TEST

START_TEST(other_version)
{
	struct pair pair;
	char said[64];

	pair_open(&pair);
	pair.flip_way = FROM_DIALER;
	pair.flip_at = 4; /* of u16 version */
	pair_run(&pair);

	ck_assert_int_eq(pair.results[1], -EPROTONOSUPPORT);
	snprintf(said, sizeof(said), "protocol version %d, this node %d", PEER_VERSION ^ 0x10,
		 PEER_VERSION);
	ck_assert_ptr_nonnull(strstr(pair.errs[1].text, said));
	ck_assert_int_eq(pair.results[0], -EACCES);
	pair_close(&pair);
}
END_TEST

START_TEST(wrong_node_dialed)
{
	struct pair pair;

	pair_open(&pair);
	init_self(&pair.selves[1], 3, 'k', 'c');
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], -EACCES);
	ck_assert_int_eq(pair.results[1], -ENODEV);
	pair_close(&pair);
}
END_TEST

START_TEST(other_incarnation_is_proved)
{
	struct pair pair;

	pair_open(&pair);
	hello_dial(&pair.hellos[0], &pair.selves[0], 2, 0x9999, HELLO_PREFETCH);
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], -ESTALE);
	ck_assert_uint_eq(pair.hellos[0].peer.incarnation, 0x2222);
	pair_close(&pair);
}
END_TEST

static int refuse(void *arg, const struct hello_peer *peer, struct ramp_err *err)
{
	(void)arg;
	return ramp_err_set(err, EACCES, "node %u is no member here", peer->node);
}

START_TEST(not_admitted)
{
	struct pair pair;

	pair_open(&pair);
	hello_accept(&pair.hellos[1], &pair.selves[1], refuse, NULL);
	pair_run(&pair);

	ck_assert_int_eq(pair.results[0], -EACCES);
	ck_assert_int_eq(pair.results[1], -EACCES);
	ck_assert_uint_eq(pair.n_said[FROM_ACCEPTOR], OFFER_BYTES + 9);
	pair_close(&pair);
}
END_TEST

/* Plays `bytes` to an acceptor; its answers are thrown away. */
static int play_to_acceptor(const uint8_t *bytes, size_t len, struct ramp_err *err)
{
	struct hello_self self;
	struct hello hello;
	int fds[2], rc;

	init_self(&self, 2, 'k', 'c');
	hello_accept(&hello, &self, NULL, NULL);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ck_assert_int_eq(send(fds[1], bytes, len, 0), (ssize_t)len);
	shutdown(fds[1], SHUT_WR);
	rc = hello_on(&hello, fds[0], err);
	close(fds[0]);
	close(fds[1]);
	return rc;
}

START_TEST(a_recorded_hello_proves_nothing)
{
	struct ramp_err err;
	struct pair pair;

	pair_open(&pair);
	pair_run(&pair);
	ck_assert_int_eq(pair.results[1], 0);

	ck_assert_int_eq(play_to_acceptor(pair.said[0], DIALER_BYTES, &err), -EKEYREJECTED);
	pair_close(&pair);
}
END_TEST

START_TEST(strange_first_frames)
{
	static const uint8_t http[] = "GET / HTTP/1.1\r\n\r\n";
	uint8_t frame[8 + 255] = {'R', 'A', 'M', 'P', PEER_VERSION, 0, 1, 255};
	struct ramp_err err;

	ck_assert_int_eq(play_to_acceptor(http, sizeof(http) - 1, &err), -EPROTO);
	/* Oversized, undersized, of another step, of none. */
	ck_assert_int_eq(play_to_acceptor(frame, sizeof(frame), &err), -EPROTO);
	frame[7] = 31;
	ck_assert_int_eq(play_to_acceptor(frame, 8 + 31, &err), -EPROTO);
	frame[6] = 3;
	frame[7] = 89;
	ck_assert_int_eq(play_to_acceptor(frame, 8 + 89, &err), -EPROTO);
	frame[6] = 77;
	ck_assert_int_eq(play_to_acceptor(frame, 8 + 89, &err), -EPROTO);
	/* A REJECT as the first word, with a reason that there is not. */
	frame[6] = 5;
	frame[7] = 1;
	frame[8] = 255;
	ck_assert_int_eq(play_to_acceptor(frame, 9, &err), -EACCES);
}
END_TEST

/* A dialer that gets its own bytes back, and one that is led to its own port. */
START_TEST(reflection)
{
	struct hello_self self;
	struct hello dialer, acceptor;
	struct ramp_err err;
	struct pair pair;
	uint8_t bytes[512];
	int fds[2];
	ssize_t n;

	init_self(&self, 1, 'k', 'c');
	hello_dial(&dialer, &self, 2, 0, HELLO_CONTROL);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ck_assert_int_eq(hello_on(&dialer, fds[0], &err), -EAGAIN);
	n = recv(fds[1], bytes, sizeof(bytes), 0);
	ck_assert_int_eq(n, OPEN_BYTES);
	ck_assert_int_eq(send(fds[1], bytes, (size_t)n, 0), n);
	ck_assert_int_eq(hello_on(&dialer, fds[0], &err), -EPROTO);
	close(fds[0]);
	close(fds[1]);

	/* The node's own offer passes: it is proof of the key. But it wants node 2, and the port
	   is that of node 1, which is itself. */
	pair_open(&pair);
	pair.selves[1] = pair.selves[0];
	pair_run(&pair);
	ck_assert_int_eq(pair.results[1], -ENODEV);
	ck_assert_int_eq(pair.results[0], -EACCES);
	pair_close(&pair);

	/* An acceptor that gets its own offer back as a proof. */
	hello_accept(&acceptor, &self, NULL, NULL);
	hello_dial(&dialer, &self, 1, 0, HELLO_CONTROL);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ck_assert_int_eq(hello_on(&dialer, fds[1], &err), -EAGAIN);
	ck_assert_int_eq(hello_on(&acceptor, fds[0], &err), -EAGAIN);
	n = recv(fds[1], bytes, sizeof(bytes), 0);
	ck_assert_int_eq(n, OFFER_BYTES);
	ck_assert_int_eq(send(fds[1], bytes, (size_t)n, 0), n);
	ck_assert_int_eq(hello_on(&acceptor, fds[0], &err), -EPROTO);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(nothing_is_read_beyond_the_hello)
{
	struct pair pair;
	uint8_t byte = 0;

	pair_open(&pair);
	pair_run(&pair);
	ck_assert_int_eq(pair.results[1], 0);
	pair_close(&pair);

	/* Again, with a byte behind the dialer's last one. */
	pair_open(&pair);
	for (int i = 0; i < 3; i++) {
		step(&pair, 0);
		carry(&pair, FROM_DIALER);
		if (pair.n_said[FROM_DIALER] == DIALER_BYTES)
			ck_assert_int_eq(send(pair.ours[1], "z", 1, 0), 1);
		step(&pair, 1);
		carry(&pair, FROM_ACCEPTOR);
		if (pair.results[1] == 0)
			break;
	}
	ck_assert_int_eq(pair.results[1], 0);
	ck_assert_int_eq(recv(pair.theirs[1], &byte, 1, MSG_DONTWAIT), 1);
	ck_assert_int_eq(byte, 'z');
	pair_close(&pair);
}
END_TEST

/* Hands a frame of `from` to `to`, `most` bytes a call, with one byte more behind the last. */
static int hand_over(struct hello *from, struct hello *to, size_t most, size_t *calls)
{
	uint8_t bytes[HELLO_FRAME_MAX_BYTES + 1];
	const uint8_t *out;
	size_t len, taken;
	int rc = 0;

	ck_assert_int_eq(hello_next(from, &out, &len, NULL), 0);
	memcpy(bytes, out, len);
	bytes[len] = 'z';
	hello_sent(from, len);
	for (size_t at = 0; at <= len && !rc; at += taken) {
		size_t n = most < len + 1 - at ? most : len + 1 - at;

		rc = hello_feed(to, bytes + at, n, &taken, NULL);
		++*calls;
		/* The answer is to be sent, or all is over: the byte behind the frame stays. */
		ck_assert_uint_eq(taken, at + n > len ? len - at : n);
		if (at + taken == len)
			break;
	}
	ck_assert_uint_eq(hello_needs(to), 0);
	return rc;
}

/* No socket, and no stream: bytes in, bytes out. */
START_TEST(bytes_may_come_in_any_pieces)
{
	struct hello_self selves[2];

	init_self(&selves[0], 1, 'k', 'c');
	init_self(&selves[1], 2, 'k', 'c');
	for (size_t most = 1; most < HELLO_FRAME_MAX_BYTES; most++) {
		struct hello dialer, acceptor;
		size_t calls = 0;

		hello_dial(&dialer, &selves[0], 2, 0, HELLO_DEMAND);
		hello_accept(&acceptor, &selves[1], NULL, NULL);
		ck_assert_int_eq(hello_state(&dialer), HELLO_SENDING);
		ck_assert_int_eq(hello_state(&acceptor), HELLO_RECEIVING);
		for (int frame = 0; frame < 4; frame++) {
			struct hello *from = frame % 2 ? &acceptor : &dialer;

			ck_assert_int_eq(
				hand_over(from, frame % 2 ? &dialer : &acceptor, most, &calls), 0);
		}
		ck_assert_int_eq(hello_state(&dialer), HELLO_PROVED);
		ck_assert_int_eq(hello_state(&acceptor), HELLO_PROVED);
		ck_assert(most > 1 || calls == DIALER_BYTES + ACCEPTOR_BYTES);
	}
}
END_TEST

START_TEST(a_failed_hello_takes_nothing_more)
{
	struct hello_self self;
	struct hello acceptor;
	const uint8_t *out;
	size_t len, taken;

	init_self(&self, 2, 'k', 'c');
	hello_accept(&acceptor, &self, NULL, NULL);
	ck_assert_int_eq(hello_feed(&acceptor, "GET / HTTP/1.1", 14, &taken, NULL), -EPROTO);
	ck_assert_uint_eq(taken, 8);
	ck_assert_int_eq(hello_state(&acceptor), HELLO_FAILED);
	ck_assert_int_eq(hello_next(&acceptor, &out, &len, NULL), 0);
	ck_assert_uint_eq(len, 9); /* a REJECT */
	ck_assert_int_eq(hello_feed(&acceptor, "more", 4, &taken, NULL), -EPROTO);
	ck_assert_uint_eq(taken, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hello");
	TCase *tc = tcase_create("hello");

	tcase_add_test(tc, both_prove_themselves);
	tcase_add_test(tc, two_hellos_share_nothing);
	tcase_add_test(tc, no_byte_may_change);
	tcase_add_test(tc, no_byte_may_be_missing);
	tcase_add_test(tc, wrong_key);
	tcase_add_test(tc, acceptor_checks_the_key_too);
	tcase_add_test(tc, other_cluster);
	tcase_add_test(tc, other_version);
	tcase_add_test(tc, wrong_node_dialed);
	tcase_add_test(tc, other_incarnation_is_proved);
	tcase_add_test(tc, not_admitted);
	tcase_add_test(tc, a_recorded_hello_proves_nothing);
	tcase_add_test(tc, strange_first_frames);
	tcase_add_test(tc, reflection);
	tcase_add_test(tc, nothing_is_read_beyond_the_hello);
	tcase_add_test(tc, bytes_may_come_in_any_pieces);
	tcase_add_test(tc, a_failed_hello_takes_nothing_more);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
