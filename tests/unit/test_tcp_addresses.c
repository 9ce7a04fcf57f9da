/*
 * Data connections to nodes that have several addresses, of which one answers.
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "lib/run_suite.h"
#include "transport/transport.h"
#include "transport_node.h"

#define SOURCE_AT "127.0.0.2" /* and nowhere else; it connects from 127.0.0.1 */

/* ---- names: transport.cmake has --wrap=getaddrinfo ---- */

static const char *const first_then_other[] = {SOURCE_AT, "127.0.0.3"};
static const char *const other_then_first[] = {"127.0.0.3", SOURCE_AT};

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **found)
{
	const char *const *hosts = first_then_other;
	struct addrinfo *second;
	int rc;

	if (!strcmp(host, "turned.test"))
		hosts = other_then_first;
	else if (strcmp(host, "two.test") != 0)
		return __real_getaddrinfo(host, port, hints, found);
	rc = __real_getaddrinfo(hosts[0], port, hints, found);
	if (rc)
		return rc;
	ck_assert_int_eq(__real_getaddrinfo(hosts[1], port, hints, &second), 0);
	(*found)->ai_next = second;
	return 0;
}

/* ---- two nodes ---- */

static struct node s, t;

static void know_source_as(const char *name)
{
	char address[64];

	snprintf(address, sizeof(address), "%s:%u", name, s.port);
	node_know_at(&t, 1, address);
}

static void setup(void)
{
	struct node_identity source = {
		.key = 'k', .cluster = 'c', .incarnation = 0x51, .host = SOURCE_AT};
	struct node_identity target = {.key = 'k', .cluster = 'c', .incarnation = 0x71};

	s = t = (struct node){0};
	node_start(&s, 1, source);
	node_start(&t, 2, target);
	know_source_as(SOURCE_AT);
	node_know(&s, 2, t.port);
	wait_until(peer_up(t.peers, 1));
	node_open_transport(&s);
	node_open_transport(&t);
}

static void teardown(void)
{
	node_stop(&t);
	node_stop(&s);
}

static struct tp_conn *dial(ramp_node_t node)
{
	struct ramp_err err = {0};
	struct tp_conn *conn = NULL;

	ck_assert_int_eq(t.tp->ops->connect(t.tp, node, 0, TP_DEMAND, &conn, &err), 0);
	return conn;
}

static enum tp_state settle(struct tp_conn *conn)
{
	struct ramp_err err = {0};
	enum tp_state state;

	while ((state = conn->tp->ops->state(conn, &err)) == TP_CONNECTING)
		usleep(1000);
	return state;
}

static enum tp_state connect_to(ramp_node_t node)
{
	struct tp_conn *conn = dial(node);
	enum tp_state state = settle(conn);

	conn->tp->ops->close(conn);
	return state;
}

START_TEST(who_is_down_changes_nothing_for_others)
{
	know_source_as("two.test");
	node_know(&t, 9, 1); /* no node listens there */
	ck_assert_int_eq(connect_to(9), TP_FAILED);
	ck_assert_int_eq(connect_to(1), TP_READY);
	ck_assert_int_eq(connect_to(1), TP_READY);
}
END_TEST

/* The pager and the prefetch thread dial together. */
START_TEST(an_address_that_fails_twice_at_once_is_left_once)
{
	struct tp_conn *one, *other;

	know_source_as("turned.test");
	one = dial(1);
	other = dial(1);
	ck_assert_int_eq(settle(one), TP_FAILED);
	ck_assert_int_eq(settle(other), TP_FAILED);
	one->tp->ops->close(one);
	other->tp->ops->close(other);
	ck_assert_int_eq(connect_to(1), TP_READY);
	ck_assert_int_eq(connect_to(1), TP_READY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcp_addresses");
	TCase *tc = tcase_create("addresses");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, who_is_down_changes_nothing_for_others);
	tcase_add_test(tc, an_address_that_fails_twice_at_once_is_left_once);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
