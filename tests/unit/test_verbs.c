/*
 * Reads over RDMA, by a device in this process (fake_rdma): what is read how, and each way in which
 * it fails. Whatever fails, the bytes come, and come right, over TCP. (test_verbs_dial.c has how a queue
 * pair is connected.)
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "fake_rdma.h"
#include "lib/run_suite.h"
#include "transport/verbs/proof.h"
#include "verbs_world.h"

/* ---- reading ------------------------------------------------------------------------------- */

static void check_reads(enum tp_class class)
{
	struct tp_stats before, after;
	uint64_t reads;

	world_begin_rdma(class);
	reads = fake_rdma.reads;
	s.tp->ops->stats(s.tp, &before);
	read_pages(0, 1);
	read_pages(3, 16);
	read_pages(100, 17);
	read_pages(HOLE - 100, 100);
	read_pages(HOLE + 16, 400);
	for (size_t i = 0; i < TP_QUEUE_MAX; i++)
		post(2 * i, 2);
	ck_assert_int_eq(reap_all(TP_QUEUE_MAX), 0);
	check_pages(0, 2 * TP_QUEUE_MAX);
	s.tp->ops->stats(s.tp, &after);
	ck_assert_uint_eq(fake_rdma.reads - reads, 5 + TP_QUEUE_MAX);
	ck_assert_uint_eq(after.served_reads, before.served_reads);
	ck_assert_uint_eq(after.served_bytes, before.served_bytes);
	ck_assert_uint_eq(figures(&t, 1).read_bytes, (1 + 16 + 17 + 100 + 400 + 128) * PAGE);
	ck_assert_uint_eq(figures(&s, 2).registered_bytes, BYTES - 16 * PAGE);
	ck_assert_uint_eq(figures(&s, 2).read_by, 1);
	ck_assert_uint_eq(figures(&t, 1).reading, 1);
	world_end();
}

START_TEST(covered_pages_are_read_without_the_source)
{
	check_reads(_i ? TP_DEMAND : TP_PREFETCH);
}
END_TEST

START_TEST(a_span_ends_where_the_transport_changes)
{
	world_begin_rdma(TP_PREFETCH);
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 0, BYTES), HOLE * PAGE);
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 7 * PAGE, 3 * PAGE), 3 * PAGE);
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, HOLE * PAGE, 100 * PAGE), 16 * PAGE);
	ck_assert(!t.tp->ops->lands(conn, &key, HOLE * PAGE));
	read_pages(HOLE, 16);	  /* a hole, of which TCP tells */
	read_pages(HOLE - 1, 18); /* more than a span: TCP's */
	world_end();
	/* A page fault waits for no registration. */
	world_begin_rdma(TP_DEMAND);
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 0, BYTES), 64 << 10);
	world_end();
}
END_TEST

START_TEST(nothing_is_registered_before_the_reader_asks)
{
	world_begin(TRANSPORT_VERBS, TRANSPORT_TCP);
	link_to_source(TP_PREFETCH);
	ck_assert_str_eq(t.tp->ops->name, "tcp");
	read_pages(0, 100);
	usleep(50000);
	ck_assert_uint_eq(fake_rdma.regions, 0);
	world_end();
}
END_TEST

START_TEST(a_node_without_a_device_reads_over_tcp)
{
	struct transport_config config = {.choice = TRANSPORT_VERBS, .address = "127.0.0.1:7"};
	struct tp *none = NULL;

	atomic_store(_i ? &fake_rdma.no_device : &fake_rdma.no_address, true);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_DEMAND);
	read_pages(0, 100);
	ck_assert(!figures(&t, 1).offers);
	config.peers = t.peers;
	config.loop = t.loop;
	ck_assert_int_eq(transport_open(&config, &none, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "transport=verbs: "));
	ck_assert_uint_eq(fake_rdma.objects, 0);
	/* That took the data connections. */
	world_end();
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------ */

/* A queue pair is lost while two reads are under way: they come over TCP, and it is made again. */
static void check_recovers(void)
{
	ck_assert_int_eq(reap_all(2), 0);
	check_pages(0, 16);
	check_pages(600, 300);
	ck_assert_uint_ge(figures(&t, 1).again, 1);
	ck_assert_uint_eq(figures(&t, 1).lost, 1);
	read_pages(1, 3);
	wait_until(is_rdma());
	read_pages(0, 16);
	ck_assert_uint_eq(figures(&t, 1).reading, 1);
	world_end();
}

static bool is_own_fault(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
	       status == IBV_WC_LOC_PROT_ERR;
}

START_TEST(a_completion_that_is_no_success)
{
	world_begin_rdma(_i % 2 ? TP_DEMAND : TP_PREFETCH);
	atomic_store(&fake_rdma.status, _i + 1);
	post(600, 300);
	post(0, 16);
	check_recovers();
	/* A READ that this end itself refuses is a bug, and said to be one. */
	ck_assert_uint_eq(said("error: "), is_own_fault((enum ibv_wc_status)(_i + 1)));
	ck_assert_uint_eq(said("this is a bug of rampfs"), said("error: "));
}
END_TEST

static const enum rdma_cm_event_type events[] = {
	RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE,	   RDMA_CM_EVENT_REJECTED,
	RDMA_CM_EVENT_DISCONNECTED,  RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_TIMEWAIT_EXIT};

START_TEST(an_event_that_ends_a_connection)
{
	world_begin_rdma(TP_PREFETCH);
	atomic_store(&fake_rdma.hold, true);
	post(600, 300);
	post(0, 16);
	atomic_store(&fake_rdma.hold, false);
	fake_rdma_event(RDMA_CM_EVENT_ADDR_CHANGE); /* alone it ends nothing */
	fake_rdma_event(events[_i]);
	check_recovers();
}
END_TEST

START_TEST(reads_that_never_complete)
{
	world_begin_rdma(TP_PREFETCH);
	atomic_store(&fake_rdma.hold, true);
	post(600, 300);
	post(0, 16);
	atomic_store(&fake_rdma.hold, false);
	check_recovers();
}
END_TEST

START_TEST(memory_that_cannot_be_registered)
{
	static const int codes[] = {ENOMEM, EFAULT, EINVAL};
	static const enum tp_left why[] = {TP_LEFT_MEMORY, TP_LEFT_CUT, TP_LEFT_OTHER};

	atomic_store(&fake_rdma.reg_errno, codes[_i]);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_PREFETCH);
	read_pages(0, 1);
	wait_until((is_rdma(), figures(&s, 2).left[why[_i]] == 2));
	ck_assert(!is_rdma());
	read_pages(0, 500);
	ck_assert_uint_eq(figures(&s, 2).chunks, 0);
	world_end();
}
END_TEST

START_TEST(a_place_that_cannot_be_registered)
{
	world_begin_rdma(TP_PREFETCH);
	atomic_store(&fake_rdma.local_errno, ENOMEM);
	read_pages(0, 500);
	atomic_store(&fake_rdma.local_errno, 0);
	atomic_store(&fake_rdma.post_errno, ENOMEM);
	read_pages(0, 500);
	ck_assert_uint_eq(figures(&t, 1).read_bytes, 0);
	atomic_store(&fake_rdma.post_errno, 0);
	read_pages(0, 500);
	ck_assert_uint_eq(figures(&t, 1).read_bytes, 500 * PAGE);
	world_end();
}
END_TEST

/* What recv(2) says over TCP where the store is full. */
START_TEST(a_place_without_room)
{
	world_begin_rdma(TP_DEMAND);
	post(7, 2);
	ck_assert_int_eq(munmap(dst + 8 * PAGE, PAGE), 0);
	ck_assert_int_eq(reap_all(1), -ENOTCONN);
	ck_assert_int_eq(t.tp->ops->state(conn, &err), TP_FAILED);
	ck_assert_int_eq(err.code, EFAULT);
	world_end();
}
END_TEST

static bool has_device(struct node *node, ramp_node_t other)
{
	return node->tp->ops->peer(node->tp, &(struct tp_peer){.node = other});
}

START_TEST(a_device_that_is_taken_away)
{
	world_begin_rdma(TP_PREFETCH);
	atomic_store(&fake_rdma.hold, true);
	post(0, 16);
	if (_i) {
		atomic_store(&fake_rdma.no_device, true);
		fake_rdma_async(_i == 1 ? IBV_EVENT_DEVICE_FATAL : IBV_EVENT_CQ_ERR);
	} else {
		fake_rdma_remove();
	}
	ck_assert_int_eq(reap_all(1), 0);
	check_pages(0, 16);
	/* Both nodes have the one device, which tells the one that looks first of an error. */
	wait_until(!figures(&t, 1).reading);
	if (_i)
		wait_until(!has_device(&s, 2) || !has_device(&t, 1));
	else
		wait_until(fake_rdma.objects == 0 && fake_rdma_is_closed());
	read_pages(0, 500);
	world_end();
}
END_TEST

/* Words of the device on single queue pairs, on ports and addresses: what is lost by them is told otherwise. */
START_TEST(a_device_that_only_says_something)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_PORT_ERR,   IBV_EVENT_QP_FATAL,    IBV_EVENT_QP_ACCESS_ERR,
		IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST,
	};
	uint64_t reads;

	world_begin_rdma(TP_PREFETCH);
	reads = fake_rdma.reads;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		fake_rdma_async(types[i]);
		usleep(20000); /* in which it may be heard */
		read_pages(i, 16);
	}
	ck_assert_uint_eq(fake_rdma.reads - reads, sizeof(types) / sizeof(types[0]));
	ck_assert_uint_eq(figures(&t, 1).again, 0);
	world_end();
}
END_TEST

/* ---- the right to read ------------------------------------------------------------------------ */

START_TEST(a_key_that_has_been_taken_back)
{
	uint64_t address, again;
	uint32_t rkey, len;
	uint8_t byte[8];

	world_begin_rdma(TP_DEMAND);
	ck_assert(fake_rdma_region(&address, &rkey, &len));
	ck_assert_int_eq(fake_rdma_read(0, address, rkey, byte, 8), IBV_WC_SUCCESS);
	ck_assert_int_eq(fake_rdma_read(0, address, rkey + 1, byte, 8), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(fake_rdma_read(0, address - 1, rkey, byte, 8), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(fake_rdma_read(0, address + len - 4, rkey, byte, 8),
			 IBV_WC_REM_ACCESS_ERR);
	s.tp->ops->unexport(s.tp, &key);
	ck_assert_uint_eq(fake_rdma.regions, 0);
	ck_assert_int_eq(fake_rdma_read(0, address, rkey, byte, 8), IBV_WC_REM_ACCESS_ERR);
	/* The reader still has it. */
	post(0, 1);
	ck_assert_int_eq(reap_all(1), -EKEYREVOKED);
	export_to(2);
	read_pages(0, 1);
	wait_until(is_rdma());
	ck_assert(fake_rdma_region(&again, &rkey, &len));
	ck_assert_uint_gt(again, address);
	world_end();
}
END_TEST

START_TEST(another_node_with_the_right_key)
{
	struct tp_conn *mine;
	struct node other;
	uint64_t address;
	uint32_t rkey, len;
	uint8_t byte[8];

	world_begin_rdma(TP_DEMAND);
	mine = conn;
	open_node(&other, 3, TRANSPORT_VERBS);
	nodes_join(&s, &other);
	ck_assert_int_eq(other.tp->ops->connect(other.tp, 1, 0x51, TP_DEMAND, &conn, &err), 0);
	wait_until((other.tp->ops->state(conn, NULL), figures(&other, 1).reading == 1));
	ck_assert(fake_rdma_region(&address, &rkey, &len));
	/* The newest queue pair of a reader comes first. */
	ck_assert_int_eq(fake_rdma_read(0, address, rkey, byte, 8), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(fake_rdma_read(1, address, rkey, byte, 8), IBV_WC_SUCCESS);
	other.tp->ops->close(conn);
	conn = mine;
	node_stop(&other);
	world_end();
}
END_TEST

START_TEST(a_connection_whose_end_is_not_heard)
{
	world_begin_rdma(TP_DEMAND);
	atomic_store(&fake_rdma.silent, true);
	t.tp->ops->close(conn);
	ck_assert_uint_eq(figures(&s, 2).read_by, 1);
	link_to_source(TP_DEMAND);
	read_pages(0, 1);
	wait_until(is_rdma());
	wait_until(figures(&s, 2).read_by == 1); /* the new one */
	read_pages(0, 16);
	ck_assert_uint_eq(figures(&t, 1).lost, 0);
	world_end();
	atomic_store(&fake_rdma.silent, false);
}
END_TEST

/* An iWARP device's port is a TCP port, too, which may be taken. */
START_TEST(a_port_that_is_taken)
{
	atomic_store(&fake_rdma.taken_ports, 3);
	world_begin(TRANSPORT_VERBS, TRANSPORT_AUTO);
	ck_assert_uint_eq(atomic_load(&fake_rdma.taken_ports), 0);
	link_to_source(TP_DEMAND);
	read_pages(0, 1);
	wait_until(is_rdma());
	world_end();
}
END_TEST

START_TEST(a_connection_that_is_expected)
{
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	wait_until(figures(&t, 1).offers);
	t.tp->ops->expect(t.tp, 1);
	t.tp->ops->expect(t.tp, 1); /* nothing more */
	wait_until(figures(&s, 2).read_by == 2);
	ck_assert_uint_eq(figures(&t, 1).reading, 0);
	link_to_source(TP_DEMAND);
	wait_until((is_rdma(), figures(&t, 1).reading == 1));
	ck_assert_uint_eq(fake_rdma.connects, 2); /* so it is one of those */
	t.tp->ops->expect(t.tp, 1);		  /* nothing that would end the one in use */
	read_pages(0, 1);
	wait_until(is_rdma());
	read_pages(0, 16);
	ck_assert_uint_eq(figures(&t, 1).lost, 0);
	if (_i) { /* the other one goes with the device */
		fake_rdma_remove();
		wait_until((is_rdma(), fake_rdma.objects == 0));
	}
	world_end();
}
END_TEST

/* With a queue pair that was made ahead, the first read can be a READ: no byte comes over TCP. */
START_TEST(regions_are_asked_for_beside_the_hello)
{
	struct tp_stats stats;

	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	wait_until(figures(&t, 1).offers);
	t.tp->ops->expect(t.tp, 1);
	wait_until(figures(&s, 2).read_by == 2);
	ck_assert_int_eq(t.tp->ops->connect(t.tp, 1, 0x51, TP_PREFETCH, &conn, &err), 0);
	t.tp->ops->will_read(conn, &key);
	wait_until(t.tp->ops->state(conn, &err) == TP_READY && t.tp->ops->lands(conn, &key, 0));
	read_pages(0, 16);
	s.tp->ops->stats(s.tp, &stats);
	ck_assert_uint_eq(stats.served_reads, 0);
	ck_assert_uint_eq(figures(&t, 1).reads, 1);
	world_end();
}
END_TEST

/* Nothing is registered while programs store into the segment; what they have left is read over RDMA all the same, by
   the connection of the rounds or another one. */
START_TEST(there_are_regions_after_the_rounds)
{
	atomic_store(&live, true);
	atomic_store(&live_looks, 0);
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_PREFETCH);
	read_pages(0, 1);
	wait_until((is_rdma(), atomic_load(&live_looks)));
	ck_assert_uint_eq(fake_rdma.regions, 0);
	if (_i) {
		t.tp->ops->close(conn);
		link_to_source(TP_PREFETCH);
		read_pages(0, 1);
	}
	atomic_store(&live, false);
	wait_until(is_rdma());
	read_pages(0, 16);
	ck_assert_uint_eq(figures(&t, 1).reads, 1);
	world_end();
}
END_TEST

/* The reader need not wait for the registration of a large chunk: the first one is of 2 MiB. */
START_TEST(the_first_chunk_is_small)
{
	no_hole = true;
	world_begin(TRANSPORT_AUTO, TRANSPORT_AUTO);
	link_to_source(TP_PREFETCH);
	read_pages(0, 1);
	wait_until((is_rdma(), figures(&s, 2).registered_bytes == BYTES));
	ck_assert_uint_eq(figures(&s, 2).chunks, 2);
	wait_until((is_rdma(), t.tp->ops->lands(conn, &key, BYTES - PAGE)));
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 0, BYTES), 512 * PAGE);
	read_pages(500, 12);
	read_pages(512, 512);
	world_end();
	no_hole = false;
}
END_TEST

START_TEST(regions_go_when_the_reader_has_them)
{
	world_begin_rdma(TP_PREFETCH);
	ck_assert_uint_eq(fake_rdma.regions, 2);
	t.tp->ops->arrived(conn, &key, (HOLE - 1) * PAGE);
	t.tp->ops->arrived(conn, &key, HOLE * PAGE);
	wait_until(fake_rdma.regions == 1);
	ck_assert_uint_eq(figures(&s, 2).registered_bytes, (PAGES - HOLE - 16) * PAGE);
	/* Its numbers stay: one that asks again is told of the other, and not of this one. */
	fake_rdma_event(RDMA_CM_EVENT_DISCONNECTED);
	wait_until(!is_rdma() && !figures(&t, 1).reading);
	read_pages(0, 1);
	wait_until((is_rdma(), t.tp->ops->lands(conn, &key, (HOLE + 16) * PAGE)));
	ck_assert(!is_rdma());
	ck_assert_uint_eq(t.tp->ops->span(conn, &key, 0, 600 * PAGE), HOLE * PAGE);
	read_pages(0, HOLE);
	read_pages(HOLE + 16, 100);
	world_end();
}
END_TEST

START_TEST(a_request_that_proves_nothing)
{
	uint8_t heard[PROOF_BYTES], data[PROOF_BYTES] = {0};
	uint16_t port;

	world_begin_rdma(TP_DEMAND);
	port = fake_rdma_overheard(heard);
	ck_assert(!fake_rdma_knock(port, NULL, 0));
	ck_assert(!fake_rdma_knock(port, data, 55));
	ck_assert(!fake_rdma_knock(port, data, 56));
	ck_assert(!fake_rdma_knock(port, heard, 56)); /* what was heard on the wire */
	for (size_t i = 0; i < PROOF_BYTES; i++) {
		memcpy(data, heard, PROOF_BYTES);
		data[i] ^= 1;
		ck_assert(!fake_rdma_knock(port, data, 56));
	}
	ck_assert_uint_eq(figures(&s, 2).read_by, 1);
	read_pages(0, 16);
	ck_assert_uint_eq(figures(&t, 1).lost, 0);
	world_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs");
	TCase *tc = tcase_create("verbs");

	tcase_add_loop_test(tc, covered_pages_are_read_without_the_source, 0, 2);
	tcase_add_test(tc, a_span_ends_where_the_transport_changes);
	tcase_add_test(tc, nothing_is_registered_before_the_reader_asks);
	tcase_add_loop_test(tc, a_node_without_a_device_reads_over_tcp, 0, 2);
	tcase_add_loop_test(tc, a_completion_that_is_no_success, 0, IBV_WC_GENERAL_ERR);
	tcase_add_loop_test(tc, an_event_that_ends_a_connection, 0, 6);
	tcase_add_test(tc, reads_that_never_complete);
	tcase_add_loop_test(tc, memory_that_cannot_be_registered, 0, 3);
	tcase_add_test(tc, a_place_that_cannot_be_registered);
	tcase_add_test(tc, a_place_without_room);
	tcase_add_loop_test(tc, a_device_that_is_taken_away, 0, 3);
	tcase_add_test(tc, a_device_that_only_says_something);
	tcase_add_test(tc, a_key_that_has_been_taken_back);
	tcase_add_test(tc, another_node_with_the_right_key);
	tcase_add_test(tc, a_connection_whose_end_is_not_heard);
	tcase_add_test(tc, a_port_that_is_taken);
	tcase_add_loop_test(tc, a_connection_that_is_expected, 0, 2);
	tcase_add_test(tc, regions_are_asked_for_beside_the_hello);
	tcase_add_loop_test(tc, there_are_regions_after_the_rounds, 0, 2);
	tcase_add_test(tc, the_first_chunk_is_small);
	tcase_add_test(tc, regions_go_when_the_reader_has_them);
	tcase_add_test(tc, a_request_that_proves_nothing);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
