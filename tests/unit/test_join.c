/*
 * Joining: a newcomer and a member over a real socket, the member's side on a thread. Both prove
 * the key before a word is said, and no frame is taken that is not as it was sent.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "lib/run_suite.h"
#include "transport/hello_io.h"
#include "transport/peers/join.h"

#define MEMBER_NUMBER 7

static const uint8_t cluster_key[HMAC_BYTES] = {1, 2, 3};
static const uint8_t other_key[HMAC_BYTES] = {3, 2, 1};

/* The member: takes one connection, and replies with `answer`. */
static struct member {
	int listener;
	char at[64];
	pthread_t thread;
	struct hello_self self;
	struct join_answer answer;
	struct join_request request; /* as it came */
	struct hello_peer peer;
	int hello_rc, receive_rc;
	struct ramp_err err;
} member;

static int hello_on(struct hello *hello, int fd, struct ramp_err *err)
{
	struct stream stream = stream_plain(fd);

	return hello_run(hello, &stream, err);
}

static void *serve(void *arg)
{
	struct timeval patience = {.tv_sec = 10};
	struct hello hello;
	int fd = accept(member.listener, NULL, NULL);

	(void)arg;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	hello_accept(&hello, &member.self, NULL, NULL);
	do {
		usleep(200);
		member.hello_rc = hello_on(&hello, fd, &member.err);
	} while (member.hello_rc == -EAGAIN);
	if (!member.hello_rc) {
		member.peer = hello.peer;
		member.receive_rc = join_receive(fd, &hello, &member.request, &member.err);
	}
	if (!member.hello_rc && !member.receive_rc)
		join_reply(fd, &hello, &member.answer, NULL);
	close(fd);
	return NULL;
}

static void setup(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	memset(&member, 0, sizeof(member));
	member.self.node = MEMBER_NUMBER;
	member.self.incarnation = 77;
	memset(member.self.cluster_id, 0xc1, sizeof(member.self.cluster_id));
	ck_assert_int_eq(hello_self_init(&member.self, cluster_key, NULL), 0);
	member.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(member.listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(member.listener, 4), 0);
	getsockname(member.listener, (struct sockaddr *)&at, &len);
	snprintf(member.at, sizeof(member.at), "127.0.0.1:%u", ntohs(at.sin_port));
	pthread_create(&member.thread, NULL, serve, NULL);
}

static void member_done(void)
{
	pthread_join(member.thread, NULL);
	close(member.listener);
}

static const struct join_request wish = {
	.kind = JOIN_AGAIN, .name = "d", .address = "host:9", .capacity_bytes = 1 << 30};

START_TEST(a_newcomer_is_taken_in_and_learns_the_cluster)
{
	struct join_member members[2] = {
		{.node = 1, .name = "a", .address = "host:1", .capacity_bytes = 5, .voter = true},
		{.node = 4, .name = "d", .address = "host:9", .capacity_bytes = 6}};
	struct join_answer answer;
	struct ramp_err err = {0};

	member.answer = (struct join_answer){.node = 4,
					     .cluster = "lab",
					     .arena_addr = 0x1000,
					     .arena_len = 0x2000,
					     .members = members,
					     .n_members = 2};
	ck_assert_msg(join_ask(member.at, cluster_key, &wish, &answer, &err) == 0, "%s", err.text);
	member_done();
	ck_assert_int_eq(member.peer.class, HELLO_JOIN);
	ck_assert_uint_eq(member.peer.node, 0);
	ck_assert_int_eq(member.request.kind, JOIN_AGAIN);
	ck_assert_str_eq(member.request.name, "d");
	ck_assert_str_eq(member.request.address, "host:9");
	ck_assert_uint_eq(member.request.capacity_bytes, 1 << 30);
	ck_assert_mem_eq(answer.cluster_id, member.self.cluster_id, HELLO_CLUSTER_BYTES);
	ck_assert_uint_eq(answer.node, 4);
	ck_assert_str_eq(answer.cluster, "lab");
	ck_assert_uint_eq(answer.arena_addr, 0x1000);
	ck_assert_uint_eq(answer.arena_len, 0x2000);
	ck_assert_uint_eq(answer.n_members, 2);
	ck_assert_str_eq(answer.members[0].name, "a");
	ck_assert(answer.members[0].voter && !answer.members[1].voter);
	ck_assert_str_eq(answer.members[1].address, "host:9");
	ck_assert_uint_eq(answer.members[1].capacity_bytes, 6);
	free(answer.members);
}
END_TEST

/* A member that has lost its journal says of which store it is, and hears with which life it begins. */
START_TEST(a_kept_store_is_named_and_gets_a_life)
{
	struct join_request request = wish;
	struct join_member self = {.node = 4, .name = "d", .address = "host:9"};
	struct join_answer answer;
	struct ramp_err err = {0};

	request.kind = JOIN_KEPT;
	request.incarnation = 0x1234;
	request.instance = 0x5678;
	member.answer = (struct join_answer){
		.node = 4, .cluster = "lab", .life = 77, .members = &self, .n_members = 1};
	ck_assert_msg(join_ask(member.at, cluster_key, &request, &answer, &err) == 0, "%s",
		      err.text);
	member_done();
	ck_assert_int_eq(member.request.kind, JOIN_KEPT);
	ck_assert_uint_eq(member.request.incarnation, 0x1234);
	ck_assert_uint_eq(member.request.instance, 0x5678);
	ck_assert_uint_eq(answer.life, 77);
	free(answer.members);
}
END_TEST

START_TEST(a_probe_is_no_request)
{
	uint8_t cluster_id[HELLO_CLUSTER_BYTES];
	struct ramp_err err = {0};

	ck_assert_int_eq(join_probe(member.at, cluster_key, cluster_id, &err), 0);
	member_done();
	ck_assert_int_eq(member.receive_rc, -ENOMSG);
}
END_TEST

START_TEST(a_refusal_comes_with_its_reason)
{
	struct join_answer answer;
	struct ramp_err err = {0};

	member.answer = (struct join_answer){.result = -EEXIST, .text = "there is one already"};
	ck_assert_int_eq(join_ask(member.at, cluster_key, &wish, &answer, &err), -EEXIST);
	member_done();
	ck_assert_str_eq(err.text, "there is one already");
	ck_assert_ptr_null(answer.members);
}
END_TEST

START_TEST(another_key_is_no_proof_on_either_side)
{
	struct join_answer answer;
	struct ramp_err err = {0};

	/* The newcomer notices first: the member's offer is under another key. */
	ck_assert_int_eq(join_ask(member.at, other_key, &wish, &answer, &err), -EKEYREJECTED);
	member_done();
	ck_assert_int_ne(member.hello_rc, 0);
	ck_assert_str_eq(member.request.name, "");
}
END_TEST

START_TEST(nobody_there_is_said_with_the_address)
{
	struct join_answer answer;
	struct ramp_err err = {0};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	char where[64];

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0); /* and never listens */
	getsockname(fd, (struct sockaddr *)&at, &len);
	snprintf(where, sizeof(where), "127.0.0.1:%u", ntohs(at.sin_port));
	ck_assert_int_eq(join_ask(where, cluster_key, &wish, &answer, &err), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, where));
	close(fd);
	ck_assert_int_eq(join_ask("nowhere", cluster_key, &wish, &answer, &err), -EINVAL);
	shutdown(member.listener, SHUT_RDWR); /* no connection came there */
	member_done();
}
END_TEST

/* ---- bad newcomers -------------------------------------------------------------------------- */

/* Returns the socket of a newcomer of the test's own, after its hello; -1: it was rejected. */
static int say_hello(struct hello *hello, struct hello_self *self)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int rc, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_port = htons((uint16_t)atoi(strchr(member.at, ':') + 1));
	self->incarnation = 1;
	ck_assert_int_eq(hello_self_init(self, cluster_key, NULL), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	hello_dial(hello, self, 0, 0, HELLO_JOIN);
	do {
		usleep(200);
		rc = hello_on(hello, fd, NULL);
	} while (rc == -EAGAIN);
	if (!rc)
		return fd;
	close(fd);
	return -1;
}

/* A frame as join.c makes them, over any body. */
static void send_frame(int fd, const struct hello *hello, const uint8_t *body, uint32_t len,
		       bool altered)
{
	uint8_t head[4], mac[HMAC_BYTES], key[HMAC_BYTES];
	struct wire_w w;

	ck_assert_int_eq(hello_session_key(hello, true, key), 0);
	ck_assert_int_eq(hmac_derive(key, "join request", body, len, mac), 0);
	mac[5] ^= altered;
	wire_w_init(&w, head, sizeof(head));
	wire_put_u32(&w, len);
	ck_assert_int_eq(send(fd, head, 4, MSG_NOSIGNAL), 4);
	ck_assert_int_eq(send(fd, body, len, MSG_NOSIGNAL), len);
	ck_assert_int_eq(send(fd, mac, HMAC_BYTES, MSG_NOSIGNAL), HMAC_BYTES);
}

static uint32_t good_body(uint8_t *body, size_t cap, uint8_t kind)
{
	struct wire_w w;

	wire_w_init(&w, body, cap);
	wire_put_u8(&w, kind);
	wire_put_str(&w, "d");
	wire_put_str(&w, "host:9");
	wire_put_u64(&w, 1);
	return (uint32_t)w.len;
}

static void expect_refused(int fd, int code)
{
	uint8_t byte;

	ck_assert_int_le(recv(fd, &byte, 1, 0), 0); /* hung up, without a word */
	close(fd);
	member_done();
	ck_assert_int_eq(member.receive_rc, -code);
}

START_TEST(a_good_frame_of_the_tests_own_is_taken)
{
	struct hello_self self = {0};
	struct hello hello;
	uint8_t body[64], byte;
	int fd = say_hello(&hello, &self);

	send_frame(fd, &hello, body, good_body(body, sizeof(body), JOIN_NEW), false);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 1);
	close(fd);
	member_done();
	ck_assert_int_eq(member.receive_rc, 0);
	ck_assert_str_eq(member.request.name, "d");
}
END_TEST

START_TEST(an_altered_frame_is_refused)
{
	struct hello_self self = {0};
	struct hello hello;
	uint8_t body[64];
	int fd = say_hello(&hello, &self);

	send_frame(fd, &hello, body, good_body(body, sizeof(body), JOIN_NEW), true);
	expect_refused(fd, EPROTO);
}
END_TEST

START_TEST(an_unknown_kind_is_refused)
{
	struct hello_self self = {0};
	struct hello hello;
	uint8_t body[64];
	int fd = say_hello(&hello, &self);

	send_frame(fd, &hello, body, good_body(body, sizeof(body), 4), false);
	expect_refused(fd, EPROTO);
}
END_TEST

START_TEST(a_body_with_bytes_behind_it_is_refused)
{
	struct hello_self self = {0};
	struct hello hello;
	uint8_t body[64] = {0};
	int fd = say_hello(&hello, &self);

	send_frame(fd, &hello, body, good_body(body, sizeof(body), JOIN_NEW) + 1, false);
	expect_refused(fd, EPROTO);
}
END_TEST

START_TEST(a_frame_that_is_too_long_is_refused_before_it_is_read)
{
	static const uint8_t head[4] = {0xff, 0xff, 0xff, 0x7f};
	struct hello_self self = {0};
	struct hello hello;
	int fd = say_hello(&hello, &self);

	ck_assert_int_eq(send(fd, head, 4, MSG_NOSIGNAL), 4);
	expect_refused(fd, EPROTO);
}
END_TEST

START_TEST(a_frame_that_is_cut_is_refused)
{
	static const uint8_t head[4] = {100};
	struct hello_self self = {0};
	struct hello hello;
	int fd = say_hello(&hello, &self);

	ck_assert_int_eq(send(fd, head, 4, MSG_NOSIGNAL), 4);
	shutdown(fd, SHUT_WR);
	expect_refused(fd, ECONNRESET);
}
END_TEST

/* A node with a number is a member, and connects by another class. */
START_TEST(a_member_does_not_join)
{
	struct hello_self self = {.node = 3};
	struct hello hello;

	ck_assert_int_eq(say_hello(&hello, &self), -1);
	member_done();
	ck_assert_int_eq(member.hello_rc, -EPROTO);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("join");
	TCase *t = tcase_create("join");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	tcase_add_test(t, a_newcomer_is_taken_in_and_learns_the_cluster);
	tcase_add_test(t, a_kept_store_is_named_and_gets_a_life);
	tcase_add_test(t, a_probe_is_no_request);
	tcase_add_test(t, a_refusal_comes_with_its_reason);
	tcase_add_test(t, another_key_is_no_proof_on_either_side);
	tcase_add_test(t, nobody_there_is_said_with_the_address);
	tcase_add_test(t, a_good_frame_of_the_tests_own_is_taken);
	tcase_add_test(t, an_altered_frame_is_refused);
	tcase_add_test(t, an_unknown_kind_is_refused);
	tcase_add_test(t, a_body_with_bytes_behind_it_is_refused);
	tcase_add_test(t, a_frame_that_is_too_long_is_refused_before_it_is_read);
	tcase_add_test(t, a_frame_that_is_cut_is_refused);
	tcase_add_test(t, a_member_does_not_join);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
