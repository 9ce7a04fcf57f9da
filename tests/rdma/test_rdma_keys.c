/*
 * In a guest: a source's keys on a real device, in the hands of its reader and of others. Three nodes in this
 * process, each with an address of its own; rdma.cmake has --wrap for queue_post, which puts other keys in.
 * Whatever a READ is refused, the bytes come over TCP, and are right.
 *
 *   test_rdma_keys HOST HOST HOST
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "transport/verbs/queue.h"
#include "unit/transport_node.h"

#define PAGE	  ((size_t)RAMP_PAGE_BYTES)
#define PAGES	  ((size_t)1024)
#define BYTES	  (PAGES * PAGE)
#define NODES	  3
#define FORBIDDEN 0xEE /* a byte of no image */

static const char *hosts[NODES];

/* ---- the READs ----------------------------------------------------------------------------- */

enum forgery { NONE, WRONG_KEY, WRONG_ADDRESS, BEHIND_THE_END, TAKEN };

static _Atomic int forgery;	    /* of all READs from now on */
static struct message_region last;  /* of the last READ that was no forgery */
static struct message_region taken; /* for TAKEN */

int __real_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);
int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);

int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len)
{
	struct message_region forged = *from;

	switch (atomic_load(&forgery)) {
	case NONE:
		last = *from;
		break;
	case WRONG_KEY:
		forged.rkey ^= 0x5a00;
		break;
	case WRONG_ADDRESS:
		forged.address -= BYTES;
		break;
	case BEHIND_THE_END:
		forged.address += from->len - (offset - from->offset);
		break;
	default:
		forged.address = taken.address;
		forged.rkey = taken.rkey;
		break;
	}
	return __real_queue_post(queue, slot, &forged, offset, at, len);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct image {
	int fd;
	uint8_t *at;
	struct tp_key key;
	ramp_node_t reader;
};

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
	(void)arg;
	*offset = from;
	*len = BYTES - from;
	return from < BYTES;
}

static const struct tp_export_ops image_ops = {image_piece, image_done, image_next_run};

static struct node nodes[NODES]; /* the source first */
static struct ramp_err err;

static void image_make(struct image *image, ramp_segment_t id, uint8_t salt)
{
	image->fd = memfd_create("image", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(image->fd, (off_t)BYTES), 0);
	image->at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, image->fd, 0);
	for (size_t i = 0; i < PAGES; i++)
		memset(image->at + i * PAGE, (int)((i * 37 + salt) % 200 + 1), PAGE);
	image->key = tp_key_of_attempt(id, (struct ramp_attempt){3, ramp_random64()});
}

static void image_export(struct image *image, ramp_node_t reader)
{
	const struct tp_export export = {.key = image->key,
					 .reader = reader,
					 .map_fd = image->fd,
					 .size = BYTES,
					 .ops = &image_ops,
					 .arg = image};

	ck_assert_int_eq(nodes[0].tp->ops->export(nodes[0].tp, &export, &err), 0);
}

static void image_free(struct image *image)
{
	nodes[0].tp->ops->unexport(nodes[0].tp, &image->key);
	munmap(image->at, BYTES);
	close(image->fd);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void begin(void)
{
	char address[64];

	for (int i = 0; i < NODES; i++) {
		const struct node_identity who = {
			.key = 'k', .cluster = 'c', .incarnation = 0x50 + (uint64_t)i};
		struct transport_config config = {.choice = TRANSPORT_VERBS, .address = address};

		snprintf(address, sizeof(address), "%s:7", hosts[i]);
		node_start(&nodes[i], (ramp_node_t)i + 1, who);
		config.peers = nodes[i].peers;
		config.loop = nodes[i].loop;
		ck_assert_msg(transport_open(&config, &nodes[i].tp, &err) == 0, "%s", err.text);
		if (i)
			nodes_join(&nodes[0], &nodes[i]);
	}
}

static void end(void)
{
	for (int i = NODES; i-- > 0;)
		node_stop(&nodes[i]);
}

static struct tp_peer figures(int reader)
{
	struct tp_peer peer = {.node = 1};

	nodes[reader].tp->ops->peer(nodes[reader].tp, &peer);
	return peer;
}

static struct tp_conn *link_from(int reader, enum tp_class class)
{
	struct tp_conn *conn;
	struct tp *tp = nodes[reader].tp;

	ck_assert_int_eq(tp->ops->connect(tp, 1, 0x50, class, &conn, &err), 0);
	wait_until(tp->ops->state(conn, &err) != TP_CONNECTING);
	ck_assert_msg(tp->ops->state(conn, &err) == TP_READY, "%s", err.text);
	return conn;
}

/* Returns the result of one read, whose bytes are then in `dst`. */
static int read_pages(struct tp_conn *conn, const struct tp_key *key, size_t first, size_t count,
		      uint8_t *dst)
{
	const struct tp_read read = {
		.key = *key, .offset = first * PAGE, .len = (uint32_t)(count * PAGE), .dst = dst};
	struct tp_done done = {.more = true};
	struct pollfd pollfd = {.events = POLLIN};
	uint32_t events;

	memset(dst, 0, count * PAGE);
	ck_assert_int_eq(conn->tp->ops->read(conn, &read), 0);
	for (int turn = 0; done.more; turn++) {
		ck_assert_int_lt(turn, 3000);
		pollfd.fd = conn->tp->ops->fd(conn, &events);
		if (!conn->tp->ops->reap(conn, &done, 1, 0))
			poll(&pollfd, 1, 20);
	}
	return done.result;
}

/* Reads until READs do it, for at most a minute: a software device stands still at times. */
static void until_rdma(int reader, struct tp_conn *conn, const struct image *image, uint8_t *dst)
{
	uint64_t before = figures(reader).reads;

	for (int turn = 0; figures(reader).reads == before; turn++) {
		ck_assert_msg(turn < 600, "nothing is read by RDMA");
		ck_assert_int_eq(read_pages(conn, &image->key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image->at, 16 * PAGE), 0);
		usleep(100000);
	}
}

static void check_none(const uint8_t *dst, size_t len)
{
	ck_assert_ptr_null(memchr(dst, FORBIDDEN, len));
}

/* ---- what is refused ----------------------------------------------------------------------- */

START_TEST(a_key_that_is_not_right)
{
	static uint8_t dst[64 * 4096];
	struct image image;
	struct tp_conn *conn;
	uint64_t reads, again;

	begin();
	image_make(&image, 5000, 1);
	image_export(&image, 2);
	conn = link_from(1, _i % 2 ? TP_DEMAND : TP_PREFETCH);
	until_rdma(1, conn, &image, dst);
	reads = figures(1).reads;
	again = figures(1).again;
	atomic_store(&forgery, WRONG_KEY + _i / 2);
	for (int i = 0; i < 600 && figures(1).again == again; i++) {
		ck_assert_int_eq(read_pages(conn, &image.key, 100, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image.at + 100 * PAGE, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(figures(1).again, again);
	ck_assert_uint_eq(figures(1).reads, reads);
	atomic_store(&forgery, NONE);
	until_rdma(1, conn, &image, dst);
	conn->tp->ops->close(conn);
	image_free(&image);
	end();
}
END_TEST

/* Memory that was registered once is read by no READ after unexport, though the reader has address and key, and
   another registration is there. */
START_TEST(a_key_that_has_been_taken_back)
{
	static uint8_t dst[64 * 4096];
	struct image old, image;
	struct tp_conn *conn;
	uint64_t again;

	begin();
	image_make(&old, 5000, 1);
	image_make(&image, 5001, 2);
	image_export(&old, 2);
	conn = link_from(1, TP_DEMAND);
	until_rdma(1, conn, &old, dst);
	taken = last;
	nodes[0].tp->ops->unexport(nodes[0].tp, &old.key);
	memset(old.at, FORBIDDEN, BYTES);
	ck_assert_int_ne(read_pages(conn, &old.key, 0, 16, dst), 0);
	check_none(dst, 16 * PAGE);
	image_export(&image, 2);
	until_rdma(1, conn, &image, dst);
	ck_assert_uint_ne(last.address, taken.address);
	again = figures(1).again;
	atomic_store(&forgery, TAKEN);
	for (int i = 0; i < 600 && figures(1).again == again; i++) {
		ck_assert_int_eq(read_pages(conn, &image.key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image.at, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(figures(1).again, again);
	atomic_store(&forgery, NONE);
	conn->tp->ops->close(conn);
	image_free(&image);
	image_free(&old);
	end();
}
END_TEST

/* A third node, which may read something of its own, has the address and the key of what another may. */
START_TEST(another_node_with_the_right_key)
{
	static uint8_t dst[64 * 4096];
	struct image secret, own;
	struct tp_conn *reader, *other;
	uint64_t again;

	begin();
	image_make(&secret, 5000, 1);
	image_make(&own, 5001, 2);
	image_export(&secret, 2);
	image_export(&own, 3);
	reader = link_from(1, TP_DEMAND);
	other = link_from(2, TP_DEMAND);
	until_rdma(2, other, &own, dst);
	until_rdma(1, reader, &secret, dst);
	taken = last;
	again = figures(2).again;
	atomic_store(&forgery, TAKEN);
	for (int i = 0; i < 600 && figures(2).again == again; i++) {
		ck_assert_int_eq(read_pages(other, &own.key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, own.at, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(figures(2).again, again);
	/* It is good for its reader all the while. */
	atomic_store(&forgery, NONE);
	until_rdma(1, reader, &secret, dst);
	reader->tp->ops->close(reader);
	other->tp->ops->close(other);
	image_free(&own);
	image_free(&secret);
	end();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("rdma_keys");
	TCase *c = tcase_create("keys");
	SRunner *runner;
	int failed;

	if (argc != NODES + 1)
		return 2;
	for (int i = 0; i < NODES; i++)
		hosts[i] = argv[i + 1];
	tcase_set_timeout(c, 150);
	tcase_add_loop_test(c, a_key_that_is_not_right, 0, 6);
	tcase_add_test(c, a_key_that_has_been_taken_back);
	tcase_add_test(c, another_node_with_the_right_key);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
