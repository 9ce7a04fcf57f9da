/*
 * How a reader gets a queue pair and regions, by a device in this process (fake_rdma): sources that refuse, that
 * answer never, messages that are lost or of another life. Meanwhile pages come over TCP.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "fake_rdma.h"
#include "lib/run_suite.h"
#include "transport/proto.h"
#include "transport/verbs/message.h"
#include "verbs_world.h"

#define NEVER	 UINT64_C(1)	     /* of fake_rdma.dial_ms: nothing takes too long */
#define TOO_LATE (UINT64_C(1) << 40) /* everything does */

/* ---- messages ---------------------------------------------------------------------------------- */

static atomic_uint drops[256];		  /* how many messages of a type are lost from now on */
static _Atomic uint64_t heard_connection; /* of the last REGIONS_WANTED */
static _Atomic uint64_t heard_life;	  /* of the last REGIONS */

int __wrap_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len);
int __real_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len);

static void hear(uint8_t type, const void *body, size_t len)
{
	struct message_regions regions;
	struct message_wanted wanted;
	struct wire_r r;

	wire_r_init(&r, body, len);
	if (type == PROTO_REGIONS_WANTED && !message_get_wanted(&r, &wanted))
		atomic_store(&heard_connection, wanted.connection);
	if (type == PROTO_REGIONS && !message_get_regions(&r, &regions)) {
		atomic_store(&heard_life, regions.life);
		free(regions.regions);
	}
}

int __wrap_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len)
{
	hear(type, body, len);
	if (!atomic_load(&drops[type]))
		return __real_peer_send(peers, node, type, body, len);
	atomic_fetch_sub(&drops[type], 1);
	return 0;
}

/* ---- connecting -------------------------------------------------------------------------------- */

static const enum rdma_cm_event_type answers[] = {
	RDMA_CM_EVENT_ADDR_ERROR,  RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED,    RDMA_CM_EVENT_DEVICE_REMOVAL};

START_TEST(a_connection_that_is_not_made)
{
	char why[128] = "";

	snprintf(why, sizeof(why), "info: no RDMA connection to node 1: %s",
		 _i < 6 ? rdma_event_str(answers[_i]) : "");
	if (_i < 6)
		atomic_store(&fake_rdma.answer, (int)answers[_i]);
	else if (_i == 6)
		atomic_store(&fake_rdma.connect_errno, ECONNREFUSED);
	else
		atomic_store(&fake_rdma.forge, true); /* the source does not prove itself */
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_DEMAND);
	wait_until((is_rdma(), said("no RDMA connection to node 1: ") >= 2));
	read_pages(0, 100);
	ck_assert(!is_rdma());
	ck_assert_uint_eq(figures(&t, 1).reads, 0);
	ck_assert_uint_eq(said(why), 1);	 /* later it is of no interest */
	ck_assert_uint_eq(fake_rdma.regions, 0); /* no key before both ends are proved */
	atomic_store(&fake_rdma.answer, 0);
	atomic_store(&fake_rdma.connect_errno, 0);
	atomic_store(&fake_rdma.forge, false);
	wait_until(is_rdma());
	read_pages(0, 100);
	world_end();
}
END_TEST

/* A source that is silent. The fourth time an answer comes. */
START_TEST(a_source_that_never_answers)
{
	atomic_store(&fake_rdma.dial_ms, NEVER);
	atomic_store(&fake_rdma.mute, 3);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(_i ? TP_DEMAND : TP_PREFETCH);
	wait_until((is_rdma(), atomic_load(&fake_rdma.connects) == 1));
	read_pages(0, 500);
	ck_assert_uint_eq(figures(&t, 1).reads, 0);
	ck_assert_uint_eq(said("no answer within"), 0);
	atomic_store(&fake_rdma.dial_ms, TOO_LATE);
	wait_until((is_rdma(), said("info: no RDMA connection to node 1: no answer within 5 s")));
	atomic_store(&fake_rdma.dial_ms, 0);
	atomic_store(&fake_rdma.mute, 0);
	read_pages(0, 500);
	ck_assert_uint_eq(fake_rdma.regions, 0);
	wait_until(is_rdma());
	read_pages(0, 16);
	ck_assert_uint_gt(figures(&t, 1).reads, 0);
	world_end();
}
END_TEST

/* A kernel that waits itself, in connect(2). */
START_TEST(a_kernel_that_waits_for_the_source)
{
	atomic_store(&fake_rdma.block, true);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_DEMAND);
	wait_until((is_rdma(), atomic_load(&fake_rdma.connects) == 1));
	read_pages(0, 500);
	ck_assert_uint_eq(figures(&t, 1).reads, 0);
	atomic_store(&fake_rdma.block, false);
	wait_until(is_rdma());
	read_pages(0, 16);
	ck_assert_uint_gt(figures(&t, 1).reads, 0);
	world_end();
}
END_TEST

/* A connection that ends, and a daemon that does, wait for no answer: world_end finds nothing left. */
START_TEST(an_end_before_the_source_answers)
{
	atomic_store(&fake_rdma.dial_ms, NEVER);
	atomic_store(&fake_rdma.mute, 2);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	if (_i) { /* made ahead, for no connection */
		wait_until(figures(&t, 1).offers);
		t.tp->ops->expect(t.tp, 1);
		wait_until(atomic_load(&fake_rdma.connects) == 2);
	} else {
		link_to_source(TP_DEMAND);
		wait_until((is_rdma(), atomic_load(&fake_rdma.connects) == 1));
		read_pages(0, 16);
	}
	world_end();
	ck_assert_uint_eq(said("the kernel still connects"), 0);
}
END_TEST

/* Connection and daemon end, though a thread of it is in the kernel. Nothing of them may be freed before it returns. */
START_TEST(an_end_while_the_kernel_waits)
{
	static struct tp *volatile kept; /* as the thread has it */

	atomic_store(&fake_rdma.block, true);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_DEMAND);
	wait_until((is_rdma(), atomic_load(&fake_rdma.connects) == 1));
	read_pages(0, 16);
	t.tp->ops->close(conn);
	kept = t.tp;
	ck_assert_ptr_nonnull(kept);
	node_stop(&t);
	ck_assert_uint_eq(
		said("warning: the kernel still connects over RDMA to a node that is silent"), 1);
	s.tp->ops->unexport(s.tp, &key);
	node_stop(&s);
	ck_assert_uint_gt(fake_rdma.objects, 0);
	atomic_store(&fake_rdma.connect_errno, ETIMEDOUT);
	atomic_store(&fake_rdma.block, false);
	wait_until(fake_rdma.objects == 0 && threads() == 0);
}
END_TEST

/* ---- regions ----------------------------------------------------------------------------------- */

START_TEST(messages_that_are_lost)
{
	static const uint8_t types[] = {PROTO_VERBS_WANTED, PROTO_VERBS_AT, PROTO_REGIONS_WANTED,
					PROTO_REGIONS};

	for (size_t i = 0; i < sizeof(types); i++)
		atomic_store(&drops[types[i]], 2);
	world_begin_rdma(_i ? TP_DEMAND : TP_PREFETCH);
	for (size_t i = 0; i < sizeof(types); i++)
		ck_assert_uint_eq(atomic_load(&drops[types[i]]), 0);
	read_pages(0, 100);
	ck_assert_uint_gt(figures(&t, 1).reads, 0);
	world_end();
}
END_TEST

/* Tells the reader of one region, the first pages. */
static void tell(uint64_t connection, uint64_t life, size_t pages)
{
	struct message_region region = {.len = pages * PAGE, .address = PAGE, .rkey = 1};
	const struct message_regions told = {.key = key,
					     .connection = connection,
					     .life = life,
					     .whole = true,
					     .n = 1,
					     .regions = &region};
	uint8_t body[256];
	struct wire_w w;

	wire_w_init(&w, body, sizeof(body));
	message_put_regions(&w, &told);
	ck_assert_int_eq(__real_peer_send(s.peers, 2, PROTO_REGIONS, body, w.len), 0);
}

/* The messages of the source itself are lost. Of three messages, which come in this order, one is right: had one before
   been taken, its region would be the first. */
START_TEST(regions_of_another_life_or_connection)
{
	uint64_t connection, life;

	atomic_store(&drops[PROTO_REGIONS], UINT32_MAX);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_DEMAND);
	read_pages(0, 1);
	wait_until((is_rdma(), atomic_load(&heard_connection) && atomic_load(&heard_life)));
	connection = atomic_load(&heard_connection);
	life = atomic_load(&heard_life);
	tell(connection, life + 1, 16);
	tell(connection + 1, life, 8);
	tell(connection, life, 2);
	wait_until(is_rdma());
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 0, BYTES), 2 * PAGE);
	world_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs_dial");
	TCase *tc = tcase_create("verbs_dial");

	tcase_add_loop_test(tc, a_connection_that_is_not_made, 0, 8);
	tcase_add_loop_test(tc, a_source_that_never_answers, 0, 2);
	tcase_add_test(tc, a_kernel_that_waits_for_the_source);
	tcase_add_loop_test(tc, an_end_before_the_source_answers, 0, 2);
	tcase_add_test(tc, an_end_while_the_kernel_waits);
	tcase_add_loop_test(tc, messages_that_are_lost, 0, 2);
	tcase_add_test(tc, regions_of_another_life_or_connection);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
