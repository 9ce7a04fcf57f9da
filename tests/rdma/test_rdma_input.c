/*
 * In a guest: what others send to a source, and what its readers do that readers don't do. Real devices, three nodes
 * in this process (rdma_world). Whatever comes, the source serves on, and its memory is as it was.
 *
 *   test_rdma_input HOST HOST HOST        bad requests, silent ones, readers that write, full queues
 *   test_rdma_input HOST HOST HOST MTU    reads of all sizes, over a path of that RDMA MTU (256 to 4096)
 */
#include "rdma_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>

#include "transport/verbs/core.h"
#include "transport/verbs/keys.h"
#include "transport/verbs/proof.h"

#define PAGES	   ((size_t)1024)
#define BYTES	   (PAGES * PAGE)
#define SILENT	   100 /* TCP connections: more than a listener's backlog */
#define STRANGERS  20
#define ANSWER_MS  10000
#define OTHER_KEYS (KEYS_MAX + 8)

static unsigned path_mtu;
static uint8_t dst[TP_QUEUE_MAX * 4096 * 4];

/* ---- what the reader makes, by --wrap ------------------------------------------------------ */

static struct ibv_qp *reader_qp;       /* the last one */
static uint8_t overheard[PROOF_BYTES]; /* of the last request */
static atomic_bool tiny;	       /* completion queues of readers have one entry */

#undef ibv_create_cq
int __real_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __real_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
struct ibv_cq *__real_ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
				    struct ibv_comp_channel *channel, int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
				    struct ibv_comp_channel *channel, int vector);

int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	bool reads = attr->cap.max_send_wr > 1;
	int rc = __real_rdma_create_qp(id, pd, attr);

	if (!rc && reads)
		reader_qp = id->qp;
	return rc;
}

int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	ck_assert_uint_eq(param->private_data_len, PROOF_BYTES);
	memcpy(overheard, param->private_data, PROOF_BYTES);
	return __real_rdma_connect(id, param);
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
				    struct ibv_comp_channel *channel, int vector)
{
	return __real_ibv_create_cq(context, channel && atomic_load(&tiny) ? 1 : cqe, arg, channel,
				    vector);
}

/* ---- a host that is no node ---------------------------------------------------------------- */

struct stranger {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

/* Where the source takes connections. */
static struct sockaddr_storage source_at(void)
{
	struct verbs *verbs = (struct verbs *)rdma_nodes[0].tp;
	struct sockaddr_storage at;

	pthread_mutex_lock(&verbs->lock);
	at = verbs->own.address;
	if (at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = htons(verbs->own.port);
	else
		((struct sockaddr_in *)&at)->sin_port = htons(verbs->own.port);
	pthread_mutex_unlock(&verbs->lock);
	return at;
}

/* Waits for an event. Returns its type, -1 where none comes; *reason: the first byte of a rejection. */
static int stranger_hears(struct stranger *s, uint8_t *reason)
{
	struct pollfd pollfd = {.fd = s->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	int type;

	if (poll(&pollfd, 1, ANSWER_MS) != 1 || rdma_get_cm_event(s->channel, &event))
		return -1;
	type = (int)event->event;
	if (reason && type == RDMA_CM_EVENT_REJECTED && event->param.conn.private_data_len)
		*reason = *(const uint8_t *)event->param.conn.private_data;
	rdma_ack_cm_event(event);
	return type;
}

/* Comes to the source's door with a queue pair. */
static void stranger_comes(struct stranger *s)
{
	struct sockaddr_storage to = source_at();
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct addrinfo *from;

	s->channel = rdma_create_event_channel();
	ck_assert_ptr_nonnull(s->channel);
	ck_assert_int_eq(rdma_create_id(s->channel, &s->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(getaddrinfo(rdma_hosts[NODES - 1], NULL, NULL, &from), 0);
	ck_assert_int_eq(rdma_resolve_addr(s->id, from->ai_addr, (struct sockaddr *)&to, ANSWER_MS),
			 0);
	freeaddrinfo(from);
	ck_assert_int_eq(stranger_hears(s, NULL), RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(s->id, ANSWER_MS), 0);
	ck_assert_int_eq(stranger_hears(s, NULL), RDMA_CM_EVENT_ROUTE_RESOLVED);
	s->pd = ibv_alloc_pd(s->id->verbs);
	s->cq = __real_ibv_create_cq(s->id->verbs, 1, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = s->cq;
	ck_assert_msg(!__real_rdma_create_qp(s->id, s->pd, &attr), "a queue pair: %s",
		      strerror(errno));
}

static int stranger_asks(struct stranger *s, const void *data, uint8_t len)
{
	struct rdma_conn_param param = {.private_data = data,
					.private_data_len = len,
					.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7};

	return __real_rdma_connect(s->id, &param) ? -errno : 0;
}

static void stranger_goes(struct stranger *s)
{
	rdma_destroy_qp(s->id);
	ibv_destroy_cq(s->cq);
	ibv_dealloc_pd(s->pd);
	rdma_destroy_id(s->id);
	rdma_destroy_event_channel(s->channel);
}

/* Returns the reason for which that request is rejected; 0: for none; -1: it is not rejected. */
static int knock(const void *data, uint8_t len)
{
	struct stranger s;
	uint8_t reason = 0;
	int type = RDMA_CM_EVENT_REJECTED;

	stranger_comes(&s);
	/* The kernel refuses what does not fit into a request. */
	if (!stranger_asks(&s, data, len))
		type = stranger_hears(&s, &reason);
	stranger_goes(&s);
	return type == RDMA_CM_EVENT_REJECTED ? reason : -1;
}

/* ---- a reader and its source --------------------------------------------------------------- */

static struct image image;
static struct tp_conn *conn;

static void begin(enum tp_class class)
{
	rdma_begin();
	image_make(&image, 5000, 1, BYTES);
	image_export(&image, 2);
	conn = rdma_link(1, class);
	rdma_until(1, conn, &image, dst);
}

static void check_pages(size_t first, size_t count)
{
	ck_assert_int_eq(rdma_read(conn, &image.key, first, count, dst), 0);
	ck_assert_int_eq(memcmp(dst, image.at + first * PAGE, count * PAGE), 0);
}

static void end(void)
{
	conn->tp->ops->close(conn);
	image_free(&image);
	rdma_end();
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Adapters of one kind fill private data up with zeros, those of the other bring it as it was sent: so there are two
   reasons. */
START_TEST(a_request_that_proves_nothing)
{
	static const uint8_t lengths[] = {0, 1, 55, 56, 57, 196};
	uint8_t data[256] = {0}, heard[PROOF_BYTES];
	int reason;

	begin(TP_DEMAND);
	memcpy(heard, overheard, PROOF_BYTES);
	for (size_t i = 0; i < sizeof(lengths); i++)
		for (int garbage = 0; garbage < 2; garbage++) {
			memset(data, garbage ? 0xa5 : 0, sizeof(data));
			reason = knock(lengths[i] ? data : NULL, lengths[i]);
			ck_assert_msg(reason == EPROTO || reason == EPROTONOSUPPORT ||
					      (reason == 0 && lengths[i] > PROOF_BYTES),
				      "%u bytes: %d", lengths[i], reason);
		}
	/* The heard one is right, and was used; a byte of it that is another one; a byte that is missing. */
	ck_assert_int_eq(knock(heard, PROOF_BYTES), ESTALE);
	for (size_t i = 0; i < PROOF_BYTES; i += 11) {
		memcpy(data, heard, PROOF_BYTES);
		data[i] ^= 1;
		reason = knock(data, PROOF_BYTES);
		ck_assert_msg(reason == EKEYREJECTED || reason == EPROTONOSUPPORT ||
				      reason == EPROTO || reason == EHOSTUNREACH,
			      "byte %zu: %d", i, reason);
	}
	reason = knock(heard, PROOF_BYTES - 1);
	ck_assert_msg(reason == EKEYREJECTED || reason == EPROTO, "%d", reason);
	ck_assert_uint_eq(rdma_figures(0, 1).read_by, 1);
	ck_assert_uint_eq(rdma_figures(1, 0).lost, 0);
	rdma_until(1, conn, &image, dst);
	end();
}
END_TEST

/* A TCP connection to the port, which iWARP has; without one it is refused. */
static int silent_connection(void)
{
	struct sockaddr_storage at = source_at();
	int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	(void)!connect(fd, (struct sockaddr *)&at,
		       at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						: sizeof(struct sockaddr_in));
	return fd;
}

/* Hosts that connect and say nothing keep no node out, and no memory at the source. */
START_TEST(peers_that_say_nothing)
{
	static struct stranger strangers[STRANGERS];
	struct tp_conn *other;
	struct image own;
	int fds[SILENT];

	begin(TP_PREFETCH);
	image_make(&own, 5001, 2, BYTES);
	image_export(&own, 3);
	for (int i = 0; i < STRANGERS; i++) {
		stranger_comes(&strangers[i]);
		ck_assert_int_eq(stranger_asks(&strangers[i], NULL, 0), 0);
	}
	for (int i = 0; i < SILENT; i++)
		fds[i] = silent_connection();
	other = rdma_link(2, TP_DEMAND);
	rdma_until(2, other, &own, dst);
	ck_assert_uint_eq(rdma_figures(0, 1).read_by + rdma_figures(0, 2).read_by, 2);
	rdma_until(1, conn, &image, dst);
	for (int i = 0; i < STRANGERS; i++)
		stranger_goes(&strangers[i]);
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	other->tp->ops->close(other);
	image_free(&own);
	end();
}
END_TEST

/* ---- a reader that does more than read ----------------------------------------------------- */

static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
					     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};
static _Atomic int evil = -1; /* a place in `opcodes` */
static int (*good_post)(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad);

/* Makes another work request of a READ, with the right address and key. */
static int evil_post(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad)
{
	struct ibv_send_wr other = *work;
	struct ibv_sge piece = *work->sg_list;

	if (atomic_load(&evil) < 0)
		return good_post(qp, work, bad);
	other.opcode = opcodes[atomic_load(&evil)];
	other.sg_list = &piece;
	other.imm_data = htonl(1);
	if (other.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		piece.length = 8;
		other.wr.atomic.remote_addr = work->wr.rdma.remote_addr;
		other.wr.atomic.rkey = work->wr.rdma.rkey;
		other.wr.atomic.compare_add = 1;
	}
	return good_post(qp, &other, bad);
}

START_TEST(a_reader_that_writes)
{
	static uint8_t before[BYTES];
	struct ibv_context *context;
	struct tp_conn *other;
	struct image own;

	begin(TP_DEMAND);
	image_make(&own, 5001, 2, BYTES);
	image_export(&own, 3);
	other = rdma_link(2, TP_DEMAND);
	rdma_until(2, other, &own, dst);
	rdma_until(1, conn, &image, dst);
	memcpy(before, image.at, BYTES);
	context = reader_qp->context;
	good_post = context->ops.post_send;
	context->ops.post_send = evil_post;
	atomic_store(&evil, _i);
	/* The bytes that such a reader gets itself are its own affair. */
	for (size_t i = 0; i < 3; i++)
		(void)rdma_read(conn, &image.key, 100 + 100 * i, 16, dst);
	atomic_store(&evil, -1);
	ck_assert_int_eq(memcmp(before, image.at, BYTES), 0);
	rdma_until(2, other, &own, dst);
	ck_assert_uint_eq(rdma_figures(2, 0).lost, 0);
	rdma_until(1, conn, &image, dst);
	ck_assert_int_eq(memcmp(before, image.at, BYTES), 0);
	context->ops.post_send = good_post;
	other->tp->ops->close(other);
	image_free(&own);
	end();
}
END_TEST

/* ---- queues that are full ------------------------------------------------------------------ */

/* Completions have no room: the READs' pages come over TCP, and RDMA comes again. */
START_TEST(a_completion_queue_that_overruns)
{
	atomic_store(&tiny, true);
	begin(_i ? TP_PREFETCH : TP_DEMAND);
	for (size_t i = 0; i < TP_QUEUE_MAX; i++)
		rdma_post_read(conn, &image.key, 3 * i, 2, dst + 2 * i * PAGE);
	usleep(500000);
	ck_assert_int_eq(rdma_reap(conn, TP_QUEUE_MAX), 0);
	for (size_t i = 0; i < TP_QUEUE_MAX; i++)
		ck_assert_int_eq(memcmp(dst + 2 * i * PAGE, image.at + 3 * i * PAGE, 2 * PAGE), 0);
	ck_assert_uint_gt(rdma_figures(1, 0).again, 0);
	atomic_store(&tiny, false);
	rdma_until(1, conn, &image, dst);
	end();
}
END_TEST

/* One connection reads more segments than it remembers the regions of. */
START_TEST(more_segments_than_are_remembered)
{
	static struct image images[OTHER_KEYS];

	begin(TP_PREFETCH);
	for (size_t i = 0; i < OTHER_KEYS; i++) {
		image_make(&images[i], 6000 + i, (uint8_t)i, 64 * PAGE);
		image_export(&images[i], 2);
	}
	for (size_t turn = 0; turn < 2 * OTHER_KEYS; turn++) {
		const struct image *one = &images[turn % OTHER_KEYS];

		ck_assert_int_eq(rdma_read(conn, &one->key, 48, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, one->at + 48 * PAGE, 16 * PAGE), 0);
	}
	wait_until(rdma_figures(0, 1).chunks >= OTHER_KEYS + 1);
	rdma_until(1, conn, &images[0], dst);
	rdma_until(1, conn, &images[OTHER_KEYS - 1], dst);
	rdma_until(1, conn, &image, dst);
	for (size_t i = 0; i < OTHER_KEYS; i++)
		image_free(&images[i]);
	ck_assert_uint_eq(rdma_figures(0, 1).registered_bytes, BYTES);
	end();
}
END_TEST

/* ---- sizes --------------------------------------------------------------------------------- */

START_TEST(reads_of_all_sizes)
{
	static const size_t counts[] = {1, 2, 15, 16, 17, 128, 255};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint64_t reads;

	begin(_i ? TP_PREFETCH : TP_DEMAND);
	ck_assert_int_eq(ibv_query_qp(reader_qp, &attr, IBV_QP_PATH_MTU, &init), 0);
	ck_assert_uint_eq(128u << attr.path_mtu, path_mtu);
	reads = rdma_figures(1, 0).reads;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		check_pages(7 * i + 1, counts[i]);
	ck_assert_uint_gt(rdma_figures(1, 0).reads, reads);
	end();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *c = tcase_create("input");

	if (argc != NODES + 1 && argc != NODES + 2)
		return 2;
	for (int i = 0; i < NODES; i++)
		rdma_hosts[i] = argv[i + 1];
	if (argc == NODES + 2) {
		path_mtu = (unsigned)atoi(argv[NODES + 1]);
		tcase_add_loop_test(c, reads_of_all_sizes, 0, 2);
		return rdma_run(c);
	}
	tcase_add_test(c, a_request_that_proves_nothing);
	tcase_add_test(c, peers_that_say_nothing);
	tcase_add_loop_test(c, a_reader_that_writes, 0, sizeof(opcodes) / sizeof(opcodes[0]));
	tcase_add_loop_test(c, a_completion_queue_that_overruns, 0, 2);
	tcase_add_test(c, more_segments_than_are_remembered);
	return rdma_run(c);
}
