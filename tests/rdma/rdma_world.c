/*
 * Nodes on a real device. See rdma_world.h.
 */
#include "rdma_world.h"
#include "lib/run_suite.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

const char *rdma_hosts[NODES];
struct node rdma_nodes[NODES];
struct ramp_err rdma_err;

/* ---- memory -------------------------------------------------------------------------------- */

static int image_piece(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len)
{
	*data = ((struct image *)arg)->at + offset;
	*out_len = len;
	return 0;
}

static void image_done(void *arg, const void *data, size_t len, size_t left)
{
	(void)arg;
	(void)data;
	(void)len;
	(void)left;
}

static int image_next_run(void *arg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	const struct image *image = arg;

	*offset = from;
	*len = image->len - from;
	return from < image->len;
}

static const struct tp_export_ops image_ops = {
	.piece = image_piece, .done = image_done, .next_run = image_next_run};

void image_make(struct image *image, ramp_segment_t id, uint8_t salt, size_t len)
{
	image->fd = memfd_create("image", MFD_CLOEXEC);
	image->len = len;
	ck_assert_int_eq(ftruncate(image->fd, (off_t)len), 0);
	image->at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, image->fd, 0);
	for (size_t i = 0; i < len / PAGE; i++)
		memset(image->at + i * PAGE, (int)((i * 37 + salt) % 200 + 1), PAGE);
	image->key = tp_key_of_attempt(id, (struct ramp_attempt){3, ramp_random64()});
}

void image_export(struct image *image, ramp_node_t reader)
{
	struct tp *tp = rdma_nodes[0].tp;
	const struct tp_export export = {.key = image->key,
					 .reader = reader,
					 .map_fd = image->fd,
					 .size = image->len,
					 .ops = &image_ops,
					 .arg = image};

	ck_assert_int_eq(tp->ops->export(tp, &export, &rdma_err), 0);
}

void image_free(struct image *image)
{
	rdma_nodes[0].tp->ops->unexport(rdma_nodes[0].tp, &image->key);
	munmap(image->at, image->len);
	close(image->fd);
}

/* ---- nodes --------------------------------------------------------------------------------- */

void rdma_open(int i)
{
	const struct node_identity who = {
		.key = 'k', .cluster = 'c', .incarnation = 0x50 + (uint64_t)i};
	struct transport_config config = {.choice = TRANSPORT_VERBS};
	char address[64];

	config.address = address;
	snprintf(address, sizeof(address), strchr(rdma_hosts[i], ':') ? "[%s]:7" : "%s:7",
		 rdma_hosts[i]);
	node_start(&rdma_nodes[i], (ramp_node_t)i + 1, who);
	config.peers = rdma_nodes[i].peers;
	config.loop = rdma_nodes[i].loop;
	ck_assert_msg(transport_open(&config, &rdma_nodes[i].tp, &rdma_err) == 0, "%s",
		      rdma_err.text);
}

void rdma_begin(void)
{
	for (int i = 0; i < NODES; i++) {
		rdma_open(i);
		if (i)
			nodes_join(&rdma_nodes[0], &rdma_nodes[i]);
	}
}

void rdma_end(void)
{
	for (int i = NODES; i-- > 0;)
		node_stop(&rdma_nodes[i]);
}

struct tp_peer rdma_figures(int of, int with)
{
	struct tp_peer peer = {.node = (ramp_node_t)with + 1};

	rdma_nodes[of].tp->ops->peer(rdma_nodes[of].tp, &peer);
	return peer;
}

struct tp_conn *rdma_link(int reader, enum tp_class class)
{
	struct tp_conn *conn;
	struct tp *tp = rdma_nodes[reader].tp;

	ck_assert_int_eq(tp->ops->connect(tp, 1, 0x50, class, &conn, &rdma_err), 0);
	wait_until(tp->ops->state(conn, &rdma_err) != TP_CONNECTING);
	ck_assert_msg(tp->ops->state(conn, &rdma_err) == TP_READY, "%s", rdma_err.text);
	return conn;
}

void rdma_post_read(struct tp_conn *conn, const struct tp_key *key, size_t first, size_t count,
		    uint8_t *dst)
{
	const struct tp_read read = {
		.key = *key, .offset = first * PAGE, .len = (uint32_t)(count * PAGE), .dst = dst};

	memset(dst, 0, count * PAGE);
	ck_assert_int_eq(conn->tp->ops->read(conn, &read), 0);
}

int rdma_reap(struct tp_conn *conn, unsigned n)
{
	struct pollfd pollfd = {.events = POLLIN};
	struct tp_done done;
	uint32_t events;
	int result = 0;

	for (int turn = 0; n; turn++) {
		ck_assert_int_lt(turn, 3000);
		pollfd.fd = conn->tp->ops->fd(conn, &events);
		if (conn->tp->ops->reap(conn, &done, 1, 0) > 0) {
			result = done.result ? done.result : result;
			n -= !done.more;
		} else {
			poll(&pollfd, 1, 20);
		}
	}
	return result;
}

int rdma_read(struct tp_conn *conn, const struct tp_key *key, size_t first, size_t count,
	      uint8_t *dst)
{
	rdma_post_read(conn, key, first, count, dst);
	return rdma_reap(conn, 1);
}

void rdma_until(int reader, struct tp_conn *conn, const struct image *image, uint8_t *dst)
{
	uint64_t before = rdma_figures(reader, 0).reads;

	for (int turn = 0; rdma_figures(reader, 0).reads == before; turn++) {
		ck_assert_msg(turn < 600, "nothing is read by RDMA");
		ck_assert_int_eq(rdma_read(conn, &image->key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image->at, 16 * PAGE), 0);
		usleep(100000);
	}
}

int rdma_run(TCase *tcase)
{
	Suite *suite = suite_create("rdma");

	tcase_set_timeout(tcase, 150);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
